import ArgumentParser
import ControlAPI
import HoldfastClient

struct ConnectCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "connect",
        abstract: "Start a session.",
        discussion: """
            Returns when the session has started to connect, or with --wait when it is connected or has failed. \
            It also ends a failed state and undoes an explicit disconnect.
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
            It stays disconnected until "holdfastctl connect SESSION" or the next boot, even if the daemon is \
            restarted. Messages can still be published; they wait in the outbox. The exit code is 1 if the server \
            cannot have received the disconnect; others in the session's room may then still see it for a while.
            """)

    @OptionGroup var common: CommonOptions
    @Argument(help: "The session.", completion: .sessions) var session: String

    func run() async throws {
        // The session is down within seconds: the wait for messages in flight is limited, and so is that for the
        // goodbye.
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
            quick: resume the session at the server. full: set everything up again. auto: quick if the server still \
            has the session.
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

    func run() async throws {
        try await common.show(
            SessionSimulateMethod.self, .init(session: session, fault: fault, duration: duration?.seconds)
        ) { result, terminal in
            terminal.print("\(session) is \(result.state.rawValue); holdfastctl watch \(session) shows what follows.")
        }
    }
}

struct WaitOptions: ParsableArguments {
    @Flag(help: "Return when the session is connected (exit code 0), or has failed or was disconnected (3).")
    var wait = false
    @Option(help: "How long to wait, like 500ms, 30s, 5min or never; exit code 4 after that.")
    var timeout = SpanArgument(duration: .seconds(30))

    var seconds: Double? { wait ? timeout.seconds : nil }
}

/// What the outcome of a command means for the exit status.
enum CommandOutcome {
    /// - Parameter isConnect: whether the command was meant to connect the session.
    static func failure(
        _ result: SessionStateResult, _ session: String, isConnect: Bool, timeout: SpanArgument?
    ) -> CommandFailure? {
        let because = result.reason.map { ": \($0.message)" } ?? ""
        let sentence = "\(session) is \(result.state.rawValue)\(because)"
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

private func command<Method: ControlMethod>(
    _ method: Method.Type, _ parameters: Method.Parameters, _ session: String, _ common: CommonOptions,
    timeout: SpanArgument?
) async throws where Method.Result == SessionStateResult {
    // The daemon answers when the time is over. With "never", the wait lasts as long as the connection.
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
