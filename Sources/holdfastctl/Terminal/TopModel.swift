import ControlAPI

/// What `top` shows, computed from the daemon's answers. It is pure, so that a test can check every line.
struct TopModel {
    /// What a key asks for, other than moving the selection.
    enum Request: Equatable {
        case reconnect(String), connect(String), disconnect(String), history(String), quit
    }

    /// How many qualities a sparkline has, one for each second.
    static let samples = 20

    private(set) var sessions: [SessionStatus] = []
    private(set) var selection: String?
    /// The newest last; `nil` while the session was not connected.
    private var qualities: [String: [Quality?]] = [:]
    private var rates: [String: (published: Double, received: Double)] = [:]
    private var last: (time: Timestamp, counters: [String: SessionStatus.Counters])?
    /// What the last line says instead of the keys.
    var message: String?
    /// How to create a session, for somebody who has none.
    var creation = ""

    /// Takes the status of all sessions: once a second, and whenever something changes.
    mutating func take(_ sessions: [SessionStatus], at now: Timestamp) {
        self.sessions = sessions.inNaturalOrder
        let names = Set(sessions.map(\.session))
        if selection.map({ !names.contains($0) }) ?? true { selection = self.sessions.first?.session }
        let seconds = last.map { now.seconds(since: $0.time) } ?? 0
        // A status between two seconds changes what is shown, but neither the rates nor the sparklines.
        // A negative time means that the clock was set back.
        guard last == nil || seconds >= 0.5 || seconds < 0 else { return }
        qualities = qualities.filter { names.contains($0.key) }
        for session in sessions {
            let value = session.state == .connected ? session.quality : nil
            qualities[session.session] = ((qualities[session.session] ?? []) + [value]).suffix(Self.samples)
            guard seconds > 0, let before = last?.counters[session.session] else { continue }
            let counters = session.counters
            // A daemon that was restarted counts from zero.
            rates[session.session] = (
                Double(max(counters.published - before.published, 0)) / seconds,
                Double(max(counters.received - before.received, 0)) / seconds
            )
        }
        last = (now, Dictionary(sessions.map { ($0.session, $0.counters) }) { first, _ in first })
    }

    /// Handles a key. Returns a request if it is for the caller to carry out.
    mutating func press(_ key: LiveKey) -> Request? {
        message = nil
        switch key {
        case .up, .letter("k"): move(by: -1)
        case .down, .letter("j"): move(by: 1)
        case .letter("q"), .escape: return .quit
        case .letter("r"): return selection.map(Request.reconnect)
        case .letter("c"): return selection.map(Request.connect)
        case .letter("d"): return selection.map(Request.disconnect)
        case .letter("h"), .enter: return selection.map(Request.history)
        case .letter: break
        }
        return nil
    }

    private mutating func move(by step: Int) {
        guard let index = sessions.firstIndex(where: { $0.session == selection }) else { return }
        selection = sessions[min(max(index + step, 0), sessions.count - 1)].session
    }

    // MARK: What it looks like

    /// A column of the table.
    private struct Column {
        var heading: String
        /// On a narrow terminal, the columns with the highest ranks are omitted first, and those of rank 0 never.
        var rank: Int
    }

    private static let columns: [Column] = [
        Column(heading: "SESSION", rank: 0), Column(heading: "STATE", rank: 0), Column(heading: "TIME", rank: 3),
        Column(heading: "PATH", rank: 6), Column(heading: "QUALITY", rank: 7), Column(heading: "RTT", rank: 4),
        Column(heading: "", rank: 8), Column(heading: "QUEUE", rank: 2), Column(heading: "OUT/s", rank: 5),
        Column(heading: "IN/s", rank: 5), Column(heading: "WHY", rank: 1),
    ]
    /// The width that the last column needs; if there is no room for it, other columns are omitted.
    private static let least = 16
    /// A longer name is cut before a column is omitted for it.
    private static let longestName = 24

    /// - Parameters:
    ///   - width: how many columns a line has.
    ///   - height: how many lines there are. If there are few, the selected session comes first, then the keys, the
    ///     heading and the overview.
    ///   - isColoured: whether the selection and the states have colours.
    func lines(times: TimeText, width: Int, height: Int, isColoured: Bool) -> [String] {
        let table = table(times, width: width)
        let body = table.dropFirst()
        var frame: [String] = []
        if height > 3 { frame.append(StatusText.overview(of: sessions, creation: creation)) }
        if height > 5 { frame.append("") }
        if height > 2 { frame.append("  " + (table.first ?? "")) }
        let room = max(height - frame.count - (height > 1 ? 1 : 0), 1)
        let index = sessions.firstIndex { $0.session == selection } ?? 0
        let start = max(0, min(index - room / 2, body.count - room))
        var lines = frame
        for (offset, text) in body.enumerated().dropFirst(start).prefix(room) {
            lines.append(drawn(text, sessions[offset], isColoured: isColoured))
        }
        guard height > 1 else { return lines }
        while lines.count < height - 1 { lines.append("") }
        let keys =
            width >= 67
            ? "↑↓ select  r reconnect  c connect  d disconnect  h history  q quit" : "↑↓  keys: r c d h, q quits"
        lines.append(message.map(printable) ?? keys)
        return lines
    }

    /// The heading and a row for each session, with the columns that there is room for.
    private func table(_ times: TimeText, width: Int) -> [String] {
        let rows = sessions.map { row($0, times) }
        var shown = Array(Self.columns.indices)
        func room() -> Int {
            // The mark of the selection, and a gap after each column.
            shown.reduce(2) { sum, column in
                let cells = [Self.columns[column].heading] + rows.map { $0[column] }
                let widest = cells.map { printable($0).columns }.max() ?? 0
                if column == Self.columns.count - 1 { return sum + min(widest, Self.least) }
                return sum + (column == 0 ? min(widest, Self.longestName) : widest) + 2
            }
        }
        while room() > width, let last = shown.map({ Self.columns[$0].rank }).max(), last > 0 {
            shown.removeAll { Self.columns[$0].rank == last }
        }
        let table = Columns.table(
            shown.map { Self.columns[$0].heading }, rows.map { row in shown.map { row[$0] } }, width: width - 2,
            isLineEach: true)
        return table.map { Terminal.fitted($0, to: max(width - 2, 1)) }
    }

    private func drawn(_ text: String, _ session: SessionStatus, isColoured: Bool) -> String {
        let isSelected = session.session == selection
        guard isColoured else { return (isSelected ? "> " : "  ") + text }
        let line = "\u{1B}[\(Terminal.colour(session.state))m●\u{1B}[0m "
        return line + (isSelected ? "\u{1B}[7m\(text)\u{1B}[0m" : text)
    }

    private func row(_ session: SessionStatus, _ times: TimeText) -> [String] {
        let outbox = session.outbox
        let waiting = outbox.unknown == nil ? "\(outbox.queued + outbox.inFlight)" : "?"
        let rate = rates[session.session]
        let isUp = session.state == .connected
        let why = session.retryIn.map { "retry \(times.later($0))" }
        return [
            session.session, session.state.rawValue, TimeText.duration(times.now.seconds(since: session.since)),
            session.path?.interface ?? "-", isUp ? session.quality?.rawValue ?? "-" : "-",
            isUp ? session.rtt.map(TimeText.duration) ?? "-" : "-", Self.sparkline(qualities[session.session] ?? []),
            waiting + (outbox.quarantined > 0 ? "+\(outbox.quarantined)" : ""),
            Self.rate(rate?.published), Self.rate(rate?.received),
            isUp ? session.endpoint ?? "" : [session.reason?.code, why].compactMap { $0 }.joined(separator: ", "),
        ]
    }

    private static func rate(_ value: Double?) -> String {
        guard let value else { return "-" }
        return value > 0 && value < 10 ? "\((value * 10).rounded() / 10)" : "\(Int(value.rounded()))"
    }

    /// Returns the last qualities as bars, the better the longer; a dot stands for no connection.
    static func sparkline(_ values: [Quality?]) -> String {
        let drawn = values.map { value -> Character in
            switch value {
            case nil: "·"
            case .lost: "▁"
            case .poor: "▃"
            case .good: "▅"
            case .excellent: "█"
            }
        }
        return String(repeating: " ", count: max(samples - values.count, 0)) + String(drawn)
    }
}

/// Lines of which a screen shows a part, above a line that says which keys there are.
struct ScrolledLines: Equatable {
    var lines: [String]
    /// The index of the first line that is shown.
    private var first = 0

    init(_ lines: [String]) { self.lines = lines }

    /// On a small screen, the line about the keys matters more than the last of the others.
    private func room(_ height: Int) -> Int { max(height - 2, 0) }

    /// - Returns: whether the key scrolls.
    mutating func press(_ key: LiveKey, height: Int) -> Bool {
        let step: Int
        switch key {
        case .up, .letter("k"): step = -1
        case .down, .letter("j"): step = 1
        default: return false
        }
        first = max(0, min(first + step, lines.count - room(height)))
        return true
    }

    func shown(height: Int) -> [String] {
        let room = room(height)
        let start = max(0, min(first, lines.count - room))
        let shown = lines.dropFirst(start).prefix(room)
        let last =
            lines.count > room && room > 0
            ? "↑↓ scroll (\(start + 1) to \(start + shown.count) of \(lines.count) lines); any other key goes back"
            : "Press any key to go back."
        return shown + (height > 2 ? [""] : []) + [last]
    }
}
