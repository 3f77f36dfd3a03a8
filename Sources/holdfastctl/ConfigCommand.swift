import ArgumentParser
import ControlAPI
import HoldfastClient

#if canImport(Glibc)
    import Glibc
#endif

struct ConfigCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "config",
        abstract: "Check the configuration, or begin the file of a session.",
        subcommands: [Check.self, Init.self])

    /// Where the files are.
    struct Place: ParsableArguments {
        @Option(help: ArgumentHelp("Where holdfast.toml and sessions.d are.", valueName: "dir"))
        var configDirectory = "/etc/holdfast"
    }

    struct Check: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Check all files, and print every error with file, line and column. No daemon is needed.")

        @OptionGroup var common: CommonOptions
        @OptionGroup var place: Place

        func run() throws {
            let words = [ExternalProgram.daemon, "--check", "--config-directory", place.configDirectory]
            // What is wrong goes to standard error, which is this command's as well.
            guard let result = ExternalProgram.output(of: words) else {
                throw CommandFailure(
                    .failed, "holdfastd cannot be started",
                    advice: "it checks the files; is the package holdfast installed?")
            }
            guard result.succeeded else { throw CommandFailure(.failed, "") }
            if common.json {
                Terminal().print(json: .object(["errors": .array([])]))
            } else {
                Terminal().print("The configuration in \(printable(place.configDirectory)) has no errors.")
            }
        }
    }

    struct Init: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "init",
            abstract: "Begin the file of a session, with every key explained.",
            discussion: """
                The file is checked; after "holdfastctl reload" the session connects. A file that is there already is left \
                as it is.
                """)

        @OptionGroup var common: CommonOptions
        @OptionGroup var place: Place
        @Argument(help: "The name of the session: lower-case letters, digits and hyphens.") var name: String
        @Option(
            help: ArgumentHelp(
                "The server, like mqtts://broker.example:8883; more than one may follow.", valueName: "url"))
        var endpoint: [String] = []
        @Option(help: "The user at the server.") var user: String?
        @Option(
            help: ArgumentHelp(
                "Where the password is: file:PATH, credential:NAME or exec:COMMAND.", valueName: "reference"))
        var password: String?
        @Flag(help: "Print the file instead of writing it.") var stdout = false

        func validate() throws {
            let letters = Set("abcdefghijklmnopqrstuvwxyz0123456789")
            guard let first = name.first, letters.contains(first), name.count <= 63,
                name.allSatisfy({ letters.contains($0) || $0 == "-" })
            else {
                throw ValidationError(
                    "a session's name has 1 to 63 lower-case letters, digits and hyphens, and begins with no hyphen")
            }
            if let password, !["file:", "credential:", "exec:"].contains(where: password.hasPrefix) {
                throw ValidationError(
                    "a password is never written into the file: say where it is with file:PATH, credential:NAME or exec:COMMAND"
                )
            }
        }

        func run() async throws {
            let text = SessionTemplate(endpoints: endpoint, user: user, password: password).text
            if stdout {
                Terminal().print(text)
                return
            }
            let path = "\(place.configDirectory)/sessions.d/\(name).toml"
            try Self.create(path, text)
            // What is wrong with what was given is told at once.
            let check = [ExternalProgram.daemon, "--check", "--config-directory", place.configDirectory]
            let isRight = ExternalProgram.output(of: check)?.succeeded ?? true
            if common.json {
                Terminal().print(json: .object(["file": .string(path)]))
            } else {
                Terminal().print("\(path) is written. Next: \(isRight ? "" : "correct it, then ")holdfastctl reload")
            }
            guard isRight else { throw CommandFailure(.failed, "") }
        }

        private static func create(_ path: String, _ text: String) throws(CommandFailure) {
            let descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o644)
            guard descriptor >= 0 else {
                switch errno {
                case EEXIST:
                    throw CommandFailure(.failed, "\(path) is there already", advice: "edit it, or choose another name")
                case EACCES:
                    throw CommandFailure(.notPermitted, "\(path) cannot be written", advice: "try it with sudo")
                default: throw CommandFailure(.failed, "\(path) cannot be written: \(String(cString: strerror(errno)))")
                }
            }
            close(descriptor)
            try OutputFile.write(text, to: path)
        }
    }
}

/// The file of a session that begins.
struct SessionTemplate {
    var endpoints: [String]
    var user: String?
    var password: String?

    var text: String {
        let servers = endpoints.isEmpty ? ["mqtts://broker.example:8883"] : endpoints
        let reference = password.map { "password = \(Self.quoted($0))" }
        return """
            # A session; holdfast-session(5) explains every key, and example.toml.disabled has them all with their defaults.
            # After a change: holdfastctl config check, then holdfastctl reload.

            # The server, or several, in the order in which they are tried.
            endpoints = [\(servers.map(Self.quoted).joined(separator: ", "))]

            # Who this session is at the server.
            user = \(Self.quoted(user ?? "edge-42"))

            # Where the password is, which is never written here: "file:PATH", "credential:NAME" or "exec:COMMAND".
            \(reference ?? "# password = \"file:/etc/holdfast/broker.secret\"")

            # The room to join, for topics that begin with ~/ and for presence.
            # room = "plant-7"

            # The certificates to trust; without it those of the system.
            # [tls]
            # ca = "/etc/holdfast/ca.pem"
            """
    }

    /// As TOML writes a text.
    private static func quoted(_ text: String) -> String {
        var quoted = ""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"", "\\": quoted += "\\\(scalar)"
            default: quoted.unicodeScalars.append(scalar)
            }
        }
        return "\"\(quoted)\""
    }
}
