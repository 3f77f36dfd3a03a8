import ArgumentParser
import ControlAPI
import HoldfastClient

struct WatchCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "watch",
        abstract: "Print the events of sessions as they happen.",
        discussion: """
            The state of each session comes first, then one line per event; on a terminal, the current states stay below \
            the events. With --json, the first line is the snapshot and every other line is an event. It continues when \
            the daemon is restarted, and with SESSION ends with the exit code 1 when that is removed from the configuration.
            """)

    @OptionGroup var common: CommonOptions
    @Argument(help: "The session; without it, all of them.", completion: .sessions) var session: String?
    @Option(
        help: ArgumentHelp(
            "First print the events after this sequence number that the daemon still has.", valueName: "sequence"))
    var since: Int64?

    func run() async throws {
        let terminal = common.terminal
        terminal.endWithReader()
        let client = common.client()
        let watch = try await client.watch(session: session, since: since)
        if terminal.canDraw, !common.json { return try await draw(watch, client, on: terminal) }
        var text = WatchText()
        var removal = RemovalCheck(session: session)
        for try await element in watch {
            if case .detached(let error) = element {
                common.complain(Complaint(detached: error))
            } else if common.json {
                Self.printJSON(element, to: terminal)
            } else {
                for line in text.lines(element, terminal) { terminal.print(line) }
            }
            try removal.check(element)
        }
    }

    private func draw(_ watch: SessionWatch, _ client: HoldfastClient, on terminal: Terminal) async throws {
        let view = WatchView(session: session, client: client, terminal: terminal)
        try await withThrowingTaskGroup(of: Void.self) { group in
            // While the terminal is stopped (Control-S), nothing is taken from the watch, whose buffer is bounded.
            group.addTask {
                var removal = RemovalCheck(session: session)
                for try await element in watch {
                    await view.take(element)
                    try removal.check(element)
                }
            }
            group.addTask {
                while true {
                    try await Task.sleep(for: .seconds(1))
                    await view.draw()
                }
            }
            _ = try await group.next()
            group.cancelAll()
        }
    }

    private static func printJSON(_ element: SessionWatch.Element, to terminal: Terminal) {
        switch element {
        case .snapshot(let result): terminal.print(json: JSONText.value(result))
        case .event(let event): terminal.print(json: JSONText.value(event))
        case .detached: break
        case .dropped(let count):
            terminal.print(json: .object(["event": .string("dropped"), "count": .integer(Int64(count))]))
        }
    }
}

/// Notices the end of what a watch of one session can tell.
struct RemovalCheck {
    let session: String?
    /// The last event that the newest snapshot contains: the session may have come back since.
    private var sequence = Int64.min

    init(session: String?) { self.session = session }

    /// - Throws: when the session was removed from the configuration, after which nothing is to be expected.
    mutating func check(_ element: SessionWatch.Element) throws(ClientError) {
        switch element {
        case .snapshot(let result):
            sequence = result.sequence
        case .event(let event):
            guard let session, event.event == .sessionRemoved, event.session == session, event.sequence > sequence
            else { return }
            throw .refused(.sessionRemoved(session))
        case .detached, .dropped:
            break
        }
    }
}

/// What is said about each element of a watch.
struct WatchText {
    /// The last event that the newest snapshot contains.
    private var sequence = Int64.min

    mutating func lines(_ element: SessionWatch.Element, _ terminal: Terminal) -> [String] {
        let times = Terminal.times()
        let time = times.now.time(offset: times.offset)
        switch element {
        case .snapshot(let result):
            sequence = result.sequence
            return result.snapshot.sessions.map { status in
                "\(time) \(terminal.marked(StatusText.sentence(for: status, times: times), status.state))"
            }
        case .event(let event): return [line(event, offset: times.offset)]
        case .detached: return []
        case .dropped(let count): return ["\(time) \(EventText.unread(count))"]
        }
    }

    /// After a restart of the daemon, and with `--since`, events follow that led to the states already shown.
    func line(_ event: SessionEvent, offset: Int64) -> String {
        let line = EventText.line(event, offset: offset)
        return event.sequence > sequence ? line : "\(line) (before the states above)"
    }
}

/// The events of a watch on a terminal: they scroll past above the current states, whose durations keep counting.
private actor WatchView {
    private let session: String?
    private let client: HoldfastClient
    private let terminal: Terminal
    private var view: LiveLines
    private var shown: [SessionStatus] = []
    private var text = WatchText()

    init(session: String?, client: HoldfastClient, terminal: Terminal) {
        self.session = session
        self.client = client
        self.terminal = terminal
        view = LiveLines(terminal)
    }

    func take(_ element: SessionWatch.Element) async {
        var passed: [String] = []
        switch element {
        case .snapshot(let result):
            shown = result.snapshot.sessions
            _ = text.lines(element, terminal)
        case .detached(let error):
            passed = ["\(printable("\(error)")); waiting for the daemon"]
            // Their current states are unknown.
            shown = []
        case .event(let event) where !event.changesStates:
            passed = text.lines(element, terminal)
        case .event, .dropped:
            passed = text.lines(element, terminal)
            if let sessions = try? await client.sessions() {
                shown = sessions.filter { session == nil || $0.session == session }
            }
        }
        draw(below: passed)
    }

    func draw(below passed: [String] = []) {
        let times = Terminal.times()
        let states = shown.map { status in
            (status.state, [terminal.marked(StatusText.sentence(for: status, times: times), status.state)])
        }
        // The other half is for the events.
        let lines = LiveLines.states(
            states, heading: [""], overview: ["", StatusText.overview(of: shown, creation: "")],
            room: max(view.room / 2, 4))
        view.show(states.isEmpty ? [] : lines, below: passed)
    }
}

struct WaitCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "wait",
        abstract: "Wait until sessions are connected.",
        discussion: """
            Without SESSION, it waits for all sessions that connect automatically: not for those that were disconnected \
            with a command, and not for those that connect on demand.

            The exit code is 0 when all of them are in the state, also if there is none to wait for; 4 when that took \
            too long; 3 as soon as one has failed and will not connect on its own, or if no session is configured; and 1 \
            if one is not configured, or is removed by a reload.
            """)

    @OptionGroup var common: CommonOptions
    @Argument(help: "The sessions; without any, all that connect automatically.", completion: .sessions) var sessions:
        [String] = []
    @Option(help: ArgumentHelp("How long to wait, like 500ms, 30s, 5min or never.", valueName: "duration"))
    var timeout = SpanArgument(duration: .seconds(30))
    @Option(help: "The state to wait for.") var state = SessionState.connected

    func validate() throws { try timeout.checkAsTimeout(canBeZero: true) }

    func run() async throws {
        let start = ContinuousClock.now
        let client = common.client(patience: timeout.duration)
        // An unknown session is an error here, with the names that are near.
        for session in sessions {
            _ = try await client.call(
                SessionStatusMethod.self, .init(session: session), timeout: CommonOptions.answerTimeout)
        }
        var progress = WaitProgress(wanted: state, names: sessions)
        progress.take(all: try await client.sessions())
        let left = timeout.duration.map { $0 - (ContinuousClock.now - start) }
        var outcome = progress.outcome
        if outcome == nil { outcome = try await within(left) { [progress] in try await progress.outcome(client) } }
        switch outcome {
        case .reached(let sessions)?:
            if sessions.isEmpty {
                common.complain(
                    Complaint(
                        notice:
                            "there is nothing to wait for: each session was disconnected with a command, connects on "
                            + "demand or has autoconnect = false; name the ones to wait for"))
            }
            if common.json {
                Terminal().print(json: JSONText.value(["sessions": sessions]))
            }
        case .hopeless(let sentence, let advice)?:
            throw CommandFailure(.notConnected, sentence, advice: advice)
        case .nothingConfigured?:
            throw CommandFailure(.notConnected, "no session is configured", advice: common.creation)
        case .removed(let session)?:
            throw CommandFailure(
                .failed, "session \(session) is not configured any more", advice: "holdfastctl list shows the sessions")
        case nil:
            let names =
                switch sessions.count {
                case 0: "not all sessions are"
                case 1: "\(sessions[0]) is not"
                default: "not all of \(sessions.joined(separator: ", ")) are"
                }
            throw CommandFailure(
                .timeout, "\(names) \(state.rawValue) after \(timeout)",
                advice: "holdfastctl status\(sessions.count == 1 ? " \(sessions[0])" : "") says why")
        }
    }
}

/// What `wait` knows about the sessions that it waits for.
struct WaitProgress: Sendable {
    enum Outcome: Equatable, Sendable {
        /// The states by session.
        case reached([String: String])
        /// Why waiting is pointless, without the final full stop, and what to do about it.
        case hopeless(String, advice: String)
        case nothingConfigured
        /// A session that was named is not configured any more.
        case removed(String)
    }

    let wanted: SessionState
    /// Empty: all.
    let names: [String]
    private var states: [String: SessionState] = [:]
    private var reasons: [String: SessionStatus.Reason] = [:]
    private var isKnown = false

    init(wanted: SessionState, names: [String]) {
        self.wanted = wanted
        self.names = names
    }

    mutating func take(_ element: SessionWatch.Element) {
        switch element {
        case .snapshot(let result):
            take(all: result.snapshot.sessions)
        case .event(let event):
            guard let name = event.session else { return }
            if event.event == .sessionRemoved { states[name] = nil }
            guard let state = event.state else { return }
            states[name] = state
            if let reason = event.reason { reasons[name] = reason }
        case .detached:
            // The states may have changed by the time the daemon is back.
            isKnown = false
        case .dropped:
            break
        }
    }

    /// Takes the status of every session there is.
    mutating func take(all sessions: [SessionStatus]) {
        isKnown = true
        states = [:]
        for status in sessions {
            states[status.session] = status.state
            reasons[status.session] = status.reason
        }
    }

    /// Watches the sessions until there is an outcome.
    func outcome(_ client: HoldfastClient) async throws -> Outcome {
        var progress = self
        for try await element in try await client.watch() {
            progress.take(element)
            // A state may have changed. If the daemon is away, a snapshot follows anyway.
            if case .dropped = element, let sessions = try? await client.sessions() { progress.take(all: sessions) }
            if let outcome = progress.outcome { return outcome }
        }
        throw ClientError.closed
    }

    var outcome: Outcome? {
        guard isKnown else { return nil }
        if let removed = names.first(where: { states[$0] == nil }) {
            return .removed(removed)
        }
        let awaited = names.isEmpty ? states.keys.filter(connectsByItself).sorted() : names
        if states.isEmpty { return .nothingConfigured }
        if awaited.allSatisfy({ states[$0] == wanted }) {
            return .reached(Dictionary(awaited.map { ($0, wanted.rawValue) }, uniquingKeysWith: { first, _ in first }))
        }
        if wanted == .connected, let failed = awaited.first(where: { states[$0] == .failed }) {
            let reason = reasons[failed]
            return .hopeless(
                "\(failed) has failed" + (reason.map { ": \($0.message)" } ?? ""),
                advice: reason?.hint ?? "holdfastctl status \(failed) says why")
        }
        // A session that only rests, such as an idle one, comes back on its own; one that a command disconnected does
        // not.
        let lasting = ["user-disconnect", "goodbye-unheard", "not-started"]
        let isDown = { (name: String) in
            states[name] == .disconnected && lasting.contains(reasons[name]?.code ?? "")
        }
        if wanted == .connected, let down = awaited.first(where: isDown) {
            return .hopeless(
                "\(down) is disconnected: \(reasons[down]?.message ?? "")",
                advice: "holdfastctl connect \(down) starts it")
        }
        return nil
    }
}

extension WaitProgress {
    /// Whether to wait for a session that was not named. Of those that are down, failed ones are waited for, so that the
    /// failure is reported, and those that are down for a moment only.
    private func connectsByItself(_ name: String) -> Bool {
        switch states[name] {
        case .disconnected, .disconnecting:
            wanted != .connected
                || ["configuration-changed", "store-replaced", "shutdown", "suspend"].contains(reasons[name]?.code)
        default: true
        }
    }
}

/// Carries out the work, but gives up after `limit`.
///
/// - Returns: `nil` if the work took too long.
func within<Value: Sendable>(
    _ limit: Duration?, _ work: @escaping @Sendable () async throws -> Value
) async throws -> Value? {
    guard let limit else { return try await work() }
    return try await withThrowingTaskGroup(of: Value?.self) { group in
        group.addTask { try await work() }
        group.addTask {
            try await Task.sleep(for: limit)
            return nil
        }
        defer { group.cancelAll() }
        guard let first = try await group.next() else { return nil }
        return first
    }
}
