import ArgumentParser
import ControlAPI
import HoldfastClient

struct ConnectCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "connect",
        abstract: "Start sessions.",
        discussion: """
            Returns when the sessions have started to connect, or with --wait when each is connected or has failed. \
            It also ends a failed state and undoes an explicit disconnect. If several sessions are given, each is \
            reported, and the exit code is the highest.
            """)

    @OptionGroup var common: CommonOptions
    @OptionGroup var waiting: WaitOptions
    @OptionGroup var selection: SessionSelection

    func run() async throws {
        try await command(
            SessionConnectMethod.self, selection, common, timeout: waiting.timeout
        ) { .init(session: $0, wait: waiting.wait, timeout: waiting.seconds) }
    }
}

struct DisconnectCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "disconnect",
        abstract: "Stop sessions.",
        discussion: """
            A session stays disconnected until "holdfastctl connect SESSION" or the next boot, even if the daemon is \
            restarted. Messages can still be published; they wait in the outbox. The exit code is 1 if the server \
            cannot have received the disconnect; others in the session's room may then still see it for a while.
            """)

    @OptionGroup var common: CommonOptions
    @OptionGroup var selection: SessionSelection

    func run() async throws {
        // A session is down within seconds: the waits for messages in flight and for the goodbye are both limited.
        try await command(SessionDisconnectMethod.self, selection, common, timeout: nil) {
            .init(session: $0, wait: true)
        }
    }
}

struct ReconnectCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "reconnect",
        abstract: "Reconnect sessions now, without waiting for their next attempt.")

    @OptionGroup var common: CommonOptions
    @OptionGroup var selection: SessionSelection
    @Option(
        help: """
            quick: resume the session at the server. full: set everything up again. auto: quick if the server still \
            has the session.
            """)
    var mode = SessionReconnectMethod.Mode.auto
    @OptionGroup var waiting: WaitOptions

    func run() async throws {
        try await command(
            SessionReconnectMethod.self, selection, common, timeout: waiting.timeout
        ) { .init(session: $0, mode: mode, wait: waiting.wait, timeout: waiting.seconds) }
    }
}

struct SimulateCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "simulate",
        abstract: "Simulate a connection failure, to test programs that use a session.",
        discussion: """
            drop: the connection breaks. silence: nothing gets through it any more. full-reconnect: the server's copy of \
            the session is discarded. path-lost: there is no network, for --duration. Only the fault is simulated; what \
            follows is real.
            """)

    @OptionGroup var common: CommonOptions
    @Argument(help: "The session.", completion: .sessions) var session: String
    @Argument(help: "The fault.") var fault: SessionSimulateMethod.Fault
    @Option(help: "How long the path is lost, like 15s; 1s to 1h.") var duration: SpanArgument?

    func validate() throws {
        guard let duration else { return }
        guard fault == .pathLost else { throw ValidationError("--duration is only for path-lost") }
        guard let seconds = duration.seconds, (1...3600).contains(seconds) else {
            throw ValidationError("--duration must be from 1s to 1h")
        }
    }

    func run() async throws {
        try await common.show(
            SessionSimulateMethod.self, .init(session: session, fault: fault, duration: duration?.seconds)
        ) { result, terminal in
            terminal.print("\(session) is \(result.state.rawValue); holdfastctl watch \(session) shows what follows.")
        }
    }
}

struct WaitOptions: ParsableArguments {
    @Flag(help: "Return when each session is connected (exit code 0), or has failed or was disconnected (3).")
    var wait = false
    @Option(
        name: .customLong("timeout"),
        help: "How long to wait, like 500ms, 30s (the default), 5min or never; exit code 4 after that.")
    var limit: SpanArgument?

    func validate() throws {
        if limit != nil, !wait { throw ValidationError("--timeout needs --wait") }
        try limit?.checkAsTimeout()
    }

    /// How long the command waits; `nil` if it does not wait.
    var timeout: SpanArgument? { wait ? limit ?? SpanArgument(duration: .seconds(30)) : nil }
    var seconds: Double? { timeout?.seconds }
}

/// What the outcome of a command means for the exit status.
enum CommandOutcome {
    /// - Parameter isConnect: whether the command was meant to connect the session.
    static func failure(
        _ result: SessionStateResult, _ session: String, isConnect: Bool, timeout: SpanArgument?
    ) -> CommandFailure? {
        let because = result.reason.map { ": \($0.message)" } ?? ""
        let sentence = "\(session) \(result.state == .failed ? "has" : "is") \(result.state.rawValue)\(because)"
        switch (result.outcome, result.reason?.code) {
        case (.timeout?, _):
            return CommandFailure(
                .timeout, "\(session) is still \(result.state.rawValue) after \(timeout?.description ?? "")\(because)",
                advice: "it keeps trying; holdfastctl status \(session) says what comes next")
        case (.disconnected?, "goodbye-unheard"):
            return CommandFailure(.failed, sentence, advice: result.reason?.hint)
        case (.failed?, _) where isConnect, (.disconnected?, _) where isConnect:
            return CommandFailure(.notConnected, sentence, advice: result.reason?.hint)
        default:
            return nil
        }
    }
}

extension CommonOptions {
    /// Connects a session, waits until it is connected, and says so.
    func connect(
        _ session: String, _ client: HoldfastClient, within patience: SpanArgument
    ) async throws -> SessionStatus {
        let result = try await client.call(
            SessionConnectMethod.self, .init(session: session, wait: true, timeout: patience.seconds),
            timeout: patience.duration.map { $0 + Self.answerTimeout })
        if let failure = CommandOutcome.failure(result, session, isConnect: true, timeout: patience) { throw failure }
        let status = try await client.call(
            SessionStatusMethod.self, .init(session: session), timeout: Self.answerTimeout)
        if !json { terminal.print(sentenceOf: status) }
        return status
    }
}

/// The sessions that a command applies to.
struct SessionSelection: ParsableArguments {
    @Argument(help: "The sessions.", completion: .sessions) var sessions: [String] = []
    @Flag(help: "All sessions.") var all = false

    func validate() throws {
        guard sessions.isEmpty == all else { throw ValidationError("give either sessions or --all") }
    }

    /// Returns each named session once, in the order given; with `--all`, every session in natural order.
    func names(_ client: HoldfastClient, _ common: CommonOptions) async throws -> [String] {
        guard all else {
            var seen: Set<String> = []
            return sessions.filter { seen.insert($0).inserted }
        }
        let names = try await client.sessions().map(\.session)
        guard !names.isEmpty else {
            throw CommandFailure(
                .failed, "no session is configured", advice: common.creation)
        }
        return names
    }
}

/// Calls a method for all the sessions concurrently, so that none waits for another, and reports the outcomes in the
/// order of the sessions.
private func command<Method: ControlMethod>(
    _ method: Method.Type, _ selection: SessionSelection, _ common: CommonOptions, timeout: SpanArgument?,
    parameters: (String) -> Method.Parameters
) async throws where Method.Result == SessionStateResult {
    let client = common.client(patience: timeout?.duration)
    let names = try await selection.names(client, common)
    // The daemon answers when the timeout is over. With "never", the wait lasts as long as the connection.
    let limit = timeout.map { $0.duration.map { $0 + CommonOptions.answerTimeout } } ?? CommonOptions.answerTimeout
    var calls: [Task<JSONValue, any Error>] = []
    for name in names {
        let parameters = parameters(name)
        // The daemon lets 64 calls of one connection wait for their outcomes.
        let earlier = calls.dropLast(59).last
        calls.append(
            Task {
                _ = await earlier?.result
                return try await client.callUndecoded(method, parameters, timeout: limit)
            })
    }
    let isConnect = Method.name != SessionDisconnectMethod.name
    var tally = SessionTally(count: names.count)
    for (name, call) in zip(names, calls) {
        do {
            let answer = try await call.value
            let result = try decode(SessionStateResult.self, answer)
            let failure = CommandOutcome.failure(result, name, isConnect: isConnect, timeout: timeout)
            if common.json {
                var members = answer.members ?? [:]
                members["session"] = .string(name)
                Terminal().print(json: .object(members))
            } else if failure == nil {
                Terminal().print("\(name) \(result.state == .failed ? "has" : "is") \(result.state.rawValue).")
            }
            if let failure { throw failure }
        } catch {
            common.complain(Complaint(try tally.take(error)))
        }
    }
    if let failure = tally.failure { throw failure }
}

/// How a command for several sessions ends.
struct SessionTally {
    /// How many sessions there are.
    let count: Int
    private var worst = EndStatus.success

    init(count: Int) {
        self.count = count
    }

    /// - Returns: what to say about the failure of one session.
    /// - Throws: the error, if the command ends with it: it is the only session, or the daemon is gone.
    mutating func take(_ error: any Error) throws -> Ending {
        let concernsOne =
            switch error {
            case is CommandFailure, ClientError.refused, ClientError.timeout: true
            default: false
            }
        guard count > 1, concernsOne else { throw error }
        let ending = Ending(error)
        if ending.status.rawValue > worst.rawValue { worst = ending.status }
        return ending
    }

    /// What the command ends with. The sentences have already been written.
    var failure: CommandFailure? { worst == .success ? nil : CommandFailure(worst, "") }
}
