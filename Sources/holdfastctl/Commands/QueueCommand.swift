import ArgumentParser
import ControlAPI
import HoldfastClient

struct QueueCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "queue",
        abstract: "Show what waits in a session's outbox; retry or drop what the server rejects.",
        discussion: """
            A message that the server rejects is quarantined: it does not block others, and stays until it is retried or \
            dropped.
            """,
        subcommands: [List.self, Retry.self, Drop.self], defaultSubcommand: List.self)

    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List the messages that are accepted but not yet delivered. This is the default.")

        @OptionGroup var common: CommonOptions
        @Argument(help: "The session; without it, all that have messages.", completion: .sessions) var session: String?
        @Option(
            help: "Only messages in this state: queued, in-flight or quarantined.",
            completion: .list(QueuedMessageState.all.map(\.rawValue)))
        var state: QueuedMessageState?
        @Option(help: ArgumentHelp("Only messages after the one with this id.", valueName: "id")) var after: Int64?
        @Option(help: ArgumentHelp("At most this many, from 1 to 1000.", valueName: "number")) var limit = 100
        @Flag(name: [.short, .long], help: "Show dates instead of durations.") var verbose = false
        @OptionGroup var selection: FieldOptions

        func validate() throws {
            try selection.check(with: common)
            guard MessageQueueListMethod.Parameters.limits.contains(limit) else {
                throw ValidationError("--limit must be from 1 to 1000")
            }
            if after != nil, session == nil { throw ValidationError("--after needs SESSION") }
        }

        func run() async throws {
            let client = common.client()
            if let session {
                try await show(session, client)
                return
            }
            let sessions = try await client.sessions()
            let busy = sessions.filter(QueueText.isBusy).map(\.session)
            let absent = try await client.call(DaemonStatusMethod.self, .init(), timeout: CommonOptions.answerTimeout)
                .absentSessions
            // A program that reads JSON gets an object for each session. A template has no outbox.
            let shown = common.json ? sessions.map(\.session).filter { !$0.hasSuffix("@") } : busy
            for session in shown + (absent ?? []).filter({ $0.messages > 0 }).map(\.session) {
                do {
                    try await show(session, client)
                } catch ClientError.refused(let refusal) where refusal.known == .internalError {
                    // It cannot be read, and must not keep the others from being shown.
                    common.complain(Complaint(notice: refusal.message))
                } catch ClientError.refused(let refusal) where refusal.known == .unknownSession {
                    // A reload has removed it meanwhile, or its last messages were dropped.
                }
            }
            if absent == nil { common.complain(Complaint(notice: QueueText.absentUnknown)) }
            guard !common.json, selection.fields == nil else { return }
            if let absent, !absent.isEmpty {
                common.terminal.print(wrapped: absent.map { printable("\($0.sentence).") })
            } else if busy.isEmpty {
                Terminal().print(
                    sessions.isEmpty
                        ? StatusText.overview(of: [], creation: common.creation)
                        : absent == nil
                            ? "No messages of these sessions are waiting."
                            : "No messages are waiting: every outbox is empty.")
            }
        }

        private func show(_ session: String, _ client: HoldfastClient) async throws {
            let answer = try await client.callUndecoded(
                MessageQueueListMethod.self, .init(session: session, state: state, after: after, limit: limit),
                timeout: CommonOptions.answerTimeout)
            let terminal = common.terminal
            if let fields = selection.fields {
                try terminal.print(fields: fields, of: QueueText.named(answer, session), "messages")
            } else if common.json {
                terminal.print(json: QueueText.named(answer, session))
            } else {
                terminal.print(
                    table: QueueText.lines(
                        for: try decode(MessageQueueListMethod.Result.self, answer), of: session, state: state,
                        times: Terminal.times(isAbsolute: verbose), width: terminal.wrap,
                        isColoured: terminal.isColoured))
            }
        }
    }

    /// Which messages: ids, or `--all` in one state.
    struct Selection: ParsableArguments {
        @Argument(help: "The session.", completion: .sessions) var session: String
        @Argument(help: "The ids of the messages, as the list shows them.", completion: .quarantined)
        var id: [Int64] = []
        @Flag(help: "All quarantined messages.") var all = false

        func validate() throws {
            guard id.isEmpty == all else { throw ValidationError("give either ids or --all") }
        }

        /// Calls the method for the selected messages, several times if there are more than one call takes.
        ///
        /// - Parameters:
        ///   - state: which messages `--all` means.
        ///   - take: takes the result of a call, and returns whether it left some of the messages for another one.
        func decide<Method: ControlMethod>(
            _ method: Method.Type, _ state: QueuedMessageState, _ common: CommonOptions,
            _ take: (Method.Result) -> Bool
        ) async throws where Method.Parameters == MessageQueueParameters {
            let client = common.client()
            for parameters in parameters(state) {
                while true {
                    let answer = try await client.callUndecoded(
                        method, parameters, timeout: CommonOptions.answerTimeout)
                    let result = try decode(Method.Result.self, answer)
                    if common.json { Terminal().print(json: answer) }
                    guard take(result) else { break }
                }
            }
        }

        /// Returns the parameters of several calls, since one call takes at most 1000 ids.
        func parameters(_ state: QueuedMessageState = .quarantined) -> [MessageQueueParameters] {
            guard !all else { return [.init(session: session, selection: .all(state))] }
            return stride(from: 0, to: id.count, by: 1000).map { start in
                .init(session: session, selection: .ids(Array(id[start..<min(start + 1000, id.count)])))
            }
        }
    }

    struct Retry: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Send quarantined messages again.",
            discussion: """
                Each one goes to the end of the queue with a new id. Returns when that is on disk; what the server rejects \
                again is quarantined again.
                """)

        @OptionGroup var common: CommonOptions
        @OptionGroup var selection: Selection

        func run() async throws {
            var tally = QueueTally(verb: "put at the end of the queue")
            try await selection.decide(MessageQueueRetryMethod.self, .quarantined, common) { result in
                tally.add(result.retried.count, result.skipped)
                return result.more
            }
            try tally.tell(json: common.json)
        }
    }

    struct Drop: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Remove messages for good.",
            discussion: """
                This includes messages that are in flight, which the server may have received anyway. Returns when the \
                removal is on disk. Of a session that is not configured any more, or was not started since, --all \
                --any-state also removes the durable consumers, with what they have not taken, and the publications.
                """)

        @OptionGroup var common: CommonOptions
        @OptionGroup var selection: Selection
        @Flag(help: "With --all: all that have not been sent yet, instead of the quarantined ones.") var queued = false
        @Flag(help: "With --all: all messages of the outbox, also those in flight.") var anyState = false

        func validate() throws {
            if queued || anyState, !selection.all {
                throw ValidationError("\(queued ? "--queued" : "--any-state") is only for --all")
            }
            if queued, anyState { throw ValidationError("--queued and --any-state cannot be combined") }
        }

        func run() async throws {
            var (selection, tally) = (selection, QueueTally(verb: "dropped"))
            func drop(_ state: QueuedMessageState) async throws {
                try await selection.decide(MessageQueueDropMethod.self, state, common) { result in
                    tally.add(result.dropped.count, result.skipped)
                    tally.rest = result.rest
                    return result.more
                }
            }
            do {
                try await drop(anyState ? .everything : queued ? .queued : .quarantined)
            } catch ClientError.refused(let refusal) where anyState && refusal.known == .invalidParameters {
                // The session is configured: the daemon takes all messages of one state, and those in flight by their ids.
                (selection.all, selection.id) = (false, try await allIDs())
                try await drop(.quarantined)
            }
            try tally.tell(json: common.json)
        }

        private func allIDs() async throws -> [Int64] {
            let client = common.client()
            var (ids, after) = ([Int64](), Int64?.none)
            repeat {
                let page = try await client.call(
                    MessageQueueListMethod.self, .init(session: selection.session, after: after, limit: 1000),
                    timeout: CommonOptions.answerTimeout)
                ids += page.messages.map(\.id)
                after = page.next
            } while after != nil
            return ids
        }
    }
}

/// The outcome of `queue retry` or `queue drop`.
struct QueueTally {
    let verb: String
    private(set) var count = 0
    private(set) var skipped: [SkippedMessage] = []
    /// What was removed besides messages of the outbox.
    var rest: MessageQueueDropMethod.Result.Rest?

    mutating func add(_ count: Int, _ skipped: [SkippedMessage]) {
        self.count += count
        self.skipped += skipped
    }

    var sentence: String {
        let messages = "\(count) message\(count == 1 ? "" : "s") \(verb)."
        guard let rest else { return messages }
        let list = AbsentSession(
            session: "", messages: count, bytes: 0, oldest: nil, consumers: rest.consumers, received: rest.received,
            publications: rest.publications
        ).list
        return list.isEmpty ? messages : "\(list) \(verb)."
    }

    var failures: [CommandFailure] { skipped.map { CommandFailure(.failed, $0.message, advice: $0.hint) } }

    /// - Throws: when a message was skipped.
    func tell(json: Bool) throws {
        if !json { Terminal().print(sentence) }
        guard !skipped.isEmpty else { return }
        for failure in failures { Complaint(Ending(failure)).write(json: json) }
        throw CommandFailure(.failed, "")
    }
}

/// `queue` in words.
enum QueueText {
    static let absentUnknown =
        "whether sessions that are not configured have messages on disk is not known: the disk does not answer"

    /// Whether messages wait in the session's outbox, or may.
    static func isBusy(_ status: SessionStatus) -> Bool {
        status.outbox.unknown != nil || status.outbox.queued + status.outbox.inFlight + status.outbox.quarantined > 0
    }

    /// Adds the name of the session to a list of messages and to each of them, because there may be several lists.
    static func named(_ answer: JSONValue, _ session: String) -> JSONValue {
        guard var members = answer.members, case .array(let messages)? = members["messages"] else { return answer }
        let name = JSONValue.string(session)
        members["session"] = name
        members["messages"] = .array(
            messages.map { message in
                var members = message.members ?? [:]
                members["session"] = name
                return JSONValue.object(members)
            })
        return .object(members)
    }

    static func lines(
        for result: MessageQueueListMethod.Result, of session: String, state: QueuedMessageState?, times: TimeText,
        width: Int? = nil, isColoured: Bool = false
    ) -> [String] {
        let count = result.messages.count
        let kind = state.map { " \($0.rawValue)" } ?? ""
        // The list may be incomplete.
        let part = result.next == nil ? "" : "the first "
        let overview = "\(session): \(part)\(count)\(kind) message\(count == 1 ? "" : "s")"
        guard count > 0 else { return [printable("\(overview).")] }
        let rows = result.messages.map { message in
            [
                "\(message.id)", describe(message), "\(message.qos.rawValue)", TimeText.size(Int64(message.size)),
                times.moment(message.acceptedAt), message.topic,
            ]
        }
        let more = result.next.map { ["", "There are more: --after \($0)"] } ?? []
        return [printable("\(overview):"), ""]
            + Columns.table(
                ["ID", "STATE", "QOS", "SIZE", "ACCEPTED", "TOPIC"], rows, width: width,
                marks: isColoured ? result.messages.map { mark($0.state).rawValue } : nil) + more
    }

    private static func mark(_ state: QueuedMessageState) -> Mark {
        switch state {
        case .quarantined: .bad
        case .queued: .off
        default: .trouble
        }
    }

    private static func describe(_ message: ListedMessage) -> String {
        message.state.rawValue + (message.message.map { " (\($0))" } ?? "")
    }
}
