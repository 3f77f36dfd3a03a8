/// The calls of a batch as texts, which are read one at a time: a call that has been read can take many times the memory
/// of its text.
public struct BatchedCalls: Sendable {
    /// Begins behind the bracket, or behind the comma that follows the last call that was taken.
    private var rest: ArraySlice<UInt8>
    /// The length of the whole text that is kept in memory for `rest`.
    private var kept: Int
    /// How many calls are left.
    public private(set) var count: Int

    /// - Parameters:
    ///   - line: a line that ``RequestLine`` has read as a batch.
    ///   - count: how many calls the batch has.
    public init(of line: [UInt8], count: Int) {
        let start = line.firstIndex(of: UInt8(ascii: "[")).map { $0 + 1 } ?? line.endIndex
        rest = line[start...]
        kept = line.count
        self.count = count
    }

    /// How many bytes the calls that are left have.
    public var byteCount: Int { rest.count }

    /// Returns the text of the next call; `nil` after the last one.
    public mutating func next() -> [UInt8]? {
        guard count > 0 else { return nil }
        count -= 1
        let call = rest[..<endOfCall()]
        rest = count == 0 ? [] : rest[call.endIndex...].dropFirst()
        if rest.count < kept / 2 {
            rest = Array(rest)[...]
            kept = rest.count
        }
        return Array(call)
    }

    /// Returns where the first call ends: the line is known to be valid JSON.
    private func endOfCall() -> Int {
        var (depth, isInString) = (0, false)
        var index = rest.startIndex
        while index < rest.endIndex {
            switch rest[index] {
            case UInt8(ascii: "\\"): index += 1
            case UInt8(ascii: "\""): isInString.toggle()
            case _ where isInString: break
            case UInt8(ascii: "{"), UInt8(ascii: "["): depth += 1
            case UInt8(ascii: ","), UInt8(ascii: "]"):
                if depth == 0 { return index }
                if rest[index] == UInt8(ascii: "]") { depth -= 1 }
            case UInt8(ascii: "}"): depth -= 1
            default: break
            }
            index += 1
        }
        return rest.endIndex
    }
}
