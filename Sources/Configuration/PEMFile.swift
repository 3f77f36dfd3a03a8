import Glibc
import MQTT

/// A file of certificates or keys in PEM format (RFC 7468), checked as far as possible without a TLS library: whether
/// each block that matters is whole. The TLS library checks the content when the file is used.
enum PEMFile {
    enum Content {
        case certificates, key

        fileprivate var label: String { self == .key ? "PRIVATE KEY" : "CERTIFICATE" }
        fileprivate var noun: String { self == .key ? "private key" : "certificate" }
    }

    /// Returns what is wrong with a file, as the end of a sentence; `nil` also if it cannot be read or is too long to
    /// look at.
    static func problem(_ path: String, _ content: Content) -> String? {
        var status = stat()
        guard access(path, R_OK) == 0, stat(path, &status) == 0, status.st_size <= ConfigurationFile.sizeLimit else {
            return nil
        }
        return problem(in: (try? ConfigurationFile(path: path))?.text ?? "", content)
    }

    static func problem(in text: String, _ content: Content) -> String? {
        var isFound = false
        var block: (label: String, body: String)?
        for line in text.split(whereSeparator: \.isNewline).map({ $0.trimmingSpaces }) {
            if let label = line.between("-----BEGIN ", "-----") {
                block = (label, "")
            } else if let label = line.between("-----END ", "-----"), let whole = block, whole.label == label {
                block = nil
                guard label.hasSuffix(content.label) else { continue }
                if label.hasPrefix("ENCRYPTED") || whole.body.contains("ENCRYPTED") {
                    return "has an encrypted private key, and the daemon has no passphrase for it"
                }
                guard isDER(whole.body) else { return "has a \(content.noun) that is damaged" }
                isFound = true
            } else {
                block?.body += line
            }
        }
        if block?.label.hasSuffix(content.label) == true { return "has a \(content.noun) that is cut off" }
        return isFound ? nil : "has no \(content.noun) in PEM format"
    }

    /// Whether a text is the base64 of one whole SEQUENCE (X.690, sections 8.1.3 and 8.9), as every certificate and every
    /// key is.
    private static func isDER(_ base64: String) -> Bool {
        guard let bytes = Base64.decode(base64), bytes.count >= 2, bytes[0] == 0x30 else { return false }
        guard bytes[1] >= 0x80 else { return bytes.count == 2 + Int(bytes[1]) }
        let count = Int(bytes[1] & 0x7F)
        guard (1...4).contains(count), bytes.count > 2 + count else { return false }
        let length = bytes[2..<2 + count].reduce(0) { $0 << 8 | Int($1) }
        return bytes.count == 2 + count + length
    }
}

extension Substring {
    fileprivate var trimmingSpaces: Substring {
        let isBlank = { (character: Character) in character == " " || character == "\t" }
        var text = drop(while: isBlank)
        while let last = text.last, isBlank(last) { text.removeLast() }
        return text
    }

    /// Returns the text between a prefix and a suffix; `nil` if it does not have both.
    fileprivate func between(_ start: String, _ end: String) -> String? {
        guard hasPrefix(start), hasSuffix(end), count >= start.count + end.count else { return nil }
        return String(dropFirst(start.count).dropLast(end.count))
    }
}
