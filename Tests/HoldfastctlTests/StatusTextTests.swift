import ControlAPI
import HoldfastClient
import Testing

@testable import holdfastctl

struct StatusTextTests {
    private static let now = Timestamp(rawValue: 1_795_165_964_120)

    static func status(
        _ state: SessionState, for seconds: Int64 = 12, phase: Phase? = nil, attempt: Int = 0,
        retryIn: Double? = nil, reason: SessionStatus.Reason? = nil, endpoint: String? = "mqtts://broker.example:8883",
        interface: String? = nil, quality: Quality? = nil, rtt: Double? = nil, lastHeard: Double? = nil
    ) -> SessionStatus {
        var status = SessionStatus(
            session: "main", state: state, since: Timestamp(rawValue: now.rawValue - seconds * 1000), reason: reason)
        (status.phase, status.attempt, status.retryIn, status.endpoint) = (phase, attempt, retryIn, endpoint)
        status.path = interface.map { .init(interface: $0, type: "wifi", source: "10.0.0.2", gateway: nil) }
        (status.quality, status.rtt, status.lastHeard) = (quality, rtt, lastHeard)
        return status
    }

    static func reason(_ code: String, _ message: String, hint: String? = nil) -> SessionStatus.Reason {
        .init(code: code, group: "x", terminal: false, message: message, hint: hint)
    }

    @Test func `a session that may not use the available network says so`() {
        let why = Self.reason("network-not-allowed", "the only way to the endpoint is tun0 (vpn)")
        let status = Self.status(.reconnecting, phase: .waitingForNetwork, reason: why)
        #expect(
            StatusText.sentence(for: status, now: Self.now)
                == "main is reconnecting: no network that it may use for 12 s: the only way to the endpoint is tun0 (vpn);"
                + " it connects as soon as one leads to the server.")
    }

    @Test func `a session that a reload has ended cannot be connected`() {
        let why = Self.reason("configuration-changed", "the session was removed from the configuration")
        #expect(
            StatusText.sentence(for: Self.status(.disconnected, reason: why), now: Self.now)
                == "main has been disconnected for 12 s: the session was removed from the configuration.")
    }

    @Test func `a session that waits for its password says so`() {
        var status = Self.status(.connecting, phase: .resolving, attempt: 1)
        status.awaitsCredential = true
        #expect(
            StatusText.sentence(for: status, now: Self.now)
                == "main has been connecting for 12 s; it is waiting for the program or file that has its password (attempt 1)."
        )
        status.awaitsTurn = true
        #expect(
            StatusText.sentence(for: status, now: Self.now)
                == "main has been connecting for 12 s; it is waiting for its turn to run the program that has its password (attempt 1)."
        )
    }

    @Test(arguments: [
        (
            status(.connected, for: 10_800, interface: "wlan0", quality: .excellent, rtt: 0.023),
            "main is connected to mqtts://broker.example:8883 via wlan0 for 3 h, RTT 23 ms."
        ),
        (status(.connected, for: 0, endpoint: nil), "main is connected for 0 s."),
        (
            status(.connected, quality: .poor, rtt: 1.5),
            "main is connected to mqtts://broker.example:8883 for 12 s, RTT 1 s, but the connection is poor."
        ),
        (
            status(.connected, quality: .lost, lastHeard: 19),
            "main is connected to mqtts://broker.example:8883 for 12 s, but nothing has been heard from the server for 19 s."
        ),
        (
            status(.reconnecting, phase: .waitingForNetwork, reason: reason("no-path", "no network: no route")),
            "main is reconnecting: no network for 12 s; it connects as soon as there is a route."
        ),
        (
            status(.connecting, phase: .waitingForNetwork),
            "main is connecting: no network for 12 s; it connects as soon as there is a route."
        ),
        (
            status(
                .reconnecting, for: 41, phase: .waiting, attempt: 7, retryIn: 12.2,
                reason: reason("tls-timeout", "the TLS handshake was not finished in time")),
            "main has been reconnecting for 41 s: the TLS handshake was not finished in time; retry 7 in 12 s."
        ),
        (status(.connecting, phase: .waiting), "main has been connecting for 12 s; retry follows."),
        (
            status(.connecting, phase: .resolving, attempt: 1),
            "main has been connecting for 12 s; it is looking up the name of mqtts://broker.example:8883 (attempt 1)."
        ),
        (
            status(.reconnecting, phase: .dialing, attempt: 2, reason: reason("reset", "the connection was reset")),
            "main has been reconnecting for 12 s: the connection was reset; it is opening a connection to"
                + " mqtts://broker.example:8883 (attempt 2)."
        ),
        (
            status(.connecting, phase: .securing, endpoint: nil),
            "main has been connecting for 12 s; it is negotiating TLS."
        ),
        (
            status(.connecting, phase: .authenticating),
            "main has been connecting for 12 s; it is logging in to mqtts://broker.example:8883."
        ),
        (
            status(.reconnecting, phase: .restoring),
            "main has been reconnecting for 12 s; it is restoring subscriptions and messages at"
                + " mqtts://broker.example:8883."
        ),
        (status(.connecting), "main has been connecting for 12 s; an attempt follows."),
        (
            status(.disconnecting, reason: reason("user-disconnect", "a disconnect was requested")),
            "main is disconnecting: a disconnect was requested; it sends what is in flight first."
        ),
        (
            status(
                .disconnected, for: 7500,
                reason: reason(
                    "user-disconnect", "a disconnect was requested", hint: "holdfastctl connect main starts it")),
            "main has been disconnected for 2 h 5 min: a disconnect was requested;"
                + " holdfastctl connect main starts it."
        ),
        (status(.disconnected), "main has been disconnected for 12 s; holdfastctl connect main connects it."),
        (
            status(
                .failed, for: 300,
                reason: reason("displaced", "another device took over", hint: "give each device its own client-id")),
            "main failed 5 min ago: another device took over; give each device its own client-id."
        ),
        (status(.failed), "main failed 12 s ago; holdfastctl connect main tries again."),
        (
            status(.failed, reason: reason("unknown", "x\u{1B}[31m\ny", hint: "h")),
            "main failed 12 s ago: x\u{FFFD}[31m y; h."
        ),
    ])
    func `each state has its sentence`(_ status: SessionStatus, _ sentence: String) {
        #expect(StatusText.sentence(for: status, now: Self.now) == sentence)
    }

    @Test func `a full disk is in the sentence and in the details`() {
        var status = Self.status(.disconnecting)
        status.storeFailure = "no room for holdfast.db"
        #expect(
            StatusText.sentence(for: status, now: Self.now)
                == "main is disconnecting; it sends what is in flight first; published messages cannot be stored."
        )
        let lines = StatusDetails.lines(for: status, times: TimeText(now: Self.now))
        let end = "published messages cannot be stored: no room for holdfast.db"
        #expect(lines.contains { $0.contains("Store") && $0.hasSuffix(end) })
    }

    @Test func `what cannot be read, and files that are not used, are in the sentence and in the details`() {
        var status = Self.status(.disconnecting)
        (status.readFailure, status.tlsFilesError) = ("the outbox cannot be read: x", "a.pem is empty")
        (status.room, status.presenceRefused) = ("plant", "not authorized (0x87)")
        #expect(
            StatusText.sentence(for: status, now: Self.now)
                == "main is disconnecting; it sends what is in flight first; its TLS files could not be used the last "
                + "time, so it uses those from before; it is not announced in its room; messages on disk "
                + "cannot be read.")
        let lines = StatusDetails.lines(for: status, times: TimeText(now: Self.now))
        #expect(lines.contains { $0.hasSuffix("the outbox cannot be read: x") })
        #expect(lines.contains { $0.contains("TLS files") && $0.hasSuffix("a.pem is empty") })
        let room = "where the session is not announced: not authorized (0x87)"
        #expect(lines.contains { $0.contains("Room") && $0.hasSuffix(room) })
    }

    @Test(arguments: SessionState.allCases, [nil] + Phase.allCases.map(Optional.some))
    func `every state and phase gives one whole sentence`(_ state: SessionState, _ phase: Phase?) {
        let sentence = StatusText.sentence(for: Self.status(state, phase: phase), now: Self.now)
        #expect(sentence.hasPrefix("main "))
        #expect(sentence.hasSuffix("."))
        #expect(!sentence.contains("  ") && !sentence.contains(" ;") && !sentence.contains("nil"))
    }

    @Test func `absolute times are those of the local clock`() {
        let times = TimeText(now: Self.now, offset: 3600, isAbsolute: true)
        let status = Self.status(.reconnecting, phase: .waiting, attempt: 3, retryIn: 16)
        #expect(
            StatusText.sentence(for: status, times: times)
                == "main has been reconnecting since 2026-11-20 10:12:32; retry 3 at 2026-11-20 10:13:00.")
    }

    @Test func `several sessions are summed up in the words of the status line`() {
        var failing = Self.status(.reconnecting, reason: Self.reason("dns-failed", "…"))
        failing.session = "edge-2"
        let connected = Self.status(.connected)
        #expect(
            StatusText.overview(of: [connected, connected, connected, connected, failing], creation: "")
                == "5 sessions: 4 connected, 1 reconnecting (edge-2: dns-failed).")
        #expect(StatusText.overview(of: [], creation: "do this") == "No session is configured; do this.")
        #expect(
            StatusText.overview(of: [failing, failing, failing, failing, failing], creation: "").hasSuffix(
                "dns-failed, and 2 more).")
        )
    }

    @Test(
        arguments: [
            (nil, "gw@.toml, holdfast.toml, main.toml, sessions.d/holdfast.toml have changed since the daemon read"),
            ("holdfast", "holdfast.toml, sessions.d/holdfast.toml have changed"),
            ("main", "holdfast.toml, main.toml have changed"), ("gw@n", "gw@.toml, holdfast.toml have changed"),
            ("other", "holdfast.toml has changed"),
        ] as [(String?, String)])
    func `files that the daemon has not read are named where they matter`(_ session: String?, _ words: String) throws {
        let paths = ["holdfast.toml"] + ["gw@", "holdfast", "main"].map { "sessions.d/\($0).toml" }
        let sentence = try #require(StatusText.changedFiles(paths.map { "/c/\($0)" }, of: session))
        #expect(sentence.hasPrefix(words) && sentence.hasSuffix(": holdfastctl reload"), "\(sentence)")
        #expect(StatusText.changedFiles(["/c/sessions.d/main.toml"], of: "other") == nil)
        #expect(StatusText.isDaemonFile("/c/holdfast.toml") && !StatusText.isDaemonFile("/c/sessions.d/holdfast.toml"))
    }

    @Test(arguments: [
        (-5.0, "0 s"), (0, "0 s"), (0.0004, "0.4 ms"), (0.0023, "2.3 ms"), (0.023, "23 ms"), (0.9994, "999 ms"),
        (0.9996, "1 s"), (12.9, "12 s"), (60, "1 min"), (200, "3 min 20 s"), (1500, "25 min"), (3600, "1 h"),
        (11_160, "3 h 6 min"), (187_200, "2 d 4 h"), (.infinity, "forever"), (.nan, "0 s"),
    ])
    func `durations are short`(_ seconds: Double, _ text: String) {
        #expect(TimeText.duration(seconds) == text)
    }

    @Test(arguments: [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (268_435_456, "256 MiB")] as [(Int64, String)])
    func `sizes are short`(_ bytes: Int64, _ text: String) {
        #expect(TimeText.size(bytes) == text)
    }
}

struct DetailTests {
    private let times = TimeText(now: Timestamp(rawValue: 100_000))

    @Test func `details are aligned and omit absent values`() {
        var status = SessionStatus(session: "a", state: .connected, since: Timestamp(rawValue: 95_000))
        status.resumed = true
        status.outbox = .init(queued: 2, inFlight: 1, bytes: 2048, oldest: Timestamp(rawValue: 90_000))
        #expect(
            StatusDetails.lines(for: status, times: times) == [
                "  State     connected, resumed, for 5 s",
                "  Outbox    2 queued, 1 in flight, 2 KiB, oldest accepted 10 s ago",
                "  Counters  attempts 0, connects 0, resumed 0, outages 0, accepted 0, received 0",
            ])
    }

    @Test func `rejected messages are in the sentence and in the list`() {
        var status = SessionStatus(session: "a", state: .connected, since: Timestamp(rawValue: 95_000))
        status.outbox = .init(queued: 2, inFlight: 1, quarantined: 1, bytes: 2048, oldest: nil)
        #expect(
            StatusText.sentence(for: status, times: times).hasSuffix(
                "; 1 rejected message is quarantined: holdfastctl queue a."))
        #expect(StatusDetails.table([status], times: times).last?.contains("  3+1 ") == true)
    }

    @Test func `a refused filter is asked again at a time that lies ahead`() {
        var status = SessionStatus(session: "a", state: .connected, since: Timestamp(rawValue: 95_000))
        status.subscriptions = [
            .init(
                filter: "t", qos: .atLeastOnce, state: .refused, message: "not authorized",
                since: Timestamp(rawValue: 40_000), retryAt: Timestamp(rawValue: 340_000))
        ]
        let lines = StatusDetails.lines(for: status, times: times)
        #expect(lines.contains("  Refused     t since 1 min ago: not authorized, asked again in 4 min"), "\(lines)")
    }

    @Test func `a value of wide characters continues on the next line before the terminal cuts it`() {
        var status = SessionStatus(session: "a", state: .connected, since: Timestamp(rawValue: 95_000))
        status.room = "会議室 会議室"
        let lines = StatusDetails.lines(for: status, times: times, width: 24)
        #expect(lines.contains("  Room      会議室"))
        #expect(lines.contains("            会議室"))
    }

    @Test func `the list is a table`() {
        var status = SessionStatus(session: "long-name", state: .connecting, since: Timestamp(rawValue: 95_000))
        status.phase = .dialing
        let other = SessionStatus(session: "b", state: .failed, since: Timestamp(rawValue: 95_000))
        #expect(
            StatusDetails.table([status, other], times: times) == [
                "SESSION    STATE                 TIME     VIA  RTT  OUTBOX  REASON  ENDPOINT",
                "long-name  connecting (dialing)  for 5 s  -    -    0       -       -",
                "b          failed                for 5 s  -    -    0       -       -",
            ])
    }

    @Test func `the list has no reason of a connected session, since that is what came before`() {
        var status = SessionStatus(session: "a", state: .connected, since: Timestamp(rawValue: 95_000))
        status.reason = StatusTextTests.reason("server-closed", "no")
        var away = status
        away.state = .reconnecting
        #expect(
            StatusDetails.table([status, away], times: times) == [
                "SESSION  STATE         TIME     VIA  RTT  OUTBOX  REASON         ENDPOINT",
                "a        connected     for 5 s  -    -    0       -              -",
                "a        reconnecting  for 5 s  -    -    0       server-closed  -",
            ])
    }

    @Test func `one session is shown with details and several without`() {
        let status = SessionStatus(session: "a", state: .connected, since: Timestamp(rawValue: 95_000))
        func lines(_ sessions: [SessionStatus], verbose: Bool = false) -> [String] {
            StatusCommand.lines(
                sessions, times: times, verbose: verbose, creation: "", marked: { sentence, _ in sentence })
        }
        #expect(lines([status]).count == 4)
        #expect(lines([status, status]).count == 3)
        #expect(lines([status, status], verbose: true).count == 9)
        #expect(lines([]).count == 1)
    }

    @Test func `a status that says the same as the last one is not shown again`() {
        var changes = StatusChanges()
        var status = SessionStatus(session: "a", state: .connecting, since: Timestamp(rawValue: 0))
        status.attempt = 1
        func isNew(_ change: (inout SessionStatus) -> Void = { _ in }) -> Bool {
            change(&status)
            return changes.take(status)
        }
        #expect(isNew())
        #expect(!isNew())
        #expect(isNew { $0.phase = .dialing })
        #expect(isNew { $0.attempt = 2 })
        #expect(isNew { $0.reason = StatusTextTests.reason("refused", "no") })
        #expect(isNew { $0.session = "b" })
        #expect(isNew { $0.state = .connected })
        #expect(!isNew { $0.rtt = 0.02 })
        #expect(isNew { $0.since = Timestamp(rawValue: 1) })
    }

    @Test func `the network status begins with whether every endpoint has a path`() {
        let path = SessionStatus.Path(interface: "eth0", type: "ethernet", source: "10.0.0.2", gateway: "10.0.0.1")
        func first(_ paths: [SessionStatus.Path?]) -> String? {
            let paths = paths.map { NetworkStatus.EndpointPath(session: "a", endpoint: "mqtt://h", path: $0) }
            let status = NetworkStatus(interfaces: [], paths: paths, changes: [], counters: [:])
            return NetworkText.lines(for: status, times: times).first
        }
        #expect(first([path]) == "There is a path to every endpoint, via eth0.")
        #expect(first([nil]) == "There is no path to any endpoint.")
        #expect(first([path, nil]) == "There is no path to 1 of 2 endpoints (mqtt://h).")
        #expect(first([]) == "No session needs the network.")
    }

    @Test func `a change of a path says what has changed`() {
        func path(_ interface: String, _ source: String, _ gateway: String? = nil) -> SessionStatus.Path {
            .init(interface: interface, type: interface == "lo" ? "loopback" : "wifi", source: source, gateway: gateway)
        }
        func last(_ from: SessionStatus.Path?, _ to: SessionStatus.Path?) -> String? {
            let change = NetworkStatus.Change(
                time: Timestamp(rawValue: 0), class: "gained", session: "a", from: from, to: to)
            let status = NetworkStatus(interfaces: [], paths: [], changes: [change], counters: [:])
            return NetworkText.lines(for: status, times: times).last?.split(separator: "a: gained, ").last.map(
                String.init)
        }
        #expect(last(nil, path("wlan0", "10.0.0.1")) == "none → wlan0")
        #expect(last(path("eth0", "10.0.0.1"), path("wlan0", "10.0.0.1")) == "eth0 → wlan0")
        #expect(last(path("wlan0", "10.0.0.1"), path("wlan0", "10.0.0.2")) == "wlan0 from 10.0.0.1 → 10.0.0.2")
        #expect(last(path("wlan0", "a", "b"), path("wlan0", "a", "c")) == "wlan0 via b → c")
        #expect(last(path("wlan0", "a"), path("wlan0", "a")) == "wlan0")
        let local = path("lo", "127.0.0.1")
        #expect(last(local, local) == "lo, and the routes to other hosts have changed")
    }

    @Test func `reload says what changed and where errors are`() {
        #expect(ReloadText.sentence(.init()) == "Reloaded: nothing changed.")
        let problem = ConfigurationProblem(session: "a", file: "a.toml", line: 3, column: 9, message: "unknown key")
        #expect(
            ReloadText.sentence(.init(changed: ["a", "b"], removed: ["c"], errors: [problem]))
                == "Reloaded: changed a, b; removed c; 1 error.")
        #expect(ReloadText.problem(problem) == "a.toml:3:9: unknown key")
        let changes = [
            ConfigurationChange(session: nil, key: "durability", from: "\"normal\"", to: "\"full\""),
            ConfigurationChange(
                session: nil, key: "log.level", from: "\"info\"", to: "\"debug\"", overriddenBy: "--log-level"),
            ConfigurationChange(session: "a", key: "room", from: "\"\"", to: "\"r\""),
        ]
        #expect(
            ReloadText.lines(.init(changed: ["a"], changes: changes), isDry: false) == [
                "Reloaded: changed the daemon; changed a.", "  holdfast.toml",
                "    durability: \"normal\" → \"full\", once the service is restarted",
                "    log.level: \"info\" → \"debug\", overridden by --log-level of holdfastd", "  a",
                "    room: \"\" → \"r\"",
            ])
        let left = DaemonReloadMethod.Result.LeftBehind(session: "c", message: "the server may keep 1 publication")
        #expect(
            ReloadText.lines(.init(removed: ["c"], leftBehind: [left]), isDry: false) == [
                "Reloaded: removed c.",
                "  c could not say goodbye to its server: the server may keep 1 publication",
            ])
        let absent = [
            AbsentSession(session: "c", messages: 2, bytes: 9, oldest: nil),
            AbsentSession(session: "gw@a", messages: 1, bytes: 4, oldest: nil),
            AbsentSession(session: "w", messages: 0, bytes: 0, oldest: nil, consumers: 1, received: 3, publications: 2),
        ]
        #expect(
            ReloadText.lines(.init(removed: ["c", "gw@a", "w"], absentSessions: absent), isDry: true) == [
                "A reload would remove c, gw@a, w.",
                "  c: 2 accepted messages stay on disk; a file named c.toml with one of the same servers sends them",
                "  gw@a: 1 accepted message stays on disk; holdfastctl instance add gw@a sends it if the template has "
                    + "one of the same servers",
                "  w: 3 received messages, 1 durable consumer and 2 publications stay on disk; a file named w.toml with "
                    + "one of the same servers takes them up",
            ])
    }

    @Test func `a reload for one session says what it would do to others, and nothing of those that it adds`() {
        #expect(ReloadText.others(.init(), than: "new") == nil)
        #expect(ReloadText.others(.init(changed: ["new"], added: ["three"], kept: ["k"]), than: "new") == nil)
        #expect(ReloadText.others(.init(added: ["new"], removed: ["one", "two"]), than: "new") == "remove one, two")
        #expect(
            ReloadText.others(.init(changed: ["new", "three"], removed: ["one"]), than: "new")
                == "remove one, and change three")
    }
}

struct WatchTextTests {
    @Test func `an event that led to the states that were shown says so`() {
        func event(_ sequence: Int64) -> SessionEvent {
            var event = SessionEvent(
                watch: .init(rawValue: "w1"), sequence: sequence, time: Timestamp(rawValue: 0), session: "main",
                event: .stateChanged)
            (event.from, event.state) = (.connecting, .connected)
            return event
        }
        var text = WatchText()
        #expect(!text.line(event(1), offset: 0).hasSuffix("(before the states above)"))
        let snapshot = SessionWatchMethod.Result(
            watch: .init(rawValue: "w1"), snapshot: .init(sessions: []), sequence: 3)
        _ = text.lines(.snapshot(snapshot), Terminal())
        #expect(text.line(event(3), offset: 0).hasSuffix("connecting → connected (before the states above)"))
        #expect(text.line(event(4), offset: 0).hasSuffix("connecting → connected"))
    }

    @Test func `a removal from before the snapshot ends no watch, and a later one only that of the session`() throws {
        func removed(_ sequence: Int64) -> SessionWatch.Element {
            .event(
                SessionEvent(
                    watch: .init(rawValue: "w1"), sequence: sequence, time: Timestamp(rawValue: 0), session: "main",
                    event: .sessionRemoved))
        }
        let snapshot = SessionWatchMethod.Result(
            watch: .init(rawValue: "w1"), snapshot: .init(sessions: []), sequence: 3)
        for (session, isEnd) in [("main", true), ("other", false), (nil, false)] {
            var removal = RemovalCheck(session: session)
            try removal.check(.snapshot(snapshot))
            try removal.check(removed(3))
            var isEnded = false
            do { try removal.check(removed(4)) } catch { isEnded = true }
            #expect(isEnded == isEnd, "\(session ?? "all")")
        }
    }
}

struct HistoryRowTests {
    @Test func `a removed session has a row only if it was connected`() {
        func entry(_ session: String, _ from: SessionState, _ to: SessionState) -> SessionHistoryEntry {
            SessionHistoryEntry(
                time: Timestamp(rawValue: 0), session: session, from: from, to: to, phase: nil,
                reason: .init(code: "x", group: "y", terminal: false, message: "z"), mode: nil, outage: nil)
        }
        let entries = [
            entry("mian", .disconnected, .failed), entry("old", .connected, .disconnected),
            entry("main", .disconnected, .connecting),
        ]
        #expect(HistoryCommand.worthARow(entries, ["main"]).map(\.session) == ["old", "main"])
    }
}

struct EventTextTests {
    private static func event(_ kind: SessionEvent.Kind, _ change: (inout SessionEvent) -> Void) -> SessionEvent {
        var event = SessionEvent(
            watch: .init(rawValue: "w1"), sequence: 1, time: Timestamp(rawValue: 1_795_165_964_120), session: "main",
            event: kind)
        change(&event)
        return event
    }

    @Test(arguments: [
        (
            event(.stateChanged) {
                $0.from = .connected
                $0.state = .reconnecting
                $0.mode = .quick
                $0.reason = StatusTextTests.reason("heartbeat-timeout", "…")
            }, "09:12:44.120 main connected → reconnecting (quick) heartbeat-timeout"
        ),
        (
            event(.stateChanged) {
                $0.from = .reconnecting
                $0.state = .reconnecting
                $0.phase = .waiting
                $0.attempt = 3
                $0.retryIn = 4
            }, "09:12:44.120 main reconnecting retry 3 in 4 s"
        ),
        (
            event(.stateChanged) {
                $0.phase = .dialing
                $0.attempt = 1
            }, "09:12:44.120 main dialing, attempt 1"
        ),
        (
            event(.stateChanged) {
                $0.from = .reconnecting
                $0.state = .connected
                $0.resumed = true
            }, "09:12:44.120 main reconnecting → connected (resumed)"
        ),
        (event(.connectionLost) { $0.outage = 10 }, "09:12:44.120 main connection lost for 10 s"),
        (
            event(.publicationChanged) {
                $0.topic = "lamp"
                $0.publication = .refused
                $0.reasonCode = 135
            }, "09:12:44.120 main publication lamp refused (0x87)"
        ),
        (event(.reconnectCompleted) { $0.mode = .full }, "09:12:44.120 main reconnect completed (full)"),
        (
            event(.dropped) {
                $0.session = nil
                $0.count = 3
            }, "09:12:44.120 3 events are missing: too old, or dropped because too much was unread"
        ),
        (event(.init(rawValue: "new-kind")) { _ in }, "09:12:44.120 main new-kind"),
    ])
    func `an event is a line`(_ event: SessionEvent, _ line: String) {
        #expect(EventText.line(event, offset: 0) == line)
    }
}
