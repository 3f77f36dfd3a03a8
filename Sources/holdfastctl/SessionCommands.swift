import ArgumentParser
import ControlAPI
import HoldfastClient

struct ConnectCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "connect",
        abstract: "Start a session.",
        discussion: """
            Answers when the session has begun to connect, or with --wait when it is connected or has failed. \
            Also ends a failed state and undoes an explicit disconnect.
            """)

    @OptionGroup var common: CommonOptions
    @OptionGroup var waiting: WaitOptions
    @Argument(help: "The session.", completion: .sessions) var session: String

    func run() async throws {
        try await command(
            SessionConnectMethod.self,
            .init(session: session, wait: waiting.wait, timeout: waiting.seconds), session, common,
            timeout: waiting.wait ? waiting.timeout : nil)
    }
}

struct DisconnectCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "disconnect",
        abstract: "Stop a session.",
        discussion: """
            It stays disconnected until "holdfastctl connect SESSION" or the next boot, also when the daemon is \
            restarted. Messages may still be published; they wait in the outbox. Ends with exit code 1 when the server \
            cannot have heard it, so that others in the session's room may see it for a while.
            """)

    @OptionGroup var common: CommonOptions
    @Argument(help: "The session.", completion: .sessions) var session: String

    func run() async throws {
        // It is down within seconds: what is in flight has a limit, and the goodbye as well.
        try await command(
            SessionDisconnectMethod.self, .init(session: session, wait: true), session, common, timeout: nil)
    }
}

struct ReconnectCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "reconnect",
        abstract: "Reconnect a session now, without waiting for its next attempt.")

    @OptionGroup var common: CommonOptions
    @Argument(help: "The session.", completion: .sessions) var session: String
    @Option(
        help: """
            quick: take the session at the server up again. full: set everything up anew. auto: quick if the server \
            still has the session.
            """)
    var mode = SessionReconnectMethod.Mode.auto
    @OptionGroup var waiting: WaitOptions

    func run() async throws {
        try await command(
            SessionReconnectMethod.self,
            .init(session: session, mode: mode, wait: waiting.wait, timeout: waiting.seconds), session, common,
            timeout: waiting.wait ? waiting.timeout : nil)
    }
}

struct SimulateCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "simulate",
        abstract: "Make a session behave as if its connection had failed, to test programs.",
        discussion: """
            drop: the connection breaks. silence: nothing comes and goes on it any more. full-reconnect: what the server \
            has of the session is given up. path-lost: there is no network, for --duration. Only the fault is made up; \
            what follows is real.
            """)

    @OptionGroup var common: CommonOptions
    @Argument(help: "The session.") var session: String
    @Argument(help: "drop, silence, full-reconnect or path-lost.") var fault: SessionSimulateMethod.Fault
    @Option(help: "How long the path is lost, like 15s; 1s to 1h.") var duration: SpanArgument?

    func run() async throws {
        let answer = try await common.client().callUndecoded(
            SessionSimulateMethod.self, .init(session: session, fault: fault, duration: duration?.seconds),
            timeout: CommonOptions.answerTimeout)
        if common.json {
            Terminal().print(json: answer)
        } else {
            let result = try decode(SessionStateResult.self, answer)
            Terminal().print("\(session) is \(result.state.rawValue); holdfastctl watch \(session) shows what follows.")
        }
    }
}

struct WaitOptions: ParsableArguments {
    @Flag(help: "Answer when the session is connected (exit code 0), or has failed or was disconnected (3).")
    var wait = false
    @Option(help: "How long to wait, like 500ms, 30s, 5min or never; exit code 4 after that.")
    var timeout = SpanArgument(duration: .seconds(30))

    var seconds: Double? { wait ? timeout.seconds : nil }
}

/// What the outcome of a command means for the exit code.
enum CommandOutcome {
    /// - Parameter isConnect: whether the session was to be connected.
    static func failure(
        _ result: SessionStateResult, _ session: String, isConnect: Bool, timeout: SpanArgument?
    ) -> CommandFailure? {
        let because = result.reason.map { ": \($0.message)" } ?? ""
        let sentence = "\(session) is \(result.state.rawValue)\(because)"
        switch (result.outcome, result.reason?.code) {
        case (.timeout?, _):
            return CommandFailure(
                .timeout, "\(session) is \(result.state.rawValue) after \(timeout?.description ?? "")\(because)",
                advice: "it goes on trying; holdfastctl status \(session) says what comes next")
        case (.disconnected?, "goodbye-unheard"):
            return CommandFailure(.failed, sentence, advice: result.reason?.hint)
        case (.failed?, _) where isConnect, (.disconnected?, _) where isConnect:
            return CommandFailure(.notConnected, sentence, advice: result.reason?.hint)
        default:
            return nil
        }
    }
}

private func command<Method: ControlMethod>(
    _ method: Method.Type, _ parameters: Method.Parameters, _ session: String, _ common: CommonOptions,
    timeout: SpanArgument?
) async throws where Method.Result == SessionStateResult {
    // The daemon answers when the time is over; "never" is waited for as long as the connection lasts.
    let limit = timeout.map { $0.duration.map { $0 + CommonOptions.answerTimeout } } ?? CommonOptions.answerTimeout
    let answer = try await common.client().callUndecoded(method, parameters, timeout: limit)
    let result = try decode(SessionStateResult.self, answer)
    let failure = CommandOutcome.failure(
        result, session, isConnect: Method.name != SessionDisconnectMethod.name, timeout: timeout)
    if common.json {
        Terminal().print(json: answer)
    } else if failure == nil {
        Terminal().print("\(session) is \(result.state.rawValue).")
    }
    if let failure { throw failure }
}
