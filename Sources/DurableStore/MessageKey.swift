internal import MQTT

/// The key of a row about one message: session and sequence in one integer, because only an integer key needs no second
/// tree.
struct MessageKey: Hashable {
    let rawValue: Int64

    static let sequenceBits: Int64 = 48
    static let sessions: ClosedRange<Int64> = 1...0x7FFF
    /// No session ever gets further, so there is always room for what is counted on from a number that was read.
    static let sequences: ClosedRange<Int64> = 1...(1 << 47)
    private static let mask: Int64 = 1 << sequenceBits - 1

    /// The keys of all messages of a session.
    static func range(of session: Int64) -> ClosedRange<Int64> {
        let first = session << sequenceBits
        return first...(first | mask)
    }

    /// Whether a message can have it.
    var isPossible: Bool {
        Self.sessions.contains(rawValue >> Self.sequenceBits) && Self.sequences.contains(sequence.rawValue)
    }

    var sequence: MessageSequence { MessageSequence(rawValue: rawValue & Self.mask) }
}

extension MessageKey {
    /// `nil` for a sequence that the store cannot hold: below 0, or above 281 trillion.
    init?(session: Int64, sequence: MessageSequence) {
        guard (0...Self.mask).contains(sequence.rawValue) else { return nil }
        self.init(rawValue: session << Self.sequenceBits | sequence.rawValue)
    }
}
