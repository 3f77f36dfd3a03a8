import NIOCore
import NIOPosix
import Session
import Support
import Synchronization
import Testing

@testable import Agent

/// Many helper commands at once, some of which hang.
@Suite struct `Of many helpers` {
    /// Helpers that end when they are told to. The first letter of a program says what it does.
    private final class Programs: Sendable {
        private struct State {
            var begun: [String] = []
            var ends: [CheckedContinuation<Void, Never>] = []
        }
        private let state = Mutex(State())

        var begun: [String] { state.withLock(\.begun) }

        func run(_ command: [String]) async throws(Credential.Failure) -> SessionCredential {
            state.withLock { $0.begun.append(command[0]) }
            if command[0].hasPrefix("/hang") {
                await withCheckedContinuation { end in state.withLock { $0.ends.append(end) } }
            }
            return SessionCredential(secret: Array(command[0].utf8))
        }

        /// Ends the one that hangs for the longest time.
        func endFirst() { state.withLock { $0.ends.isEmpty ? nil : $0.ends.removeFirst() }?.resume() }

        func endAll() { for end in state.withLock({ $0.ends }) { end.resume() } }

        func waitForHanging(_ count: Int) async throws {
            try await until("\(count) hang") { state.withLock { $0.ends.count } >= count }
        }

        func waitForRuns(_ count: Int) async throws {
            try await until("\(count) have begun") { begun.count >= count }
        }
    }

    private let programs = Programs()

    private func helpers(
        _ maximumRuns: Int, timeLimit: Duration = .seconds(3600), patience: TimeAmount = .hours(1),
        on loop: any EventLoop = MultiThreadedEventLoopGroup.singleton.next()
    ) -> RunningHelpers {
        let programs = programs
        return RunningHelpers(
            eventLoop: loop, maximumRuns: maximumRuns, timeLimit: timeLimit, patience: patience
        ) { command throws(Credential.Failure) in try await programs.run(command) }
    }

    private func wait(for count: Int, in helpers: RunningHelpers) async throws {
        try await until("\(count) wait") { await helpers.waiting.count == count }
    }

    @Test func `those of one program leave places to others`() async throws {
        let helpers = helpers(4)
        let hanging = (1...10).map { _ in Task { try await helpers.fetch(["/hang"]) } }
        try await wait(for: 8, in: helpers)
        try await programs.waitForRuns(2)
        #expect(try await helpers.fetch(["/good"]).secret == Array("/good".utf8))
        #expect(programs.begun == ["/hang", "/hang", "/good"])
        for task in hanging { task.cancel() }
        try await wait(for: 0, in: helpers)
        programs.endAll()
    }

    @Test func `the next to run is of the program, and the command, with the fewest runs`() async throws {
        let helpers = helpers(4)
        let turns = Mutex<[RunningHelpers.Turn]>([])
        var tasks = (1...4).map { _ in Task { try await helpers.fetch(["/hang1"]) } }
        try await wait(for: 2, in: helpers)
        try await programs.waitForHanging(2)
        tasks += (1...3).map { _ in Task { try await helpers.fetch(["/hang2"]) } }
        try await wait(for: 3, in: helpers)
        try await programs.waitForHanging(4)
        tasks.append(Task { try await helpers.fetch(["/hang1", "of another kind"]) })
        try await wait(for: 4, in: helpers)
        let good = Task {
            try await helpers.fetch(["/good"]) { turn in turns.withLock { $0.append(turn) } }
        }
        try await wait(for: 5, in: helpers)
        #expect(turns.withLock { $0 } == [.isAwaited])
        programs.endFirst()
        #expect(try await good.value.secret == Array("/good".utf8))
        #expect(turns.withLock { $0 } == [.isAwaited, .hasCome])
        try await programs.waitForRuns(6)
        #expect(programs.begun == ["/hang1", "/hang1", "/hang2", "/hang2", "/good", "/hang1"])
        // The one of another kind came before those that came first.
        try await wait(for: 3, in: helpers)
        for task in tasks { task.cancel() }
        try await wait(for: 0, in: helpers)
        programs.endAll()
    }

    @Test func `one that cannot be ended loses its place, and is not waited for`() async throws {
        // Its time passes only when a helper hangs.
        let loop = VirtualLoop()
        defer { loop.stop() }
        let helpers = helpers(2, timeLimit: .seconds(10), patience: .seconds(4), on: loop)
        func failure(_ program: String) async -> String {
            do throws(Credential.Failure) {
                _ = try await helpers.fetch([program])
                return ""
            } catch {
                return error.description
            }
        }
        #expect(await failure("/hang1") == "/hang1: it does not even end when it is killed")
        #expect(
            await failure("/hang1")
                == "/hang1: it is not run, because 1 earlier runs of it do not even end when they are killed")
        #expect(try await helpers.fetch(["/good"]).secret == Array("/good".utf8))
        #expect(await failure("/hang2") == "/hang2: it does not even end when it is killed")
        #expect(
            await failure("/good") == "/good: it is not run, because 2 helpers do not even end when they are killed")
        programs.endAll()
        try await until("they have ended") { await failure("/good") == "" }
        await helpers.stop()
    }

    @Test func `those that cannot be ended do not keep the daemon from ending`() async throws {
        let helpers = helpers(2, patience: .milliseconds(1))
        let hanging = Task { try await helpers.fetch(["/hang"]) }
        try await programs.waitForRuns(1)
        let waiting = Task { try await helpers.fetch(["/hang"]) }
        try await wait(for: 1, in: helpers)
        await helpers.stop()
        for task in [hanging, waiting] { await #expect(throws: Credential.Failure.self) { try await task.value } }
        await #expect(throws: Credential.Failure.self) { try await helpers.fetch(["/good"]) }
        #expect(programs.begun == ["/hang"])
        programs.endAll()
    }
}
