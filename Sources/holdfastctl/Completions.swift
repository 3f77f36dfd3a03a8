import ArgumentParser
import ControlAPI
import HoldfastClient

// Completions besides commands and options. The daemon is asked for them; without a daemon, there are none.

extension CompletionKind {
    /// The names of the sessions.
    static var sessions: CompletionKind { offered { await $0.statuses().map(\.session) } }

    /// The sessions that are instances of a template.
    static var instances: CompletionKind {
        offered { await $0.statuses().map(\.session).filter { $0.contains("@") && !$0.hasSuffix("@") } }
    }

    /// The templates in the configuration directory, as the beginning of an instance's name.
    static var templates: CompletionKind { offered { $0.templates } }

    /// The durable consumers of the sessions named on the line, or of all sessions if none is named.
    static var consumers: CompletionKind {
        offered { await $0.chosen().flatMap { $0.inbox.consumers.map(\.name) } }
    }

    /// The topics of the publications of the sessions named on the line, or of all sessions if none is named.
    static var publications: CompletionKind { offered { await $0.publications() } }

    /// The ids of the quarantined messages of the session named on the line.
    static var quarantined: CompletionKind { offered { await $0.quarantined() } }

    /// The topics that the sessions named on the line are known to use; those of all sessions if none is named.
    static var topics: CompletionKind {
        offered { await $0.filters().filter { !$0.contains("#") && !$0.contains("+") } }
    }

    /// The same topics, and the filters of subscriptions.
    static var filters: CompletionKind { offered { await $0.filters() } }

    private static func offered(_ words: @escaping @Sendable (Completions) async -> [String]) -> CompletionKind {
        .custom { line, _, _ in
            Completions.literal(await words(Completions(line)), for: CompletionShell.requesting)
        }
    }
}

struct Completions {
    /// Short, because a person is waiting.
    private static let timeout: Duration = .seconds(2)

    /// The words of the command line, as the shell splits it.
    let words: [String]

    init(_ words: [String]) {
        self.words = words
    }

    var socket: String? { value(of: "--socket") }

    var templates: [String] {
        let folder = "\(value(of: "--config-directory") ?? ConfigCommand.Place.standard)/sessions.d"
        let files = (Folder.names(in: folder) ?? []).filter { $0.hasSuffix("@.toml") }
        return files.map { String($0.dropLast(".toml".count)) }.sorted(by: NaturalOrder.precedes)
    }

    /// The value that the line has for an option. bash splits `--option=value` into three words.
    private func value(of option: String) -> String? {
        guard let index = words.lastIndex(where: { $0.hasPrefix(option) }) else { return nil }
        let parts = words[index].split(separator: "=", maxSplits: 1)
        if parts.count == 2 { return String(parts[1]) }
        return words[(index + 1)...].first { $0 != "=" }
    }

    /// Returns the words, escaped so that the shell takes them literally: topics are chosen by other users, and bash
    /// would expand them like a command line.
    static func literal(_ words: [String], for shell: CompletionShell?) -> [String] {
        // The shell gets one word per line, so a word must not contain control characters.
        let words = words.filter { $0.unicodeScalars.allSatisfy(\.isPlain) }
        switch shell {
        case .bash:
            return words.map { word in
                word.map { $0.isLetter || $0.isNumber || "/-_.,@+%".contains($0) ? "\($0)" : "\\\($0)" }.joined()
            }
        case .zsh:
            // zsh takes what follows a colon as a description.
            return words.map { $0.replacing("\\", with: "\\\\").replacing(":", with: "\\:") }
        default:
            return words
        }
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

    /// The filters of subscriptions, and the topics of publications and of waiting messages, each once.
    func filters() async -> [String] {
        var found = await chosen().flatMap { $0.subscriptions.map(\.filter) } + publications()
        for status in await chosen() {
            guard status.outbox.queued + status.outbox.inFlight + status.outbox.quarantined > 0 else { continue }
            let result = try? await client.call(
                MessageQueueListMethod.self, .init(session: status.session, limit: 100), timeout: Self.timeout)
            found += result?.messages.map(\.topic) ?? []
        }
        return Set(found).sorted(by: NaturalOrder.precedes)
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
            They complete commands, options, topics, and the names of sessions and consumers. The package installs them; \
            by hand, with bash:

              mkdir -p ~/.local/share/bash-completion/completions
              holdfastctl completion bash >~/.local/share/bash-completion/completions/holdfastctl
            """)

    /// They have no effect, but an alias may contain them.
    @OptionGroup var common: CommonOptions
    @Argument(help: "bash, zsh or fish.", completion: .list(["bash", "zsh", "fish"])) var shell: String

    func validate() throws {
        guard CompletionShell(rawValue: shell) != nil else {
            throw ValidationError("there are completions for bash, zsh and fish")
        }
    }

    func run() {
        guard let shell = CompletionShell(rawValue: shell) else { return }
        Terminal().print(Self.script(for: shell))
    }

    /// Returns the script without its `#!` line, since the shell sources it instead of running it.
    static func script(for shell: CompletionShell) -> String {
        var script = HoldfastControl.completionScript(for: shell)
        if script.hasPrefix("#!") { script = String(script.drop { $0 != "\n" }.dropFirst()) }
        switch shell {
        case .bash:
            // Only where paths are completed: in a folder that has a directory "main", the session main would be one.
            let add = "__holdfastctl_add_completions() {\n"
            let paths = "    case $1 in -f|-d) compopt -o filenames 2>/dev/null ;; esac\n"
            return script.replacing(
                "complete -o filenames -F _holdfastctl holdfastctl", with: "complete -F _holdfastctl_line holdfastctl"
            ).replacing(add, with: add + paths) + bashLine
        case .zsh:
            // The value may follow an equals sign.
            script = script.replacing("'--socket[", with: "'--socket=[").replacing("'--color[", with: "'--color=[")
            for command in ["queue", "publications"] {
                script.replace("_holdfastctl_\(command)() {", with: "_holdfastctl_\(command)_part() {")
            }
            script.replace("_holdfastctl_help() {", with: "_holdfastctl_generated_help() {")
            return script.replacing("\nif [[ \"${funcstack[1]}\"", with: zshParts + "\nif [[ \"${funcstack[1]}\"")
        default:
            let isExpected = #"test "$commands" = "$expected_commands""#
            script.replace("unparsed_tokens (__holdfastctl_tokens -pc)", with: "unparsed_tokens (__holdfastctl_words)")
            script.replace(isExpected + " -a", with: "__holdfastctl_is_expected; and test")
            return script.replacing(isExpected, with: "__holdfastctl_is_expected") + fishParts
        }
    }

    // What the generated scripts for the other shells lack: the arguments of help are a command, and without one of its
    // parts, a command that has a list is that list.

    private static let zshParts = #"""

        _holdfastctl_help() {
            words=("${command_name}" "${(@)words[2,-1]}")
            _holdfastctl
        }

        _holdfastctl_queue() {
            _holdfastctl_part_or_list list retry drop
        }

        _holdfastctl_publications() {
            _holdfastctl_part_or_list list put remove
        }

        _holdfastctl_part_or_list() {
            local -a given=("${words[@]}")
            local -i place="${CURRENT}" is_part=0 ret=1
            (( ${@[(Ie)${words[2]}]} )) && is_part=1
            if [[ "${place}" -eq 2 || "${is_part}" -eq 1 ]]; then
                "_holdfastctl_${given[1]}_part" && ret=0
            fi
            if [[ "${is_part}" -eq 0 ]]; then
                words=("${given[1]}" list "${(@)given[2,-1]}")
                CURRENT="$((place + 1))"
                "_holdfastctl_${given[1]}_part" && ret=0
            fi
            return "${ret}"
        }

        """#

    private static let fishParts = #"""


        function __holdfastctl_words
            set -l words (__holdfastctl_tokens -pc)
            set -l place 2
            while set -q words[$place]
                switch $words[$place]
                case --socket --color
                    set place (math $place + 2)
                case '-*'
                    set place (math $place + 1)
                case '*'
                    break
                end
            end
            if test "$words[$place]" = help
                set -e words[$place]
            end
            set -l next (math $place + 1)
            if contains -- "$words[$place]" queue publications
                and set -q words[$next]
                and not contains -- $words[$next] list retry drop put remove
                set words $words[..$place] list $words[$next..]
            end
            printf '%s\n' $words
        end

        function __holdfastctl_is_expected -S
            test "$commands" = "$expected_commands"
                or begin
                    test (count $commands) -gt 1
                    and test "$commands list" = "$expected_commands"
                end
        end

        """#

    /// What the generated bash script lacks.
    private static let bashLine = #"""


        _holdfastctl_line() {
            # bash gives --socket=PATH as three words.
            local -a words=()
            local -i i cursor=0
            for i in "${!COMP_WORDS[@]}"; do
                if [[ ${COMP_WORDS[i]} == = && $i -gt 0 && ${COMP_WORDS[i-1]} == --* ]]; then
                    [[ $i -eq $COMP_CWORD ]] || continue
                    words+=('')
                else
                    words+=("${COMP_WORDS[i]}")
                fi
                [[ $i -le $COMP_CWORD ]] && cursor=$((${#words[@]} - 1))
            done
            _holdfastctl_words

            # The place of the command.
            local -i place=1
            while [[ $place -lt $cursor ]]; do
                case "${words[place]}" in
                --socket|--color) place+=2 ;;
                -*) place+=1 ;;
                *) break ;;
                esac
            done
            [[ $place -lt $cursor ]] || return 0
            local -i next=$((place + 1))
            case "${words[place]}" in
            help)
                # Its arguments are a command.
                words=("${words[@]::place}" "${words[@]:next}")
                cursor+=-1
                COMPREPLY=()
                _holdfastctl_words
                ;;
            queue|publications)
                # Without one of these, it is a list.
                case "${words[next]}" in list|retry|drop|put|remove) return 0 ;; esac
                [[ $next -lt $cursor ]] && COMPREPLY=()
                words=("${words[@]::next}" list "${words[@]:next}")
                cursor+=1
                _holdfastctl_words
                ;;
            esac
            return 0
        }

        # Completes the word at $cursor in $words.
        _holdfastctl_words() {
            local -a COMP_WORDS=("${words[@]}")
            local -i COMP_CWORD=$cursor
            local COMP_LINE="${words[*]}"
            local -i COMP_POINT=${#COMP_LINE}
            _holdfastctl holdfastctl "${words[cursor]}" "${words[cursor - 1]}"
        }
        """#
}
