import ArgumentParser
import ControlAPI
import HoldfastClient

// What the shell completes besides the words of the command line. The daemon is asked for it; without a daemon nothing
// is offered.

extension CompletionKind {
    /// The names of the sessions.
    static var sessions: CompletionKind {
        .custom { _, _, _ in await Completions.statuses().map(\.session) }
    }

    /// The durable consumers of the sessions that are named on the line, or of all.
    static var consumers: CompletionKind {
        .custom { words, _, _ in
            await Completions.chosen(by: words).flatMap { $0.inbox.consumers.map(\.name) }
        }
    }

    /// The topics of the publications of the sessions that are named on the line.
    static var publications: CompletionKind {
        .custom { words, _, _ in await Completions.publications(of: words) }
    }
}

enum Completions {
    /// Short, because a person waits.
    private static let timeout: Duration = .seconds(2)

    private static var client: HoldfastClient {
        var options = HoldfastClient.Options()
        options.name = "holdfastctl \(Release.version)"
        return HoldfastClient(options: options)
    }

    static func statuses() async -> [SessionStatus] {
        (try? await client.call(SessionListMethod.self, NoParameters(), timeout: timeout))?.sessions.inNaturalOrder
            ?? []
    }

    static func chosen(by words: [String]) async -> [SessionStatus] {
        let all = await statuses()
        let named = all.filter { words.contains($0.session) }
        return named.isEmpty ? all : named
    }

    static func publications(of words: [String]) async -> [String] {
        var topics: [String] = []
        for status in await chosen(by: words) {
            let result = try? await client.call(
                PublicationListMethod.self, .init(session: status.session), timeout: timeout)
            topics += result?.publications.map(\.topic) ?? []
        }
        return topics
    }
}

struct CompletionCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "completion",
        abstract: "Print the completions for a shell: bash, zsh or fish.",
        discussion: """
            They complete commands, options, and the names of sessions, consumers and publications. The package installs \
            them; by hand: holdfastctl completion bash >~/.local/share/bash-completion/completions/holdfastctl
            """)

    /// Without effect: an alias may contain them.
    @OptionGroup var common: CommonOptions
    @Argument(help: "bash, zsh or fish.", completion: .list(["bash", "zsh", "fish"])) var shell: String

    func validate() throws {
        guard CompletionShell(rawValue: shell) != nil else {
            throw ValidationError("There are completions for bash, zsh and fish.")
        }
    }

    func run() {
        guard let shell = CompletionShell(rawValue: shell) else { return }
        Terminal().print(Self.script(for: shell))
    }

    /// Returns the script without the line `#!…`: a shell reads it, it is not run as a program.
    static func script(for shell: CompletionShell) -> String {
        let script = HoldfastControl.completionScript(for: shell)
        guard script.hasPrefix("#!") else { return script }
        return String(script.drop { $0 != "\n" }.dropFirst())
    }
}
