import ArgumentParser
import ControlAPI
import HoldfastClient

// What the shell completes besides the words of the command line. The daemon is asked for it; without a daemon nothing
// is offered.

extension CompletionKind {
    /// The names of the sessions.
    static var sessions: CompletionKind {
        .custom { words, _, _ in await Completions(words).statuses().map(\.session) }
    }

    /// The sessions that are instances of a template.
    static var instances: CompletionKind {
        .custom { words, _, _ in await Completions(words).statuses().map(\.session).filter { $0.contains("@") } }
    }

    /// The durable consumers of the sessions that are named on the line, or of all.
    static var consumers: CompletionKind {
        .custom { words, _, _ in
            await Completions(words).chosen().flatMap { $0.inbox.consumers.map(\.name) }
        }
    }

    /// The topics of the publications of the sessions that are named on the line.
    static var publications: CompletionKind {
        .custom { words, _, _ in await Completions(words).publications() }
    }

    /// The quarantined messages of the session that is named on the line.
    static var quarantined: CompletionKind {
        .custom { words, _, _ in await Completions(words).quarantined() }
    }
}

struct Completions {
    /// Short, because a person waits.
    private static let timeout: Duration = .seconds(2)

    /// The words of the command line, as the shell splits it.
    let words: [String]

    init(_ words: [String]) {
        self.words = words
    }

    /// The socket that the line names. bash gives `--socket=PATH` as three words.
    var socket: String? {
        guard let index = words.lastIndex(where: { $0.hasPrefix("--socket") }) else { return nil }
        let parts = words[index].split(separator: "=", maxSplits: 1)
        if parts.count == 2 { return String(parts[1]) }
        return words[(index + 1)...].first { $0 != "=" }
    }

    private var client: HoldfastClient {
        var options = HoldfastClient.Options()
        options.name = "holdfastctl \(Release.version)"
        return HoldfastClient(socket: socket, options: options)
    }

    func statuses() async -> [SessionStatus] {
        (try? await client.call(SessionListMethod.self, NoParameters(), timeout: Self.timeout))?.sessions.inNaturalOrder
            ?? []
    }

    func chosen() async -> [SessionStatus] {
        let all = await statuses()
        let named = all.filter { words.contains($0.session) }
        return named.isEmpty ? all : named
    }

    func publications() async -> [String] {
        var topics: [String] = []
        for status in await chosen() {
            let result = try? await client.call(
                PublicationListMethod.self, .init(session: status.session), timeout: Self.timeout)
            topics += result?.publications.map(\.topic) ?? []
        }
        return topics
    }

    func quarantined() async -> [String] {
        guard let session = await statuses().first(where: { words.contains($0.session) })?.session else { return [] }
        let result = try? await client.call(
            MessageQueueListMethod.self, .init(session: session, state: .quarantined, limit: 100),
            timeout: Self.timeout)
        return result?.messages.map { String($0.id) } ?? []
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
