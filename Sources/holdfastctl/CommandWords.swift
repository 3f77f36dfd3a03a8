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
        let asksForHelp = words.indices.contains(place) && words[place] == "help"
        if asksForHelp {
            words.remove(at: place)
            words.append("--help")
        }
        do {
            if words.indices.contains(place), !words[place].hasPrefix("-") {
                words[place] = try Self.command(words[place])
                let configuration = Self.configurations[words[place]]
                let command = words[place]
                place = Self.afterCommonOptions(in: words, from: place + 1)
                if let configuration, !configuration.subcommands.isEmpty, words.indices.contains(place) {
                    words[place] = try Self.part(words[place...], of: command, configuration)
                }
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
        let longer = names.filter { $0.hasPrefix(word) }
        if longer.count == 1 { return longer[0] }
        let near = known[word].map { [$0] } ?? nearest(to: word, among: names + ["help"])
        guard longer.isEmpty else {
            throw CommandFailure(
                .usage, "\"\(word)\" is ambiguous", advice: didYouMean(longer))
        }
        throw CommandFailure(
            .usage, "unknown command \"\(word)\"", advice: didYouMean(near) ?? "holdfastctl help lists all commands")
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

    /// Names that other tools use, and our commands for them.
    static let known: [String: String] = [
        "up": "connect", "start": "connect", "down": "disconnect", "stop": "disconnect", "restart": "reconnect",
        "send": "publish", "receive": "subscribe", "consume": "subscribe",
        "ls": "list", "sessions": "list", "show": "status", "info": "status", "state": "status", "logs": "log",
        "journal": "log", "monitor": "watch", "events": "watch", "follow": "watch", "add": "config init",
        "new": "config init", "create": "config init", "init": "config init", "edit": "config edit",
        "delete": "config remove", "remove": "config remove", "rm": "config remove",
        "doctor": "check", "diagnose": "check", "test": "check", "netcheck": "check", "outbox": "queue",
        "messages": "queue", "route": "network", "ip": "network", "who": "participants", "members": "participants",
        "room": "switch-room", "join": "switch-room", "dashboard": "top", "stats": "metrics", "report": "bugreport",
    ]
}

extension CommandConfiguration {
    fileprivate var subcommandNames: [String] {
        subcommands.map { $0.configuration.commandName ?? "\($0)".lowercased() }
    }
}
