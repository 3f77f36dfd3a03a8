import ArgumentParser
import ControlAPI
import HoldfastClient

struct ConnectCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "connect",
        abstract: "Start a session.",
        discussion: """
            Answers when the session has begun to connect; "holdfastctl wait SESSION" waits until it is connected. \
            Also ends a failed state and undoes an explicit disconnect.
            """)

    @OptionGroup var common: CommonOptions
    @Argument(help: "The session.", completion: .sessions) var session: String

    func run() async throws {
        try await command(SessionConnectMethod.self, .init(session: session), session, common)
    }
}

struct DisconnectCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "disconnect",
        abstract: "Stop a session.",
        discussion: """
            It stays disconnected until "holdfastctl connect SESSION" or the next boot, also when the daemon is \
            restarted. Messages may still be published; they wait in the outbox.
            """)

    @OptionGroup var common: CommonOptions
    @Argument(help: "The session.", completion: .sessions) var session: String

    func run() async throws {
        try await command(SessionDisconnectMethod.self, .init(session: session), session, common)
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

    func run() async throws {
        try await command(
            SessionReconnectMethod.self, .init(session: session, mode: mode), session, common)
    }
}

private func command<Method: ControlMethod>(
    _ method: Method.Type, _ parameters: Method.Parameters, _ session: String, _ common: CommonOptions
) async throws where Method.Result == SessionStateResult {
    let answer = try await common.client().callUndecoded(
        method, parameters, timeout: CommonOptions.answerTimeout)
    if common.json {
        Terminal().print(json: answer)
    } else {
        Terminal().print("\(session) is \(try decode(SessionStateResult.self, answer).state.rawValue).")
    }
}
