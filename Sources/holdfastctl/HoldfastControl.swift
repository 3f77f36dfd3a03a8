import ArgumentParser
import ControlAPI
import Glibc
import HoldfastClient

struct HoldfastControl: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "holdfastctl",
        abstract: "See and control the sessions that holdfastd keeps connected.",
        discussion: """
            Start with "holdfastctl status": it says what each session is doing and why.

            Exit codes: 0 success, 1 failure, 2 usage, 3 not connected (status --check, wait), 4 timeout, \
            5 not permitted, 6 daemon unreachable, 7 version mismatch.

            Environment: HOLDFAST_SOCKET names the control socket; NO_COLOR turns colour off. See holdfastctl(1).
            """,
        version: "holdfastctl \(Release.version)",
        subcommands: [
            StatusCommand.self, ListCommand.self, TopCommand.self, WatchCommand.self, WaitCommand.self,
            ConnectCommand.self,
            DisconnectCommand.self, ReconnectCommand.self, SimulateCommand.self, SwitchRoomCommand.self,
            PublishCommand.self,
            SubscribeCommand.self, UnsubscribeCommand.self, QueueCommand.self, PublicationsCommand.self,
            ParticipantsCommand.self, NetworkCommand.self, HistoryCommand.self, CheckCommand.self, PingCommand.self,
            LogCommand.self, ClientsCommand.self,
            ConfigCommand.self, InstanceCommand.self, ReloadCommand.self, MetricsCommand.self, BugreportCommand.self,
            VersionCommand.self,
            CompletionCommand.self,
        ])

    /// Declared here too, so that these options may come before the command.
    @OptionGroup var common: CommonOptions
}

/// How the command ends: with an error, or after printing help or the version.
struct Ending: Equatable {
    var status: EndStatus
    var output: String
    var isError: Bool
    /// The error as this command words it; `nil` if the argument parser words it.
    var failure: CommandFailure?
    /// The error as the daemon gave it, if it did.
    var refusal: RPCError?

    private static let prefix = "holdfastctl: "

    /// The members of the error for programs.
    var json: JSONValue {
        let text = output.hasPrefix(Self.prefix) ? String(output.dropFirst(Self.prefix.count)) : output
        // The parser's sentence is followed by the usage, whose last line names the command that explains it.
        let lines = text.split(separator: "\n")
        let sentence = lines.prefix { !$0.hasPrefix("Help: ") && !$0.hasPrefix("Usage: ") }.joined(separator: " ")
        let see = lines.last?.split(separator: "'").dropFirst().first { $0.hasSuffix(" --help") }
        var members: [String: JSONValue] = [
            "status": .integer(Int64(status.rawValue)), "message": .string(failure?.sentence ?? sentence),
        ]
        let hint = failure == nil ? see.map { "see: \($0)" } : failure?.advice
        if let hint { members["hint"] = .string(hint) }
        if let refusal {
            members["message"] = .string(refusal.message)
            members["code"] = refusal.data.map { .string($0.code) } ?? .null
            members["hint"] = refusal.data?.hint.map(JSONValue.string) ?? .null
        }
        return .object(members)
    }

    /// - Parameter error: what parsing the arguments or running the command threw.
    init(_ error: any Error) {
        switch error {
        case let failure as CommandFailure:
            self.init(failure)
        case let error as ClientError:
            self.init(CommandFailure(error))
            if case .refused(let refusal) = error { self.refusal = refusal }
            if case .dismissed(var reason) = error {
                reason.data?.hint = failure?.advice
                refusal = reason
            }
        default:
            // The argument parser's status for wrong usage is 64, and ours is 2; help and version are not errors.
            let code = HoldfastControl.exitCode(for: error)
            let text = HoldfastControl.fullMessage(for: error)
            let prefix = "Error: "
            self.init(
                status: code.isSuccess ? .success : code == .validationFailure ? .usage : .failed,
                output: text.hasPrefix(prefix) ? Self.prefix + Self.lowered(text.dropFirst(prefix.count)) : text,
                isError: !code.isSuccess)
        }
    }

    /// - Parameter words: what the command line said.
    init(_ error: any Error, of words: CommandWords) {
        self.init(error)
        guard status == .usage, failure == nil, let unknown = words.unknownOption else { return }
        self.init(unknown)
    }

    /// The argument parser begins its sentences with a capital, and all others here do not.
    private static func lowered(_ sentence: Substring) -> String {
        sentence.prefix(1).lowercased() + sentence.dropFirst()
    }

    private init(_ failure: CommandFailure) {
        self.init(status: failure.status, output: failure.lines.joined(separator: "\n"), isError: true)
        self.failure = failure
    }

    private init(status: EndStatus, output: String, isError: Bool) {
        self.status = status
        self.output = output
        self.isError = isError
    }
}

@main
enum Main {
    static func main() async {
        // What the caller closed stays unusable. Otherwise a socket could get the number, and be taken for the output.
        for number: Int32 in 0...2 where fcntl(number, F_GETFD) < 0 {
            _ = open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY)
        }
        // A broken pipe makes the write fail, which reports it.
        signal(SIGPIPE, SIG_IGN)
        // libdispatch tries to raise the priority of its threads, and writes to the system's log when it may not.
        setenv("LIBDISPATCH_LOG", "NO", 1)
        let words = CommandWords(Array(CommandLine.arguments.dropFirst()))
        do {
            // Swift finds the arguments there, and libdispatch its threads.
            guard access("/proc/self/cmdline", R_OK) == 0 else {
                throw CommandFailure(.failed, "/proc is not mounted", advice: "mount -t proc proc /proc")
            }
            if let failure = notUTF8 ?? words.failure { throw failure }
            var command = try await HoldfastControl.asyncParseAsRoot(words.complete)
            if var asynchronous = command as? any AsyncParsableCommand {
                try await asynchronous.run()
            } else {
                try command.run()
            }
        } catch {
            let ending = Ending(error, of: words)
            if !ending.output.isEmpty {
                if ending.isError {
                    Complaint(ending).write(json: words.wantsJSON)
                } else {
                    Terminal().print(ending.output)
                }
            }
            exit(ending.status.rawValue)
        }
    }

    /// Wrong bytes in an argument would be replaced, so that another topic or file would be used than the one given.
    private static var notUTF8: CommandFailure? {
        for place in 1..<max(Int(CommandLine.argc), 1) {
            guard let word = CommandLine.unsafeArgv[place], String(validatingCString: word) == nil else { continue }
            return CommandFailure(
                .usage, "argument \(place) is not UTF-8: \(quoted(String(cString: word)))",
                advice: "a message with any bytes can be published with --file or --lines")
        }
        return nil
    }
}
