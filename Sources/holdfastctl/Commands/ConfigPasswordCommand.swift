import ArgumentParser
import ControlAPI
import HoldfastClient

extension ConfigCommand {
    struct Password: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "password",
            abstract: "Give a session a new password, and try it.",
            discussion: """
                Asks twice for the password, or reads the first line of standard input, and writes it to the file that the \
                session's key "password" names. The daemon then tries to log in with it, as "holdfastctl check" does; if a \
                server refuses it and none accepts it, the file gets the previous password back. A session that is \
                connected stays so, and uses the new password when it connects again; one that is connecting or has \
                failed connects now. --untried writes a password that the server will only know later.
                """)

        @OptionGroup var common: CommonOptions
        @OptionGroup var place: Place
        @Argument(help: "The session.", completion: .sessions) var session: String
        @Flag(help: "Write the password without trying it.") var untried = false

        func validate() throws {
            guard let name = SessionName(listed: session) else { throw ValidationError(SessionName.rule(for: session)) }
            guard name.instance != nil || !session.hasSuffix("@") else {
                throw ValidationError("\(session) is a template: name one of its instances")
            }
        }

        func run() async throws {
            try await common.checkDirectory(place)
            let values = try values()
            let reference = values["password"] ?? ""
            guard reference.hasPrefix("file:") else { throw refusal(of: reference) }
            let secret = SecretFile(path: String(reference.dropFirst("file:".count)))
            try secret.checkFolder()
            let user = printable(values["username"] ?? session)
            let previous = try? InputFile.read(secret.path)
            try secret.replace(with: SecretFile.ask("New password for \(user): ", again: "The same again: "))
            let written = Timestamp.now
            common.complain(Complaint(done: "\(secret.path) is written"))
            if untried { return }
            do {
                try await use(since: written, secret, previous)
            } catch ClientError.notRunning {
                common.complain(Complaint(notice: "the daemon is not running; it uses the password when it starts"))
            } catch ClientError.refused(let refusal) where refusal.known == .unknownSession {
                common.complain(
                    Complaint(notice: "the daemon has not read the session's file yet; next: holdfastctl reload"))
            }
        }

        /// - Parameter previous: what the file had before; `nil` if there was none.
        private func use(since written: Timestamp, _ secret: SecretFile, _ previous: [UInt8]?) async throws {
            let client = common.client()
            let result = try await common.check(session, client)
            if !common.json { await common.tellRest(of: session, client) }
            guard result.isGood else {
                // A session that works must not fail at its next reconnect because of a typing error.
                if result.isRefused, let previous {
                    try secret.replace(with: previous)
                    throw CommandFailure(
                        .failed, "the server refuses the password, so \(secret.path) has the previous one again",
                        advice: "give another password; --untried writes one that the server will only know later")
                }
                throw CommandFailure(
                    .failed, "the password is written, but the check failed",
                    advice: "give another password, or correct this and try again: holdfastctl check \(session)")
            }
            let status = try await client.call(
                SessionStatusMethod.self, .init(session: session), timeout: CommonOptions.answerTimeout)
            switch status.state {
            case .connecting, .reconnecting, .failed:
                _ = try await common.connect(session, client, within: SpanArgument(duration: .seconds(30)))
            case _ where common.json: return
            case .connected where status.since < written:
                common.terminal.print("\(session) stays connected, and uses the new password when it connects again.")
            case .connected, .disconnecting, .disconnected: common.terminal.print(sentenceOf: status)
            }
        }

        /// Returns what the session's file says, by key; only texts.
        private func values() throws(CommandFailure) -> [String: String] {
            let configuration = try ConfigCommand.effective(place)
            guard let file = configuration.files.first(where: { $0.session == session }) else {
                let errors = configuration.errors.filter { place.files(of: session).contains($0.file) }
                common.complain(errors)
                throw errors.isEmpty ? place.hasNoFile(of: session, configuration) : CommandFailure(.failed, "")
            }
            let texts = file.values.map { value in
                (value.key, (try? JSONValue(parsing: Array(value.value.utf8)[...]))?.text ?? "")
            }
            return Dictionary(texts, uniquingKeysWith: { $1 })
        }

        /// - Parameter reference: what the session has instead of a file.
        private func refusal(of reference: String) -> CommandFailure {
            let (kind, name) = (reference.prefix { $0 != ":" }, reference.drop { $0 != ":" }.dropFirst())
            return switch kind {
            case "credential":
                CommandFailure(
                    .failed, "the password of \(session) is the credential \(name) of the service",
                    advice:
                        "change the file that LoadCredential=\(name) names (systemctl cat holdfast shows it), then: "
                        + "sudo systemctl restart holdfast")
            case "exec":
                CommandFailure(
                    .failed, "the password of \(session) comes from a command",
                    advice: "change what that prints; a session that has failed also needs: holdfastctl connect "
                        + session)
            default:
                CommandFailure(
                    .failed, "\(session) has no password",
                    advice: "first set password = \"file:\(place.configDirectory)/\(session).secret\" with: "
                        + "holdfastctl config edit \(session)\(place.option)")
            }
        }
    }
}
