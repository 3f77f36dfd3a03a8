import ControlAPI
import NIOCore

/// What a peer has sent and no call has taken: bytes without a line feed, lines, one long line that is being parsed
/// elsewhere, and calls that have not begun.
struct IncomingCalls {
    private var lines = LineSplitter(maximumLength: RequestLine.maximumPayloadLineLength)
    private var waiting = CircularBuffer<WaitingCall>()
    private var waitingBytes = 0
    /// The length of the line that is being parsed elsewhere. What comes after it is read, but waits.
    private var parsing: Int?

    /// What comes next.
    enum Next {
        /// It stays first until ``began()``.
        case call(WaitingCall)
        case line(LineSplitter.Line)
    }

    var byteCount: Int { lines.byteCount + waitingBytes }
    /// The bytes of the line that is being parsed elsewhere.
    var parsedBytes: Int { parsing ?? 0 }
    var isEmpty: Bool { parsing == nil && waiting.isEmpty && lines.byteCount == 0 }

    mutating func append(_ bytes: ByteBuffer) {
        lines.append(bytes)
    }

    /// Whether there is a complete line that no call has taken, besides the one that is being parsed.
    mutating func hasLine() -> Bool { !waiting.isEmpty || lines.hasLine() }

    mutating func next() -> Next? {
        guard parsing == nil else { return nil }
        if let call = waiting.first { return .call(call) }
        return lines.next().map(Next.line)
    }

    mutating func wait(for call: WaitingCall) {
        waiting.append(call)
        waitingBytes += call.bytes
    }

    /// The first call has begun.
    mutating func began() {
        guard let call = waiting.popFirst() else { return }
        waitingBytes -= call.bytes
    }

    mutating func beginParsing(_ length: Int) {
        parsing = length
    }

    mutating func endParsing() {
        parsing = nil
    }
}
