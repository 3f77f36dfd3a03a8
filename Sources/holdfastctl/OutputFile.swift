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
        return "\(String(cString: current))/\(path)"
    }

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

    private static func failure(_ path: String, _ code: Int32) -> CommandFailure {
        CommandFailure(.failed, "\(path.isEmpty ? "\"\"" : path) cannot be written: \(String(cString: strerror(code)))")
    }
}
