import NIOCore

/// What waits to be written to a peer, and the state of the writing.
struct ControlOutput {
    private(set) var lines = OutgoingBytes(pieceLength: pieceLength)
    /// Calls whose answers are among the lines, and whose end the scheduler has not been told yet.
    private(set) var answered = Answered()
    /// Whether the kernel has not taken the last piece yet.
    var isWriting = false
    var isPumping = false
    var isFlushPlanned = false

    private static let pieceLength = 64 << 10

    struct Answered {
        var count = 0
        var bytes = 0
        /// How long the answers could have been (reserved), and how long they are (written).
        var reserved = 0
        var written = 0
    }

    /// Whether everything is written.
    var isEmpty: Bool { lines.isEmpty && !isWriting && answered.count == 0 }

    mutating func append(_ line: [UInt8]) {
        lines.append(line)
    }

    /// Adds the answer to a call that has ended.
    ///
    /// - Parameter write: writes the answer; `nil` if there is none.
    mutating func append(answerTo call: RunningCall, _ write: ((inout [UInt8]) -> Void)?) {
        answered.count += 1
        answered.bytes += call.bytes
        answered.reserved += call.answer
        if let write { answered.written += lines.append(write) }
    }

    /// Takes the first piece; `nil` if there is nothing to write.
    mutating func nextPiece() -> ByteBuffer? { lines.next() }

    /// Takes the calls that have ended.
    mutating func takeAnswered() -> Answered {
        defer { answered = Answered() }
        return answered
    }

    mutating func discard() {
        lines = OutgoingBytes(pieceLength: Self.pieceLength)
        answered = Answered()
    }
}
