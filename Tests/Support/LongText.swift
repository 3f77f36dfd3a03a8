/// A text that repeats a part many times, as an argument of a test: the log shows the part and the count.
public struct LongText: ExpressibleByStringInterpolation, CustomStringConvertible, Sendable {
    public let text: String
    public let description: String

    public init(stringLiteral text: String) { (self.text, description) = (text, "\"\(text)\"") }

    /// - Parameters:
    ///   - before, after: what stands once before and after the repetitions.
    public init(_ part: String, _ count: Int, before: String = "", after: String = "") {
        text = before + String(repeating: part, count: count) + after
        description = "\"\(before)\" + \(count) × \"\(part)\" + \"\(after)\""
    }
}
