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
        var general: [String] = []
        var rest = words[...]
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
        guard let command = rest.first, !command.hasPrefix("-") else {
            inOrder = words
            failure = nil
            return
        }
        let following = Array(rest.dropFirst())
        inOrder = [command] + general + following
        failure = Self.names.contains(command) ? Self.unknownPart(of: command, following) : Self.unknown(command)
    }

    /// Whether errors are also written as JSON.
    var wantsJSON: Bool { inOrder.prefix { $0 != "--" }.contains("--json") }

    private static let names: Set<String> = Set(
        HoldfastControl.configuration.subcommands.compactMap { $0.configuration.commandName } + ["help"])

    /// Checks the word that follows a command with subcommands: it must be one of them. If one of them is the default,
    /// the word may also be its argument, unless it is spelled almost like a subcommand and more words follow.
    private static func unknownPart(of command: String, _ following: [String]) -> CommandFailure? {
        let all = HoldfastControl.configuration.subcommands
        guard let configuration = all.first(where: { $0.configuration.commandName == command })?.configuration,
            !configuration.subcommands.isEmpty, let word = following.first, !word.hasPrefix("-"), word != "help"
        else { return nil }
        let parts = configuration.subcommands.map { part in
            part.configuration.commandName ?? "\(part)".lowercased()
        }
        guard !parts.contains(word) else { return nil }
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
        let near = known[command].map { [$0] } ?? nearest(to: command, among: Array(names))
        return CommandFailure(
            .usage, "unknown command \"\(command)\"",
            advice: didYouMean(near) ?? "holdfastctl help lists all commands")
    }
}
