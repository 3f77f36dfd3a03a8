import Agent
import ArgumentParser
import Glibc

@main
struct HoldfastDaemon: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "holdfastd",
        abstract: "Keep persistent sessions to MQTT servers alive.",
        discussion: """
            Usually started by systemd. It stops on SIGTERM, and reads its configuration again on SIGHUP or with \
            "holdfastctl reload". "holdfastctl status" shows what it is doing.
            """,
        version: holdfastVersion)

    private static let standardDirectory = "/etc/holdfast"

    @Option(help: ArgumentHelp("Where holdfast.toml and sessions.d are.", valueName: "dir"))
    var configDirectory = Self.standardDirectory

    @Option(
        help: ArgumentHelp(
            "Where the durable state is; default: $STATE_DIRECTORY, or /var/lib/holdfast.", valueName: "dir"))
    var stateDirectory: String?

    @Option(help: ArgumentHelp("The path of the control socket.", valueName: "path"))
    var socket = "/run/holdfast/control.sock"

    @Option(
        help: ArgumentHelp(
            "Overrides [log] level: trace, debug, info, notice, warning, error or critical.", valueName: "level"))
    var logLevel: String?

    @Flag(help: "Check the configuration, print all its errors and exit.")
    var check = false

    @Flag(help: "Print every key with its value and where it comes from, as one JSON object, and exit.")
    var show = false

    /// For `holdfastctl`, which knows the unit: the user whom the daemon runs as, or `USER:GROUP,…`.
    @Option(help: .hidden) var `as`: String?

    /// As whom to look at files. Only the service uses the standard directory.
    private var user: String? { `as` ?? (configDirectory == Self.standardDirectory ? "holdfast" : nil) }

    static func main() {
        do {
            var daemon = try parseAsRoot()
            try daemon.run()
        } catch {
            if exitCode(for: error) == .validationFailure {
                turnAway(
                    "its command line is wrong: \(message(for: error))",
                    hint: "\"systemctl cat holdfast\" shows the unit and its drop-ins")
                let text = fullMessage(for: error)
                // As holdfastctl has it.
                let sentence = text.hasPrefix("Error: ") ? text.dropFirst("Error: ".count) : text[...]
                let line = "holdfastd: \(sentence.prefix(1).lowercased())\(sentence.dropFirst())\n"
                _ = Array(line.utf8).withUnsafeBytes { write(STDERR_FILENO, $0.baseAddress, $0.count) }
                Glibc.exit(exitCode(for: error).rawValue)
            }
            exit(withError: error)
        }
    }

    func validate() throws {
        let levels = ["trace", "debug", "info", "notice", "warning", "error", "critical"]
        if check, show { throw ValidationError("--check and --show cannot be combined") }
        if let logLevel, !levels.contains(logLevel) {
            throw ValidationError(
                "there is no log level \"\(logLevel)\"; it is one of \(levels.joined(separator: ", "))")
        }
    }

    /// With a slash at the end; empty if it is not known.
    private static var workingDirectory: String {
        guard let path = getcwd(nil, 0) else { return "" }
        defer { free(path) }
        return String(cString: path) + "/"
    }

    func run() throws {
        // If the caller closed one of these, a connection could get its number, and log entries would be written to it.
        for number: Int32 in 0...2 where fcntl(number, F_GETFD) < 0 { _ = open("/dev/null", O_RDWR) }
        // libdispatch tries to raise the priority of its threads, and would log a line for each because it may not.
        setenv("LIBDISPATCH_LOG", "NO", 1)
        if check { throw ExitCode(checkConfiguration(configDirectory, as: user).rawValue) }
        if show { throw ExitCode(showConfiguration(configDirectory, as: user).rawValue) }
        // systemd passes a list; its first entry is the unit's state directory.
        let fromSystemd = getenv("STATE_DIRECTORY").map { String(cString: $0).prefix { $0 != ":" } }
        let options = DaemonOptions(
            configurationDirectory: configDirectory.hasPrefix("/")
                ? configDirectory : Self.workingDirectory + configDirectory,
            stateDirectory: stateDirectory ?? fromSystemd.map(String.init) ?? "/var/lib/holdfast",
            socketPath: socket, logLevel: logLevel)
        throw ExitCode(runDaemon(options).rawValue)
    }
}
