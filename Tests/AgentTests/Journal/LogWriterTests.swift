import Glibc
import NIOCore
import NIOPosix
import Support
import Testing

@testable import Agent

/// The thread that writes the log, with a pipe in the place of standard error.
@Suite(.timeLimit(.minutes(10))) struct LogWriterTests {
    private let loops = MultiThreadedEventLoopGroup(numberOfThreads: 2)
    private let pipe: (output: CInt, input: CInt)

    init() throws {
        var ends: [CInt] = [-1, -1]
        try #require(Glibc.pipe(&ends) == 0)
        pipe = (ends[0], ends[1])
    }

    /// Writes bytes until the pipe is full, and returns how many they are.
    private func fill() -> Int {
        let flags = fcntl(pipe.input, F_GETFL)
        defer { _ = fcntl(pipe.input, F_SETFL, flags) }
        _ = fcntl(pipe.input, F_SETFL, flags | O_NONBLOCK)
        var count = 0
        while write(pipe.input, "\n", 1) == 1 { count += 1 }
        return count
    }

    private func lines(_ count: Int) -> [String] {
        var bytes: [UInt8] = []
        var (part, missing) = ([UInt8](repeating: 0, count: 4096), count)
        while missing > 0 {
            let size = read(pipe.output, &part, part.count)
            guard size > 0 else { break }
            bytes += part[..<size]
            missing -= part[..<size].count { $0 == UInt8(ascii: "\n") }
        }
        return bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).dropLast().map {
            String(decoding: $0, as: UTF8.self)
        }
    }

    private func end() async throws {
        [pipe.output, pipe.input].forEach { close($0) }
        try await loops.shutdownGracefully()
    }

    private func entry(_ text: some CustomStringConvertible) -> LogEntry {
        LogEntry(fields: [], line: Array("\(text)\n".utf8))
    }

    @Test func `a log that is not read holds up nothing, and says where entries are missing`() async throws {
        let writer = LogWriter(on: loops.next(), usesJournal: false, output: pipe.input)
        let filled = fill()
        for number in 1...LogWriter.mostEntries + 3 { writer.add(entry(number)) }
        // Neither does the end of the process wait for it.
        writer.finish(within: .milliseconds(1), on: loops.next())

        let dropped = "warning: 3 log entries were dropped here, because standard error was not read"
        let told = lines(filled + LogWriter.mostEntries + 1).dropFirst(filled)
        #expect(Array(told) == (1...LogWriter.mostEntries).map(String.init) + [dropped])
        writer.add(entry("later"))
        #expect(lines(1) == ["later"])
        try await end()
    }

    @Test func `large entries take as little memory as small ones`() async throws {
        let writer = LogWriter(on: loops.next(), usesJournal: false, output: pipe.input)
        let filled = fill()
        let large = String(repeating: "x", count: LogWriter.mostBytes / 4)
        for _ in 1...6 { writer.add(entry(large)) }
        let told = lines(filled + 4).dropFirst(filled)
        #expect(told.map(\.count).prefix(3) == [large.count, large.count, large.count])
        #expect(told.last?.hasPrefix("warning: 3 log entries were dropped") == true)
        try await end()
    }

    /// Another process that has the same pipe or terminal may have chosen that.
    @Test func `a standard error that does not block loses nothing`() async throws {
        let writer = LogWriter(on: loops.next(), usesJournal: false, output: pipe.input)
        let filled = fill()
        _ = fcntl(pipe.input, F_SETFL, fcntl(pipe.input, F_GETFL) | O_NONBLOCK)
        for number in 1...10 { writer.add(entry(number)) }
        let reading = NIOThreadPool.singleton.runIfActive(eventLoop: loops.next()) { lines(filled + 11) }
        writer.finish(within: .hours(1), on: loops.next())
        writer.add(entry("end"))
        #expect(try await reading.get().dropFirst(filled) == (1...10).map(String.init) + ["end"])
        try await end()
    }

    @Test func `entries that cannot be written are counted`() async throws {
        let output = open("/dev/full", O_WRONLY)
        let writer = LogWriter(on: loops.next(), usesJournal: false, output: output)
        for number in 1...3 { writer.add(entry(number)) }
        writer.finish(within: .hours(1), on: loops.next())
        try #require(dup2(pipe.input, output) == output)
        writer.add(entry("later"))
        #expect(lines(2) == ["warning: 3 log entries could not be written here", "later"])
        close(output)
        try await end()
    }

    @Test func `at the end of the process everything is written`() async throws {
        let writer = LogWriter(on: loops.next(), usesJournal: false, output: pipe.input)
        for number in 1...100 { writer.add(entry(number)) }
        writer.finish(within: .hours(1), on: loops.next())
        let flags = fcntl(pipe.output, F_GETFL)
        _ = fcntl(pipe.output, F_SETFL, flags | O_NONBLOCK)
        #expect(lines(101) == (1...100).map(String.init))
        try await end()
    }
}
