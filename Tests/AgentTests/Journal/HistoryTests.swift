import ControlAPI
import DurableStore
import Glibc
import MQTT
import NIOCore
import NIOPosix
import SessionCore
import Support
import Synchronization
import Testing

@testable import Agent

@Suite(.timeLimit(.minutes(10)))
struct HistoryTests {
    /// Returns `from → to code` for every entry.
    private static func changes(_ result: JSONValue) -> [String] {
        guard case .array(let entries)? = result["entries"] else { return [] }
        return entries.map { entry in
            [entry["from"]?.text, "→", entry["to"]?.text, entry["reason"]?["code"]?.text].compactMap { $0 }
                .joined(separator: " ")
        }
    }

    @Test func `every change of state is recorded, with the length of the outage`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            await daemon.server.drop()
            try await peer.state("reconnecting")
            try await peer.state("connected")
            let history = try await peer.call("session.history")
            #expect(
                Self.changes(history) == [
                    "disconnected → connecting autoconnect", "connecting → connected autoconnect",
                    "connected → reconnecting server-closed", "reconnecting → connected server-closed",
                ])
            guard case .array(let entries)? = history["entries"], let last = entries.last else {
                throw ControlPeer.CallFailure(code: "shape")
            }
            #expect(last["session"] == "main")
            #expect(last["mode"] == "quick")
            #expect(last["reason"]?["group"] == "server")
            #expect(last["phase"] == .null)
            guard case .number(let outage)? = last["outage"] else {
                Issue.record("no length of the outage: \(last)")
                return
            }
            #expect((0..<600).contains(outage))

            let newest = try await peer.call("session.history", #"{"session":"main","limit":1}"#)
            #expect(newest["entries"] == .array([last]))
            let time = last["time"]?.text ?? ""
            let since = try await peer.call("session.history", #"{"since":"\#(time)"}"#)
            #expect(Self.changes(since).last == "reconnecting → connected server-closed")
            let before = try await peer.call("session.history", #"{"until":"2000-01-01T00:00:00Z"}"#)
            #expect(before["entries"] == .array([]))
        }
    }

    @Test func `a step of the clock is recorded with the time before and after it, unless it is small`() throws {
        let name = try #require(SessionName("main"))
        var recorder = HistoryRecorder()
        var event = SessionEvent(time: Timestamp(rawValue: 1000), session: "main", event: .stateChanged)
        event.state = .connected
        event.reason = .init(code: "autoconnect", group: "local", terminal: false, message: "")
        _ = recorder.take(name, event)
        #expect(recorder.clockStepped(by: .seconds(59), at: Timestamp(rawValue: 3000)) == [])
        for step in [86_400, -86_400] as [Int64] {
            let entries = recorder.clockStepped(by: .seconds(step), at: Timestamp(rawValue: 3000))
            #expect(entries.map(\.time.rawValue) == [3000, 3000 + step * 1000])
            #expect(entries.map(\.reasonCode) == ["clock-set", "autoconnect"])
            #expect(entries.allSatisfy { $0.from == "connected" && $0.to == "connected" })
        }
    }

    @Test func `the end of an outage says how its attempts failed`() throws {
        let name = try #require(SessionName("main"))
        var recorder = HistoryRecorder()
        func take(
            _ state: SessionState, _ phase: Phase?, _ attempt: Int, _ reason: String
        ) -> HistoryEntry? {
            var event = SessionEvent(time: Timestamp(rawValue: 1000), session: "main", event: .stateChanged)
            (event.state, event.phase, event.attempt) = (state, phase, attempt)
            event.reason = .init(code: reason, group: "network", terminal: false, message: "because of \(reason)")
            return recorder.take(name, event)
        }
        #expect(take(.connected, nil, 0, "autoconnect")?.failures == nil)
        // It was not stable: attempts are counted from before.
        #expect(take(.reconnecting, .resolving, 3, "reset")?.failures == nil)
        #expect(take(.reconnecting, .waiting, 4, "refused") == nil)
        #expect(take(.reconnecting, .resolving, 4, "path-gained") == nil)
        #expect(take(.reconnecting, .resolving, 5, "path-gained") == nil, "the attempt is given up for another path")
        #expect(take(.reconnecting, .waiting, 5, "dial-timeout") == nil)
        #expect(take(.reconnecting, .resolving, 5, "dial-timeout") == nil)
        let ended = take(.connected, nil, 0, "reset")
        #expect(
            ended?.failures == .init(attempts: 2, reasonCode: "dial-timeout", message: "because of dial-timeout"))
        // The next outage begins with none.
        _ = take(.reconnecting, .resolving, 1, "reset")
        #expect(take(.connected, nil, 0, "reset")?.failures == nil)
    }

    @Test(arguments: [1, 10])
    func `a session that gives up counts all attempts that failed`(attempts: Int) throws {
        let name = try #require(SessionName("main"))
        let refused = SessionStatus.Reason(code: "refused", group: "network", terminal: false, message: "no")
        let unheard = SessionStatus.Reason(
            code: "websocket-failed", group: "server", terminal: false, message: "status 401")
        var recorder = HistoryRecorder()
        func take(
            _ state: SessionState, _ phase: Phase?, _ attempt: Int, _ reason: SessionStatus.Reason
        ) -> HistoryEntry? {
            var event = SessionEvent(time: Timestamp(rawValue: 1000), session: "main", event: .stateChanged)
            (event.state, event.phase, event.attempt, event.reason) = (state, phase, attempt, reason)
            return recorder.take(name, event)
        }
        // A second round is counted on its own. The third ends while the session waits: its attempts are counted already.
        for isWaiting in [false, false, true] {
            let start = SessionStatus.Reason(code: "user-connect", group: "local", terminal: false, message: "")
            _ = take(.connecting, .resolving, 1, start)
            for number in 1..<attempts {
                #expect(take(.connecting, .waiting, number + 1, refused) == nil)
                #expect(take(.connecting, .dialing, number + 1, refused) == nil)
            }
            if isWaiting { #expect(take(.connecting, .waiting, attempts + 1, unheard) == nil) }
            let reason = SessionStatus.Reason(
                code: "retry-timeout", group: "network", terminal: true, message: "given up",
                lastFailure: .init(code: unheard.code, group: unheard.group, message: unheard.message))
            let entry = try #require(take(.failed, nil, 0, reason))
            #expect(
                entry.failures == .init(attempts: attempts, reasonCode: "websocket-failed", message: "status 401"))
            #expect(SessionHistoryEntry(entry, nil)?.reason.lastFailure == reason.lastFailure)
        }
    }

    @Test func `the removal of a session is recorded, and so is its return`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            let file = "\(daemon.directory.path)/sessions.d/main.toml"
            #expect(rename(file, file + ".off") == 0)
            try await peer.call("daemon.reload")
            #expect(rename(file + ".off", file) == 0)
            try await peer.call("daemon.reload")
            _ = try await daemon.watcher()
            #expect(
                Self.changes(try await peer.call("session.history", #"{"session":"main"}"#)).suffix(4) == [
                    "disconnecting → disconnected configuration-changed",
                    "disconnected → disconnected configuration-changed",
                    "disconnected → connecting autoconnect", "connecting → connected autoconnect",
                ])
        }
    }

    @Test func `another room is recorded, and is not an outage`() async throws {
        try await DaemonUnderTest.run("room = \"plant\"") { daemon, peer in
            try await peer.call("session.switchRoom", #"{"session":"main","room":"lab"}"#)
            try await peer.state("connected")
            let history = try await peer.call("session.history", #"{"session":"main"}"#)
            #expect(
                Self.changes(history).suffix(2) == [
                    "connected → reconnecting switch-room", "reconnecting → connected switch-room",
                ])
            guard case .array(let entries)? = history["entries"] else {
                throw ControlPeer.CallFailure(code: "shape")
            }
            #expect(entries.allSatisfy { $0["outage"] == .null })
            let status = try await peer.call("session.status", #"{"session":"main"}"#)
            #expect(status["counters"]?["outages"] == 0)
        }
    }

    @Test func `the history outlives the daemon, and says when that was not running`() async throws {
        try await DaemonUnderTest.run { daemon in
            let directory = try TemporaryDirectory()
            defer { directory.remove() }
            let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
            try directory.makeFolder("sessions.d")
            try directory.write(
                "sessions.d/main.toml", await DaemonUnderTest.session(daemon.server, user: "edge-43"))
            // A session that is always down also has an entry for the shutdown.
            try directory.write(
                "sessions.d/idle.toml",
                await DaemonUnderTest.session(daemon.server, autoconnect: false, user: "edge-44"))
            try await DaemonUnderTest.run(in: directory, daemon.server, on: group) { _ = try await $0.watcher() }
            try await DaemonUnderTest.run(in: directory, daemon.server, on: group) { second in
                let peer = try await second.watcher()
                let ofMain = Self.changes(try await peer.call("session.history", #"{"session":"main"}"#))
                #expect(
                    ofMain == [
                        "disconnected → connecting autoconnect", "connecting → connected autoconnect",
                        "connected → disconnecting shutdown", "disconnecting → disconnected shutdown",
                        "disconnected → connecting autoconnect", "connecting → connected autoconnect",
                    ])
                #expect(
                    Self.changes(try await peer.call("session.history", #"{"session":"idle"}"#)) == [
                        "disconnected → disconnected not-started", "disconnected → disconnected shutdown",
                        "disconnected → disconnected not-started",
                    ])
            }
            try await group.shutdownGracefully()
        }
    }

    @Test func `the entries of a start without a network are in the order of their times`() async throws {
        try await DaemonUnderTest.withServer { directory, server, group in
            try directory.write(
                "sessions.d/main.toml",
                // An address of documentation (RFC 5737); to this host itself no network is needed.
                await DaemonUnderTest.session(server, "network = { interfaces = [\"none0\"] }")
                    .replacing("127.0.0.1", with: "192.0.2.1"))
            // No two readings are the same.
            let begin = Timestamp.now
            let readings = Atomic<Int64>(0)
            let clock = HostClock(now: HostClock.system.now) {
                Timestamp(rawValue: begin.rawValue + readings.add(1, ordering: .relaxed).newValue)
            }
            try await DaemonUnderTest.run(in: directory, server, on: group, clock: clock) { daemon in
                let history = try await daemon.peer().call("session.history")
                // The reason is another one on a host without a route to other networks.
                #expect(Self.changes(history).map { $0.hasPrefix("disconnected → connecting ") } == [true])
                let entries = try #require(history["entries"]?.elements)
                #expect(entries.first?["phase"] == "waiting-for-network")
                let times = entries.compactMap { $0["time"]?.text }
                #expect(times == times.sorted())
            }
        }
    }

    @Test func `a session that never existed is unknown, one that did has its history`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            for name in ["mian", "NOT A NAME"] {
                await #expect(throws: ControlPeer.CallFailure(code: "unknown-session")) {
                    try await peer.call("session.history", #"{"session":"\#(name)"}"#)
                }
            }
            let gone = HistoryEntry(
                time: Timestamp(rawValue: 1), session: try #require(SessionName("gone")), from: "connecting",
                to: "connected", reasonCode: "invented-later", message: "…")
            try await daemon.store.record([gone])
            let history = try await peer.call("session.history", #"{"session":"gone"}"#)
            #expect(Self.changes(history) == ["connecting → connected invented-later"])
        }
    }

    @Test func `a store that fails costs only the history and one line of log`() async throws {
        let directory = try TemporaryDirectory()
        defer { directory.remove() }
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let (loop, log) = (group.next(), RecordingLog())
        let store = try DurableStore(
            directory: "\(directory.path)/state", durability: .normal, executor: group.next().executor)
        try await store.close()
        let queue = HistoryQueue(store: store, logger: log.logger, eventLoop: loop)
        let entry = HistoryEntry(
            time: Timestamp(rawValue: 1), session: try #require(SessionName("main")), from: "connecting",
            to: "connected", reasonCode: "autoconnect", message: "…")
        for _ in 1...3 {
            await queue.record(entry)
            await queue.everythingRecorded()
        }
        #expect(log.lines.map(\.message) == ["the history of the sessions has a gap: the store is closed"])
        try await group.shutdownGracefully()
    }

    @Test(.timeLimit(.minutes(10)))
    func `who waits for the history does not wait for what is recorded later`() async throws {
        let directory = try TemporaryDirectory()
        defer { directory.remove() }
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let store = try DurableStore(
            directory: "\(directory.path)/state", durability: .normal, executor: group.next().executor)
        let loop = group.next()
        let queue = HistoryQueue(store: store, logger: RecordingLog().logger, eventLoop: loop)
        let main = try #require(SessionName("main"))
        let entry = HistoryEntry(
            time: .now, session: main, from: "connecting", to: "connected", reasonCode: "autoconnect",
            message: "…")
        await queue.record(entry)
        let flood = loop.scheduleRepeatedTask(initialDelay: .zero, delay: .microseconds(100)) { _ in
            queue.assumeIsolated { $0.record(entry) }
        }
        await queue.everythingRecorded()
        #expect(try await !store.history(session: main, limit: 1).entries.isEmpty)
        flood.cancel()
        await queue.everythingRecorded()
        try await store.close()
        try await group.shutdownGracefully()
    }
}

struct HistoryRecorderTests {
    private let main: SessionName

    init() throws {
        main = try #require(SessionName("main"))
    }

    private func change(
        to state: SessionState, _ phase: Phase? = nil,
        path: SessionStatus.Path? = nil, message: String = "…"
    ) -> SessionEvent {
        var event = SessionEvent(time: Timestamp(rawValue: 7), session: "main", event: .stateChanged)
        event.state = state
        event.phase = phase
        event.path = path
        event.reason = .init(code: "reset", group: "network", terminal: false, message: message)
        return event
    }

    @Test func `attempts are not recorded, but going offline and coming back are`() {
        let path = SessionStatus.Path(interface: "eth0", type: "ethernet", source: "10.0.0.2", gateway: nil)
        var recorder = HistoryRecorder()
        func take(_ event: SessionEvent) -> String? {
            recorder.take(main, event).map { "\($0.from) \($0.to) \($0.phase ?? "-")" }
        }
        #expect(take(change(to: .connecting, .dialing, path: path)) == "disconnected connecting -")
        #expect(take(change(to: .connecting, .waiting)) == nil)
        #expect(take(change(to: .connected)) == "connecting connected -")
        #expect(take(change(to: .connected)) == nil)
        #expect(take(change(to: .reconnecting, .waitingForNetwork)) == "connected reconnecting waiting-for-network")
        // The safety attempt, which is made without a path.
        #expect(take(change(to: .reconnecting, .dialing)) == nil)
        #expect(take(change(to: .reconnecting, .waitingForNetwork)) == nil)
        #expect(take(change(to: .reconnecting, .dialing, path: path)) == "reconnecting reconnecting -")
    }

    @Test func `an endless message is cut off`() {
        var recorder = HistoryRecorder()
        let entry = recorder.take(main, change(to: .failed, message: String(repeating: "ü", count: 100_000)))
        #expect(entry?.message.count == HistoryRecorder.maximumMessageLength)
    }

    @Test func `a shutdown is recorded once`() {
        var recorder = HistoryRecorder()
        _ = recorder.take(main, change(to: .failed))
        #expect(recorder.stopped(at: Timestamp(rawValue: 9)).map(\.from) == ["failed"])
        #expect(recorder.stopped(at: Timestamp(rawValue: 9)).isEmpty)
    }

    @Test func `a session that was removed does not end once more with the daemon`() {
        var recorder = HistoryRecorder()
        _ = recorder.take(main, change(to: .disconnected))
        _ = recorder.take(
            main, SessionEvent(time: Timestamp(rawValue: 8), session: "main", event: .sessionRemoved))
        #expect(recorder.stopped(at: Timestamp(rawValue: 9)).isEmpty)
    }

    @Test(
        arguments: [
            // The last sign of life; not before the last entry; not after now; the last entry if there is none.
            ("connected", 50, 80, 100, 80), ("reconnecting", 50, 20, 100, 50), ("connected", 50, 300, 100, 100),
            ("failed", 50, nil, 100, 50), ("connected", 200, 80, 100, 200), ("disconnected", 50, 80, 100, nil),
        ] as [(String, Int64, Int64?, Int64, Int64?)])
    func `an end that was not recorded is placed at the last sign of life`(
        _ state: String, _ last: Int64, _ alive: Int64?, _ now: Int64, _ expected: Int64?
    ) {
        let entry = HistoryEntry(
            time: Timestamp(rawValue: last), session: main, from: "connecting", to: state, reasonCode: "reset",
            message: "…")
        let end = HistoryRecorder.unrecordedEnd(
            after: entry, lastAlive: alive.map { Timestamp(rawValue: $0) }, now: Timestamp(rawValue: now))
        #expect(end?.time.rawValue == expected)
        #expect(end?.from ?? state == state)
        #expect(end?.to ?? "disconnected" == "disconnected")
        #expect(end?.reasonCode ?? "shutdown" == "shutdown")
    }
}
