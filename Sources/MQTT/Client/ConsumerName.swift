/// Names a durable consumer of one session: 1 to 64 ASCII letters, digits, `-`, `_` and `.`.
public struct ConsumerName: Hashable, Comparable, Sendable, CustomStringConvertible {
    public let description: String

    /// `nil` if the text cannot be a name.
    public init?(_ text: String) {
        let isValid =
            (1...64).contains(text.utf8.count)
            && text.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "."):
                    true
                default: false
                }
            }
        guard isValid else { return nil }
        description = text
    }

    public static func < (left: ConsumerName, right: ConsumerName) -> Bool {
        left.description < right.description
    }
}
