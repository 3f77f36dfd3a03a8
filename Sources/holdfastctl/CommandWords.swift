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
        let near = known[word].map { [$0] } ?? nearest(to: word, among: names + ["help"])
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
    /// is spelled almost like a subcommand counts as a mistake only if more words follow.
    private static func part(
        _ following: ArraySlice<String>, of command: String, _ configuration: CommandConfiguration
    ) throws(CommandFailure) -> String {
        let parts = configuration.subcommandNames
        guard let word = following.first, !word.hasPrefix("-"), !parts.contains(word) else {
            return following.first ?? ""
        }
        let near = nearest(to: word, among: parts)
        if configuration.defaultSubcommand != nil {
            if near.isEmpty || following.count < 2 { return word }
        } else {
            let longer = parts.filter { $0.hasPrefix(word) }
            if longer.count == 1 { return longer[0] }
        }
        throw CommandFailure(
            .usage, "unknown command \"\(command) \(word)\"",
            advice: didYouMean(near.map { "\(command) \($0)" })
                ?? "the subcommands are: \(parts.joined(separator: ", "))")
    }

    /// The parser takes every word that begins with a hyphen for an option. No option begins with a digit, so a word such
    /// as -5 is a value: it is joined to the option before it, or the arguments are put behind "--", in their order.
    ///
    /// - Parameter start: the index of the command.
    private static func withNumbersAsValues(_ words: [String], after start: Int) -> [String] {
        func isNumber(_ word: String) -> Bool {
            word.hasPrefix("-") && (word.dropFirst().first.map { $0 == "." || ("0"..."9").contains($0) } ?? false)
        }
        guard words.prefix(while: { $0 != "--" }).contains(where: isNumber),
            var command = HoldfastControl.configuration.subcommands.first(where: { $0.word == words[start] })
        else { return words }
        var place = start + 1
        var options: [String] = []
        let configuration = command.configuration
        if !configuration.subcommands.isEmpty {
            options = Array(words[place..<afterCommonOptions(in: words, from: place)])
            place += options.count
            let part = configuration.subcommands.first { words.indices.contains(place) && $0.word == words[place] }
            guard let part = part ?? configuration.defaultSubcommand else { return words }
            if words.indices.contains(place), words[place] == part.word {
                options.append(words[place])
                place += 1
            }
            command = part
        }
        let names = optionsWithValues(of: command)
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

    /// Returns the options that a value follows, such as `--timeout` and `-c`.
    private static func optionsWithValues(of command: any ParsableCommand.Type) -> Set<String> {
        let description = try? JSONValue(parsing: Array(command._dumpHelp().utf8)[...])
        guard case .array(let arguments)? = description?["command"]?["arguments"] else { return [] }
        var found: Set<String> = []
        for argument in arguments where argument["kind"] == .string("option") {
            guard case .array(let names)? = argument["names"] else { continue }
            for name in names {
                guard case .string(let text)? = name["name"] else { continue }
                found.insert((name["kind"] == .string("short") ? "-" : "--") + text)
            }
        }
        return found
    }

    /// Names that other tools use, and our commands for them.
    static let known: [String: String] = [
        "up": "connect", "start": "connect", "down": "disconnect", "stop": "disconnect", "restart": "reconnect",
        "send": "publish", "receive": "subscribe", "consume": "subscribe",
        "ls": "list", "sessions": "list", "show": "status", "info": "status", "state": "status", "logs": "log",
        "journal": "log", "monitor": "watch", "events": "watch", "follow": "watch", "add": "config init",
        "new": "config init", "create": "config init", "init": "config init", "edit": "config edit",
        "delete": "config remove", "remove": "config remove", "rm": "config remove",
        "password": "config password", "passwd": "config password", "secret": "config password",
        "doctor": "check", "diagnose": "check", "test": "check", "netcheck": "check", "outbox": "queue",
        "messages": "queue", "route": "network", "ip": "network", "who": "participants", "members": "participants",
        "room": "switch-room", "join": "switch-room", "dashboard": "top", "peers": "clients", "connections": "clients",
        "stats": "metrics", "report": "bugreport",
    ]
}

extension CommandConfiguration {
    fileprivate var subcommandNames: [String] { subcommands.map { $0.word } }
}

extension ParsableCommand {
    /// The command's name on the command line.
    fileprivate static var word: String { configuration.commandName ?? "\(self)".lowercased() }
}
