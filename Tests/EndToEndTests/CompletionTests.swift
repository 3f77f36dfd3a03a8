import ControlAPI
import Foundation
import Glibc
import Support
import Testing

/// What the shells offer when the Tab key is pressed. bash is asked by calling the function that it would call.
extension EndToEnd {
    /// Returns what is offered for the last of the words, which bash has split.
    private func offered(_ words: [String], _ lab: Lab) async throws -> [String] {
        let script = """
            PATH="$1:$PATH"; shift
            . <(holdfastctl completion bash)
            COMP_WORDS=(holdfastctl "$@"); COMP_CWORD=$#
            COMP_LINE="${COMP_WORDS[*]}"; COMP_LINE=${COMP_LINE// = /=}; COMP_POINT=${#COMP_LINE}
            complete=$(complete -p holdfastctl); complete=${complete##*-F }
            "${complete%% *}" holdfastctl "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"
            # What Enter would make of them.
            for reply in "${COMPREPLY[@]}"; do eval "printf '%s\\n' $reply"; done
            """
        let result = try await lab.finish(["bash", "-c", script, "bash", DaemonProcess.programs] + words, in: nil)
        #expect(result.ending == .exited(0) && result.errors.isEmpty, "\(words): \(result)")
        return result.output.split(separator: "\n").map(String.init)
    }

    /// Returns what is offered as soon as it is what is wanted, or at last. A completion gives the daemon two seconds, which
    /// may be too short on a busy machine: a person presses the key again then.
    private func offered(
        _ words: [String], _ lab: Lab, _ isWanted: ([String]) -> Bool
    ) async throws -> [String] {
        let begun = ContinuousClock.now
        while true {
            let offered = try await offered(words, lab)
            if isWanted(offered) || begun.duration(to: .now) > .seconds(60) { return offered }
        }
    }

    @Test func `bash completes sessions, consumers, topics and ids from the daemon whose socket the line names`()
        async throws
    {
        try await withLab { lab, daemon in
            try daemon.session("gw-2", top: "autoconnect = false")
            try daemon.session("gw-10", top: "autoconnect = false")
            try await daemon.start()
            let trap = "$(touch \(lab.directory)/expanded)"
            for topic in ["plant/7/lamp", "~/lamp", "plant/$HOME", trap] {
                _ = try await daemon.call(
                    PublicationPutMethod.self, .init(session: "gw-2", topic: topic, payload: .init(text: "on")))
            }
            try await daemon.publish("x", to: "plant/7/door", session: "gw-2")
            try await daemon.publish("x", to: "other/9", session: "gw-10")
            _ = try await daemon.ctl("disconnect", "gw-2")
            let consumer = try await lab.start(
                "consumer",
                [
                    "\(DaemonProcess.programs)/holdfastctl", "subscribe", "gw-2", "plant/#", "--consumer", "billing",
                    "--socket", daemon.socket,
                ], in: nil)
            try await until("there is a consumer") {
                try await daemon.status("gw-2").inbox.consumers.map(\.name) == ["billing"]
            }
            let socket = ["--socket", daemon.socket]
            let publications = [trap, "plant/$HOME", "plant/7/lamp", "~/lamp"]
            let topics = (publications + ["plant/7/door"]).sorted()
            let cases: [([String], [String])] = [
                (socket + ["status", ""], ["gw-2", "gw-10"]), (["status"] + socket + [""], ["gw-2", "gw-10"]),
                // bash splits at the equals sign.
                (["--socket", "=", daemon.socket, "status", "gw-1"], ["gw-10"]),
                (["status", "--socket", "=", daemon.socket, ""], ["gw-2", "gw-10"]),
                (socket + ["connect", "gw-2", "gw-1"], ["gw-10"]),
                (socket + ["unsubscribe", "gw-2", ""], ["billing"]),
                (socket + ["subscribe", "gw-2", "plant/#", "--consumer", ""], ["billing"]),
                (socket + ["publications", "remove", "gw-2", ""], publications.sorted()),
                (socket + ["publications", "remove", "gw-10", ""], []),
                (socket + ["publish", "gw-2", ""], topics), (socket + ["publish", "gw-10", ""], ["other/9"]),
                (
                    socket + ["subscribe", "gw-2", "plant/"],
                    ["plant/#", "plant/$HOME", "plant/7/door", "plant/7/lamp"]
                ),
                (socket + ["queue", "gw-"], ["gw-2", "gw-10"]),
                (socket + ["queue", "l"], ["list"]), (socket + ["publications", "gw-2"], ["gw-2"]),
                (["help", "queue", "dr"], ["drop"]), (["help", "stat"], ["status"]),
                (socket + ["queue", "main", "--state", ""], ["queued", "in-flight", "quarantined"]),
                (socket + ["check", "gw-2", "--endpoint", "mqtt"], ["mqtt://\(Lab.serverAddress):1883"]),
                (socket + ["ping", "--endpoint", ""], ["mqtt://\(Lab.serverAddress):1883"]),
                (["status", "--fields", "outbox.q"], ["outbox.quarantined", "outbox.queued"]),
                (["list", "--fields", "state,sess"], ["state,session"]),
            ]
            for (words, wanted) in cases {
                let isTopics = wanted.contains { $0.contains("/") }
                func names(_ offered: [String]) -> [String] {
                    let names = offered.filter { !$0.hasPrefix("-") }
                    return isTopics ? names.sorted() : names
                }
                let offered = try await offered(words, lab) { names($0) == wanted }
                #expect(names(offered) == wanted, "\(words)")
            }
            let files = try await offered(["status", "--socket", "=", "\(lab.directory)/"], lab)
            #expect(files.contains("\(lab.directory)/daemon"), "\(files)")
            let queues = ["list", "retry", "drop", "gw-2", "gw-10"]
            let either = try await offered(socket + ["queue", ""], lab) { Set($0).isSuperset(of: queues) }
            #expect(Set(either).isSuperset(of: queues), "\(either)")
            let commands = try await offered(["help", ""], lab)
            #expect(Set(commands).isSuperset(of: ["status", "publish", "queue"]), "\(commands)")
            #expect(access("\(lab.directory)/expanded", F_OK) != 0, "what others choose is not expanded")
            try await consumer.killed()
        }
    }

    @Test func `bash completes the ids of quarantined messages`() async throws {
        try await withConnected { lab, server, daemon in
            // Only the server may publish there.
            try await daemon.publish("x", to: "$SYS/forbidden")
            try await until("it is quarantined") { try await daemon.status().outbox.quarantined == 1 }
            let socket = ["--socket", daemon.socket]
            for command in ["retry", "drop"] {
                let ids = try await offered(socket + ["queue", command, "main", ""], lab) { $0.contains("1") }
                #expect(ids.contains("1"))
            }
        }
    }

    /// The shells whose completions the package installs.
    enum InteractiveShell: String, CaseIterable, Sendable {
        case bash, zsh, fish

        /// How one of several words is listed: bash lists what follows the last @.
        func shown(_ word: String) -> String {
            self == .bash ? String(word.drop { $0 != "@" }) : word
        }

        /// Returns the command of a shell that has the completions of holdfastctl, and "> " as its prompt.
        func command(_ lab: Lab) async throws -> [String] {
            let holdfastctl = "\(DaemonProcess.programs)/holdfastctl"
            let completions = try await lab.finish([holdfastctl, "completion", rawValue], in: nil).output
            let environment = ["env", "HOME=\(lab.directory)", "PATH=\(DaemonProcess.programs):/usr/bin:/bin"]
            switch self {
            case .bash:
                let keys = "PS1='> '\nbind 'set show-all-if-ambiguous on'\nbind 'set bell-style none'\n"
                let file = try lab.write("completions.bash", keys + completions)
                return environment + ["bash", "--rcfile", file, "-i"]
            case .zsh:
                _ = try lab.write("_holdfastctl", completions)
                _ = try lab.write(
                    ".zshrc",
                    """
                    PS1='> '
                    fpath=('\(lab.directory)' $fpath)
                    autoload -Uz compinit && compinit -u -D
                    """)
                return environment + ["zsh", "-i"]
            case .fish:
                // A suggestion would show the word before the key has been handled.
                let prompt = """
                    set -g fish_greeting; set -g fish_autosuggestion_enabled 0
                    function fish_prompt; echo '> '; end

                    """
                let file = try lab.write("completions.fish", prompt + completions)
                return environment + ["fish", "--no-config", "--init-command", "source \(file)"]
            }
        }
    }

    @Test(arguments: InteractiveShell.allCases)
    func `shells complete the same in a terminal, and what they insert is taken literally`(
        _ shell: InteractiveShell
    ) async throws {
        try await withLab { lab, daemon in
            for name in ["gw-2", "gw-10", "pump@a", "pump@b1"] {
                try daemon.session(name, top: "autoconnect = false")
            }
            try daemon.session("pump@", top: "autoconnect = false")
            try await daemon.start()
            let touch = "touch \(lab.directory)/expanded"
            // The last begins with a letter that is one character with what follows it.
            let traps = [
                "sub$(\(touch))-end", "next;\(touch);-end", "or|\(touch)|-end", "back`\(touch)`-end", "~/tilde-end",
                "quote'\";\(touch);-end", "with\\;\(touch);-end", "bang!! colon:a=b@c{d,e}*?-end",
                "\u{D4E}$(\(touch))-end",
            ]
            for topic in ["plant/7/lamp", "plant/$HOME"] + traps {
                _ = try await daemon.call(
                    PublicationPutMethod.self, .init(session: "gw-2", topic: topic, payload: .init(text: "on")))
            }
            let terminal = TerminalUnderTest(lab)
            try await terminal.start(try await shell.command(lab), columns: 250)
            let cases: [(line: String, shown: [String])] = [
                ("stat", ["status"]), ("--socket \(daemon.socket) status gw-", ["gw-2", "gw-10"]),
                ("--socket=\(daemon.socket) status gw-", ["gw-2", "gw-10"]),
                ("status --socket \(daemon.socket) gw-1", ["gw-10"]),
                ("--socket \(daemon.socket) publish gw-2 plant/", ["plant/7/lamp", "plant/$HOME"]),
                ("--socket \(daemon.socket) queue ", ["list", "retry", "drop", "gw-2", "gw-10"]),
                ("--socket \(daemon.socket) queue gw-2 --state ", ["queued", "in-flight", "quarantined"]),
                ("--socket \(daemon.socket) publications gw-1", ["gw-10"]),
                // bash breaks words there.
                ("--socket \(daemon.socket) status pump@", ["pump@a", "pump@b1"].map { shell.shown($0) }),
                ("--socket \(daemon.socket) status pump@b", ["pump@b1"]),
                ("help queue dr", ["drop"]), ("help stat", ["status"]),
            ]
            // Nothing but the prompt, so that what is seen later is new.
            func isReady(_ screen: [String]) -> Bool {
                screen.map { $0.trimmingCharacters(in: .whitespaces) }.filter { !$0.isEmpty } == [">"]
            }
            for (line, shown) in cases {
                try await terminal.screen("is ready", isReady)
                try await terminal.type("holdfastctl \(line)")
                try await terminal.press("Tab")
                try await terminal.screen("completes \(line)") { screen in
                    // bash lists the words as it would insert them.
                    let text = screen.joined(separator: " ").replacingOccurrences(of: "\\", with: "")
                    let words = text.split(separator: " ")
                    return shown.allSatisfy { words.contains(Substring($0)) }
                }
                // Both shells drop keys that follow an interrupt, and an interrupt that comes while they complete.
                try await terminal.press("C-u")
                try await terminal.type("clear")
                try await terminal.press("Enter")
            }
            // zsh would expand an exclamation mark in spite of its quoting, so it does not get any.
            for trap in traps where shell != .zsh || !trap.contains("!") {
                try await terminal.screen("is ready", isReady)
                // What a person types for the beginning.
                let letters = trap.unicodeScalars.prefix { $0.properties.isAlphabetic }
                let beginning = letters.isEmpty ? "\\~" : String(String.UnicodeScalarView(letters))
                try await terminal.type("holdfastctl --socket \(daemon.socket) publications remove gw-2 \(beginning)")
                try await terminal.press("Tab")
                try await terminal.screen("has all of \(trap)") { $0.joined().contains("-end") }
                try await terminal.press("Enter")
                try await until("\(trap) is removed") {
                    try await daemon.call(PublicationListMethod.self, .init(session: "gw-2")).publications
                        .allSatisfy { $0.topic != trap }
                }
                try await terminal.type("clear")
                try await terminal.press("Enter")
            }
            #expect(access("\(lab.directory)/expanded", F_OK) != 0, "what others choose is not expanded")
        }
    }

    /// On a host that is busy it takes longer, so one run that had time is enough.
    @Test func `a completion gives up soon when the daemon does not answer`() async throws {
        try await withLab { lab, daemon in
            try daemon.session(top: "autoconnect = false")
            try await daemon.start()
            await daemon.pause()
            let words = ["holdfastctl", "--socket", daemon.socket, "publish", "main", ""]
            var times: [Duration] = []
            for _ in 1...10 where (times.last ?? .seconds(180)) >= .seconds(20) {
                let begun = ContinuousClock.now
                let offered = try await lab.finish(
                    [
                        "\(DaemonProcess.programs)/holdfastctl", "---completion", "publish", "--", "positional@1", "5",
                        "0",
                    ] + words, in: nil)
                times.append(begun.duration(to: .now))
                #expect(offered.output.split(separator: "\n").isEmpty, "\(offered)")
            }
            // Two seconds, on a host that has time; three answers would have been waited for 10 seconds each.
            #expect(try #require(times.last) < .seconds(20), "\(times)")
            await daemon.resume()
        }
    }
}
