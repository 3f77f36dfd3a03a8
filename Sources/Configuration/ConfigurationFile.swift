import Glibc

/// A file's text, before anything in it is understood.
package struct ConfigurationFile {
    /// In bytes.
    static let sizeLimit = 1 << 20

    let path: String
    let text: String

    package init(path: String, text: String) {
        self.path = path
        self.text = text
    }

    /// Reads a regular file that is UTF-8.
    package init(path: String) throws(ReadError) {
        // Without O_NONBLOCK, opening a FIFO would block the daemon.
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard descriptor >= 0 else { throw ReadError(path, errno) }
        defer { close(descriptor) }
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw ReadError(path, errno) }
        guard status.st_mode & S_IFMT == S_IFREG else { throw ReadError(path, "this is not a regular file") }

        // Reading stops at the limit even if the file grows meanwhile.
        let limit = Self.sizeLimit
        var bytes: [UInt8] = []
        while bytes.count <= limit {
            var failure: Int32 = 0
            let chunk = [UInt8](unsafeUninitializedCapacity: limit + 1 - bytes.count) { buffer, count in
                let result = Glibc.read(descriptor, buffer.baseAddress, buffer.count)
                if result < 0 { failure = errno }
                count = max(result, 0)
            }
            if failure == EINTR { continue }
            guard failure == 0 else { throw ReadError(path, failure) }
            if chunk.isEmpty { break }
            bytes += chunk
        }
        guard bytes.count <= limit else { throw ReadError(path, "the file is larger than 1 MiB") }

        var position = TextPosition()
        var decoder = UTF8()
        var iterator = bytes.makeIterator()
        decoding: while true {
            switch decoder.decode(&iterator) {
            case .emptyInput: break decoding
            case .scalarValue("\0"): throw ReadError(path, "there is a NUL character in the text", at: position)
            case .scalarValue(let scalar): position.pass(scalar)
            case .error: throw ReadError(path, "the text is not UTF-8", at: position)
            }
        }
        self.init(path: path, text: String(decoding: bytes, as: UTF8.self))
    }

    /// Why the text could not be read.
    package struct ReadError: Error {
        var error: ConfigurationError
        /// Whether the file does not exist.
        var isMissing = false

        init(_ path: String, _ message: String, at position: TextPosition? = nil) {
            error = ConfigurationError(file: path, position: position, message: message)
        }

        init(_ path: String, _ code: Int32) {
            error = .unreadable(path, code)
            isMissing = code == ENOENT
        }
    }
}
