import Foundation
import Glibc
import SessionCore
import Testing

@testable import NetworkPath

@Suite(.timeLimit(.minutes(10))) struct ClockTests {
    /// Seconds on each clock, from the first look.
    struct Look: Sendable, CustomTestStringConvertible {
        var passed: Double
        var slept: Double
        var stepped: Double
        var changes: [ClockChange]
        var testDescription: String { "\(passed) s, of which \(slept) asleep, clock set by \(stepped)" }
    }

    private func reading(awake: Double, asleep: Double, stepped: Double) -> ClockReading {
        ClockReading(
            boot: Instant(nanoseconds: Int64((1000 + awake + asleep) * 1e9)), awake: .seconds(900 + awake),
            wall: .seconds(1_800_000_000 + awake + asleep + stepped))
    }

    @Test(arguments: [
        Look(passed: 0, slept: 0, stepped: 0, changes: []),
        Look(passed: 86400, slept: 0, stepped: 0, changes: []),
        Look(passed: 10, slept: 0.9, stepped: 0, changes: []),
        Look(passed: 10, slept: 1, stepped: 0, changes: [.slept(.seconds(1))]),
        Look(passed: 30000, slept: 28800, stepped: 0, changes: [.slept(.seconds(28800))]),
        Look(passed: 1, slept: 0, stepped: 0.9, changes: []),
        Look(passed: 1, slept: 0, stepped: 3600, changes: [.stepped(by: .seconds(3600))]),
        Look(passed: 1, slept: 0, stepped: -3600, changes: [.stepped(by: .seconds(-3600))]),
        Look(passed: 1, slept: 0, stepped: -0.9, changes: []),
        Look(passed: 60, slept: 50, stepped: 2, changes: [.slept(.seconds(50)), .stepped(by: .seconds(2))]),
    ])
    func `sleep and a step of the clock are told apart`(look: Look) {
        var classifier = ClockClassifier(reading(awake: 0, asleep: 0, stepped: 0))
        let after = reading(awake: look.passed - look.slept, asleep: look.slept, stepped: look.stepped)
        #expect(classifier.handle(after) == look.changes)
        #expect(classifier.handle(after) == [])
    }

    @Test func `small steps add up, and naps do not`() {
        var classifier = ClockClassifier(reading(awake: 0, asleep: 0, stepped: 0))
        var steps: [ClockChange] = []
        for look in 1...10 {
            let time = Double(look)
            steps += classifier.handle(reading(awake: time * 30, asleep: time / 2, stepped: time / 4))
        }
        #expect(steps == [.stepped(by: .seconds(1)), .stepped(by: .seconds(1))])
    }

    @Test func `the clocks of this host agree with themselves`() {
        var classifier = ClockClassifier(.now())
        #expect(classifier.handle(.now()) == [])
        // A reading's clocks are read one after the other.
        let (first, second) = (ClockReading.now(), ClockReading.now())
        #expect(.nanoseconds(second.boot.nanoseconds) >= first.awake)
    }

    @Test func `every jump that the kernel reports is delivered`() async throws {
        var ends: [Int32] = [-1, -1]
        try #require(pipe(&ends) == 0)
        try #require(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0)
        let (jumps, deliver) = AsyncStream.makeStream(of: Void.self)
        let source = ClockSource(descriptor: ends[0]) { deliver.yield() }
        var iterator = jumps.makeAsyncIterator()
        for _ in 1...3 {
            var expirations: UInt64 = 1
            #expect(write(ends[1], &expirations, 8) == 8)
            #expect(await iterator.next() != nil)
        }
        close(ends[1])
        _ = consume source
    }

    @Test func `the kernel has such a timer, which is canceled when the clock is set, and is silent until then`() async
    {
        await #expect(processExitsWith: .success) {
            let source = try ClockSource { preconditionFailure("the clock jumped") }
            // It is the only one of this process; proc_pid_fdinfo(5).
            let timers = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fdinfo").compactMap {
                try? String(contentsOfFile: "/proc/self/fdinfo/\($0)", encoding: .utf8)
            }.filter { $0.contains("clockid: \(CLOCK_REALTIME)\n") && $0.contains("settime flags: 03\n") }
            precondition(timers.count == 1, "\(timers)")
            _ = consume source
        }
    }
}
