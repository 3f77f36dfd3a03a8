import Glibc
import Vocabulary

/// Folders that commands look into.
enum Folder {
    /// Returns the names of the folder's entries except hidden ones, and none if it does not exist; `nil` when it
    /// cannot be read.
    static func names(in folder: String) -> [String]? {
        guard let stream = opendir(folder) else { return errno == ENOENT ? [] : nil }
        defer { closedir(stream) }
        var names: [String] = []
        while let entry = readdir(stream) {
            // A record with a short name is shorter than `dirent`, so the name is read in place.
            guard let offset = MemoryLayout<dirent>.offset(of: \.d_name) else { continue }
            let name = UnsafeRawPointer(entry).advanced(by: offset).assumingMemoryBound(to: CChar.self)
            names.append(String(cString: name))
        }
        return names.filter { !$0.hasPrefix(".") }
    }

    /// Returns a path that does not depend on the folder in which the command was started.
    static func absolute(_ path: String) -> String {
        guard !path.hasPrefix("/"), let current = getcwd(nil, 0) else { return path }
        defer { free(current) }
        let folder = String(cString: current)
        return folder == "/" ? "/\(path)" : "\(folder)/\(path)"
    }

    /// Returns the path of the file itself if the path is that of a link to it; `nil` if there is no such file.
    static func resolved(_ path: String) -> String? {
        guard let resolved = realpath(path, nil) else { return nil }
        defer { free(resolved) }
        return String(cString: resolved)
    }

    /// Returns the path of the folder that holds a file.
    static func of(_ file: String) -> String { String(file.prefix(upTo: file.lastIndex(of: "/") ?? file.startIndex)) }

    /// The user's folder for temporary files.
    static var temporary: String {
        let named = getenv("TMPDIR").map { String(cString: $0) } ?? ""
        return named.hasPrefix("/") ? named : "/tmp"
    }
}

/// A file that the command writes.
enum OutputFile {
    /// Replaces the contents of a file.
    ///
    /// - Parameters:
    ///   - path: `-` is standard output.
    ///   - mode: that of a file that is created.
    static func write(_ text: String, to path: String, mode: mode_t = 0o666) throws(CommandFailure) {
        if path == "-" {
            Terminal().write(Array(text.utf8))
        } else {
            try write(Array(text.utf8), to: path, mode: mode)
        }
    }

    static func write(_ bytes: [UInt8], to path: String, mode: mode_t = 0o666) throws(CommandFailure) {
        let descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode)
        guard descriptor >= 0 else { throw failure(path, errno) }
        if let code = writeAll(bytes, to: descriptor) {
            close(descriptor)
            throw failure(path, code)
        }
        // Some file systems report only now that there was no room.
        guard close(descriptor) == 0 else { throw failure(path, errno) }
    }

    /// Creates a file, which is then on disk, or not there at all.
    ///
    /// - Parameters:
    ///   - mode: that of the file, whatever the umask is.
    ///   - owner: `nil`: this process.
    /// - Returns: `nil`, or the code of the error.
    static func create(
        _ path: String, _ bytes: [UInt8], mode: mode_t, owner: (user: uid_t, group: gid_t)? = nil
    ) -> Int32? {
        let descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { return errno }
        let isOwned = owner.map { fchown(descriptor, $0.user, $0.group) == 0 } ?? true
        var code = isOwned && fchmod(descriptor, mode) == 0 ? nil : errno
        code = code ?? writeAll(bytes, to: descriptor) ?? (fsync(descriptor) == 0 ? nil : errno)
        close(descriptor)
        if code != nil { unlink(path) }
        return code
    }

    /// Replaces a file, or the one that it is a link to, by one with the same owner and mode. At any moment, it has the
    /// old contents or the new ones.
    ///
    /// - Parameters:
    ///   - mode: that of a file which is not there yet.
    ///   - owner: the same.
    /// - Returns: `nil`, or the code of the error.
    static func replace(
        _ path: String, with bytes: [UInt8], mode: mode_t, owner: (user: uid_t, group: gid_t)? = nil
    ) -> Int32? {
        let target = Folder.resolved(path) ?? path
        var old = stat()
        let isThere = stat(target, &old) == 0
        let folder = Folder.of(target)
        // The daemon does not read files whose names begin with a dot.
        let draft = "\(folder)/.\(target.dropFirst(folder.count + 1)).\(getpid())"
        UnfinishedFile.begin(draft)
        defer { UnfinishedFile.end() }
        let code = create(
            draft, bytes, mode: isThere ? old.st_mode & 0o777 : mode,
            owner: isThere ? (old.st_uid, old.st_gid) : owner)
        if let code { return code }
        guard rename(draft, target) == 0 else {
            let code = errno
            unlink(draft)
            return code
        }
        return nil
    }

    private static func failure(_ path: String, _ code: Int32) -> CommandFailure {
        CommandFailure(.failed, "\(path.isEmpty ? "\"\"" : path) cannot be written: \(String(cString: strerror(code)))")
    }
}
