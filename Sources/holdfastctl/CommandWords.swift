import ArgumentParser
import ControlAPI

/// The command line before it is parsed. Options that every command takes may also stand before the command, and an
/// unknown command is answered with the nearest names.
struct CommandWords: Equatable {
    /// The words with the command first.
    let inOrder: [String]
    /// Why nothing can be parsed; `nil` if it can.
    let failure: CommandFailure?

    init(_ words: [String]) {
        var rest = words[...]
        var general = Self.takeGeneral(from: &rest)
        guard let command = rest.popFirst(), !command.hasPrefix("-") else {
            inOrder = words
            failure = nil
            return
        }
        guard let configuration = Self.configurations[command] else {
            // Help takes no options.
            inOrder = [command] + (command == "help" ? [] : general) + rest
            failure = command == "help" ? nil : Self.unknown(command)
            return
        }
        // The options of a command with subcommands are those of the subcommand.
        if !configuration.subcommands.isEmpty { general += Self.takeGeneral(from: &rest) }
        let following = Array(rest)
        let isPart = following.first.map(configuration.subcommandNames.contains) ?? false
        inOrder = [command] + following.prefix(isPart ? 1 : 0) + general + following.dropFirst(isPart ? 1 : 0)
        failure = Self.unknownPart(of: command, configuration, following)
    }

    /// Removes the options that every command takes from the beginning, and returns them.
    private static func takeGeneral(from rest: inout ArraySlice<String>) -> [String] {
        var general: [String] = []
        while let word = rest.first {
            if word == "--json" || word.hasPrefix("--socket=") || word.hasPrefix("--color=") {
                general.append(word)
            } else if word == "--socket" || word == "--color", rest.count > 1 {
                general += rest.prefix(2)
                rest.removeFirst()
            } else {
                break
            }
            rest.removeFirst()
        }
        return general
    }

    /// Whether errors are also written as JSON.
    var wantsJSON: Bool { inOrder.prefix { $0 != "--" }.contains("--json") }

    private static let configurations: [String: CommandConfiguration] = Dictionary(
        HoldfastControl.configuration.subcommands.compactMap { command in
            command.configuration.commandName.map { ($0, command.configuration) }
        }, uniquingKeysWith: { first, _ in first })

    /// Checks the word that follows a command with subcommands: it must be one of them. If one of them is the default,
    /// the word may also be its argument, unless it is spelled almost like a subcommand and more words follow.
    private static func unknownPart(
        of command: String, _ configuration: CommandConfiguration, _ following: [String]
    ) -> CommandFailure? {
        let parts = configuration.subcommandNames
        guard !parts.isEmpty, let word = following.first, !word.hasPrefix("-"), word != "help", !parts.contains(word)
        else { return nil }
        let near = nearest(to: word, among: parts)
        let isArgument = configuration.defaultSubcommand != nil && (near.isEmpty || following.count < 2)
        guard !isArgument else { return nil }
        return CommandFailure(
            .usage, "unknown command \"\(command) \(word)\"",
            advice: didYouMean(near.map { "\(command) \($0)" }) ?? "there is: \(parts.joined(separator: ", "))")
    }

    /// The names that other tools use for a command.
    static let known: [String: String] = [
        "up": "connect", "start": "connect", "down": "disconnect", "stop": "disconnect", "restart": "reconnect",
        "pub": "publish", "send": "publish", "sub": "subscribe", "receive": "subscribe", "consume": "subscribe",
        "ls": "list", "sessions": "list", "show": "status", "info": "status", "state": "status", "logs": "log",
        "journal": "log", "monitor": "watch", "events": "watch", "follow": "watch", "add": "config init",
        "new": "config init", "create": "config init", "init": "config init", "edit": "config edit",
        "doctor": "check", "diagnose": "check", "test": "check", "netcheck": "check", "outbox": "queue",
        "messages": "queue", "route": "network", "ip": "network", "who": "participants", "members": "participants",
        "room": "switch-room", "join": "switch-room", "dashboard": "top", "stats": "metrics", "report": "bugreport",
    ]

    private static func unknown(_ command: String) -> CommandFailure {
        let near = known[command].map { [$0] } ?? nearest(to: command, among: configurations.keys + ["help"])
        return CommandFailure(
            .usage, "unknown command \"\(command)\"",
            advice: didYouMean(near) ?? "holdfastctl help lists all commands")
    }
}

extension CommandConfiguration {
    fileprivate var subcommandNames: [String] {
        subcommands.map { $0.configuration.commandName ?? "\($0)".lowercased() }
    }
}
