import ArgumentParser
import ControlAPI
import Glibc
import HoldfastClient

// An instance of a template is a symbolic link to it, so it survives every restart, and `ls` shows it.

struct InstanceCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "instance",
        abstract: "Add or remove a session made from a template.",
        discussion: """
            NAME@.toml in sessions.d is a template; in its values, %i stands for the instance. Its instances are those \
            listed in its key "instances", and those added here.
            """,
        subcommands: [Add.self, Remove.self])

    /// An instance, and the files that belong to it.
    private struct Instance {
        let session: String
        let place: ConfigCommand.Place

        init(_ session: String, in place: ConfigCommand.Place) throws {
            guard SessionName(session)?.instance != nil else {
                throw ValidationError(SessionName.rule(for: session.contains("@") ? session : "\(session)@"))
            }
            (self.session, self.place) = (session, place)
        }

        /// The template's file, in sessions.d.
        var template: String { session.prefix { $0 != "@" } + "@.toml" }
        var folder: String { "\(place.configDirectory)/sessions.d" }
        var link: String { "\(folder)/\(session).toml" }

        func failure(_ what: String) -> CommandFailure {
            let code = errno
            return code == EACCES || code == EPERM
                ? CommandFailure(.notPermitted, "\(link) cannot be \(what)", advice: "try again with sudo")
                : CommandFailure(.failed, "\(link) cannot be \(what): \(String(cString: strerror(code)))")
        }
    }

    struct Add: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Add an instance, and make the daemon read its configuration again.")

        @OptionGroup var common: CommonOptions
        @OptionGroup var place: ConfigCommand.Place
        @Argument(help: "The session, like gateway@edge-17.", completion: .templates) var session: String

        func validate() throws { _ = try Instance(session, in: place) }

        func run() async throws {
            try await common.checkDirectory(place)
            let instance = try Instance(session, in: place)
            guard access("\(instance.folder)/\(instance.template)", F_OK) == 0 else {
                throw CommandFailure(
                    .failed, "there is no template \(instance.folder)/\(instance.template)",
                    advice:
                        "create it with: holdfastctl config init \(instance.template.dropLast(".toml".count))\(place.option)"
                )
            }
            guard symlink(instance.template, instance.link) == 0 else {
                if errno == EEXIST {
                    throw CommandFailure(
                        .failed, "\(instance.link) already exists",
                        advice: "holdfastctl status \(session) shows the session; if there is none: holdfastctl reload")
                }
                throw instance.failure("created")
            }
            try await common.reload(for: session)
        }
    }

    struct Remove: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Remove an instance that was added, and make the daemon read its configuration again.",
            discussion: """
                Messages waiting in its outbox stay on disk, and are sent if the instance is added again while the template \
                has one of the same servers.
                """)

        @OptionGroup var common: CommonOptions
        @OptionGroup var place: ConfigCommand.Place
        @Argument(help: "The session, like gateway@edge-17.", completion: .instances) var session: String

        func validate() throws { _ = try Instance(session, in: place) }

        func run() async throws {
            try await common.checkDirectory(place)
            let instance = try Instance(session, in: place)
            var status = stat()
            guard lstat(instance.link, &status) == 0 else {
                guard errno == ENOENT else { throw instance.failure("removed") }
                throw CommandFailure(
                    .failed, "\(session) was not added as an instance",
                    advice: "it may be listed in the key \"instances\" in \(instance.template)")
            }
            guard status.st_mode & S_IFMT == S_IFLNK else {
                throw CommandFailure(
                    .failed, "\(instance.link) is a regular file, not a link to the template",
                    advice: "if you want it gone, remove it yourself, then holdfastctl reload")
            }
            guard unlink(instance.link) == 0 else { throw instance.failure("removed") }
            try await common.reload(for: session)
        }
    }
}
