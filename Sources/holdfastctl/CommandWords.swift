import ArgumentParser
import ControlAPI

/// The command line before it is parsed: what every command takes may also stand before the command, and a command that
/// there is not gets the nearest names.
struct CommandWords: Equatable {
    /// With the command first.
    let inOrder: [String]
    /// Why nothing can be parsed; `nil` if it can.
    let failure: CommandFailure?

    init(_ words: [String]) {
        var general: [String] = []
        var rest = words[...]
        while let word = rest.first {
            if word == "--json" || word.hasPrefix("--socket=") {
                general.append(word)
            } else if word == "--socket", rest.count > 1 {
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
        inOrder = [command] + general + rest.dropFirst()
        failure = Self.names.contains(command) ? nil : Self.unknown(command)
    }

    /// Errors are told as JSON, too.
    var wantsJSON: Bool { inOrder.prefix { $0 != "--" }.contains("--json") }

    private static let names: Set<String> = Set(
        HoldfastControl.configuration.subcommands.compactMap { $0.configuration.commandName } + ["help"])

    private static func unknown(_ command: String) -> CommandFailure {
        let near = nearest(to: command, among: Array(names))
        return CommandFailure(
            .usage, "there is no command \"\(command)\"",
            advice: didYouMean(near) ?? "holdfastctl help lists the commands")
    }
}
