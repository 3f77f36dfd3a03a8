import ArgumentParser
import ControlAPI
import Glibc
import HoldfastClient
import Testing

@testable import holdfastctl

struct EndingTests {
    @Test(
        arguments: [
            (.notRunning(socket: "/s"), .daemonUnreachable, "omit --socket"),
            (.notPermitted(socket: "/s"), .notPermitted, "try again with sudo"),
            (.unreachable(socket: "/s", reason: "x"), .daemonUnreachable, "the daemon's log"),
            (.versionMismatch(daemon: "2"), .versionMismatch, "after an upgrade"),
            (.connectionLost, .daemonUnreachable, "may or may not"),
            (.dismissed(.roleLost(.message)), .notPermitted, "may or may not"),
            (.dismissed(.roleLost(.message)), .notPermitted, "see [access] in holdfast.toml"),
            (.publishInDoubt(key: "k1", because: .timeout), .timeout, "--key k1"),
            (.publishInDoubt(key: "k1", because: .notRunning(socket: "/s")), .daemonUnreachable, "may or may not"),
            (.timeout, .timeout, "may or may not"), (.unresponsive(socket: "/s"), .timeout, "the daemon's log"),
            (.refused(.unknownSession("mian", among: ["main"])), .failed, "did you mean main?"),
            (
                .refused(.notPermitted(role: .control, others: ["members of the group ops"])),
                .notPermitted, "root and members of the group ops may: try again with sudo"
            ),
            (.refused(.notConnected("main")), .notConnected, "holdfastctl status main"),
            (.refused(.shuttingDown), .daemonUnreachable, "try again"),
            (.refused(.outboxFull("main")), .failed, "[outbox]"),
        ] as [(ClientError, EndStatus, String)])
    func `an error has an exit code and advice`(
        _ error: ClientError, _ status: EndStatus, _ advice: String
    ) {
        let ending = Ending(error)
        #expect(ending.status == status)
        #expect(ending.isError)
        #expect(ending.output.hasPrefix("holdfastctl: "))
        #expect(ending.output.contains(advice))
    }

    @Test(
        arguments: [
            (.notRunning(socket: "/s"), SocketAdvice(), "sudo systemctl start holdfast"),
            (.notRunning(socket: "/s"), SocketAdvice(origin: .option), "omit --socket"),
            (.notRunning(socket: "/s"), SocketAdvice(origin: .environment), "unset HOLDFAST_SOCKET"),
            (.notRunning(socket: "/s"), SocketAdvice(hasSystemd: false), "mount the directory of the host's socket"),
            (.notRunning(socket: "/s"), SocketAdvice(failure: .configuration), "sudo holdfastctl config check"),
            (.notRunning(socket: "/s"), SocketAdvice(failure: .other), "sudo holdfastctl log -x"),
            (.connectionLost, SocketAdvice(failure: .restarting), "systemd starts it again"),
            (.notRunning(socket: "/s"), SocketAdvice(failure: .masked), "sudo systemctl unmask holdfast"),
            (.connectionLost, SocketAdvice(failure: .configuration), "sudo holdfastctl config check"),
            (.notPermitted(socket: "/s"), SocketAdvice(owner: .group("ops")), "sudo usermod -aG ops $USER"),
            (
                .notPermitted(socket: "/s"), SocketAdvice(owner: .group("ops"), isMemberSinceLogin: true),
                "log in again, or run: newgrp ops"
            ),
            (.notPermitted(socket: "/s"), SocketAdvice(owner: .unnamedGroup(996)), "--group-add 996"),
            (.notPermitted(socket: "/s"), SocketAdvice(owner: .root), "only root may open it"),
            (.unreachable(socket: "/s", reason: "x"), SocketAdvice(), "systemctl status holdfast"),
            (.unreachable(socket: "/s", reason: "x"), SocketAdvice(hasSystemd: false), "podman logs NAME"),
            (.unreachable(socket: "/s", reason: "x"), SocketAdvice(isTooLong: true), "name a shorter one"),
            (.unresponsive(socket: "/s"), SocketAdvice(origin: .option), "journalctl -t holdfastd"),
            (.connectionLost, SocketAdvice(), "systemctl status holdfast"),
            (.timeout, SocketAdvice(), "systemctl status holdfast"),
            (.unresponsive(socket: "/s"), SocketAdvice(), "systemctl status holdfast"),
            (.versionMismatch(daemon: "2"), SocketAdvice(), "sudo systemctl restart holdfast"),
            (.versionMismatch(daemon: "2"), SocketAdvice(hasSystemd: false), "restart the daemon"),
        ] as [(ClientError, SocketAdvice, String)])
    func `advice about a socket depends on who named it, the host and the user`(
        _ error: ClientError, _ advice: SocketAdvice, _ text: String
    ) {
        let failure = CommandFailure(error) { _ in advice }
        #expect(failure.advice?.contains(text) == true, "\(failure.advice ?? "none")")
    }

    @Test(
        arguments: [
            (.notRunning(socket: "/s"), true), (.notPermitted(socket: "/s"), true), (.connectionLost, true),
            (.timeout, true), (.unresponsive(socket: "/s"), true), (.refused(.shuttingDown), true),
            (.refused(.tooManyRequests("no")), true),
            (.refused(.unknownSession("mian", among: [])), false), (.versionMismatch(daemon: "2"), false),
            (.closed, false),
        ] as [(ClientError, Bool)])
    func `a command that goes on waits only for a daemon that may come back`(_ error: ClientError, _ isAbsence: Bool) {
        #expect(error.isAbsence == isAbsence)
    }

    @Test func `only publish, whose --timeout limits the call itself, advises a longer one`() {
        #expect(PublishCommand.unanswered.status == .timeout)
        #expect(PublishCommand.unanswered.advice?.contains("--timeout") == true)
        #expect(HoldfastControl.helpMessage(for: PublishCommand.self).contains("--timeout"))
        let other = CommandFailure(ClientError.timeout)
        #expect(other.advice?.contains("--timeout") == false)
    }

    @Test(
        arguments: [
            ("ActiveState=failed\nExecMainStatus=78\n", .configuration),
            ("ExecMainStatus=1\nActiveState=failed", .other),
            ("ActiveState=activating\nExecMainStatus=78", nil), ("ActiveState=inactive\nExecMainStatus=0", nil),
            ("LoadState=loaded\nActiveState=activating\nSubState=auto-restart\nExecMainStatus=73", .restarting),
            ("ActiveState=activating\nSubState=auto-restart\nExecMainStatus=0", nil),
            ("LoadState=masked\nActiveState=failed\nExecMainStatus=73", .masked),
            ("LoadState=masked\nActiveState=inactive", .masked), ("LoadState=masked\nActiveState=active", nil),
            ("", nil),
        ] as [(String, ServiceUnit.Failure?)])
    func `a service that has failed is told from one that was not started`(
        _ properties: String, _ failure: ServiceUnit.Failure?
    ) {
        #expect(ServiceUnit.failure(in: properties) == failure)
    }

    @Test(arguments: [
        ("LoadState=loaded\nActiveState=inactive", true), ("LoadState=loaded\nActiveState=failed", true),
        ("LoadState=loaded\nActiveState=active", false), ("LoadState=not-found\nActiveState=inactive", false),
        ("", false),
    ])
    func `a service that does not run is not started by a question`(_ properties: String, _ isStopped: Bool) {
        #expect(ServiceUnit.isStopped(in: properties) == isStopped)
    }

    @Test func `advice about a socket knows that root owns it`() throws {
        let path = "\(Folder.temporary)/holdfastctl-socket-\(getpid())"
        try OutputFile.write("", to: path)
        defer { unlink(path) }
        chmod(path, 0o600)
        #expect(SocketAdvice(socket: path).owner == .root)
        #expect(SocketAdvice(socket: path).origin == .option)
        #expect(SocketAdvice(socket: path + ".none").owner == .unknown)
        #expect(!SocketAdvice(socket: path).isTooLong)
        #expect(SocketAdvice(socket: "/" + String(repeating: "s", count: 107)).isTooLong)
        #expect(SocketAdvice(socket: SocketAdvice.standardPath).origin == .standard)
    }

    @Test(
        arguments: [
            (10, 2.0, nil, "10 messages, 5/s"), (50, 1.0, 0.25, "50 messages, 50/s, 25 %, 3 s left"),
            (50, 1.0, 0.0, "50 messages, 50/s"), (90, 3.0, 1.5, "90 messages, 30/s, 100 %, 0 s left"),
            (0, 0.0, nil, "0 messages, 0/s"),
        ] as [(Int, Double, Double?, String)])
    func `progress is a count, a rate and the time left`(
        _ count: Int, _ seconds: Double, _ share: Double?, _ text: String
    ) {
        #expect(ProgressText.line(count, after: seconds, share: share) == text)
    }

    @Test func `progress has no rate and no time left while the session is away`() {
        let text = ProgressText.line(50, after: 1, share: 0.25, hindrance: "main is reconnecting")
        #expect(text == "50 messages, 25 %; main is reconnecting")
        #expect(ProgressText.line(0, after: 1, share: nil, hindrance: "m is failed") == "0 messages; m is failed")
    }

    @Test func `the exit code of several sessions is the highest, and one session's error is the command's`() throws {
        var several = SessionTally(count: 3)
        #expect(several.failure == nil)
        #expect(try several.take(CommandFailure(.timeout, "late")).output == "holdfastctl: late")
        #expect(try several.take(ClientError.refused(.unknownSession("a", among: []))).status == .failed)
        #expect(several.failure == CommandFailure(.timeout, ""))
        #expect(throws: ClientError.connectionLost) { _ = try several.take(ClientError.connectionLost) }
        var one = SessionTally(count: 1)
        #expect(throws: CommandFailure(.failed, "no")) { _ = try one.take(CommandFailure(.failed, "no")) }
    }

    @Test func `an output that cannot be written does not hide what was done`() {
        #expect(
            CommandFailure(unwritten: "No space left on device", done: "message 7 is accepted").lines == [
                "holdfastctl: message 7 is accepted, but the output cannot be written: No space left on device",
                "  do not repeat the command, which would do it again",
            ])
        #expect(
            CommandFailure(unwritten: "Bad file descriptor", done: nil).lines == [
                "holdfastctl: the output cannot be written: Bad file descriptor"
            ])
    }

    @Test func `exit codes are those of the contract`() {
        let statuses: [EndStatus] = [
            .success, .failed, .usage, .notConnected, .timeout, .notPermitted, .daemonUnreachable, .versionMismatch,
        ]
        #expect(statuses.map(\.rawValue) == [0, 1, 2, 3, 4, 5, 6, 7])
    }

    private func ending(of words: CommandWords) -> Ending? {
        do {
            _ = try HoldfastControl.parseAsRoot(words.complete)
            return nil
        } catch {
            return Ending(error, of: words)
        }
    }

    private func ending(_ arguments: [String]) -> Ending? {
        do {
            var command = try HoldfastControl.parseAsRoot(arguments)
            // Only the parser's own commands (help) run at once.
            if !(command is any AsyncParsableCommand) { try command.run() }
            return nil
        } catch {
            return Ending(error)
        }
    }

    @Test(arguments: [
        ["nosuchverb"], ["connect"], ["publish", "main", "t"], ["publish", "main", "t", "m", "--lines"],
        ["publish", "main", "t", "m", "--qos", "3"], ["publish", "main", "t", "m", "--expiry", "0s"],
        ["wait", "--timeout", "soon"], ["subscribe", "main"], ["subscribe", "main", "#", "--count", "0"],
        ["connect", "main", "--all"], ["reconnect", "main", "--mode", "fast"], ["status", "--follow", "--check"],
        ["list", "--nope"], ["wait", "--timeout", "-1"], ["connect", "main", "--wait", "--timeout", "0"],
        ["connect", "main", "--wait", "--timeout", "366d"], ["wait", "main", "--timeout", "400d"],
        [
            "config", "init", "main", "--endpoint", "mqtts://a.example", "--user", "u", "--connect", "--timeout", "0",
        ],
        ["simulate", "main", "path-lost", "--duration", "2h"],
        ["simulate", "main", "path-lost", "--duration", "never"],
        ["simulate", "main", "drop", "--duration", "15s"],
        ["publish", "main", "t", "m", "--timeout", "0"], ["log", "main", "--level", "debug"], ["log", "-n", "-1"],
        ["status", "--socket", ""], ["config", "init", "main", "--stdout", "--json"],
        ["log", "--since", "1h", "--lines", "2"], ["history", "--since", "soon"], ["history", "--limit", "0"],
        ["history", "--svg", "a.svg", "--json"],
    ])
    func `a mistake on the command line exits with 2`(_ arguments: [String]) {
        let ending = ending(CommandWords(arguments).complete)
        #expect(ending?.status == .usage)
        #expect(ending?.isError == true)
        #expect(ending?.output.hasPrefix("holdfastctl: ") == true)
    }

    @Test(arguments: [
        ["connect", "main", "--wait", "--timeout", "365d"], ["wait", "main", "--timeout", "never"],
        [
            "config", "init", "main", "--endpoint", "mqtts://a.example", "--user", "u", "--connect", "--timeout",
            "5min",
        ],
        ["wait", "main", "--timeout", "0"], ["simulate", "main", "path-lost", "--duration", "1h"],
    ])
    func `the limits of a span are allowed`(_ arguments: [String]) {
        #expect(ending(arguments) == nil)
    }

    @Test func `every command takes the common options, before and after its name`() {
        func check(_ command: any ParsableCommand.Type, _ names: [String]) {
            let parts = command.configuration.subcommands
            guard parts.isEmpty else {
                for part in parts { check(part, names + [part.configuration.commandName ?? "\(part)".lowercased()]) }
                return
            }
            let help = HoldfastControl.helpMessage(for: command)
            for option in ["--socket", "--json", "--color"] {
                #expect(help.contains(option), "\(names.joined(separator: " "))")
            }
        }
        for command in HoldfastControl.configuration.subcommands {
            check(command, [command.configuration.commandName ?? ""])
        }
        for words in [
            ["--json", "--socket", "/s", "config", "edit", "main"], ["config", "edit", "--color", "never"],
            ["--socket=/s", "completion", "bash"], ["completion", "bash", "--json"],
        ] {
            #expect(throws: Never.self) { try HoldfastControl.parseAsRoot(CommandWords(words).complete) }
        }
    }

    @Test(arguments: [["--help"], ["help", "publish"], ["status", "-h"], ["--version"]])
    func `help and version exit with success`(_ arguments: [String]) {
        let ending = ending(arguments)
        #expect(ending?.status == .success)
        #expect(ending?.isError == false)
        #expect(ending?.output.isEmpty == false)
    }

    @Test(
        arguments: [
            (["config", "shwo"], "did you mean config show?"),
            (["config", "x"], "the subcommands are: check, show, init, edit, password, remove"),
            (["queue", "lits", "main"], "did you mean queue list?"),
            (["instance", "dad", "a@b"], "did you mean instance add?"),
            (["queue", "remove", "main", "3"], "did you mean queue drop?"),
            (["queue", "clear", "main"], "did you mean queue drop?"),
            (["queue", "resend", "main", "3"], "did you mean queue retry?"),
            (["publications", "rm", "main", "a"], "did you mean publications remove?"),
            (["publications", "set", "main", "a", "b"], "did you mean publications put?"),
            (["config", "rm", "x"], "did you mean config remove?"),
            (["config", "delete", "x"], "did you mean config remove?"),
            (["config", "ls"], "did you mean config show?"),
            (["config", "validate"], "did you mean config check?"), (["config", "reload"], "did you mean reload?"),
            (["instance", "create", "a@b"], "did you mean instance add?"),
            (["instance", "list"], "did you mean list?"), (["instance", "up", "a@b"], "did you mean connect?"),
            // Sessions may have these names.
            (["queue", "clear"], nil), (["queue", "drop"], nil), (["queue", "remove", "--limit", "3"], nil),
            (["queue", "lits"], nil), (["queue", "main", "--limit", "3"], nil), (["config", "show"], nil),
            (["config"], nil),
            (["config", "--help"], nil), (["publications", "main"], nil),
        ] as [([String], String?)])
    func `a misspelled part of a command gets a suggestion`(_ words: [String], _ advice: String?) {
        #expect(CommandWords(words).failure?.advice == advice)
    }

    @Test(
        arguments: [
            ("session,state,outbox.queued", ["gw-2\tconnected\t0"]), ("reason.code,session", ["\tgw-2"]),
            ("lost", ["false"]),
        ])
    func `fields are printed in the order given`(_ list: String, _ lines: [String]) throws {
        let status = SessionStatus(session: "gw-2", state: .connected, since: Timestamp(rawValue: 0))
        let fields = try #require(FieldList(argument: list))
        #expect(try fields.lines([JSONText.value(status)]) == lines)
        #expect(try fields.lines([]) == [])
    }

    @Test func `an unknown field gets a suggestion`() throws {
        let status = SessionStatus(session: "gw-2", state: .connected, since: Timestamp(rawValue: 0))
        let fields = try #require(FieldList(argument: "sesion"))
        let failure = #expect(throws: CommandFailure.self) { try fields.lines([JSONText.value(status)]) }
        #expect(failure?.advice == "did you mean session?")
        #expect(failure?.status == .usage)
        #expect(FieldList(argument: "a,,b") == nil)
    }

    @Test(
        arguments: [
            ("outbox.quued", "did you mean outbox.queued?"),
            (
                "outbox.nonsense",
                "the fields are outbox.bytes, outbox.inFlight, outbox.oldest, outbox.quarantined, outbox.queued, "
                    + "outbox.unknown"
            ),
            // Only the second row has a reason.
            ("reason.cod", "did you mean reason.code?"), ("session.name", nil),
        ] as [(String, String?)])
    func `an unknown member of a field gets a suggestion too`(_ list: String, _ advice: String?) throws {
        let rows = [nil, StatusTextTests.reason("x", "…")].map { reason in
            JSONText.value(
                SessionStatus(session: "gw-2", state: .connected, since: Timestamp(rawValue: 0), reason: reason))
        }
        let fields = try #require(FieldList(argument: list))
        let failure = #expect(throws: CommandFailure.self) { try fields.lines(rows) }
        #expect(failure?.sentence == "there is no field \"\(list)\"")
        #expect(failure?.advice == advice)
        #expect(try FieldList(argument: "reason.code")?.lines(rows) == ["", "x"])
        #expect(try FieldList(argument: "reason.code")?.lines(Array(rows.prefix(1))) == [""])
    }

    @Test func `a property that no publication has is an empty field`() throws {
        let rows: [JSONValue] = [
            .object(["topic": .string("a")]), .object(["topic": .string("b"), "properties": .object([:])]),
        ]
        let fields = try #require(FieldList(argument: "topic,properties.contentType"))
        #expect(try fields.lines(rows) == ["a\t", "b\t"])
    }

    @Test(
        arguments: [
            ("gateway", true), ("gateway@", true), ("gateway@edge-17", true), ("", false), ("@", false), ("@a", false),
            ("a@b@", false), ("a@b@c", false), ("-a", false), ("Gateway", false), ("../a", false),
        ])
    func `a session's file is that of a session, a template or an instance`(_ name: String, _ isRight: Bool) {
        #expect((SessionName(listed: name) != nil) == isRight)
    }

    @Test(
        arguments: [
            (["st"], ["status"]), (["--json", "wai", "main"], ["--json", "wait", "main"]),
            (["--socket", "/s", "conf", "sh", "main"], ["--socket", "/s", "config", "show", "main"]),
            (["inst", "--json", "ad", "a@b"], ["instance", "--json", "add", "a@b"]),
            (["log"], ["log"]), (["con", "--help"], nil), (["p"], nil), (["queue", "l"], ["queue", "l"]),
            (["--version"], ["--version"]), ([], []), (["---completion", "st"], ["---completion", "st"]),
            (["help"], ["--help"]), (["help", "pubs"], nil), (["help", "st"], ["status", "--help"]),
            (["--socket=/s", "help", "queue", "drop"], ["--socket=/s", "queue", "drop", "--help"]),
            (["help", "help"], ["--help"]), ([""], nil),
        ] as [([String], [String]?)])
    func `a command may be shortened if no other begins like it, and help names a command`(
        _ words: [String], _ complete: [String]?
    ) {
        let words = CommandWords(words)
        #expect((words.failure == nil) == (complete != nil))
        if let complete { #expect(words.complete == complete) }
    }

    @Test(
        arguments: [
            (["publish", "main", "t", "-5.5"], ["publish", "--", "main", "t", "-5.5"]),
            (
                ["--json", "publish", "main", "-5/t", "-.5", "--expiry", "24h", "--retain"],
                ["--json", "publish", "--expiry", "24h", "--retain", "--", "main", "-5/t", "-.5"]
            ),
            (["publis", "main", "t", "-5", "--", "-6"], ["publish", "--", "main", "t", "-5", "-6"]),
            (["wait", "main", "--timeout", "-1s"], ["wait", "--timeout=-1s", "--", "main"]),
            (["ping", "-c", "-1", "--interval=1s"], ["ping", "-c=-1", "--interval=1s", "--"]),
            (["queue", "--json", "drop", "main", "-1"], ["queue", "--json", "drop", "--", "main", "-1"]),
            (["queue", "main", "--limit", "-1"], ["queue", "--limit=-1", "--", "main"]),
            (["publications", "put", "main", "t", "-5"], ["publications", "put", "--", "main", "t", "-5"]),
            (["publish", "main", "t", "--", "-5"], ["publish", "main", "t", "--", "-5"]),
            (["publish", "main", "t", "-x"], ["publish", "main", "t", "-x"]),
            (["config", "-5"], ["config", "-5"]),
        ] as [([String], [String])])
    func `a number below zero is a value and no option`(_ words: [String], _ complete: [String]) {
        #expect(CommandWords(words).complete == complete)
    }

    @Test func `a reading below zero is published`() throws {
        let words = CommandWords(["publish", "main", "t", "-5.5", "--expiry", "24h"]).complete
        let command = try #require(try HoldfastControl.parseAsRoot(words) as? PublishCommand)
        #expect(command.topic == "t" && command.message == "-5.5" && command.expiry?.seconds == 86_400)
        let ending = ending(CommandWords(["subscribe", "main", "#", "--count", "-1"]).complete)
        #expect(ending?.status == .usage && ending?.output.contains("--count must be at least 1") == true)
    }

    @Test(arguments: [
        ["subscribe", "main"], ["log", "--level", "foo"], ["log", "--level", "show", "main"], ["connect"],
        ["status", "--check", "--follow"], ["publish", "main", "t"], ["ping", "--count", "0"],
        ["history", "--nonsense"],
    ])
    func `every usage error begins with a small letter, and has no full stop`(_ words: [String]) throws {
        let ending = try #require(self.ending(words))
        #expect(ending.status == .usage)
        let sentence = try #require(ending.output.split(separator: "\n").first)
        #expect(sentence.firstMatch(of: /^holdfastctl: [a-z-]/) != nil && !sentence.hasSuffix("."), "\(sentence)")
    }

    @Test func `a daemon that goes away is not said to have owed an answer`() {
        #expect(
            Complaint(detached: .connectionLost).lines == [
                "holdfastctl: the daemon closed the connection; waiting for the daemon"
            ])
    }

    @Test(arguments: [
        (SocketAdvice.Origin.standard, "holdfastctl config init NAME creates one"),
        (.option, "holdfastctl config init NAME --config-directory DIR creates one"),
        (.environment, "holdfastctl config init NAME --config-directory DIR creates one"),
    ])
    func `a session for a daemon of one's own is created in its directory`(
        _ origin: SocketAdvice.Origin, _ creation: String
    ) {
        #expect(SocketAdvice(origin: origin).creation == creation)
    }

    @Test func `an ambiguous beginning names all commands that begin like it`() {
        #expect(CommandWords(["re"]).failure?.advice == "did you mean reconnect or reload?")
        #expect(CommandWords(["help", "pu"]).failure?.advice == "did you mean publications or publish?")
    }

    @Test(arguments: [
        ["--socket", "/s", "--json", "status"], ["status", "--json", "--socket", "/s"],
        ["--json", "--socket=/s", "config", "edit", "main"], ["config", "--socket=/s", "edit", "--json", "main"],
        ["--json", "queue", "main", "--socket", "/s"], ["queue", "--json", "--socket=/s", "main"],
        ["--socket", "/s", "instance", "--json", "add", "a@b"],
    ])
    func `options of every command may stand anywhere`(_ words: [String]) throws {
        let common =
            switch try HoldfastControl.parseAsRoot(CommandWords(words).complete) {
            case let command as StatusCommand: command.common
            case let command as ConfigCommand.Edit: command.common
            case let command as QueueCommand.List: command.common
            case let command as InstanceCommand.Add: command.common
            case let command: throw CommandFailure(.failed, "\(command)")
            }
        #expect(common.socket == "/s" && common.json)
    }

    @Test(
        arguments: [
            (["holdfastctl", "status", ""], nil), (["holdfastctl", "--socket", "/s", "status", ""], "/s"),
            (["holdfastctl", "status", "--socket=/s", ""], "/s"), (["status", "--socket", "=", "/s", ""], "/s"),
            (["status", "--socket"], nil),
        ] as [([String], String?)])
    func `completion asks the daemon whose socket the line names`(_ words: [String], _ socket: String?) {
        #expect(Completions(words).socket == socket)
    }

    @Test func `what others choose means nothing else to a shell`() {
        let words = ["a/b-1", "$(x)", "~/c", "a:b", "two\nlines"]
        #expect(Completions.literal(words, for: .bash) == ["a/b-1", #"\$\(x\)"#, #"\~/c"#, #"a\:b"#])
        #expect(Completions.literal(words, for: .zsh) == ["a/b-1", "$(x)", "~/c", #"a\:b"#])
        // A letter and a dollar sign that are one character, and what zsh takes from its history.
        let traps = ["\u{D4E}$(x)", "a!x"]
        #expect(Completions.literal(traps, for: .bash) == ["\u{D4E}\\$\\(x\\)", "a\\!x"])
        #expect(Completions.literal(traps, for: .zsh) == ["\u{D4E}$(x)"])
        #expect(Completions.literal(words, for: .fish) == ["a/b-1", "$(x)", "~/c", "a:b"])
    }

    @Test(arguments: [
        ("statsu", "did you mean status?"), ("qwertyuiop", "holdfastctl help lists all commands"),
        ("", "holdfastctl help lists all commands"), ("up", "did you mean connect?"),
        ("restrat", "did you mean reconnect?"),
        ("add", "did you mean config init?"), ("logs", "did you mean log?"),
    ])
    func `an unknown command gets a suggestion`(_ word: String, _ advice: String) {
        let failure = CommandWords(["--json", word]).failure
        #expect(failure?.status == .usage)
        #expect(failure?.advice == advice)
    }

    @Test func `a command's name in other tools leads to ours`() {
        let names = Set(HoldfastControl.configuration.subcommands.compactMap { $0.configuration.commandName })
        for (word, commands) in CommandWords.known {
            for command in commands {
                let words = command.split(separator: " ").map(String.init)
                #expect(CommandWords(words).failure == nil, "\(command)")
                let told = CommandWords([words[0], word, "main"]).failure?.advice
                if words.count == 2, words[1] != word {
                    #expect(told == "did you mean \(command)?", "\(words[0]) \(word)")
                }
            }
            guard !names.contains(word) else { continue }
            #expect(CommandWords([word]).failure?.advice == commands.first.map { "did you mean \($0)?" })
        }
    }

    @Test(
        arguments: [
            (["config", "init", "--endpont", "mqtt://x", "y"], "--endpont", "did you mean --endpoint?"),
            (["simulate", "--durtion", "3s", "main", "path-lost"], "--durtion", "did you mean --duration?"),
            (["simulate", "--durtion=3s", "main", "path-lost"], "--durtion", "did you mean --duration?"),
            (["history", "--limt", "3"], "--limt", "did you mean --limit?"),
            (["queue", "--limt", "3"], "--limt", "did you mean --limit?"),
            (["history", "--nonsense"], "--nonsense", "holdfastctl history --help lists the options"),
            (["--sokcet", "/s", "status"], "--sokcet", "did you mean --socket?"),
            (
                ["publish", "main", "t", "-x"], "-x",
                "holdfastctl publish --help lists the options; what begins with - and is no option goes after --"
            ),
        ] as [([String], String, String)])
    func `an option that does not exist is what the error is about`(
        _ line: [String], _ option: String, _ advice: String
    ) throws {
        let failure = ending(of: CommandWords(line))?.failure
        #expect(failure == CommandFailure(.usage, "unknown option \(option)", advice: advice))
    }

    @Test(arguments: [
        ["publish", "main", "t", "--qos", "3", "m"], ["ping", "-c", "-1"], ["log", "-fn5x"],
        ["wait", "--timeout", "-1"],
        ["publish", "main", "t", "m", "--file", "-"], ["publish", "main", "--", "--x", "--y", "--z"],
    ])
    func `an error about something else is not blamed on an option that exists`(_ line: [String]) {
        #expect(CommandWords(line).unknownOption == nil)
    }

    @Test func `a usage error has its sentence and its hint apart for programs`() throws {
        let told = try #require(ending(of: CommandWords(["status", "a", "b", "--json"])))
        let json = Complaint(told).json["error"]
        #expect(json?["message"] == .string("unexpected argument 'b'"))
        #expect(json?["hint"] == .string("see: holdfastctl status --help"))
    }

    @Test(arguments: [
        ("gw@Big", "an instance is NAME@INSTANCE, where each part"), ("Big", "an instance is NAME@INSTANCE"),
    ])
    func `a name that no instance has is answered with the rule for instances`(_ name: String, _ rule: String) throws {
        let add = try #require(ending(["instance", "add", name]))
        #expect(add.output.contains(rule))
        let remove = try #require(ending(["config", "remove", name]))
        #expect(remove.output.contains("an instance is") == name.contains("@"))
    }

    @Test func `fields are completed from the members that a command prints`() {
        let status = Completions(["holdfastctl", "status", "--fields", ""]).fields
        #expect(Set(status).isSuperset(of: ["session", "state", "outbox", "outbox.queued", "reason.code"]))
        let more = Completions(["holdfastctl", "--json", "list", "--fields", "session,st"]).fields
        #expect(more.contains("session,state") && !more.contains("session,session"))
        for command in ["network", "history", "queue", "publications", "participants", "clients"] {
            #expect(Completions(["holdfastctl", command, "--fields", ""]).fields.count > 4, "\(command)")
        }
        #expect(Completions(["holdfastctl", "queue", "--fields", ""]).fields.contains("session"))
        #expect(Completions(["holdfastctl", "ping", ""]).fields == [])
    }

    @Test func `an error is JSON for programs, with its code and hint`() throws {
        let ending = Ending(ClientError.refused(.unknownSession("mian", among: ["main"])))
        let error = Complaint(ending).json["error"]
        #expect(error?["code"] == .string("unknown-session"))
        #expect(error?["hint"] == .string("did you mean main?"))
        #expect(error?["status"] == .integer(1))
        #expect(Complaint(Ending(ClientError.timeout)).json["error"]?["status"] == .integer(4))
        let ours = Complaint(Ending(CommandFailure(.usage, "no", advice: "yes"))).json["error"]
        #expect(ours?["message"] == .string("no") && ours?["hint"] == .string("yes"))
    }

    @Test func `a notice and an error in a file are JSON for programs, and a line for people`() {
        let notice = Complaint(detached: .connectionLost)
        #expect(notice.lines.first?.hasPrefix("holdfastctl: ") == true)
        #expect(notice.lines.first?.hasSuffix("; waiting for the daemon") == true)
        #expect(notice.json["notice"]?["message"] != nil && notice.json["error"] == nil)
        let problem = Complaint(
            ConfigurationProblem(session: "main", file: "/main.toml", line: 2, column: 3, message: "wrong"))
        #expect(problem.lines == ["/main.toml:2:3: wrong"])
        #expect(problem.json["error"]?["file"] == .string("/main.toml"))
        #expect(problem.json["error"]?["message"] == .string("wrong"))
        #expect(Complaint(Ending(CommandFailure(.failed, ""))).lines == [])
    }

    @Test func `several errors are several lines`() {
        let failure = CommandFailure(.failed, "a.toml:1:1: wrong\nb.toml:2:1: wrong\u{7}")
        #expect(failure.lines == ["holdfastctl: a.toml:1:1: wrong", "b.toml:2:1: wrong\u{FFFD}"])
    }

    @Test(arguments: [(nil, "."), (0, "."), (16, "; no subscribers."), (135, "; the server's reason code is 0x87.")])
    func `a delivered message is confirmed by a sentence`(_ code: Int?, _ end: String) {
        let result = MessagePublishMethod.Result(id: 3, accepted: true, delivered: true, reasonCode: code)
        #expect(PublishCommand.sentence(result, .atLeastOnce) == "Message 3 is delivered" + end)
        #expect(PublishCommand.sentence(result, .atMostOnce) == "Message 3 is sent; no server acknowledges QoS 0.")
    }

    @Test(arguments: [(false, ""), (true, ", and is delivered")])
    func `a message whose key was used before is not said to be published`(_ isDelivered: Bool, _ rest: String) {
        let result = MessagePublishMethod.Result(
            id: 40, accepted: true, delivered: isDelivered, reasonCode: isDelivered ? 0 : nil, repeated: true)
        let sentence = "Message 40 was already accepted with this key\(rest); nothing new is published."
        #expect(PublishCommand.sentence(result, .atLeastOnce) == sentence)
    }

    @Test(arguments: [false, true])
    func `a message that is not delivered in time is not said to be published if its key was used before`(
        _ isStopped: Bool
    ) {
        var result = MessagePublishMethod.Result(id: 40, accepted: true, delivered: false, reasonCode: nil)
        let new = PublishCommand.undelivered(result, "main", isStopped: isStopped)
        #expect(new.sentence == "message 40 is accepted, but not delivered yet")
        result.repeated = true
        let repeated = PublishCommand.undelivered(result, "main", isStopped: isStopped)
        #expect(repeated.sentence.contains("already accepted with this key, so nothing new is published"))
        #expect(repeated.advice == new.advice)
        #expect(new.advice?.contains("holdfastctl connect main") == isStopped)
    }

    @Test(
        arguments: [
            ("plant/7/lamp", "on", "plant/7/lamp on"), ("a", "", "a "),
            ("plant/7/lamp", "dim\nplant/7/door open", "plant/7/lamp \\dim\\nplant/7/door open"),
            ("plant/7/door open", "", "plant/7/door\\x20open "), ("a\\x20b", "c\r\n", "a\\x5Cx20b \\c\\r\\n"),
            // Not the same as with a line feed, and what a program makes of each is what was received.
            ("a", #"b\nc"#, #"a b\nc"#), ("a", "b\\n\nc", #"a \b\\n\nc"#), ("a", #"\b\nc"#, #"a \\\b\\nc"#),
            ("a", "{\n  \"path\": \"C:\\\\n\"\n}", #"a \{\n  "path": "C:\\\\n"\n}"#),
            ("a", #"{"path":"C:\\n"}"#, #"a {"path":"C:\\n"}"#), ("a", "b\u{0}\t\u{7F} c", "a b\u{0}\t\u{7F} c"),
            ("z/\u{2028}é", "q", "z/\\xE2\\x80\\xA8é q"),
        ])
    func `a message is one line, and only its own topic begins it`(_ topic: String, _ payload: String, _ line: String) {
        #expect(MessageLine.bytes(topic: topic, payload: Array(payload.utf8)) == Array((line + "\n").utf8))
    }

    @Test func `a consumer with another filter is named with it`() {
        let failure = SubscribeCommand.otherFilter(
            .init(name: "billing", filter: "jobs/#", qos: .atLeastOnce, attached: false), "core")
        #expect(failure.sentence == "the consumer billing of session core has the filter jobs/#")
        #expect(failure.advice?.contains("--replace-filter") == true)
    }

    @Test(
        arguments: [
            (.failed, "not-authorized", true), (.disconnected, "user-disconnect", true), (.disconnected, "idle", false),
            (.disconnected, "configuration-changed", false), (.reconnecting, "refused", false),
            (.connected, "started", false),
        ] as [(SessionState, String, Bool)])
    func `a command that waits for a session says when only a person can connect it`(
        _ state: SessionState, _ code: String, _ isStopped: Bool
    ) {
        let reason = SessionStatus.Reason(code: code, group: "local", terminal: state == .failed, message: "")
        let status = SessionStatus(session: "main", state: state, since: Timestamp(rawValue: 0), reason: reason)
        #expect(StatusText.isStopped(status) == isStopped)
    }

    @Test func `names are in natural order`() {
        let names = ["gw-10", "gw-2", "a", "gw-02", "gw", "gw-2b", "b1c10", "b1c9"]
        #expect(
            names.sorted(by: NaturalOrder.precedes) == ["a", "b1c9", "b1c10", "gw", "gw-02", "gw-2", "gw-2b", "gw-10"])
        #expect(listed(["gw-10", "gw-2"]) == "gw-2, gw-10")
        #expect(listed((1...200).map(String.init)) == "1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 190 more")
        #expect(nearest(to: "gw-201", among: ["gw-101", "gw-20", "gw-200"]) == ["gw-20", "gw-101", "gw-200"])
    }

    @Test func `holdfastctl without a verb shows the help`() throws {
        var command = try #require(try HoldfastControl.parseAsRoot([]) as? HoldfastControl)
        let error = try #require(throws: (any Error).self) { try command.run() }
        #expect(Ending(error).status == .success)
        #expect(Ending(error).output.contains("SUBCOMMANDS"))
    }

    @Test func `status with check exits with 3 unless every session is connected`() {
        let connected = StatusTextTests.status(.connected)
        #expect(StatusCommand.failure([connected, connected]) == nil)
        let failure = StatusCommand.failure([connected, StatusTextTests.status(.reconnecting)])
        #expect(failure?.status == .notConnected)
        #expect(failure?.lines == [])
        #expect(StatusCommand.failure([])?.status == .notConnected, "no session is connected")
    }

    @Test(arguments: [
        (["ping", "main", "-c1"], ["ping", "main", "-c", "1"]), (["log", "-n5"], ["log", "-n", "5"]),
        (["log", "-f", "-n5", "main"], ["log", "-f", "-n", "5", "main"]),
        (["bugreport", "-o/tmp/report"], ["bugreport", "-o", "/tmp/report"]),
    ])
    func `a short option may have its value attached`(_ short: [String], _ long: [String]) throws {
        let (attached, apart) = try (
            HoldfastControl.parseAsRoot(CommandWords(short).complete),
            HoldfastControl.parseAsRoot(CommandWords(long).complete)
        )
        switch (attached, apart) {
        case (let attached as PingCommand, let apart as PingCommand): #expect(attached.count == apart.count)
        case (let attached as LogCommand, let apart as LogCommand):
            #expect(attached.lines == apart.lines && attached.lines == 5)
            #expect(attached.follow == apart.follow && attached.session == apart.session)
        case (let attached as BugreportCommand, let apart as BugreportCommand):
            #expect(attached.output == apart.output && attached.output == "/tmp/report")
        default: Issue.record("\(attached)")
        }
    }

    @Test func `a coloured table has marks, and is as wide as the terminal`() {
        let rows = [["a", "up"], ["b", "down"]]
        let plain = Columns.table(["NAME", "STATE"], rows)
        #expect(plain == ["NAME  STATE", "a     up", "b     down"])
        let coloured = Columns.table(["NAME", "STATE"], rows, marks: ["32", "31"])
        #expect(
            coloured == [
                "\u{1B}[1m  NAME  STATE\u{1B}[0m", "\u{1B}[32m●\u{1B}[0m a     up", "\u{1B}[31m●\u{1B}[0m b     down",
            ])
        #expect(Columns.table(["NAME", "STATE"], rows, marks: [])[1] == plain[1], "no marks, no room for them")
        let long = [String(repeating: "n", count: 100), "up"]
        let narrow = Columns.table(["NAME", "STATE"], [long], width: 40, marks: ["32"])
        #expect(Terminal.room(for: narrow[1]) <= 40)
    }

    @Test func `instance add completes the templates of the directory that the line names`() throws {
        let folder = "\(Folder.temporary)/holdfastctl-templates-\(getpid())"
        mkdir(folder, 0o700)
        mkdir("\(folder)/sessions.d", 0o700)
        let names = ["gw@.toml", "gw@a.toml", "main.toml", "edge@.toml"]
        for name in names { try OutputFile.write("", to: "\(folder)/sessions.d/\(name)") }
        defer {
            for name in names { unlink("\(folder)/sessions.d/\(name)") }
            rmdir("\(folder)/sessions.d")
            rmdir(folder)
        }
        let line = ["holdfastctl", "instance", "add", "--config-directory", folder, ""]
        #expect(Completions(line).templates == ["edge@", "gw@"])
    }

    @Test(
        arguments: [
            ("250ms", .milliseconds(250)), ("15s", .seconds(15)), ("20min", .seconds(1200)), ("24h", .seconds(86_400)),
            ("7", .seconds(7)), ("never", nil),
        ] as [(String, Duration?)])
    func `a span is written as in the configuration`(_ text: String, _ duration: Duration?) {
        #expect(SpanArgument(argument: text) == SpanArgument(duration: duration))
    }

    @Test(arguments: ["1500ms", "250ms", "30s", "90s", "5min", "24h", "never"])
    func `a span in a message is the one that was given`(_ text: String) {
        #expect(SpanArgument(argument: text)?.description == text)
    }

    @Test(arguments: ["", "s", "-1s", "1.5s", "1 s", "1y", "99999999999999999999s", "٣s"])
    func `text that is not a span is refused`(_ text: String) {
        #expect(SpanArgument(argument: text) == nil)
    }

    @Test func `the result of a method is printed with its schema`() throws {
        let line = JSONText.line(JSONText.value(SessionStateResult(state: .connecting)))
        #expect(String(decoding: line, as: UTF8.self) == #"{"schema":1,"state":"connecting"}"# + "\n")
    }

    @Test func `lines are the same wherever a read ends`() {
        var input = InputLines()
        #expect(input.lines(Array("a\nb".utf8)) == [[0x61]])
        #expect(input.lines(Array("c".utf8)) == [])
        #expect(input.lines(Array("\n\nd".utf8)) == [[0x62, 0x63], []])
        #expect(input.rest() == [[0x64]])
        #expect(input.rest() == [])
    }

    private static let accepted = MessagePublishMethod.Result(id: 1, accepted: true, delivered: false, reasonCode: nil)
    private static let doubt =
        "may or may not have been accepted: publishing it again may deliver it twice, and not doing so may lose it"

    @Test func `lines that were refused are told from those behind them that were accepted`() {
        var tally = LineTally(wait: .accepted, session: "main")
        tally.read(20, isAtEnd: false)
        tally.take(.success(Self.accepted))
        #expect(
            tally.sentenceBeforeError
                == "before the error, 1 message is accepted; to be published again: all lines from 2 on")
        #expect(
            tally.sentenceAfterInterruption == "1 message is accepted; to be published again: all lines from 2 on")
        tally.take(.failure(.refused(.outboxFull("main"))))
        #expect(
            tally.sentenceBeforeError
                == "line 2 was refused; 1 message before it is accepted; to be published again: all lines from 2 on")
        for _ in 0..<2 { tally.take(.success(Self.accepted)) }
        for _ in 0..<3 { tally.take(.failure(.refused(.outboxFull("main")))) }
        tally.take(.failure(.dismissed(.roleLost(.message))))
        #expect(tally.error as? ClientError == .refused(.outboxFull("main")))
        var none = LineTally(wait: .accepted, session: "main")
        none.read(1, isAtEnd: true)
        none.take(.failure(.refused(.outboxFull("main"))))
        #expect(
            none.sentenceBeforeError
                == "line 1 was refused; no message is accepted; to be published again: all lines from 1 on")
        #expect(
            tally.sentenceBeforeError
                == "line 2 was refused; 1 message before it and 2 messages behind it are accepted; "
                + "line 8 \(Self.doubt); to be published again: lines 2, 5-7, and all from 9 on")
    }

    @Test func `a lost connection does not hide why a line was refused`() {
        var tally = LineTally(wait: .delivered, session: "main")
        tally.read(3, isAtEnd: true)
        tally.take(.failure(.connectionLost))
        for _ in 0..<2 { tally.take(.failure(.refused(.outboxFull("main")))) }
        #expect(tally.error as? ClientError == .connectionLost)
        let reason = RPCError.outboxFull("main").message
        #expect(
            tally.sentenceBeforeError
                == "line 2 was refused: \(reason); line 1 \(Self.doubt); to be published again: all lines from 2 on")
    }

    @Test func `no line is left out of what the end says, and none is named when all are done`() {
        var tally = LineTally(wait: .delivered, session: "main")
        tally.read(3, isAtEnd: false)
        tally.take(.success(.init(id: 1, accepted: true, delivered: true, reasonCode: 0)))
        tally.take(.failure(.cancelled))
        tally.take(.failure(.cancelled))
        let doubt =
            "lines 2-3 may or may not have been accepted: publishing them again may deliver them twice, "
            + "and not doing so may lose them"
        // The end of the input was not read.
        let rest = "to be published again: all lines from 4 on, if there are any"
        #expect(tally.sentenceAfterInterruption == "1 message is delivered; \(doubt); \(rest)")
        tally.interrupted(areDurable: true)
        let seen = "see: holdfastctl queue list main"
        #expect(
            tally.sentenceAfterInterruption
                == "1 message is delivered, and 2 are accepted and will be delivered; \(seen); \(rest)")
        tally.take(.failure(.connectionLost))
        tally.interrupted(areDurable: true)
        #expect(
            tally.sentenceAfterInterruption
                == "1 message is delivered; \(doubt.replacing("2-3", with: "2-4")); \(rest.replacing("4", with: "5"))",
            "what a later connection says is about what was sent on it")

        var complete = LineTally(wait: .accepted, session: "main")
        complete.read(1, isAtEnd: false)
        complete.take(.success(Self.accepted))
        complete.read(1, isAtEnd: true)
        complete.take(.failure(.timeout))
        #expect(complete.sentenceBeforeError == "before the error, 1 message is accepted; line 2 \(Self.doubt)")
        var unsent = LineTally(wait: .accepted, session: "main")
        unsent.read(2, isAtEnd: true)
        unsent.take(.success(Self.accepted))
        #expect(unsent.remainder == "to be published again: all lines from 2 on")
        unsent.take(.success(Self.accepted))
        #expect(unsent.remainder == nil)
        unsent.read(0, isAtEnd: false, hasBegunAnother: true)
        #expect(unsent.remainder == "to be published again: all lines from 3 on")
    }

    @Test func `a line is not said to exist before it was read`() {
        var tally = LineTally(wait: .delivered, session: "main")
        tally.read(1, isAtEnd: false)
        tally.take(
            .failure(.refused(.messageRejected("the server said no", reasonCode: 135).afterAcceptance(of: 1))))
        #expect(tally.remainder == "to be published again: all lines from 2 on, if there are any")
        tally.read(0, isAtEnd: true)
        #expect(tally.remainder == nil)
        tally.read(2, isAtEnd: false)
        tally.take(.failure(.refused(.outboxFull("main"))))
        tally.take(.failure(.cancelled))
        #expect(
            tally.remainder?.hasSuffix("to be published again: line 2, and all from 4 on, if there are any") == true)
    }

    @Test func `a message that was rejected or dropped is not to be published again`() {
        let delivered = MessagePublishMethod.Result(id: 1, accepted: true, delivered: true, reasonCode: 0)
        var tally = LineTally(wait: .delivered, session: "main")
        tally.read(4, isAtEnd: true)
        tally.take(.success(delivered))
        let rejected = RPCError.messageRejected("the server said no", reasonCode: 135).afterAcceptance(of: 2)
        tally.take(.failure(.refused(rejected)))
        tally.take(.failure(.refused(.messageDropped("it expired").afterAcceptance(of: 3))))
        #expect(tally.error as? ClientError == .refused(rejected))
        #expect(
            tally.sentenceBeforeError
                == "before the error, 1 message is delivered, and 2 were rejected or dropped; "
                + "see: holdfastctl queue list main; to be published again: all lines from 4 on")
        // Nothing was accepted of this one.
        tally.take(.failure(.refused(.messageDropped("the outbox of session main is full"))))
        #expect(
            tally.sentenceBeforeError
                == "line 4 was refused: the message was dropped: the outbox of session main is full; 3 messages before it "
                + "are accepted, of which 2 were rejected or dropped (holdfastctl queue list main); to be "
                + "published again: all lines from 4 on")
    }

    @Test func `a line that no message can have is noticed before its end`() {
        var input = InputLines()
        _ = input.lines([UInt8](repeating: 0x61, count: InputFile.maximumLength))
        #expect(!input.isTooLong)
        _ = input.lines([0x61])
        #expect(input.isTooLong)
    }
}

struct WaitProgressTests {
    private func snapshot(_ states: [String: SessionState]) -> SessionWatch.Element {
        let sessions = states.map { SessionStatus(session: $0, state: $1, since: Timestamp(rawValue: 0)) }
        return .snapshot(
            .init(watch: .init(rawValue: "w1"), snapshot: .init(sessions: sessions), sequence: 1))
    }

    private func event(
        _ session: String, _ state: SessionState, _ code: String? = nil
    ) -> SessionWatch.Element {
        var event = SessionEvent(
            watch: .init(rawValue: "w1"), sequence: 2, time: Timestamp(rawValue: 0), session: session,
            event: .stateChanged)
        event.state = state
        event.reason = code.map(reason)
        return .event(event)
    }

    private func reason(_ code: String) -> SessionStatus.Reason {
        .init(code: code, group: "local", terminal: false, message: "because of \(code)")
    }

    @Test func `wait has no outcome before the snapshot`() {
        #expect(WaitProgress(wanted: .connected, names: []).outcome == nil)
    }

    @Test func `wait waits for all sessions`() {
        var progress = WaitProgress(wanted: .connected, names: [])
        progress.take(snapshot(["a": .connected, "b": .connecting]))
        #expect(progress.outcome == nil)
        progress.take(event("b", .connected))
        #expect(progress.outcome == .reached(["a": "connected", "b": "connected"]))
    }

    @Test func `wait without names ignores disconnected sessions`() throws {
        var progress = WaitProgress(wanted: .connected, names: [])
        progress.take(snapshot(["a": .connected, "b": .disconnected]))
        #expect(progress.outcome == .reached(["a": "connected"]))
        progress.take(snapshot(["b": .disconnected]))
        #expect(progress.outcome == .reached([:]), "nobody wants it connected now")
        progress.take(snapshot([:]))
        #expect(
            progress.outcome == .nothingConfigured)
    }

    @Test func `wait with names considers only those sessions`() {
        var progress = WaitProgress(wanted: .connected, names: ["a"])
        progress.take(snapshot(["a": .connected, "b": .failed]))
        #expect(progress.outcome == .reached(["a": "connected"]))
    }

    @Test func `wait ends when a session has failed`() {
        var progress = WaitProgress(wanted: .connected, names: ["a"])
        progress.take(snapshot(["a": .connecting]))
        progress.take(event("a", .failed))
        #expect(progress.outcome == .hopeless("a has failed", advice: "holdfastctl status a says why"))
        var status = SessionStatus(session: "a", state: .failed, since: Timestamp(rawValue: 0))
        status.reason = .init(
            code: "not-authorized", group: "auth", terminal: true, message: "no", hint: "check the password")
        progress.take(all: [status])
        #expect(progress.outcome == .hopeless("a has failed: no", advice: "check the password"))
        var wanted = WaitProgress(wanted: .failed, names: ["a"])
        wanted.take(snapshot(["a": .failed]))
        #expect(wanted.outcome == .reached(["a": "failed"]))
    }

    @Test(arguments: [
        ("user-disconnect", true), ("goodbye-unheard", true), ("not-started", true), ("idle", false),
        ("suspend", false),
    ])
    func `wait ends when somebody disconnected the session, and goes on when it only rests`(
        _ code: String, _ isOver: Bool
    ) {
        let over = WaitProgress.Outcome.hopeless(
            "a is disconnected: because of \(code)", advice: "holdfastctl connect a starts it")
        var told = WaitProgress(wanted: .connected, names: ["a"])
        told.take(snapshot(["a": .connecting]))
        told.take(event("a", .disconnected, code))
        #expect(told.outcome == (isOver ? over : nil))
        var found = WaitProgress(wanted: .connected, names: ["a"])
        var status = SessionStatus(session: "a", state: .disconnected, since: Timestamp(rawValue: 0))
        status.reason = reason(code)
        found.take(.snapshot(.init(watch: .init(rawValue: "w1"), snapshot: .init(sessions: [status]), sequence: 1)))
        #expect(found.outcome == (isOver ? over : nil))
        var wanted = WaitProgress(wanted: .disconnected, names: ["a"])
        wanted.take(snapshot(["a": .connecting]))
        wanted.take(event("a", .disconnected, code))
        #expect(wanted.outcome == .reached(["a": "disconnected"]))
    }

    @Test func `wait ends when a session that it waits for is not there after a restart`() {
        var progress = WaitProgress(wanted: .connected, names: ["a"])
        progress.take(snapshot(["a": .connecting]))
        #expect(progress.outcome == nil)
        progress.take(snapshot(["b": .connected]))
        #expect(progress.outcome == .removed("a"))
    }

    private func removal(of session: String) -> SessionWatch.Element {
        .event(
            SessionEvent(
                watch: .init(rawValue: "w1"), sequence: 3, time: Timestamp(rawValue: 0), session: session,
                event: .sessionRemoved))
    }

    @Test func `wait ends when a reload removes the session`() {
        var progress = WaitProgress(wanted: .connected, names: ["a"])
        progress.take(snapshot(["a": .connecting, "b": .connecting]))
        progress.take(removal(of: "b"))
        #expect(progress.outcome == nil)
        progress.take(removal(of: "a"))
        #expect(progress.outcome == .removed("a"))
        var all = WaitProgress(wanted: .connected, names: [])
        all.take(snapshot(["a": .connecting, "b": .connected]))
        all.take(removal(of: "a"))
        #expect(all.outcome == .reached(["b": "connected"]))
    }

    @Test(arguments: ["configuration-changed", "store-replaced", "shutdown", "suspend"])
    func `wait without names goes on while a session is down for a moment only`(_ code: String) {
        var progress = WaitProgress(wanted: .connected, names: [])
        progress.take(snapshot(["a": .connecting, "b": .connected]))
        progress.take(event("a", .disconnecting, code))
        #expect(progress.outcome == nil)
        progress.take(event("a", .disconnected, code))
        #expect(progress.outcome == nil)
        progress.take(event("a", .connected, "configuration-changed"))
        #expect(progress.outcome == .reached(["a": "connected", "b": "connected"]))
    }

    @Test func `wait takes the states as they are after events were dropped`() {
        var progress = WaitProgress(wanted: .connected, names: ["a"])
        progress.take(snapshot(["a": .connecting]))
        progress.take(.dropped(3))
        #expect(progress.outcome == nil)
        progress.take(all: [SessionStatus(session: "a", state: .connected, since: Timestamp(rawValue: 0))])
        #expect(progress.outcome == .reached(["a": "connected"]))
    }

    @Test func `wait forgets the states when the daemon goes away`() {
        var progress = WaitProgress(wanted: .connected, names: ["a"])
        progress.take(snapshot(["a": .connecting]))
        progress.take(.detached(.connectionLost))
        progress.take(event("a", .connected))
        #expect(progress.outcome == nil)
        progress.take(snapshot(["a": .connected]))
        #expect(progress.outcome == .reached(["a": "connected"]))
    }
}

struct CommandOutcomeTests {
    @Test(
        arguments: [
            (.connected, .connected, nil, true, nil), (.timeout, .connecting, "refused", true, .timeout),
            (.timeout, .disconnecting, "user-disconnect", false, .timeout),
            (.failed, .failed, "banned", true, .notConnected),
            (.disconnected, .disconnected, "user-disconnect", true, .notConnected),
            (.disconnected, .disconnected, "user-disconnect", false, nil),
            (.disconnected, .disconnected, "goodbye-unheard", false, .failed),
            (.failed, .failed, "banned", false, nil), (nil, .connecting, nil, true, nil),
        ] as [(SessionOutcome?, SessionState, String?, Bool, EndStatus?)])
    func `the outcome of a command decides its exit code`(
        _ outcome: SessionOutcome?, _ state: SessionState, _ code: String?, _ isConnect: Bool,
        _ status: EndStatus?
    ) {
        let reason = code.map {
            SessionStatus.Reason(code: $0, group: "local", terminal: false, message: "because of \($0)", hint: "advice")
        }
        let failure = CommandOutcome.failure(
            .init(state: state, outcome: outcome, reason: reason), "main", isConnect: isConnect,
            timeout: SpanArgument(argument: "2s"))
        #expect(failure?.status == status)
        guard let failure else { return }
        #expect(
            failure.sentence.hasPrefix(state == .failed ? "main has failed" : "main is")
                && failure.sentence.hasSuffix("because of \(code ?? "")"))
        #expect(failure.advice?.isEmpty == false)
    }
}
