import ControlAPI
import NIOCore

/// What a peer has sent and no call has taken: bytes without a line feed, lines, one long line that is parsed elsewhere,
/// and calls that have not begun.
struct IncomingCalls {
    private var lines = LineSplitter(maximumLength: RequestLine.maximumPayloadLineLength)
    private var waiting = CircularBuffer<WaitingCall>()
    private var waitingBytes = 0
    /// The length of the line that is parsed elsewhere. What is behind it waits meanwhile, and is read on.
    private var parsing: Int?

    /// What comes first.
    enum Next {
        /// It stays first until ``began()``.
        case call(WaitingCall)
        case line(LineSplitter.Line)
    }

    var byteCount: Int { lines.byteCount + waitingBytes }
    /// Bytes of the line that is parsed elsewhere.
    var parsedBytes: Int { parsing ?? 0 }
    var isEmpty: Bool { parsing == nil && waiting.isEmpty && lines.byteCount == 0 }

    mutating func append(_ bytes: ByteBuffer) {
        lines.append(bytes)
    }

    /// Whether there is a whole line that no call has taken, besides the one that is parsed.
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

    /// The call that came first has begun.
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
