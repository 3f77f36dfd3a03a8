#if canImport(Glibc)
    import Glibc
#endif

/// A folder that the command looks into.
enum Folder {
    /// The names of what is in it, the hidden ones left out; `nil` when it is there and cannot be read.
    static func names(in folder: String) -> [String]? {
        guard let stream = opendir(folder) else { return errno == ENOENT ? [] : nil }
        defer { closedir(stream) }
        var names: [String] = []
        while let entry = readdir(stream) {
            // A record is shorter than its type where the name is short, so the name is read in place.
            guard let offset = MemoryLayout<dirent>.offset(of: \.d_name) else { continue }
            let name = UnsafeRawPointer(entry).advanced(by: offset).assumingMemoryBound(to: CChar.self)
            names.append(String(cString: name))
        }
        return names.filter { !$0.hasPrefix(".") }
    }

    /// Where a user wants what is soon removed again.
    static var temporary: String {
        let named = getenv("TMPDIR").map { String(cString: $0) } ?? ""
        return named.hasPrefix("/") ? named : "/tmp"
    }
}

/// A file that the command writes.
enum OutputFile {
    /// Replaces the contents. - Parameter path: `-` is standard output.
    static func write(_ text: String, to path: String) throws(CommandFailure) {
        if path == "-" {
            Terminal().write(Array(text.utf8))
            return
        }
        let descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o666)
        guard descriptor >= 0 else { throw failure(path) }
        var rest = Array(text.utf8)[...]
        while !rest.isEmpty {
            let written = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if written < 0, errno == EINTR { continue }
            guard written > 0 else {
                let failure = failure(path)
                close(descriptor)
                throw failure
            }
            rest = rest.dropFirst(written)
        }
        // Some file systems say only now that there was no room.
        guard close(descriptor) == 0 else { throw failure(path) }
    }

    private static func failure(_ path: String) -> CommandFailure {
        CommandFailure(.failed, "\(path) cannot be written: \(String(cString: strerror(errno)))")
    }
}
