import ControlAPI

/// A timeline in characters: a row per session, the hours, a legend, and the outages.
struct TimelineText {
    /// What one character shows of its part of the time.
    enum Cell: CaseIterable, Equatable {
        case connected
        /// Connected for at least half of it, but not all the time.
        case interrupted
        case trying, offline, down, unknown
    }

    /// How the bars are drawn.
    enum Style {
        case plain, blocks, colouredBlocks
    }

    var timeline: Timeline
    /// The width in characters.
    var width: Int
    /// Whether no line may be wider: a terminal would break it. Otherwise a row with a long name and the list of outages
    /// may be.
    var isBounded: Bool
    var style: Style
    /// Seconds that the local clock is ahead of UTC.
    var offset: Int64
    /// At most this many outages are listed: the newest ones.
    var maximumOutages = Int.max
    /// Whether the newest outage comes first, because the end may be out of sight.
    var isNewestFirst = false

    private var nameWidth: Int { isBounded ? leastNameWidth : widestName }
    private static let availabilityWidth = 9
    private static let leastBar = 10
    /// One longer name must not take the room from all timelines.
    private var leastNameWidth: Int {
        min(widestName, max(24, width / 4), max(width - Self.leastBar - 2 - Self.availabilityWidth, 2))
    }
    private var widestName: Int { timeline.rows.map { printable($0.session).columns }.max() ?? 0 }
    private var barWidth: Int { max(width - leastNameWidth - 2 - Self.availabilityWidth, Self.leastBar) }

    var lines: [String] {
        guard !timeline.rows.isEmpty else { return ["No session has a history in this time."] }
        var lines = wrapped("From \(date(timeline.start)) to \(date(timeline.end)):") + [""]
        var used: Set<Cell> = []
        for row in timeline.rows {
            let cells = Self.cells(of: row, start: timeline.start, end: timeline.end, count: barWidth)
            used.formUnion(cells)
            let availability = row.availability.map(Self.percent) ?? "-"
            lines.append(
                pad(Columns.shortened(printable(row.session), to: nameWidth), nameWidth) + "  " + drawn(cells)
                    + String(repeating: " ", count: max(1, Self.availabilityWidth - availability.count)) + availability)
        }
        lines.append(scale)
        lines += legend(Cell.allCases.filter(used.contains)) + [""]
        return lines + outageLines
    }

    // MARK: Rows

    /// Returns the cell of each of `count` equal parts of the time.
    static func cells(of row: Timeline.Row, start: Int64, end: Int64, count: Int) -> [Cell] {
        var cells: [Cell] = []
        var spans = row.spans[...]
        for index in 0..<count {
            let from = start + (end - start) * Int64(index) / Int64(count)
            let to = start + (end - start) * Int64(index + 1) / Int64(count)
            while let first = spans.first, first.end <= from { spans.removeFirst() }
            var times: [Timeline.Condition: Int64] = [:]
            for span in spans {
                if span.start >= to { break }
                times[span.condition, default: 0] += min(span.end, to) - max(span.start, from)
            }
            cells.append(cell(times.filter { $0.value > 0 }))
        }
        return cells
    }

    /// Returns the cell for a part of the time. Known conditions win over unknown ones: otherwise, where a cell is a
    /// day, the first minutes of a daemon would be hidden.
    private static func cell(_ times: [Timeline.Condition: Int64]) -> Cell {
        let known = times.filter { $0.key != .unknown }
        if known.count == 1, known[.connected] != nil { return .connected }
        let connected = known[.connected] ?? 0
        if connected > 0, connected * 2 >= known.values.reduce(0, +) { return .interrupted }
        let others: [(condition: Timeline.Condition, cell: Cell)] = [
            (.trying, .trying), (.offline, .offline), (.down, .down),
        ]
        let longest = others.max { known[$0.condition] ?? 0 < known[$1.condition] ?? 0 }
        return longest.flatMap { known[$0.condition] == nil ? nil : $0.cell } ?? .unknown
    }

    private func drawn(_ cells: [Cell]) -> String {
        var text = ""
        var last: Cell?
        for cell in cells {
            if style == .colouredBlocks, cell != last { text += "\u{1B}[\(cell.look.colour)m" }
            text += style == .plain ? cell.look.character : cell.look.block
            last = cell
        }
        return style == .colouredBlocks && !cells.isEmpty ? text + "\u{1B}[0m" : text
    }

    /// What the cells mean, on as many lines as they need.
    private func legend(_ cells: [Cell]) -> [String] {
        var lines: [String] = []
        for cell in cells {
            let entry = drawn([cell]) + " " + cell.look.meaning
            if let last = lines.last, !isBounded || Terminal.room(for: last + "  " + entry) <= width {
                lines[lines.count - 1] += "  " + entry
            } else {
                lines.append(entry)
            }
        }
        return lines
    }

    // MARK: The hours

    private var scale: String {
        let mark = style == .plain ? "|" : "╵"
        let ticks = TimeScale(
            start: timeline.start, end: timeline.end, maximumCount: barWidth / 10, offset: offset
        ).ticks
        var line = ""
        for tick in ticks {
            let column = Int(Int64(barWidth) * (tick.time - timeline.start) / max(timeline.end - timeline.start, 1))
            guard column >= line.count else { continue }
            line = pad(line, column) + mark
            if column + 1 + tick.label.count <= barWidth + Self.availabilityWidth { line += tick.label }
        }
        return String(repeating: " ", count: nameWidth + 2) + line
    }

    // MARK: Outages

    private var outageLines: [String] {
        let outages = timeline.outages
        let unconnected = timeline.rows.compactMap(\.unconnected)
        let lines = unconnected.isEmpty ? [] : wrapped("Not connected yet:") + table(unconnected, "NOW")
        guard !outages.isEmpty else { return lines + ["No outages."] }
        let heading =
            outages.count > maximumOutages
            ? "The last \(maximumOutages) of \(outages.count) outages (holdfastctl history | less shows all):"
            : outages.count == 1
                ? "1 outage:" : "\(outages.count) outages\(isNewestFirst ? ", the newest first" : ""):"
        let listed = outages.suffix(maximumOutages)
        return lines + wrapped(heading) + table(isNewestFirst ? listed.reversed() : Array(listed), "END")
    }

    /// - Parameter ending: the heading of the column that says how each ended.
    private func table(_ outages: [Timeline.Outage], _ ending: String) -> [String] {
        let rows = outages.map { outage in
            [
                outage.session, (outage.beginning == .unknown ? "before " : "") + moment(outage.start),
                TimeText.duration(outage.length), outage.ending, outage.cause,
            ]
        }
        let table = Columns.table(
            ["SESSION", "START", "LENGTH", ending, "REASON"], rows, width: isBounded ? width - 2 : nil)
        guard isBounded else { return table.map { "  " + $0 } }
        return table.flatMap { Columns.wrapped("  " + $0, to: width, indent: 6) }.map { Terminal.fitted($0, to: width) }
    }

    private func wrapped(_ line: String) -> [String] { Columns.wrapped(line, to: isBounded ? width : nil, indent: 2) }

    private func date(_ time: Int64) -> String { Timestamp(rawValue: time).dateAndTime(offset: offset) }

    /// Returns a time, without its date if that is the date of the timeline's end.
    private func moment(_ time: Int64) -> String {
        let (date, today) = (date(time), date(timeline.end))
        return date.prefix(10) == today.prefix(10) ? String(date.suffix(8)) : date
    }

    private func pad(_ text: String, _ width: Int) -> String {
        text + String(repeating: " ", count: max(0, width - text.columns))
    }

    /// Returns a fraction as a percentage, rounded down to two decimals, so that `100 %` means all of it.
    static func percent(_ part: Double) -> String {
        let hundredths = Int(part * 10_000)
        guard hundredths < 10_000 else { return "100 %" }
        return "\(hundredths / 100).\(hundredths % 100 / 10)\(hundredths % 10) %"
    }
}

extension TimelineText.Cell {
    /// - `block`, `character`: what it is drawn with.
    /// - `colour`: the parameters of SGR.
    var look: (block: String, character: String, colour: String, meaning: String) {
        switch self {
        case .connected: ("█", "=", "32", "connected")
        case .interrupted: ("▓", "+", "33", "interrupted")
        case .trying: ("▒", "~", "33", "trying")
        case .offline: ("░", ".", "36", "no network")
        case .down: ("▂", "_", "31", "down")
        case .unknown: ("·", "-", "90", "unknown")
        }
    }
}
