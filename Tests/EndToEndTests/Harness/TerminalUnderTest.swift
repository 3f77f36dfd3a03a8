import Foundation
import Support

/// A terminal of its own, made by tmux, whose server ends with the lab at the latest.
actor TerminalUnderTest {
    private let lab: Lab
    private let socket: String
    private var server: LabProcess?

    init(_ lab: Lab) {
        self.lab = lab
        socket = "\(lab.directory)/tmux.sock"
    }

    /// Runs a command, and prints a line after it that says how it ended.
    func start(
        _ words: [String], columns: Int = 120, rows: Int = 24, kind: String = "screen-256color"
    ) async throws {
        let quoted = words.map { "'\($0)'" }.joined(separator: " ")
        try await open(columns, rows, "env TERM=\(kind) \(quoted); echo ended with $?; sleep 600")
    }

    /// Runs a line of the shell in a terminal, as a person who has the programs installed, and returns the screen.
    ///
    /// - Parameter columns: by default so many that lines are not wrapped because they contain the paths of a test.
    func run(
        _ line: String, as user: OperatorStory.Person, within daemon: DaemonProcess, columns: Int = 400
    ) async throws -> [String] {
        // The command uses this daemon's configuration.
        let script = try lab.write(
            "screen.sh",
            """
            PATH='\(lab.directory)/bin:\(DaemonProcess.programs)':$PATH
            export TERM=screen-256color
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
        let host = ["unshare", "--mount", "sh", try installed(daemon)]
        let words = host + (user == .root ? [] : person) + ["sh", script]
        try await open(columns, 60, words.map { "'\($0)'" }.joined(separator: " "))
        let lines = try await screen("shows the command's end") { $0.contains("[end]") }
        try await close()
        return lines.prefix { $0 != "[end]" }.map { line in
            String(line.reversed().drop { $0 == " " }.reversed())
        }
    }

    /// Returns a script that runs a command with the daemon's socket where an installed daemon has it, on a host with
    /// systemd and the group.
    private func installed(_ daemon: DaemonProcess) throws -> String {
        return try lab.write(
            "installed.sh",
            """
            set -e
            mount -t tmpfs -o mode=755 tmpfs /run
            mkdir -p /run/systemd/system /run/holdfast
            (grep -v ^holdfast: /etc/group; echo holdfast:x:64999:) >/run/group
            mount --bind /run/group /etc/group
            if [ -S '\(daemon.socket)' ]; then
                touch /run/holdfast/control.sock
                mount --bind '\(daemon.socket)' /run/holdfast/control.sock
                chgrp holdfast /run/holdfast/control.sock
            fi
            exec "$@"
            """)
    }

    func press(_ key: String) async throws { try await tmux("send-keys", key) }

    func type(_ text: String) async throws { try await tmux("send-keys", "-l", text) }

    func resize(columns: Int, rows: Int) async throws {
        try await tmux("resize-window", "-x", "\(columns)", "-y", "\(rows)")
    }

    /// Waits until the screen meets a condition, and returns its lines.
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

    /// The screen with its escape sequences.
    func coloured() async throws -> String { try await tmux("-u", "capture-pane", "-p", "-e") }

    /// The screen, with what has gone by above it.
    func history() async throws -> String { try await tmux("-u", "capture-pane", "-p", "-S", "-") }

    func close() async throws { try await tmux("kill-session") }

    private func open(_ columns: Int, _ rows: Int, _ command: String) async throws {
        try await begin()
        try await tmux("-u", "new-session", "-d", "-x", "\(columns)", "-y", "\(rows)", command)
    }

    /// Starts tmux in the foreground, so that it is a process of the lab.
    private func begin() async throws {
        guard server == nil else { return }
        let server = try await lab.start(
            "tmux", Self.environment + ["tmux", "-S", socket, "-f", "/dev/null", "-u", "-D"], in: nil)
        self.server = server
        try await until("tmux runs") {
            guard await server.isRunning else { throw Lab.Failure("tmux ended: \(server.errors)") }
            return try await lab.finish(["tmux", "-S", socket, "list-sessions"], in: nil).ending == .exited(0)
        }
    }

    /// The environment of tmux and of its terminals.
    private static let environment = ["env", "-u", "NO_COLOR", "LC_ALL=C.UTF-8"]

    @discardableResult
    private func tmux(_ words: String...) async throws -> String {
        let result = try await lab.finish(Self.environment + ["tmux", "-S", socket] + words, in: nil)
        guard result.ending == .exited(0) else { throw Lab.Failure("tmux \(words): \(result.errors)") }
        return result.output
    }
}
