import ArgumentParser
import ControlAPI

/// The command line before it is parsed: commands may be shortened to an unambiguous beginning, `help COMMAND` is
/// `COMMAND --help`, and an unknown command is answered with the nearest names.
struct CommandWords: Equatable {
    /// The words, with abbreviated commands written out in full.
    let complete: [String]
    /// Why the words cannot be parsed; `nil` if they can.
    let failure: CommandFailure?

    init(_ words: [String]) {
        var words = words
        var place = Self.afterCommonOptions(in: words, from: 0)
        if words.indices.contains(place), words[place] == "help" {
            words.remove(at: place)
            // Of "help help", too.
            if words.indices.contains(place), words[place] == "help" { words.remove(at: place) }
            words.append("--help")
        }
        do {
            if words.indices.contains(place), !words[place].hasPrefix("-") {
                words[place] = try Self.command(words[place])
                let configuration = Self.configurations[words[place]]
                let command = words[place]
                let start = place
                place = Self.afterCommonOptions(in: words, from: place + 1)
                if let configuration, !configuration.subcommands.isEmpty, words.indices.contains(place) {
                    words[place] = try Self.part(words[place...], of: command, configuration)
                }
                words = Self.withNumbersAsValues(words, after: start)
            }
            failure = nil
        } catch {
            failure = error
        }
        complete = words
    }

    /// Returns the index of the first word after the options that every command takes.
    private static func afterCommonOptions(in words: [String], from start: Int) -> Int {
        var place = start
        while place < words.count {
            let word = words[place]
            if word == "--json" || word.hasPrefix("--socket=") || word.hasPrefix("--color=") {
                place += 1
            } else if word == "--socket" || word == "--color", place + 1 < words.count {
                place += 2
            } else {
                break
            }
        }
        return place
    }

    /// Whether errors are written as JSON.
    var wantsJSON: Bool { complete.prefix { $0 != "--" }.contains("--json") }

    private static let configurations: [String: CommandConfiguration] = Dictionary(
        HoldfastControl.configuration.subcommands.compactMap { command in
            command.configuration.commandName.map { ($0, command.configuration) }
        }, uniquingKeysWith: { first, _ in first })

    /// Returns the command that a word names or abbreviates.
    private static func command(_ word: String) throws(CommandFailure) -> String {
        let names = configurations.keys.sorted()
        if names.contains(word) { return word }
        let longer = word.isEmpty ? [] : names.filter { $0.hasPrefix(word) }
        if longer.count == 1 { return longer[0] }
        var near = known[word].map { [$0[0]] } ?? nearest(to: word, among: names + ["help"])
        if near.isEmpty {
            near = nearest(to: word, among: known.keys.sorted()).prefix(1).compactMap { known[$0]?.first }
        }
        guard longer.isEmpty else {
            throw CommandFailure(
                .usage, "\"\(word)\" is ambiguous", advice: didYouMean(longer))
        }
        throw CommandFailure(
            .usage, "unknown command \(quoted(word))", advice: didYouMean(near) ?? "holdfastctl help lists all commands"
        )
    }

    /// Returns the subcommand that the first word after a command names or abbreviates. If the command has a default
    /// subcommand, the word may also be an argument of that one: abbreviations are then not expanded, and a word that
    /// is spelled almost like a subcommand, or is its name in other tools, counts as a mistake only if another argument
    /// follows.
    private static func part(
        _ following: ArraySlice<String>, of command: String, _ configuration: CommandConfiguration
    ) throws(CommandFailure) -> String {
        let parts = configuration.subcommandNames
        guard let word = following.first, !word.hasPrefix("-"), !parts.contains(word) else {
            return following.first ?? ""
        }
        let meant = known[word, default: []].filter { $0.hasPrefix("\(command) ") }
        let near = meant.isEmpty ? nearest(to: word, among: parts).map { "\(command) \($0)" } : meant
        var elsewhere: [String] = []
        if configuration.defaultSubcommand != nil {
            if near.isEmpty || following.dropFirst().first?.hasPrefix("-") ?? true { return word }
        } else {
            let longer = parts.filter { $0.hasPrefix(word) }
            if longer.count == 1 { return longer[0] }
            elsewhere = configurations[word] == nil ? Array(known[word, default: []].prefix(1)) : [word]
        }
        throw CommandFailure(
            .usage, "unknown command \"\(command) \(word)\"",
            advice: didYouMean(near) ?? didYouMean(elsewhere) ?? "the subcommands are: \(parts.joined(separator: ", "))"
        )
    }

    /// The parser takes every word that begins with a hyphen for an option. No option begins with a digit, so a word such
    /// as -5 is a value: it is joined to the option before it, or the arguments are put behind "--", in their order.
    ///
    /// - Parameter start: the index of the command.
    private static func withNumbersAsValues(_ words: [String], after start: Int) -> [String] {
        guard words.prefix(while: { $0 != "--" }).contains(where: isNumber), let target = target(of: words) else {
            return words
        }
        var place = target.arguments
        var options = Array(words[(start + 1)..<place])
        let names = self.options(of: target.command).withValues
        var arguments: [String] = []
        while place < words.count, words[place] != "--" {
            let word = words[place]
            place += 1
            if !word.hasPrefix("-") || word == "-" || isNumber(word) {
                arguments.append(word)
            } else if names.contains(word), words.indices.contains(place) {
                options += isNumber(words[place]) ? ["\(word)=\(words[place])"] : [word, words[place]]
                place += 1
            } else {
                options.append(word)
            }
        }
        arguments += words[place...].dropFirst()
        return words[...start] + options + ["--"] + arguments
    }

    private static func isNumber(_ word: String) -> Bool {
        word.hasPrefix("-") && (word.dropFirst().first.map { $0 == "." || ("0"..."9").contains($0) } ?? false)
    }

    /// Returns the command or subcommand that the words name, and where its options and arguments begin.
    private static func target(
        of words: [String]
    ) -> (command: any ParsableCommand.Type, name: String, arguments: Int)? {
        let place = afterCommonOptions(in: words, from: 0)
        guard words.indices.contains(place), !words[place].hasPrefix("-") else {
            return (HoldfastControl.self, "holdfastctl", place)
        }
        guard let command = HoldfastControl.configuration.subcommands.first(where: { $0.word == words[place] }) else {
            return nil
        }
        let name = "holdfastctl \(command.word)"
        guard !command.configuration.subcommands.isEmpty else { return (command, name, place + 1) }
        let second = afterCommonOptions(in: words, from: place + 1)
        let parts = command.configuration.subcommands
        if words.indices.contains(second), let part = parts.first(where: { $0.word == words[second] }) {
            return (part, "\(name) \(part.word)", second + 1)
        }
        return command.configuration.defaultSubcommand.map { ($0, "\(name) \($0.word)", second) }
    }

    /// The options of a command, such as `--timeout`, `-c` and `--json`.
    private struct Options {
        var withValues: Set<String> = []
        var flags: Set<String> = []
        /// Those of every command that are the parser's own.
        static let builtIn: Set = ["--help", "-h", "--help-hidden", "--version"]
    }

    private static func options(of command: any ParsableCommand.Type) -> Options {
        let description = try? JSONValue(parsing: Array(command._dumpHelp().utf8)[...])
        var options = Options()
        guard case .array(let arguments)? = description?["command"]?["arguments"] else { return options }
        for argument in arguments where argument["kind"] != .string("positional") {
            guard case .array(let names)? = argument["names"] else { continue }
            for name in names {
                guard case .string(let text)? = name["name"] else { continue }
                let word = (name["kind"] == .string("short") ? "-" : "--") + text
                if argument["kind"] == .string("option") {
                    options.withValues.insert(word)
                } else {
                    options.flags.insert(word)
                }
            }
        }
        return options
    }

    /// What to say about the first option that the command does not have; `nil` if it has all. The parser takes what follows
    /// such an option for an argument, and may complain about that instead.
    var unknownOption: CommandFailure? {
        guard let target = Self.target(of: complete) else { return nil }
        let options = Self.options(of: target.command)
        var place = target.arguments
        while place < complete.count, complete[place] != "--" {
            let word = complete[place]
            place += 1
            guard word.hasPrefix("-"), word != "-", !Self.isNumber(word) else { continue }
            let name = word.hasPrefix("--") ? String(word.prefix { $0 != "=" }) : String(word.prefix(2))
            if options.withValues.contains(name) {
                let isValueNext =
                    name == word && complete.indices.contains(place)
                    && (!complete[place].hasPrefix("-") || complete[place] == "-" || Self.isNumber(complete[place]))
                if isValueNext { place += 1 }
            } else if !options.flags.contains(name), !Options.builtIn.contains(name) {
                let isLong = name.hasPrefix("--")
                let long = options.withValues.union(options.flags).subtracting(Options.builtIn).filter {
                    $0.hasPrefix("--")
                }
                let near = isLong ? nearest(to: name, among: long.sorted()) : []
                let rule = isLong ? "" : "; what begins with - and is no option goes after --"
                return CommandFailure(
                    .usage, "unknown option \(quoted(name).dropFirst().dropLast())",
                    advice: didYouMean(near) ?? "\(target.name) --help lists the options\(rule)")
            }
        }
        return nil
    }

    /// Names that other tools use, and our commands for them. Without a command before it, the first one is meant; after
    /// a command, its own.
    static let known: [String: [String]] = {
        let groups: [([String], [String])] = [
            (["up", "start"], ["connect"]), (["down", "stop"], ["disconnect"]), (["restart"], ["reconnect"]),
            (["send"], ["publish", "queue retry"]), (["receive", "consume"], ["subscribe"]),
            (["sessions"], ["list"]), (["ls"], ["list", "config show", "queue list", "publications list"]),
            (["show", "info", "state"], ["status", "queue list", "publications list"]), (["list"], ["config show"]),
            (["cat", "print"], ["config show"]), (["logs", "journal"], ["log"]),
            (["monitor", "events", "follow"], ["watch"]), (["add"], ["config init", "publications put"]),
            (["new", "create", "init"], ["config init", "instance add", "publications put"]),
            (["edit", "change"], ["config edit", "publications put"]),
            (["delete", "rm"], ["config remove", "instance remove", "publications remove", "queue drop"]),
            (["remove"], ["config remove", "queue drop"]),
            (["drop"], ["queue drop", "publications remove", "config remove", "instance remove"]),
            (["clear", "purge"], ["queue drop", "publications remove"]),
            (["retry", "resend", "requeue", "flush"], ["queue retry"]),
            (["put", "set", "update"], ["publications put", "config edit"]), (["publish"], ["publications put"]),
            (["unpublish"], ["publications remove"]), (["passwd", "password", "secret"], ["config password"]),
            (["validate", "lint"], ["config check"]), (["test"], ["check", "config check"]),
            (["doctor", "diagnose", "netcheck"], ["check"]), (["outbox", "messages"], ["queue"]),
            (["route", "ip"], ["network"]), (["who", "members"], ["participants"]),
            (["room", "join"], ["switch-room"]),
            (["dashboard"], ["top"]), (["peers", "connections"], ["clients"]), (["stats"], ["metrics"]),
            (["report"], ["bugreport"]),
        ]
        return Dictionary(uniqueKeysWithValues: groups.flatMap { words, commands in words.map { ($0, commands) } })
    }()
}

extension CommandConfiguration {
    fileprivate var subcommandNames: [String] { subcommands.map { $0.word } }
}

extension ParsableCommand {
    /// The command's name on the command line.
    fileprivate static var word: String { configuration.commandName ?? "\(self)".lowercased() }
}
