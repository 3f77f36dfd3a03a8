import ArgumentParser
import ControlAPI
import HoldfastClient

struct TopCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "top",
        abstract: "Show a live dashboard of all sessions, until q is pressed.",
        discussion: """
            The bars show the quality of the last 20 seconds, and a dot stands for a second without a connection. Keys: up and down (or k and j) \
            select a session, r reconnects it, c connects, d disconnects, h shows its history, q quits.
            """)

    @OptionGroup var common: CommonOptions

    func run() async throws {
        let terminal = common.terminal
        let client = common.client()
        // A missing permission must be reported before the screen is switched, where the message would be lost.
        let first = try await client.sessions()
        guard terminal.isTerminal, !common.json else {
            throw CommandFailure(
                .usage, "top needs a terminal, and has no JSON output",
                advice: "for programs: holdfastctl list --json, or watch")
        }
        guard terminal.canDraw else {
            throw CommandFailure(
                .usage, "this terminal cannot show a live view: TERM is \"dumb\" or not set",
                advice: "line by line: holdfastctl watch, or status --follow")
        }
        guard let screen = FullScreen(terminal) else {
            throw CommandFailure(
                .usage, "top reads keys, but its standard input is not a terminal",
                advice: "without keys: holdfastctl status --follow, or watch")
        }
        var model = TopModel()
        model.creation = common.creation
        model.take(first, at: Terminal.times().now)
        var history: ScrolledLines?
        Self.draw(model, history, terminal, screen)
        for await input in LiveInputs.stream(client, readsKeys: true) {
            switch input {
            case .key(let key) where history != nil:
                if history?.press(key, height: terminal.height) != true { history = nil }
            case .key(let key):
                guard let request = model.press(key) else { break }
                if request == .quit { return }
                if case .history(let session) = request {
                    history = await Self.history(of: session, client, terminal, &model).map { ScrolledLines($0) }
                } else {
                    model.message = await Self.carryOut(request, client)
                }
            case .resized: break
            case .detached(let sentence): model.message = "\(sentence); waiting for the daemon"
            case .tick, .changed:
                do throws(ClientError) {
                    let sessions = try await client.sessions(within: CommonOptions.viewTimeout)
                    if model.message?.hasSuffix("waiting for the daemon") == true { model.message = nil }
                    model.take(sessions, at: Terminal.times().now)
                } catch {
                    if error.isAbsence { model.message = "\(error); waiting for the daemon" }
                }
            }
            Self.draw(model, history, terminal, screen)
        }
    }

    private static func draw(
        _ model: TopModel, _ history: ScrolledLines?, _ terminal: Terminal, _ screen: borrowing FullScreen
    ) {
        if let history {
            screen.show(history.shown(height: terminal.height))
        } else {
            screen.show(
                model.lines(
                    times: Terminal.times(), width: terminal.width, height: terminal.height,
                    isColoured: terminal.isColoured))
        }
    }

    /// - Returns: the outcome in words.
    private static func carryOut(_ request: TopModel.Request, _ client: HoldfastClient) async -> String {
        let limit = CommonOptions.answerTimeout
        do {
            switch request {
            case .reconnect(let session):
                _ = try await client.call(SessionReconnectMethod.self, .init(session: session), timeout: limit)
                return "\(session) reconnects"
            case .connect(let session):
                _ = try await client.call(SessionConnectMethod.self, .init(session: session), timeout: limit)
                return "\(session) connects"
            case .disconnect(let session):
                _ = try await client.call(SessionDisconnectMethod.self, .init(session: session), timeout: limit)
                return "\(session) disconnects; c connects it again"
            case .history, .quit: return ""
            }
        } catch {
            return Ending(error).output.split(separator: "\n").joined(separator: ";")
        }
    }

    private static func history(
        of session: String, _ client: HoldfastClient, _ terminal: Terminal, _ model: inout TopModel
    ) async -> [String]? {
        do {
            let command = try await HistoryCommand.asyncParse([session])
            return try await command.lines(client, terminal)
        } catch {
            model.message = Ending(error).output
            return nil
        }
    }
}
