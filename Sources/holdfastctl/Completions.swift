import ArgumentParser
import ControlAPI
import HoldfastClient

// Completions besides commands and options. The daemon is asked for them; without a daemon, there are none.

extension CompletionKind {
    /// The names of the sessions.
    static var sessions: CompletionKind { offered { try await $0.statuses().map(\.session) } }

    /// The sessions that are instances of a template.
    static var instances: CompletionKind {
        offered { try await $0.statuses().map(\.session).filter { $0.contains("@") && !$0.hasSuffix("@") } }
    }

    /// The templates in the configuration directory, as the beginning of an instance's name.
    static var templates: CompletionKind { offered { $0.templates } }

    /// The durable consumers of the sessions named on the line, or of all sessions if none is named.
    static var consumers: CompletionKind {
        offered { try await $0.chosen().flatMap { $0.inbox.consumers.map(\.name) } }
    }

    /// The topics of the publications of the sessions named on the line, or of all sessions if none is named.
    static var publications: CompletionKind { offered { try await $0.publications() } }

    /// The ids of the quarantined messages of the session named on the line.
    static var quarantined: CompletionKind { offered { try await $0.quarantined() } }

    /// The topics that the sessions named on the line are known to use; those of all sessions if none is named.
    static var topics: CompletionKind {
        offered { try await $0.filters().filter { !$0.contains("#") && !$0.contains("+") } }
    }

    /// The same topics, and the filters of subscriptions.
    static var filters: CompletionKind { offered { try await $0.filters() } }

    /// The endpoints of the sessions named on the line, or of all sessions if none is named.
    static var endpoints: CompletionKind { offered { try await $0.endpoints() } }

    /// The members that the command can print, after those that the line has already.
    static var fields: CompletionKind { offered { $0.fields } }

    private static func offered(_ words: @escaping @Sendable (Completions) async throws -> [String]) -> CompletionKind {
        .custom { line, _, _ in
            let found = try? await within(Completions.limit) { try await words(Completions(line)) }
            return Completions.literal((found ?? nil) ?? [], for: CompletionShell.requesting)
        }
    }
}

struct Completions {
    /// Short, because a person is waiting. It is for everything together.
    static let limit: Duration = .seconds(2)

    /// The words of the command line, as the shell splits it.
    let words: [String]
    let socket: String?
    private let client: HoldfastClient

    init(_ words: [String]) {
        self.words = words
        var options = HoldfastClient.Options()
        options.name = "holdfastctl \(Release.version)"
        options.attachTimeout = Self.limit
        socket = Self.value(of: "--socket", in: words)
        client = HoldfastClient(socket: socket, options: options)
    }

    var templates: [String] {
        let folder = "\(Self.value(of: "--config-directory", in: words) ?? ConfigCommand.Place.standard)/sessions.d"
        let files = (Folder.names(in: folder) ?? []).filter { $0.hasSuffix("@.toml") }
        return files.map { String($0.dropLast(".toml".count)) }.sorted(by: NaturalOrder.precedes)
    }

    /// The value that the line has for an option. bash splits `--option=value` into three words.
    private static func value(of option: String, in words: [String]) -> String? {
        guard let index = words.lastIndex(where: { $0.hasPrefix(option) }) else { return nil }
        let parts = words[index].split(separator: "=", maxSplits: 1)
        if parts.count == 2 { return String(parts[1]) }
        return words[(index + 1)...].first { $0 != "=" }
    }

    /// Returns the words as the completion function of the shell takes them; it quotes them for the line. Topics are chosen
    /// by other users.
    static func literal(_ words: [String], for shell: CompletionShell?) -> [String] {
        // The shell gets one word per line, so a word must not contain control characters.
        let words = words.filter { $0.unicodeScalars.allSatisfy(\.isPlain) }
        switch shell {
        case .bash:
            // compgen expands them like a command line. In a String, a letter and a dollar sign may be one character.
            return words.map { word in
                word.unicodeScalars.map { scalar in
                    let isSafe = scalar.properties.isAlphabetic || scalar.properties.numericType != nil
                    return isSafe || "/-_.,@+%".unicodeScalars.contains(scalar) ? "\(scalar)" : "\\\(scalar)"
                }.joined()
            }
        case .zsh:
            // zsh takes what follows a colon as a description. It does not quote what its history expansion replaces.
            let safe = words.filter { !$0.unicodeScalars.contains("!") }
            return safe.map { $0.replacing("\\", with: "\\\\").replacing(":", with: "\\:") }
        default:
            return words
        }
    }

    /// Returns `nil` if the daemon refuses the call.
    private func answer<Method: ControlMethod>(
        _ method: Method.Type, _ parameters: Method.Parameters
    ) async throws -> Method.Result? {
        do {
            return try await client.call(method, parameters, timeout: Self.limit)
        } catch ClientError.refused {
            return nil
        }
    }

    func statuses() async throws -> [SessionStatus] {
        try await answer(SessionListMethod.self, NoParameters())?.sessions.inNaturalOrder ?? []
    }

    func chosen() async throws -> [SessionStatus] {
        let all = try await statuses()
        let named = all.filter { words.contains($0.session) }
        return named.isEmpty ? all : named
    }

    func publications() async throws -> [String] {
        var topics: [String] = []
        for status in try await chosen() {
            let result = try await answer(PublicationListMethod.self, .init(session: status.session))
            topics += result?.publications.map(\.topic) ?? []
        }
        return topics
    }

    /// The filters of subscriptions, and the topics of publications and of waiting messages, each once.
    func filters() async throws -> [String] {
        let chosen = try await chosen()
        var found = try await chosen.flatMap { $0.subscriptions.map(\.filter) } + publications()
        for status in chosen {
            guard status.outbox.queued + status.outbox.inFlight + status.outbox.quarantined > 0 else { continue }
            let result = try await answer(MessageQueueListMethod.self, .init(session: status.session, limit: 100))
            found += result?.messages.map(\.topic) ?? []
        }
        return Set(found).sorted(by: NaturalOrder.precedes)
    }

    func endpoints() async throws -> [String] {
        let chosen = Set(try await chosen().map(\.session))
        let paths = try await answer(NetworkStatusMethod.self, NoParameters())?.paths ?? []
        var seen: Set<String> = []
        return paths.filter { chosen.contains($0.session) && seen.insert($0.endpoint).inserted }.map(\.endpoint)
    }

    /// Returns what a command with `--fields` lists.
    private static func names(of command: String) -> [String]? {
        switch command {
        case "status", "list": JSONSchema.paths(of: SessionStatus.self)
        case "network": JSONSchema.paths(of: NetworkStatus.EndpointPath.self)
        case "history": JSONSchema.paths(of: SessionHistoryEntry.self)
        case "queue": JSONSchema.paths(of: ListedMessage.self) + ["session"]
        case "publications": JSONSchema.paths(of: ListedPublication.self)
        case "participants": JSONSchema.paths(of: RoomParticipant.self)
        case "clients": JSONSchema.paths(of: ConnectedClient.self)
        default: nil
        }
    }

    var fields: [String] {
        let names = words.lazy.compactMap { Self.names(of: $0) }.first ?? []
        let typed = words.last ?? ""
        let given = typed.lastIndex(of: ",").map { String(typed[...$0]) } ?? ""
        let used = Set(given.split(separator: ",").map(String.init))
        return names.filter { !used.contains($0) }.sorted().map { given + $0 }
    }

    func quarantined() async throws -> [String] {
        guard let session = try await statuses().map(\.session).first(where: words.contains) else { return [] }
        let result = try await answer(
            MessageQueueListMethod.self, .init(session: session, state: .quarantined, limit: 100))
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

    @OptionGroup var common: CommonOptions
    @Argument(help: "bash, zsh or fish.", completion: .list(["bash", "zsh", "fish"])) var shell: String

    func validate() throws {
        guard CompletionShell(rawValue: shell) != nil else {
            throw ValidationError("there are completions for bash, zsh and fish")
        }
    }

    func run() {
        guard let shell = CompletionShell(rawValue: shell) else { return }
        let script = Self.script(for: shell)
        if common.json {
            Terminal().print(json: .object(["script": .string(script)]))
        } else {
            Terminal().print(script)
        }
    }

    /// Returns the script without its `#!` line, since the shell sources it instead of running it.
    static func script(for shell: CompletionShell) -> String {
        var script = HoldfastControl.completionScript(for: shell)
        if script.hasPrefix("#!") { script = String(script.drop { $0 != "\n" }.dropFirst()) }
        switch shell {
        case .bash:
            // Only where paths are completed: in a folder that has a directory "main", the session main would be one.
            let add = "__holdfastctl_add_completions() {\n"
            let paths = "    case $1 in -f|-d) is_path=1; compopt -o filenames 2>/dev/null ;; esac\n"
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
            local -a words=()
            local -i i cursor
            local line=${COMP_LINE:0:COMP_POINT} rest piece
            # bash also breaks words at = @ and :, as in pump@a. What has no white space between is one word, except for
            # --option=value.
            for ((i = 0; i <= COMP_CWORD; i++)); do
                rest=${line#"${line%%[![:space:]]*}"}
                piece=${COMP_WORDS[i]}
                [[ $i -eq $COMP_CWORD ]] && piece=$rest
                if [[ $i -eq 0 || $rest != "$line" ]]; then words+=("$piece"); else words[-1]+=$piece; fi
                line=${rest#"$piece"}
            done
            for ((i = 0; i < ${#words[@]}; i++)); do
                [[ ${words[i]} == --*=* ]] || continue
                words=("${words[@]::i}" "${words[i]%%=*}" "${words[i]#*=}" "${words[@]:i + 1}")
            done
            cursor=$((${#words[@]} - 1))
            local typed=${words[cursor]} is_path='' plain quote
            COMPREPLY=()
            _holdfastctl_offer
            # A reply takes the place of $2 only, as it stands. Other users choose topics, so it must be quoted: it is a part
            # of the line that Enter runs. In quotation marks, there are no words that would end them or be expanded.
            __holdfastctl_unquote "${typed%"$2"}"
            local lead=$plain
            __holdfastctl_unquote "$typed"
            local -a offered=("${COMPREPLY[@]}")
            COMPREPLY=()
            for piece in "${offered[@]}"; do
                [[ $piece == "$lead"* ]] || continue
                piece=${piece:${#lead}}
                case $is_path$quote in
                '') [[ -z $piece ]] || printf -v piece %q "$piece" ;;
                \") [[ $piece != *[\"\$\`\\!]* ]] || continue ;;
                \') [[ $piece != *\'* ]] || continue ;;
                esac
                COMPREPLY+=("$piece")
            done
            [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *@ ]] && compopt -o nospace 2>/dev/null
            return 0
        }

        # Sets plain to what the word stands for, and quote to the quotation mark that is still open.
        __holdfastctl_unquote() {
            local word=$1 mark
            plain='' quote=''
            while [[ -n $word ]]; do
                mark=${word:0:1}
                word=${word:1}
                if [[ $mark == "$quote" ]]; then
                    quote=''
                elif [[ -z $quote && $mark == [\"\'] ]]; then
                    quote=$mark
                elif [[ $mark == \\ && $quote != \' ]]; then
                    plain+=${word:0:1}
                    word=${word:1}
                else
                    plain+=$mark
                fi
            done
        }

        _holdfastctl_offer() {
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
        }

        # Completes the word at $cursor in $words.
        _holdfastctl_words() {
            local -a COMP_WORDS=("${words[@]}")
            local -i COMP_CWORD=$cursor
            local COMP_LINE="${words[*]}"
            local -i COMP_POINT=${#COMP_LINE}
            local word=${words[cursor]}
            __holdfastctl_unquote "$word"
            [[ -z $quote ]] || word=$plain
            _holdfastctl holdfastctl "$word" "${words[cursor - 1]}"
        }
        """#
}
