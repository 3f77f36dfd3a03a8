import Glibc

/// Files and standard input.
enum InputFile {
    /// The longest payload that a message can have, in bytes. A longer file is an error.
    static let maximumLength = 16 << 20

    /// Reads the contents of a file.
    ///
    /// - Parameter path: `-` is standard input.
    static func read(_ path: String) throws(CommandFailure) -> [UInt8] {
        let name = path == "-" ? "standard input" : path
        let descriptor = path == "-" ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw failure(path) }
        defer { if descriptor != STDIN_FILENO { close(descriptor) } }
        var contents: [UInt8] = []
        while contents.count <= maximumLength {
            let part = try readSome(from: descriptor, named: name)
            if part.isEmpty { return contents }
            contents += part
        }
        throw CommandFailure(
            .failed, "\(name) is longer than 16 MiB, the limit for a message", advice: "send it in parts")
    }

    /// Reads what standard input has now, waiting for at least one byte; returns no bytes at its end.
    static func readSome() throws(CommandFailure) -> [UInt8] {
        try readSome(from: STDIN_FILENO, named: "standard input")
    }

    private static func readSome(from descriptor: Int32, named name: String) throws(CommandFailure) -> [UInt8] {
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = buffer.withUnsafeMutableBytes { Glibc.read(descriptor, $0.baseAddress, $0.count) }
            if count >= 0 { return Array(buffer[..<count]) }
            guard errno == EINTR else { throw failure(name) }
        }
    }

    private static func failure(_ name: String) -> CommandFailure {
        CommandFailure(.failed, "\(name.isEmpty ? "\"\"" : name) cannot be read: \(String(cString: strerror(errno)))")
    }
}
