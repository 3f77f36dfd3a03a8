/// The name of a session: what its configuration file is called, and what people and programs call it.
///
/// One to 63 of the characters `a`–`z`, `0`–`9` and `-`, the first of them not `-`. So a name is safe, unquoted, in file
/// names, journal fields, topics and shell commands.
public struct SessionName: Hashable, Sendable {
    private let text: String

    /// - Returns: `nil` if the text is not a valid name.
    public init?(_ text: String) {
        let bytes = text.utf8
        guard (1...63).contains(bytes.count), bytes.first != UInt8(ascii: "-") else { return nil }
        for byte in bytes {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"): break
            default: return nil
            }
        }
        self.text = text
    }
}

extension SessionName: CustomStringConvertible {
    public var description: String { text }
}

extension SessionName: Comparable {
    public static func < (left: SessionName, right: SessionName) -> Bool { left.text < right.text }
}
