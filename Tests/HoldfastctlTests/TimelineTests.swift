import ControlAPI
import Glibc
import Testing

@testable import holdfastctl

/// 2026-11-20T12:00:00Z, and minutes after it.
private func minute(_ minutes: Double) -> Int64 { 1_795_176_000_000 + Int64(minutes * 60_000) }

private func reason(_ code: String) -> SessionStatus.Reason {
    let local = [
        "user-disconnect", "goodbye-unheard", "user-reconnect", "switch-room", "shutdown", "configuration-changed",
    ].contains(code)
    return .init(code: code, group: local ? "local" : "network", terminal: false, message: "because of \(code)")
}

private func entry(
    _ minutes: Double, _ from: SessionState, _ to: SessionState, _ code: String = "reset",
    session: String = "main", phase: Phase? = nil, mode: ReconnectMode? = nil,
    outage: Double? = nil
) -> SessionHistoryEntry {
    SessionHistoryEntry(
        time: Timestamp(rawValue: minute(minutes)), session: session, from: from, to: to, phase: phase,
        reason: reason(code), mode: mode, outage: outage)
}

private func status(_ state: SessionState, since minutes: Double, session: String = "main") -> SessionStatus {
    var status = SessionStatus(session: session, state: state, since: Timestamp(rawValue: minute(minutes)))
    status.reason = reason("now")
    return status
}

/// An hour, from 12:00 to 13:00.
private func timeline(
    _ entries: [SessionHistoryEntry], earlier: [SessionHistoryEntry] = [], sessions: [SessionStatus]? = nil
) -> Timeline {
    Timeline(
        start: minute(0), end: minute(60), entries: entries, earlier: earlier,
        sessions: sessions ?? [status(entries.last?.to ?? .connected, since: 0)])
}

struct TimelineTests {
    /// Returns the condition and the end in minutes of each span.
    private func spans(_ row: Timeline.Row?) -> [String] {
        (row?.spans ?? []).map { "\($0.condition) to \(($0.end - minute(0)) / 60_000)" }
    }

    @Test(
        arguments: [
            // Nothing happened in this hour.
            ([], [entry(-90, .connecting, .connected)], ["connected to 60"]),
            ([], [entry(-90, .disconnected, .failed)], ["down to 60"]),
            // The clock was set forward.
            (
                [entry(20, .connected, .connected, "clock-set"), entry(50, .connected, .connected)],
                [entry(-90, .connecting, .connected)], ["connected to 20", "unknown to 50", "connected to 60"]
            ),
            // No entries are kept, but the status says since when the present state has lasted.
            ([], [], ["unknown to 20", "connected to 60"]),
            // Lost, without a network, then with one, then back.
            (
                [
                    entry(10, .connected, .reconnecting),
                    entry(20, .reconnecting, .reconnecting, phase: .waitingForNetwork),
                    entry(30, .reconnecting, .reconnecting), entry(40, .reconnecting, .connected),
                ], [entry(-1, .connecting, .connected)],
                ["connected to 10", "trying to 20", "offline to 30", "trying to 40", "connected to 60"]
            ),
            // The daemon was stopped and started.
            (
                [
                    entry(10, .connected, .disconnecting, "shutdown"),
                    entry(10, .disconnecting, .disconnected, "shutdown"),
                    entry(30, .disconnected, .connecting, "autoconnect"), entry(30, .connecting, .connected),
                ], [entry(-1, .connecting, .connected)],
                ["connected to 10", "unknown to 30", "connected to 60"]
            ),
            // The session was removed, and added again.
            (
                [
                    entry(10, .connected, .disconnected, "configuration-changed"),
                    entry(10, .disconnected, .disconnected, "configuration-changed"),
                    entry(30, .disconnected, .connecting, "autoconnect"), entry(30, .connecting, .connected),
                ], [entry(-1, .connecting, .connected)],
                ["connected to 10", "unknown to 30", "connected to 60"]
            ),
            // Disconnected by hand, failed, connected by hand.
            (
                [
                    entry(10, .connected, .disconnected, "user-disconnect"), entry(20, .disconnected, .connecting),
                    entry(25, .connecting, .failed),
                ], [entry(-1, .connecting, .connected)],
                ["connected to 10", "down to 20", "trying to 25", "down to 60"]
            ),
            // The clock was set back in between.
            (
                [entry(30, .connected, .reconnecting), entry(10, .reconnecting, .connected)],
                [entry(-1, .connecting, .connected)], ["connected to 60"]
            ),
            // It was set back to before all that is known, and then to a time that passes once more.
            (
                [
                    entry(80, .connecting, .connected), entry(90, .connected, .connected, "clock-set"),
                    entry(20, .connected, .connected), entry(40, .connected, .reconnecting),
                ], [], ["unknown to 20", "connected to 40", "trying to 60"]
            ),
            (
                [
                    entry(30, .connected, .reconnecting), entry(50, .reconnecting, .reconnecting, "clock-set"),
                    entry(10, .reconnecting, .reconnecting),
                ], [entry(-1, .connecting, .connected)], ["connected to 10", "trying to 60"]
            ),
        ] as [([SessionHistoryEntry], [SessionHistoryEntry], [String])])
    func `entries become spans without gaps`(
        _ entries: [SessionHistoryEntry], _ earlier: [SessionHistoryEntry], _ expected: [String]
    ) {
        let timeline = timeline(
            entries, earlier: earlier, sessions: [status(entries.last?.to ?? .connected, since: 20)])
        #expect(spans(timeline.rows.first) == expected)
        #expect(timeline.rows.first?.spans.first?.start == minute(0))
        #expect(timeline.rows.first?.spans.last?.end == minute(60))
    }

    @Test func `outages have their own times after the clock was set back`() {
        let before = [entry(80, .connecting, .connected), entry(90, .connected, .connected, "clock-set")]
        let outages = timeline(
            before + [
                entry(20, .connected, .connected), entry(30, .connected, .reconnecting),
                entry(32, .reconnecting, .connected, outage: 120),
                // This one has lasted 20 minutes when the clock is set back by 40.
                entry(33, .connected, .reconnecting), entry(53, .reconnecting, .reconnecting, "clock-set"),
                entry(13, .reconnecting, .reconnecting),
            ]
        ).outages
        #expect(outages.map(\.start) == [minute(-7), minute(30)])
        #expect(outages.map(\.length) == [67 * 60, 120])
    }

    @Test func `a removed session is unknown, and a session without entries has a row`() {
        let timeline = timeline(
            [entry(10, .connecting, .connected, session: "old")], sessions: [status(.failed, since: -5)])
        #expect(timeline.rows.map(\.session) == ["main", "old"])
        #expect(spans(timeline.rows.first) == ["down to 60"])
        #expect(spans(timeline.rows.last) == ["unknown to 60"])
    }

    @Test func `the outage of a session ends when it is removed`() {
        let outages = timeline(
            [
                entry(10, .connected, .reconnecting),
                entry(20, .reconnecting, .disconnected, "configuration-changed"),
                entry(20, .disconnected, .disconnected, "configuration-changed"),
                entry(50, .disconnected, .connecting, "autoconnect"), entry(50, .connecting, .connected),
            ], earlier: [entry(-1, .connecting, .connected)]
        ).outages
        #expect(outages.map(\.length) == [600])
    }

    @Test func `unknown time does not count as not connected`() {
        let row = timeline(
            [entry(30, .disconnected, .connecting), entry(45, .connecting, .connected)], earlier: []
        ).rows.first
        #expect(row?.availability == 0.5)
        #expect(timeline([], sessions: []).rows.isEmpty)
    }

    @Test func `an outage lasts from the loss to the connection, whatever happens in between`() throws {
        let outages = timeline(
            [
                entry(10, .connected, .reconnecting, "heartbeat-timeout", mode: .quick),
                entry(12, .reconnecting, .reconnecting, phase: .waitingForNetwork),
                entry(15, .reconnecting, .connected, mode: .full, outage: 301.5),
                entry(30, .connected, .disconnected, "shutdown"), entry(31, .disconnected, .connecting),
                entry(32, .connecting, .connected),
                entry(50, .connected, .reconnecting, "no-path", phase: .waitingForNetwork),
            ], earlier: [entry(-1, .connecting, .connected)]
        ).outages
        #expect(outages.map(\.reason) == ["because of heartbeat-timeout", "because of no-path"])
        #expect(outages.map(\.length) == [301.5, 600])
        #expect(outages.map(\.end) == [minute(15), nil])
        #expect(outages.map(\.ending) == ["connected, full reconnect", "still no network"])
        #expect(outages.allSatisfy { $0.beginning == .loss })
    }

    @Test(
        arguments: [
            // Stopped and started by hand.
            (
                [
                    entry(10, .connected, .disconnecting, "user-disconnect"),
                    entry(10, .disconnecting, .disconnected, "user-disconnect"),
                    entry(20, .disconnected, .connecting), entry(21, .connecting, .connected),
                ], 0
            ),
            // Changing the room takes a moment. A disconnect counts as one even if the server did not hear it.
            ([entry(10, .connected, .reconnecting, "switch-room"), entry(10.1, .reconnecting, .connected)], 0),
            ([entry(10, .connected, .reconnecting, "switch-room"), entry(12, .reconnecting, .connected)], 0),
            (
                [
                    entry(10, .connected, .disconnecting, "user-disconnect"),
                    entry(10, .disconnecting, .disconnected, "goodbye-unheard"),
                    entry(20, .disconnected, .connecting), entry(21, .connecting, .connected),
                ], 0
            ),
            // A requested reconnect is an outage if the daemon calls it one, or if it is not over.
            ([entry(10, .connected, .reconnecting, "user-reconnect"), entry(10.1, .reconnecting, .connected)], 0),
            ([entry(10, .connected, .reconnecting, "user-reconnect"), entry(12, .reconnecting, .connected)], 0),
            ([entry(10, .connected, .reconnecting, "user-reconnect")], 1),
            ([entry(10, .connected, .reconnecting)], 1),
        ] as [([SessionHistoryEntry], Int)])
    func `a requested change is not an outage`(_ entries: [SessionHistoryEntry], _ count: Int) {
        #expect(timeline(entries, earlier: [entry(-1, .connecting, .connected)]).outages.count == count)
    }

    @Test func `a disconnect ends an outage`() {
        let outages = timeline(
            [
                entry(10, .connected, .reconnecting), entry(15, .reconnecting, .disconnected, "user-disconnect"),
                entry(40, .disconnected, .connecting), entry(41, .connecting, .connected),
            ], earlier: [entry(-1, .connecting, .connected)]
        ).outages
        #expect(outages.map(\.length) == [300])
        #expect(outages.map(\.ending) == ["disconnected"])
    }

    @Test func `the timeline begins with the first known state`() {
        let entries = [entry(20, .disconnected, .connecting), entry(21, .connecting, .connected)]
        let fitted = timeline(entries).fitted
        #expect(fitted.start == minute(20))
        #expect(spans(fitted.rows.first) == ["trying to 21", "connected to 60"])
        #expect(timeline([], earlier: [entry(-1, .connecting, .connected)]).fitted.start == minute(0))
        #expect(timeline([], sessions: []).fitted.start == minute(0))
    }

    @Test func `an outage that began earlier has its own start if that is known`() {
        let lost = timeline(
            [entry(10, .reconnecting, .connected)], earlier: [entry(-20, .connected, .reconnecting)]
        ).outages
        #expect(lost.map(\.start) == [minute(-20)])
        #expect(lost.map(\.beginning) == [.loss])
        let older = timeline(
            [entry(10, .reconnecting, .connected)], earlier: [entry(-20, .reconnecting, .reconnecting)]
        ).outages
        #expect(older.map(\.beginning) == [.unknown])
    }

    @Test func `a session that was started and is not connected has been so since then, and not before`() {
        let started = timeline([entry(10, .disconnected, .connecting, "user-connect")])
        let text = TimelineText(timeline: started, width: 100, isBounded: false, style: .plain, offset: 0).lines
        #expect(started.outages.isEmpty)
        #expect(started.rows.compactMap(\.unconnected?.beginning) == [.start])
        #expect(text.contains("Not connected yet:") && text.contains("No outages."), "\(text)")
        #expect(text.contains { $0.contains("main") && $0.contains(" 12:10:00") }, "\(text)")
        #expect(!text.contains { $0.contains("before") }, "\(text)")
        let earlier = [entry(-20, .disconnected, .connecting, "user-connect")]
        let lasting = timeline([], earlier: earlier, sessions: [status(.connecting, since: -20)])
        #expect(lasting.outages.isEmpty)
        #expect(lasting.rows.compactMap(\.unconnected?.start) == [minute(-20)])
        let connected = timeline([entry(10, .connecting, .connected)], earlier: earlier)
        #expect(connected.outages.isEmpty && connected.rows.allSatisfy { $0.unconnected == nil })
    }

    @Test func `the first connection is not an outage, even if it never comes`() {
        #expect(
            timeline([entry(10, .disconnected, .connecting), entry(20, .connecting, .connected)]).outages.isEmpty)
        let trying = timeline([entry(10, .disconnected, .connecting, "autoconnect")])
        #expect(trying.outages.isEmpty)
        let outages = trying.rows.compactMap(\.unconnected)
        #expect(outages.map(\.ending) == ["still trying"])
        #expect(outages.map(\.reason) == ["because of now"])
        #expect(outages.map(\.length) == [3000])
    }
}

struct TimelineTextTests {
    private let hour = timeline(
        [
            entry(10, .connected, .reconnecting), entry(10.5, .reconnecting, .connected, mode: .quick, outage: 30),
            entry(20, .connected, .reconnecting, phase: .waitingForNetwork),
            entry(30, .reconnecting, .reconnecting), entry(40, .reconnecting, .failed, "banned"),
            entry(50, .failed, .disconnected, "shutdown"),
        ], earlier: [entry(-1, .connecting, .connected)])

    private func text(
        _ timeline: Timeline, width: Int = 75, isBounded: Bool = false, _ style: TimelineText.Style = .plain
    ) -> [String] {
        TimelineText(timeline: timeline, width: width, isBounded: isBounded, style: style, offset: 0).lines
    }

    @Test func `each character stands for a part of the time`() {
        #expect(
            text(hour) == [
                "From 2026-11-20 12:00:00 to 2026-11-20 13:00:00:",
                "",
                "main  ==========+=========..........~~~~~~~~~~__________----------  39.00 %",
                "      |12:00    |12:10    |12:20    |12:30    |12:40    |12:50",
                "= connected  + interrupted  ~ trying  . no network  _ down  - unknown",
                "",
                "2 outages:",
                "  SESSION  START     LENGTH  END                         REASON",
                "  main     12:10:00  30 s    connected, quick reconnect  because of reset",
                "  main     12:20:00  40 min  the daemon is not running   because of reset",
            ])
    }

    @Test func `a terminal gets blocks, and colours that end with the row`() {
        let plain = text(hour, .blocks)
        #expect(
            plain.dropFirst(2).first == "main  ██████████▓█████████░░░░░░░░░░▒▒▒▒▒▒▒▒▒▒▂▂▂▂▂▂▂▂▂▂··········  39.00 %")
        let coloured = text(timeline([], earlier: [entry(-1, .connecting, .connected)]), width: 25, .colouredBlocks)
        #expect(coloured.dropFirst(2).first == "main  \u{1B}[32m██████████\u{1B}[0m    100 %")
        #expect(text(hour).allSatisfy { !$0.contains("\u{1B}") })
    }

    /// A terminal without UTF-8 gets the plain style.
    @Test(arguments: [TimelineText.Style.plain, .blocks, .colouredBlocks], [23, 40, 60, 80])
    func `every line fits a terminal, and only there it must`(_ style: TimelineText.Style, _ width: Int) {
        var named = hour
        named.rows[0].session = "a-gateway-with-a-name-that-is-longer-than-the-line"
        for timeline in [hour, named] {
            let fitted = text(timeline, width: width, isBounded: true, style)
            #expect(fitted.filter { Terminal.room(for: $0) > width } == [])
            #expect(fitted.contains { $0.hasSuffix("REASON") } == (width >= 80), "or the outages are a list")
            let words = fitted.joined(separator: " ").split(separator: " ").joined(separator: " ")
            #expect(words.contains("because of reset"), "no reason is cut")
            #expect(text(timeline, width: width, style).contains { $0.hasSuffix("because of reset") })
        }
        #expect(text(named, width: width, style).contains { $0.hasPrefix(named.rows[0].session) })
    }

    @Test func `what the characters mean is folded between two of them`() {
        #expect(
            text(hour, width: 40, isBounded: true).dropFirst(5).prefix(3) == [
                "= connected  + interrupted  ~ trying", ". no network  _ down  - unknown", "",
            ])
    }

    @Test func `a short interruption is visible, and a bad part is not shown as good`() {
        func cells(_ minutes: [Double], count: Int) -> [TimelineText.Cell] {
            let entries = minutes.enumerated().map { index, minute in
                index % 2 == 0
                    ? entry(minute, .connected, .reconnecting) : entry(minute, .reconnecting, .connected)
            }
            let row = timeline(entries, earlier: [entry(-1, .connecting, .connected)]).rows[0]
            return TimelineText.cells(of: row, start: minute(0), end: minute(60), count: count)
        }
        #expect(cells([], count: 3) == [.connected, .connected, .connected])
        #expect(cells([30, 30.001], count: 3) == [.connected, .interrupted, .connected])
        #expect(cells([21, 39], count: 3) == [.connected, .trying, .connected])
        #expect(cells([20, 40], count: 3) == [.connected, .trying, .connected])
        #expect(cells([10, 30], count: 2) == [.trying, .connected])
    }

    @Test func `only the newest outages are listed if there is no room for all`() {
        let entries = (0..<10).flatMap { number in
            [
                entry(Double(number) * 5, .connected, .reconnecting),
                entry(Double(number) * 5 + 1, .reconnecting, .connected),
            ]
        }
        let timeline = timeline(entries, earlier: [entry(-1, .connecting, .connected)])
        let all = TimelineText(timeline: timeline, width: 60, isBounded: false, style: .plain, offset: 0)
        #expect(all.lines.contains("10 outages:"))
        var some = all
        some.maximumOutages = 3
        #expect(some.lines.contains("The last 3 of 10 outages (holdfastctl history | less shows all):"))
        #expect(some.lines.count == all.lines.count - 7)
        var reversed = all
        reversed.isNewestFirst = true
        #expect(reversed.lines.contains("10 outages, the newest first:"))
        #expect(Array(reversed.lines.suffix(10)) == Array(all.lines.suffix(10).reversed()))
    }

    @Test func `an outage says how its attempts failed`() {
        var ends: [SessionHistoryEntry] = [
            entry(10, .reconnecting, .disconnected, "shutdown"), entry(12, .connecting, .connected),
        ]
        ends[0].failures = .init(attempts: 2, code: "refused", message: "refused")
        ends[1].failures = .init(attempts: 12, code: "dial-timeout", message: "timeout")
        let entries = [entry(5, .connected, .reconnecting)] + ends
        let outages = timeline(entries, earlier: [entry(-1, .connecting, .connected)]).outages
        #expect(outages.map(\.cause).last == "because of reset; 14 attempts, the last: timeout")
        // While it lasts, the status knows.
        var status = status(.reconnecting, since: 5)
        (status.phase, status.attempt, status.reason) = (.waiting, 2, reason("refused"))
        let lasting = timeline(
            [entry(5, .connected, .reconnecting)], earlier: [entry(-1, .connecting, .connected)], sessions: [status]
        ).outages
        #expect(lasting.map(\.cause) == ["because of reset; 1 attempt: because of refused"])
    }

    @Test func `a cause that all attempts had is told once`() {
        var outage = Timeline.Outage(session: "main", start: 0, beginning: .start, length: 1, reason: "no", ending: "")
        (outage.failedAttempts, outage.failure) = (8, "no")
        #expect(outage.cause == "no; 8 attempts")
        outage.failedAttempts = 1
        #expect(outage.cause == "no")
    }

    @Test(arguments: [true, false])
    func `a long name leaves the timelines most of the line`(isBounded: Bool) throws {
        var named = hour
        named.rows[0].session = String(repeating: "n", count: 63)
        let row = try #require(text(named, width: 80, isBounded: isBounded).dropFirst(2).first)
        #expect(row.hasPrefix(isBounded ? "nnnnnnnnnnnn…nnnnnnnnnnn  =" : "\(named.rows[0].session)  ="))
        #expect(row.filter { "=+~._-".contains($0) }.count == 45 + 1, "the last full stop is that of the percentage")
        let scale = text(named, width: 80, isBounded: isBounded)[3]
        #expect(scale.prefix { $0 == " " }.count == (isBounded ? 24 : 63) + 2)
    }

    @Test func `a timeline without sessions or outages says so`() {
        #expect(text(timeline([], sessions: [])) == ["No session has a history in this time."])
        #expect(text(timeline([], earlier: [entry(-1, .connecting, .connected)])).last == "No outages.")
    }

    @Test(arguments: [(1, "100 %"), (0.99999, "99.99 %"), (0.5, "50.00 %"), (0.06543, "6.54 %"), (0, "0.00 %")])
    func `a hundred percent is shown only for the whole time`(_ part: Double, _ text: String) {
        #expect(TimelineText.percent(part) == text)
    }
}

struct TimeScaleTests {
    @Test(
        arguments: [
            (0, 60, 4, 0, ["12:00", "12:15", "12:30", "12:45"]),
            (0, 60, 4, 3600, ["13:00", "13:15", "13:30", "13:45"]),
            (-720, 720, 6, 0, ["11-20", "04:00", "08:00", "12:00", "16:00", "20:00"]),
            (-700, 740, 6, 0, ["04:00", "08:00", "12:00", "16:00", "20:00", "11-21"]),
            (0, 10_080, 7, 0, ["11-21", "11-22", "11-23", "11-24", "11-25", "11-26", "11-27"]),
            (0, 0.5, 6, 0, ["12:00:00", "12:00:05", "12:00:10", "12:00:15", "12:00:20", "12:00:25"]),
            (0, 0, 4, 0, []), (0, 1e9, 1, 0, []),
        ] as [(Double, Double, Int, Int64, [String])])
    func `labels are round times of the local clock`(
        _ start: Double, _ end: Double, _ count: Int, _ offset: Int64, _ labels: [String]
    ) {
        let scale = TimeScale(start: minute(start), end: minute(end), maximumCount: count, offset: offset)
        #expect(scale.ticks.map(\.label) == labels)
        #expect(scale.ticks.allSatisfy { (minute(start)..<minute(end)).contains($0.time) })
    }
}

struct TimelineDrawingTests {
    private func svg(_ timeline: Timeline) -> String { TimelineDrawing(timeline: timeline, offset: 0).svg }

    private func count(_ part: String, in text: String) -> Int { text.split(separator: part).count - 1 }

    @Test func `a span is a bar with its reason`() {
        let svg = svg(
            timeline(
                [entry(15, .connected, .reconnecting), entry(30, .reconnecting, .connected)],
                earlier: [entry(-1, .connecting, .connected)]))
        #expect(svg.hasPrefix("<svg xmlns=\"http://www.w3.org/2000/svg\" "))
        #expect(svg.hasSuffix("</svg>\n"))
        #expect(
            svg.contains(
                "fill=\"#E69F00\"><title>main, trying from 2026-11-20 12:15:00 to 2026-11-20 12:30:00 (15 min): "
                    + "because of reset</title></rect>"))
        // Two spans and their mark in the legend.
        #expect(count("fill=\"#009E73\"", in: svg) == 3)
        #expect(svg.contains("main: connected 75.00 % of the time, 1 outage."))
        #expect(svg.contains(">12:30</text>"))
    }

    @Test func `a short span is a pixel wide`() {
        let svg = svg(
            timeline(
                [entry(15, .connected, .reconnecting), entry(15.001, .reconnecting, .connected)],
                earlier: [entry(-1, .connecting, .connected)]))
        #expect(svg.contains("width=\"1\" height=\"16.5\" fill=\"#E69F00\""))
    }

    @Test(arguments: [
        ("a<b>&\"c\"", "a&lt;b&gt;&amp;&quot;c&quot;"), ("\u{1B}[31m\u{0}", "\u{FFFD}[31m\u{FFFD}"),
        ("Grüße ✓", "Grüße ✓"), ("\u{FFFF}", "\u{FFFD}"),
    ])
    func `foreign text cannot become markup`(_ text: String, _ escaped: String) {
        #expect(TimelineDrawing.escaped(text) == escaped)
    }

    @Test func `a picture without sessions is drawn`() {
        #expect(svg(timeline([], sessions: [])).contains("No outages"))
    }
}

struct HistoryArgumentTests {
    @Test(
        arguments: [
            ("24h", .span(86_400)), ("90min", .span(5400)),
            ("2026-11-20T12:00:00Z", .time(Timestamp(rawValue: minute(0)))), ("never", nil), ("0s", nil),
            ("last week", nil), ("", nil),
        ] as [(String, SinceArgument?)])
    func `since is a span or a time`(_ text: String, _ expected: SinceArgument?) {
        #expect(SinceArgument(argument: text) == expected)
    }

    /// The clock of this host, which may be anywhere.
    private static func local(_ time: Timestamp?) -> [Int32]? {
        guard let time else { return nil }
        var (seconds, fields) = (time_t(time.rawValue / 1000), tm())
        localtime_r(&seconds, &fields)
        return [fields.tm_year + 1900, fields.tm_mon + 1, fields.tm_mday, fields.tm_hour, fields.tm_min, fields.tm_sec]
    }

    @Test(
        arguments: [
            ("2026-11-20 09:05:07", [2026, 11, 20, 9, 5, 7]), ("2026-11-20T09:05", [2026, 11, 20, 9, 5, 0]),
            ("2026-11-20", [2026, 11, 20, 0, 0, 0]), ("16:30", [2026, 12, 1, 16, 30, 0]),
            ("today", [2026, 12, 1, 0, 0, 0]), ("yesterday", [2026, 11, 30, 0, 0, 0]),
            ("2026-02-30", nil), ("2026-11-20 24:00", nil), ("2026-11-20 9", nil), ("2026-11", nil), ("26-11-20", nil),
            ("2026-11-20 ", nil), ("12:60", nil), ("noon", nil), ("12:00 2026-11-20", nil),
        ] as [(String, [Int32]?)])
    func `a local time is what the commands print, or a part of it`(_ text: String, _ expected: [Int32]?) throws {
        let noon = try #require(LocalTime.time("2026-12-01 12:00", now: .now))
        #expect(Self.local(LocalTime.time(text, now: noon)) == expected)
    }

    @Test func `a span ends now`() {
        let now = Timestamp(rawValue: minute(60))
        #expect(SinceArgument.span(3600).start(before: now) == Timestamp(rawValue: minute(0)))
        #expect(SinceArgument.span(.greatestFiniteMagnitude).start(before: now) < now)
    }
}
