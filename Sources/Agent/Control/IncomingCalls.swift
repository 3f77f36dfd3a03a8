import ControlAPI
import NIOCore

/// What a peer has sent and no call has taken: bytes without a line feed, lines, one long text that is being parsed
/// elsewhere, the rest of a batch, and one call that has not begun.
struct IncomingCalls {
    private var lines = LineSplitter(maximumLength: RequestLine.maximumPayloadLineLength)
    private var batch: (calls: BatchedCalls, number: Int)?
    private var waiting: WaitingCall?
    /// The length of the text that is being parsed elsewhere. What comes after it is read, but waits.
    private var parsing: Int?

    /// What comes next.
    enum Next {
        /// It stays first until ``began()``.
        case call(WaitingCall)
        /// The text of a call of a batch.
        case batched([UInt8], batch: Int)
        case line(LineSplitter.Line)
    }

    var byteCount: Int { lines.byteCount + (batch?.calls.byteCount ?? 0) + (waiting?.bytes ?? 0) }
    /// The bytes of the text that is being parsed elsewhere.
    var parsedBytes: Int { parsing ?? 0 }
    var isEmpty: Bool { parsing == nil && waiting == nil && batch == nil && lines.byteCount == 0 }

    mutating func append(_ bytes: ByteBuffer) {
        lines.append(bytes)
    }

    /// Whether there is a complete line that no call has taken, besides the text that is being parsed.
    mutating func hasLine() -> Bool { waiting != nil || batch != nil || lines.hasLine() }

    mutating func next() -> Next? {
        guard parsing == nil else { return nil }
        if let waiting { return .call(waiting) }
        if let number = batch?.number, let text = batch?.calls.next() {
            if batch?.calls.count == 0 { batch = nil }
            return .batched(text, batch: number)
        }
        return lines.next().map(Next.line)
    }

    /// The call is the next one.
    mutating func wait(for call: WaitingCall) { waiting = call }

    /// The calls of a batch are the next ones.
    mutating func wait(for calls: BatchedCalls, of batch: Int) { self.batch = (calls, batch) }

    /// The first call has begun.
    mutating func began() { waiting = nil }

    mutating func beginParsing(_ length: Int) {
        parsing = length
    }

    mutating func endParsing() {
        parsing = nil
    }
}
