import NIOCore
import Testing

@testable import Agent

struct LineSplitterTests {
    typealias Line = LineSplitter.Line

    private static func lines(_ chunks: [some Collection<UInt8>], maximum: Int = 8) -> [Line] {
        var splitter = LineSplitter(maximumLength: maximum)
        var lines: [Line] = []
        for chunk in chunks {
            splitter.append(ByteBuffer(bytes: chunk))
            while let line = splitter.next() {
                if case .empty = line { continue }
                lines.append(line)
            }
        }
        return lines
    }

    private static func line(_ text: String) -> Line { .line(Array(text.utf8)) }

    @Test(arguments: [
        ("", []), ("a", []), ("a\n", [line("a")]), ("a\r\nb\n", [line("a"), line("b")]), ("\n\r\n\n", []),
        ("a\rb\n", [line("a\rb")]), ("12345678\n", [line("12345678")]), ("123456789\na\n", [.tooLong, line("a")]),
        ("1234567890123456789012345678\na\n", [.tooLong, line("a")]),
        ("123456789\n123456789\n\nx\n", [.tooLong, .tooLong, line("x")]), ("a\n12345", [line("a")]),
    ])
    func `lines are the same however the bytes are cut`(text: String, expected: [Line]) {
        let bytes = Array(text.utf8)
        #expect(Self.lines([bytes[...]]) == expected)
        #expect(Self.lines(bytes.map { [$0] }) == expected)
        for first in 0...bytes.count {
            for second in first...bytes.count {
                #expect(Self.lines([bytes[..<first], bytes[first..<second], bytes[second...]]) == expected)
            }
        }
    }

    /// What is skipped at once is counted against the turn.
    @Test(arguments: ["\n", "\r\n"])
    func `empty lines are skipped a few thousand at a time, and counted`(end: String) {
        var splitter = LineSplitter(maximumLength: 8)
        let count = 40_000
        splitter.append(ByteBuffer(string: String(repeating: end, count: count) + "a\n\n\r\nb\n\r"))
        var (skipped, steps) = (0, 0)
        while case .empty(let bytes)? = splitter.next() {
            #expect((1...16_386).contains(bytes))
            (skipped, steps) = (skipped + bytes, steps + 1)
            if skipped == count * end.utf8.count { break }
        }
        #expect(skipped == count * end.utf8.count)
        #expect(steps <= 6)
        #expect(splitter.next() == Self.line("a"))
        #expect(splitter.next() == .empty(bytes: 3))
        #expect(splitter.next() == Self.line("b"))
        #expect(splitter.next() == nil)
        #expect(splitter.byteCount == 1)
    }

    @Test func `a line that is too long is reported once, and skipped to its end`() {
        var splitter = LineSplitter(maximumLength: 4)
        var found: [Line] = []
        for _ in 0..<100 {
            splitter.append(ByteBuffer(string: "xxxxx"))
            while let line = splitter.next() { found.append(line) }
        }
        #expect(found == [.tooLong])
        splitter.append(ByteBuffer(string: "xx\nok\n"))
        #expect(splitter.next() == Self.line("ok"))
        #expect(splitter.next() == nil)
    }

    @Test func `many lines in one read come out in order`() {
        let numbers = (0..<20_000).map { "\($0)" }
        #expect(
            Self.lines([Array(numbers.joined(separator: "\n").utf8) + [10]]) == numbers.map(Self.line))
    }
}
