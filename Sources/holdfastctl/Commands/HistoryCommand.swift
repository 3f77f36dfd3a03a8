import ArgumentParser
import ControlAPI
import HoldfastClient

struct HistoryCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "history",
        abstract: "Show a timeline of the sessions, and their outages.",
        discussion: """
            Each character stands for an equal part of the time; each row ends with the share of the known time in which \
            the session was connected. The outages are listed below. The daemon keeps the last 10000 state changes for 30 \
            days, across restarts.
            """)

    @OptionGroup var common: CommonOptions
    @Argument(help: "The session; without it, all of them.", completion: .sessions) var session: String?
    @Option(
        help: "How far back: a duration like 90min or 7d, or a time like \"2026-11-20 09:00\", 09:00 or yesterday.")
    var since = SinceArgument.span(86_400)
    @Option(help: ArgumentHelp("Use only this many of the newest state changes.", valueName: "number"))
    var limit = SessionHistoryMethod.Parameters.limits.upperBound
    @Option(
        help: ArgumentHelp(
            "Write the timeline to this file as SVG, instead of to the terminal.", valueName: "file"),
        completion: .file())
    var svg: String?
    @OptionGroup var selection: FieldOptions

    func validate() throws {
        if selection.fields != nil, common.json || svg != nil {
            throw ValidationError("--fields cannot be combined with --json or --svg")
        }
        guard SessionHistoryMethod.Parameters.limits.contains(limit) else {
            throw ValidationError("--limit must be from 1 to 10000")
        }
        if svg != nil, common.json { throw ValidationError("--svg and --json cannot be combined") }
    }

    func run() async throws {
        let client = common.client()
        let terminal = common.terminal
        let times = Terminal.times()
        let start = since.start(before: times.now)
        guard start < times.now else { throw CommandFailure(.usage, "--since is in the future") }
        let answer = try await client.callUndecoded(
            SessionHistoryMethod.self, .init(session: session, since: start, limit: limit),
            timeout: CommonOptions.answerTimeout)
        if let fields = selection.fields {
            try terminal.print(fields: fields, of: answer, "entries")
            return
        }
        if common.json {
            terminal.print(json: answer)
            return
        }
        let timeline = try await timeline(of: answer, from: start, to: times.now, client)
        if let svg {
            try OutputFile.write(TimelineDrawing(timeline: timeline, offset: times.offset).svg, to: svg)
        } else {
            terminal.print(text(timeline, terminal, times).lines)
        }
    }

    /// Returns what the command prints, but with all outages, the newest first.
    func lines(_ client: HoldfastClient, _ terminal: Terminal) async throws -> [String] {
        let times = Terminal.times()
        let start = since.start(before: times.now)
        let answer = try await client.callUndecoded(
            SessionHistoryMethod.self, .init(session: session, since: start, limit: limit),
            timeout: CommonOptions.answerTimeout)
        var text = text(try await timeline(of: answer, from: start, to: times.now, client), terminal, times)
        text.isNewestFirst = true
        text.maximumOutages = .max
        return text.lines
    }

    private func timeline(
        of answer: JSONValue, from start: Timestamp, to end: Timestamp, _ client: HoldfastClient
    ) async throws -> Timeline {
        let sessions = try await client.sessions().filter { session == nil || $0.session == session }
        let all = try decode(SessionHistoryMethod.Result.self, answer).entries
        let entries = session == nil ? Self.worthARow(all, Set(sessions.map(\.session))) : all
        var earlier: [SessionHistoryEntry] = []
        // If the limit may have cut off entries, the state before the oldest entry is unknown.
        if all.count < limit {
            let names = Set(sessions.map(\.session)).union(entries.map(\.session)).sorted()
            let answers = try await client.callInOrder(
                SessionHistoryMethod.self, names.map { .init(session: $0, until: start, limit: 1) },
                timeout: CommonOptions.answerTimeout)
            earlier = try answers.flatMap { try $0.get().entries }
        }
        return Timeline(
            start: start.rawValue, end: end.rawValue, entries: entries, earlier: earlier, sessions: sessions
        ).fitted
    }

    /// Omits what was removed again without ever having been connected in this time, such as a mistyped name.
    static func worthARow(_ entries: [SessionHistoryEntry], _ configured: Set<String>) -> [SessionHistoryEntry] {
        let connected = entries.filter { $0.from == .connected || $0.to == .connected }
        let shown = configured.union(connected.map(\.session))
        return entries.filter { shown.contains($0.session) }
    }

    private func text(_ timeline: Timeline, _ terminal: Terminal, _ times: TimeText) -> TimelineText {
        TimelineText(
            timeline: timeline, width: terminal.width, isBounded: terminal.isTerminal,
            style: TerminalEncoding.isASCII || !terminal.isTerminal && !terminal.isColoured
                ? .plain : terminal.isColoured ? .colouredBlocks : .blocks,
            offset: times.offset, maximumOutages: terminal.isTerminal ? 20 : .max)
    }
}

/// The start of a period: a span before now, or a time.
enum SinceArgument: ExpressibleByArgument, Equatable {
    /// Seconds before now, above 0.
    case span(Double)
    case time(Timestamp)

    init?(argument: String) {
        if let time = Timestamp(argument) ?? LocalTime.time(argument, now: .now) {
            self = .time(time)
        } else if let seconds = SpanArgument(argument: argument)?.seconds, seconds > 0 {
            self = .span(seconds)
        } else {
            return nil
        }
    }

    var defaultValueDescription: String {
        switch self {
        case .span(86_400): "24h"
        case .span(let seconds): "\(Int(seconds))s"
        case .time(let time): time.description
        }
    }

    func start(before now: Timestamp) -> Timestamp {
        switch self {
        case .span(let seconds): now.advanced(by: -Int64(min(seconds, 1e11) * 1000))
        case .time(let time): time
        }
    }
}
