import ArgumentParser
import ControlAPI
import Glibc
import HoldfastClient

extension ConfigCommand {
    struct Rename: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "rename",
            abstract: "Give a session another name, under which it continues.",
            discussion: """
                Renames the session's file, and makes the daemon read its configuration again and take the session's \
                messages, publications, durable consumers and history along. The session disconnects and connects again. \
                Programs have to use the new name. If the daemon refuses, the file gets its old name back. Instances of a \
                template cannot be renamed.
                """)

        @OptionGroup var common: CommonOptions
        @OptionGroup var place: Place
        @Argument(help: "The session.", completion: .sessions) var session: String
        @Argument(help: "Its new name: lower-case letters, digits and hyphens.") var name: String

        private var old: String { path(of: session) }
        private var new: String { path(of: name) }

        private func path(of session: String) -> String { "\(place.configDirectory)/sessions.d/\(session).toml" }

        func validate() throws {
            for name in [session, name] {
                guard let valid = SessionName(listed: name) else { throw ValidationError(SessionName.rule) }
                guard !valid.isTemplate, valid.instance == nil else {
                    throw ValidationError("templates and their instances cannot be renamed")
                }
            }
            if session == name { throw ValidationError("the session already has this name") }
        }

        func run() async throws {
            let client = common.client()
            // Without the daemon, the messages could not be moved.
            try await client.attach()
            try move(old, to: new)
            let result: DaemonReloadMethod.Result
            do throws(ClientError) {
                result = try await client.call(
                    DaemonReloadMethod.self, .init(renamed: .init(from: session, to: name)),
                    timeout: CommonOptions.reloadTimeout)
            } catch {
                guard case .refused(let refusal) = error else {
                    throw CommandFailure(
                        .failed, "\(new) has its new name, but the daemon did not confirm it: \(error)",
                        advice: "holdfastctl status shows whether messages of \(session) stay on disk")
                }
                try move(new, to: old)
                // It was refused because of the disk, after the session was stopped.
                if refusal.known == .internalError {
                    _ = try? await client.call(DaemonReloadMethod.self, .init(), timeout: CommonOptions.reloadTimeout)
                }
                throw CommandFailure(
                    refusal.known == .notPermitted ? .notPermitted : .failed,
                    "\(session) keeps its name: \(refusal.message)", advice: refusal.data?.hint)
            }
            if common.json {
                Terminal().print(json: JSONText.value(result))
            } else {
                common.terminal.print(
                    wrapped: ["\(session) is called \(name) now, and has its messages and its history."]
                        + ReloadText.rest(result))
            }
            common.complain(result.errors)
        }

        private func move(_ old: String, to new: String) throws(CommandFailure) {
            guard link(old, new) == 0 else {
                switch errno {
                case ENOENT:
                    let names = (Folder.names(in: Folder.of(old)) ?? []).filter { $0.hasSuffix(".toml") }
                    throw CommandFailure(
                        .failed, "there is no file \(old)",
                        advice: didYouMean(nearest(to: session, among: names.map { String($0.dropLast(5)) })))
                case EEXIST: throw CommandFailure(.failed, "\(new) already exists", advice: "choose another name")
                case EACCES, EPERM:
                    throw CommandFailure(.notPermitted, "\(old) cannot be renamed", advice: "try again with sudo")
                case let code:
                    throw CommandFailure(.failed, "\(old) cannot be renamed: \(String(cString: strerror(code)))")
                }
            }
            unlink(old)
        }
    }
}
