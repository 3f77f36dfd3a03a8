import Foundation
import Support

/// A terminal of its own, by tmux.
struct TerminalUnderTest {
    private let lab: Lab
    private let socket: String

    init(_ lab: Lab) {
        self.lab = lab
        socket = "\(lab.directory)/tmux.sock"
    }

    /// Runs a command, and a line behind it that says how it ended.
    func start(_ words: [String], within daemon: Daemon) async throws {
        let quoted = words.map { "'\($0)'" }.joined(separator: " ")
        try await tmux(
            "-f", "/dev/null", "-u", "new-session", "-d", "-x", "120", "-y", "24",
            "env TERM=screen-256color \(quoted); echo ended with $?; sleep 600")
    }

    /// Runs a line of the shell in a terminal of 110 columns, as somebody with the programs installed. - Returns: the screen.
    func run(_ line: String, as user: OperatorStory.Person, within daemon: Daemon) async throws -> [String] {
        // The configuration of this daemon is that of the command.
        let script = try lab.write(
            "screen.sh",
            """
            PATH='\(Daemon.programs)':$PATH
            export HOLDFAST_SOCKET='\(daemon.socket)' TERM=screen-256color
            holdfastctl() {
                case $1 in config) command holdfastctl "$@" --config-directory '\(daemon.configuration)';;
                *) command holdfastctl "$@";; esac
            }
            echo '$ \(line)'
            \(line)
            echo '[end]'
            sleep 600
            """)
        let person = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]
        let words = (user == .root ? [] : person) + ["sh", script]
        try await tmux(
            "-f", "/dev/null", "-u", "new-session", "-d", "-x", "110", "-y", "60",
            words.map { "'\($0)'" }.joined(separator: " "))
        var lines: [String] = []
        try await until("the command has ended") {
            lines = try await tmux("-u", "capture-pane", "-p", "-J").components(separatedBy: "\n")
            return lines.contains("[end]")
        }
        await end()
        return lines.prefix { $0 != "[end]" }.map { line in
            String(line.reversed().drop { $0 == " " }.reversed())
        }
    }

    func press(_ key: String) async throws { try await tmux("send-keys", key) }

    /// Waits until the screen is so. - Returns: its lines.
    @discardableResult
    func screen(_ what: String, _ condition: ([String]) -> Bool) async throws -> [String] {
        var lines: [String] = []
        do {
            try await until("the terminal \(what)") {
                lines = try await tmux("-u", "capture-pane", "-p").components(separatedBy: "\n")
                return condition(lines)
            }
        } catch {
            throw Lab.Failure("\(error); it shows:\n\(lines.joined(separator: "\n"))")
        }
        return lines
    }

    func end() async { _ = try? await tmux("kill-server") }

    @discardableResult
    private func tmux(_ words: String...) async throws -> String {
        // The terminals of its server have the environment of the first command.
        let result = try await lab.finish(
            ["env", "-u", "NO_COLOR", "LC_ALL=C.UTF-8", "tmux", "-S", socket] + words, in: nil)
        guard result.ending == .exited(0) else { throw Lab.Failure("tmux \(words): \(result.errors)") }
        return result.output
    }
}
