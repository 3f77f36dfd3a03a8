import Glibc
import Vocabulary

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
        let bytes: [UInt8]
        do throws(FileError) {
            bytes = try fileContents(path, atMost: Self.sizeLimit + 1)
        } catch {
            switch error {
            case .system(let code): throw ReadError(path, code)
            case .notRegular: throw ReadError(path, "this is not a regular file")
            }
        }
        guard bytes.count <= Self.sizeLimit else { throw ReadError(path, "the file is larger than 1 MiB") }

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
            // A link that leads nowhere is not a missing file: its rules are wanted.
            let target = code == ENOENT ? linkTarget(path) : nil
            error =
                target.map { ConfigurationError(file: path, message: "is a link to \($0), which does not exist") }
                ?? .unreadable(path, code)
            isMissing = code == ENOENT && target == nil
        }
    }
}
