/// The name of a session: what its configuration file is called, and what people and programs call it.
///
/// One to 63 of the characters `a`–`z`, `0`–`9` and `-`, the first of them not `-`; or, for an instance of a template,
/// two such names with an `@` between them, 127 characters at most: `gateway@edge-17`. A name is therefore safe,
/// unquoted, in file names, journal fields, topics and shell commands.
public struct SessionName: Hashable, Sendable {
    private let text: String

    /// - Returns: `nil` if the text is not a valid name.
    public init?(_ text: String) {
        let parts = text.utf8.split(separator: UInt8(ascii: "@"), maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.allSatisfy(Self.isSimple) else { return nil }
        self.text = text
    }

    /// The name of a session, or `NAME@`: that of a template, which is listed like a session while its instances cannot
    /// be read.
    ///
    /// - Returns: `nil` if the text is neither.
    public init?(listed text: String) {
        let isTemplate = text.hasSuffix("@") && Self.isSimple(text.utf8.dropLast())
        guard isTemplate || SessionName(text) != nil else { return nil }
        self.text = text
    }

    /// A name that no file can have, for a configuration that is checked and is not a session's yet.
    /// - Parameter number: tells it from others.
    public init(draft number: Int) { text = "(draft \(number))" }

    /// What follows the `@`; `nil` if this is not an instance of a template.
    public var instance: String? {
        guard !isTemplate, let separator = text.firstIndex(of: "@") else { return nil }
        return String(text[text.index(after: separator)...])
    }

    /// The template, `NAME@`, that this is an instance of; `nil` for any other session.
    public var template: SessionName? {
        instance.flatMap { SessionName(listed: String(text.dropLast($0.count))) }
    }

    /// Whether this is the name of a template, which is not a session.
    public var isTemplate: Bool { text.hasSuffix("@") }

    private static func isSimple(_ bytes: Substring.UTF8View) -> Bool {
        guard (1...63).contains(bytes.count), bytes.first != UInt8(ascii: "-") else { return false }
        return bytes.allSatisfy(\.isLetterDigitHyphen)
    }
}

extension SessionName: CustomStringConvertible {
    public var description: String { text }
}

extension SessionName: Comparable {
    public static func < (left: SessionName, right: SessionName) -> Bool { left.text < right.text }
}
