import ArgumentParser
import ControlAPI
import HoldfastClient

struct StatusCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "status",
        abstract: "Show what sessions are doing and why.",
        discussion: """
            The first sentence gives the state, since when, why, and what comes next; the details follow. \
            Without SESSION, there is one sentence about all of them and one about each.
            """)

    @OptionGroup var common: CommonOptions
    @Argument(help: "The session; without it, all of them.", completion: .sessions) var session: String?
    @Flag(help: "Exit with code 3 unless there are sessions, and every one shown is connected.") var check = false
    @Flag(name: [.short, .long], help: "Show dates instead of durations, and the details of every session.")
    var verbose = false
    @Flag(
        help: "Keep running: update in place on a terminal, print a sentence at every change elsewhere.")
    var follow = false
    @OptionGroup var selection: FieldOptions

    func validate() throws {
        if selection.fields != nil, common.json || follow || verbose {
            throw ValidationError("--fields cannot be combined with --json, --follow or --verbose")
        }
        if follow, check { throw ValidationError("--check and --follow cannot be combined") }
    }

    func run() async throws {
        let client = common.client()
        let terminal = common.terminal
        if follow {
            terminal.endWithReader()
            if terminal.canDraw, !common.json {
                return try await followInPlace(client, terminal)
            }
            var follower = StatusFollower(client: client, terminal: terminal, common: common, verbose: verbose)
            return try await follower.run(session)
        }
        let sessions: [SessionStatus]
        let answer: JSONValue
        if let session {
            answer = try await client.callUndecoded(
                SessionStatusMethod.self, .init(session: session), timeout: CommonOptions.answerTimeout)
            sessions = [try decode(SessionStatus.self, answer)]
        } else {
            answer = try await client.callUndecoded(
                SessionListMethod.self, NoParameters(), timeout: CommonOptions.answerTimeout)
            sessions = try decode(SessionSnapshot.self, answer).sessions.inNaturalOrder
        }
        if let fields = selection.fields {
            try terminal.print(fields: fields, of: .object(["sessions": JSONText.value(sessions)]), "sessions")
        } else if common.json {
            terminal.print(json: answer)
        } else {
            let times = Terminal.times(isAbsolute: verbose)
            terminal.print(
                Self.lines(
                    sessions, times: times, verbose: verbose, width: terminal.wrap, creation: common.creation,
                    marked: terminal.marked))
            await common.tellRest(of: session, client)
        }
        if check, let failure = Self.failure(sessions) { throw failure }
    }

    /// Draws again whenever something changes, and once a second because durations are shown. While the daemon is away,
    /// the states are unknown, so only the reason is shown.
    private func followInPlace(_ client: HoldfastClient, _ terminal: Terminal) async throws {
        var view = LiveLines(terminal)
        // What is wrong at the start ends the command; later, the daemon may come back.
        view.show(try await present(client, terminal, room: view.room))
        for await input in LiveInputs.stream(client, session: session, readsKeys: false) {
            if case .detached(let sentence) = input {
                view.show(Self.waiting(sentence, terminal))
                continue
            }
            do throws(ClientError) {
                view.show(try await present(client, terminal, room: view.room))
            } catch {
                guard error.isAbsence else { throw error }
                view.show(Self.waiting("\(error)", terminal))
            }
        }
    }

    private func present(
        _ client: HoldfastClient, _ terminal: Terminal, room: Int
    ) async throws(ClientError) -> [String] {
        let sessions = try await statuses(client)
        return Self.lines(
            sessions, times: Terminal.times(isAbsolute: verbose), verbose: verbose, width: terminal.wrap, room: room,
            creation: common.creation, marked: terminal.marked)
    }

    private static func waiting(_ sentence: String, _ terminal: Terminal) -> [String] {
        Columns.wrapped("\(printable(sentence)); waiting for the daemon", to: terminal.wrap, indent: 2)
    }

    /// Returns the status of the session, or of all of them.
    private func statuses(_ client: HoldfastClient) async throws(ClientError) -> [SessionStatus] {
        guard let session else { return try await client.sessions(within: CommonOptions.viewTimeout) }
        return [
            try await client.call(
                SessionStatusMethod.self, .init(session: session), timeout: CommonOptions.viewTimeout)
        ]
    }

    /// - Parameter room: how many lines there may be.
    static func lines(
        _ sessions: [SessionStatus], times: TimeText, verbose: Bool, width: Int? = nil, room: Int = .max,
        creation: String, marked: (String, SessionState) -> String
    ) -> [String] {
        let overview =
            sessions.count == 1
            ? [] : Columns.wrapped(StatusText.overview(of: sessions, creation: creation), to: width, indent: 2)
        let states = sessions.map { status in
            let sentence = marked(StatusText.sentence(for: status, times: times), status.state)
            let details =
                sessions.count == 1 || verbose ? StatusDetails.lines(for: status, times: times, width: width) : []
            return (status.state, Columns.wrapped(sentence, to: width, indent: 2) + details)
        }
        return LiveLines.states(states, heading: overview, overview: overview, room: room)
    }

    /// Returns what `--check` ends with. The sentences have already been printed.
    static func failure(_ sessions: [SessionStatus]) -> CommandFailure? {
        !sessions.isEmpty && sessions.allSatisfy { $0.state == .connected } ? nil : CommandFailure(.notConnected, "")
    }
}

/// Decodes a result; the error says what is wrong with it.
func decode<Value: Decodable>(_ type: Value.Type, _ value: JSONValue) throws(ClientError) -> Value {
    try HoldfastClient.decode(type, from: value)
}

/// What was last said of each session. Events come faster than their statuses are asked for, so several of these may say
/// the same.
struct StatusChanges {
    private struct Said: Equatable {
        var state: SessionState
        var since: Timestamp
        var phase: Phase?
        var attempt: Int
        var reason: String?
    }

    private var said: [String: Said] = [:]

    /// - Returns: whether the status says something new.
    mutating func take(_ status: SessionStatus) -> Bool {
        let new = Said(
            state: status.state, since: status.since, phase: status.phase, attempt: status.attempt,
            reason: status.reason?.message)
        return said.updateValue(new, forKey: status.session) != new
    }
}

/// `status --follow` without drawing in place: asks for a session's status after each event that changes its state.
private struct StatusFollower {
    let client: HoldfastClient
    let terminal: Terminal
    let common: CommonOptions
    let verbose: Bool
    var changes = StatusChanges()

    mutating func run(_ session: String?) async throws {
        var removal = RemovalCheck(session: session)
        for try await element in try await client.watch(session: session) {
            try removal.check(element)
            switch element {
            case .snapshot(let result):
                for status in result.snapshot.sessions { show(status) }
            case .event(let event):
                guard event.changesStates, let name = event.session else { continue }
                if event.event == .sessionRemoved {
                    common.complain(Complaint(notice: "\(name) was removed from the configuration"))
                } else {
                    try await ask(name)
                }
            case .detached(let error):
                common.complain(Complaint(detached: error))
            case .dropped(let count):
                common.complain(Complaint(notice: EventText.unread(count)))
                try await ask(session)
            }
        }
    }

    /// Asks for the status of a session, or of all of them, and shows what is new.
    private mutating func ask(_ session: String?) async throws {
        do throws(ClientError) {
            guard let session else {
                for status in try await client.sessions(within: CommonOptions.answerTimeout) { show(status) }
                return
            }
            show(
                try await client.call(
                    SessionStatusMethod.self, .init(session: session), timeout: CommonOptions.answerTimeout))
        } catch {
            switch error {
            // The daemon is stopping or gone: the watch reports this itself, and continues.
            case .connectionLost, .notRunning, .unreachable, .unresponsive: return
            // In the second case, a reload has removed the session since.
            case .refused(let refusal) where [.shuttingDown, .unknownSession].contains(refusal.known): return
            case .timeout: common.complain(Complaint(notice: "\(error)"))
            default: throw error
            }
        }
    }

    private mutating func show(_ status: SessionStatus) {
        guard changes.take(status) else { return }
        if common.json {
            terminal.print(json: JSONText.value(status))
            return
        }
        let times = Terminal.times(isAbsolute: verbose)
        let sentence = terminal.marked(StatusText.sentence(for: status, times: times), status.state)
        terminal.print("\(times.now.time(offset: times.offset)) \(sentence)")
    }
}

struct ListCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "List sessions, one per line.")

    @OptionGroup var common: CommonOptions
    @Option(help: "Only the sessions in this state.") var state: SessionState?
    @Flag(name: [.short, .long], help: "Show dates instead of durations.") var verbose = false
    @OptionGroup var selection: FieldOptions

    func validate() throws {
        try selection.check(with: common)
    }

    func run() async throws {
        let answer = try await common.client().callUndecoded(
            SessionListMethod.self, NoParameters(), timeout: CommonOptions.answerTimeout)
        let all = try decode(SessionSnapshot.self, answer).sessions.inNaturalOrder
        let sessions = all.filter { state == nil || $0.state == state }
        let shown: JSONValue = .object(["sessions": JSONText.value(sessions)])
        let terminal = common.terminal
        if let fields = selection.fields {
            try terminal.print(fields: fields, of: shown, "sessions")
        } else if common.json {
            terminal.print(json: state == nil ? answer : shown)
        } else if let state, sessions.isEmpty, !all.isEmpty {
            terminal.print("No session is \(state.rawValue).")
        } else if sessions.isEmpty {
            terminal.print(StatusText.overview(of: [], creation: common.creation))
        } else {
            terminal.print(
                table: StatusDetails.table(
                    sessions, times: Terminal.times(isAbsolute: verbose), width: terminal.wrap,
                    isColoured: terminal.isColoured))
        }
    }
}
