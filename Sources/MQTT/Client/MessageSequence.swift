/// The place of a message in the order of acceptance of one session; never reused, even across restarts.
///
/// It is the message's id in the control protocol and its key in the store.
public struct MessageSequence: RawRepresentable, Hashable, Comparable, Sendable {
    /// 1 or more for a message; 0 is before every message.
    public let rawValue: Int64

    public init(rawValue: Int64) {
        self.rawValue = rawValue
    }

    /// Before every message.
    public static let zero = MessageSequence(rawValue: 0)

    /// The next place.
    public var next: MessageSequence { MessageSequence(rawValue: rawValue + 1) }

    public static func < (left: MessageSequence, right: MessageSequence) -> Bool {
        left.rawValue < right.rawValue
    }
}

extension MessageSequence: CustomStringConvertible {
    public var description: String { "\(rawValue)" }
}
