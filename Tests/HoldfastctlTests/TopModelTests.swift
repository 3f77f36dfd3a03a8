import ControlAPI
import Testing

@testable import holdfastctl

struct TopModelTests {
    private static let start: Int64 = 1_795_165_964_120

    private static func status(
        _ name: String, _ state: SessionState = .connected, rtt: Double? = 0.02, published: Int64 = 0
    ) -> SessionStatus {
        var status = SessionStatus(
            session: name, state: state, since: Timestamp(rawValue: start - 5000),
            reason: .init(code: "refused", group: "network", terminal: false, message: "no"))
        status.endpoint = "mqtts://broker.example:8883"
        (status.quality, status.rtt, status.counters.published) = (.good, rtt, published)
        return status
    }

    private static func time(_ seconds: Double) -> Timestamp {
        Timestamp(rawValue: start + Int64(seconds * 1000))
    }

    private static func lines(
        _ model: TopModel, width: Int = 140, height: Int = 10, isColoured: Bool = false
    ) -> [String] {
        model.lines(times: TimeText(now: time(0)), width: width, height: height, isColoured: isColoured)
    }

    @Test func `sessions are in natural order, with the selected one marked`() {
        var model = TopModel()
        model.take([Self.status("gw-10"), Self.status("gw-2", .reconnecting, rtt: nil)], at: Self.time(0))
        let lines = Self.lines(model)
        #expect(lines.count == 10)
        #expect(lines[0].hasPrefix("2 sessions: 1 connected, 1 reconnecting (gw-2: refused)"))
        #expect(lines[3].hasPrefix("> gw-2     reconnecting  5 s"))
        #expect(lines[3].hasSuffix("refused"))
        #expect(lines[4].hasPrefix("  gw-10    connected     5 s"))
        #expect(lines[4].hasSuffix("mqtts://broker.example:8883"))
        #expect(lines[9].contains("q quit"))
    }

    @Test func `keys move the selection and run their commands`() {
        var model = TopModel()
        model.take([Self.status("a"), Self.status("b")], at: Self.time(0))
        #expect(model.press(.letter("r")) == .reconnect("a"))
        #expect(model.press(.up) == nil)
        #expect(model.press(.down) == nil)
        #expect(model.press(.letter("j")) == nil)
        #expect(model.press(.letter("c")) == .connect("b"))
        #expect(model.press(.letter("d")) == .disconnect("b"))
        #expect(model.press(.enter) == .history("b"))
        #expect(model.press(.letter("x")) == nil)
        #expect(model.press(.letter("q")) == .quit)
        // When the selected session is gone, the first one is selected.
        model.take([Self.status("a")], at: Self.time(1))
        #expect(model.press(.letter("h")) == .history("a"))
    }

    @Test func `rates are those since the last sample, and not below zero after a restart`() {
        var model = TopModel()
        model.take([Self.status("a", published: 10)], at: Self.time(0))
        model.take([Self.status("a", published: 15)], at: Self.time(2))
        #expect(Self.lines(model)[3].contains("  2.5    0 "))
        // A status in between does not change the rates.
        model.take([Self.status("a", published: 1000)], at: Self.time(2.1))
        #expect(Self.lines(model)[3].contains("  2.5    0 "))
        model.take([Self.status("a", published: 3)], at: Self.time(4))
        #expect(Self.lines(model)[3].contains("  0      0 "))
        // The clock is set back, and goes on.
        model.take([Self.status("a", published: 4)], at: Self.time(-3600))
        model.take([Self.status("a", published: 9)], at: Self.time(-3598))
        #expect(Self.lines(model)[3].contains("  2.5    0 "))
    }

    @Test(
        arguments: [
            ([], String(repeating: " ", count: 20)),
            ([.lost, .poor, nil, .good, .excellent], String(repeating: " ", count: 15) + "▁▃·▅█"),
        ] as [([Quality?], String)])
    func `a sparkline is the longer the better the quality`(_ values: [Quality?], _ drawn: String) {
        #expect(TopModel.sparkline(values) == drawn)
    }

    @Test func `the sparkline shows a loss of quality and of the connection`() {
        var model = TopModel()
        var status = Self.status("a")
        model.take([status], at: Self.time(0))
        status.quality = .lost
        model.take([status], at: Self.time(1))
        model.take([Self.status("a", .reconnecting)], at: Self.time(2))
        #expect(Self.lines(model)[3].contains(" ▅▁· "), "\(Self.lines(model))")
    }

    @Test func `a history that is longer than the screen is scrolled, and says so`() {
        var view = ScrolledLines((1...20).map { "line \($0)" })
        #expect(view.shown(height: 50).last == "Press any key to go back.")
        #expect(
            view.shown(height: 5) == [
                "line 1", "line 2", "line 3", "", "↑↓ scroll (1 to 3 of 20 lines); any other key goes back",
            ])
        for key in [LiveKey.down, .letter("j"), .up] {
            let isScrolling = view.press(key, height: 5)
            #expect(isScrolling)
        }
        #expect(view.shown(height: 5).first == "line 2")
        for _ in 1...50 { _ = view.press(.down, height: 5) }
        #expect(view.shown(height: 5)[2] == "line 20")
        #expect(view.shown(height: 50).first == "line 1", "the screen is larger now")
        let isScrolling = view.press(.escape, height: 5)
        #expect(!isScrolling)
    }

    @Test func `where there is no room for all sessions, those come first that are not connected`() {
        let sessions = (1...9).map { number in
            (state: number == 8 ? SessionState.failed : .connected, lines: ["s-\(number)"])
        }
        func lines(_ room: Int) -> [String] {
            LiveLines.states(sessions, heading: ["all"], overview: ["some"], room: room)
        }
        #expect(lines(10) == ["all"] + (1...9).map { "s-\($0)" })
        #expect(lines(5) == ["some", "s-8", "s-1", "s-2", "… 6 more sessions; holdfastctl top shows all"])
        #expect(LiveLines.cut(["a", "b", "c"], to: 2) == ["a", "… 2 more lines"])
        #expect(LiveLines.cut(["a", "b"], to: 2) == ["a", "b"])
    }

    @Test func `a selection below the edge is scrolled to`() {
        var model = TopModel()
        model.take((1...50).map { Self.status("s-\($0)") }, at: Self.time(0))
        for _ in 0..<40 { _ = model.press(.down) }
        let lines = Self.lines(model)
        #expect(lines.count == 10)
        #expect(lines.contains { $0.hasPrefix("> s-41 ") })
    }

    @Test(arguments: [
        (200, ["SESSION", "STATE", "TIME", "PATH", "QUALITY", "RTT", "QUEUE", "OUT/s", "IN/s", "WHY"]),
        (80, ["SESSION", "STATE", "TIME", "PATH", "RTT", "QUEUE", "OUT/s", "IN/s", "WHY"]),
        (50, ["SESSION", "STATE", "QUEUE", "WHY"]), (30, ["SESSION", "STATE"]),
    ])
    func `a narrow terminal has the columns that matter most`(_ width: Int, _ headings: [String]) {
        var model = TopModel()
        model.take([Self.status("gw-1"), Self.status("gw-2", .reconnecting, rtt: nil)], at: Self.time(0))
        let lines = Self.lines(model, width: width)
        #expect(lines[2].split(separator: " ").map(String.init).filter { $0 != "…" } == headings)
        #expect(lines.dropFirst(2).dropLast().allSatisfy { $0.count <= max(width, 3) })
    }

    @Test func `a long name is cut before other columns are omitted for it`() {
        var model = TopModel()
        let name = "a-gateway-in-the-basement-of-the-plant-07"
        model.take([Self.status("gw-1"), Self.status(name)], at: Self.time(0))
        let lines = Self.lines(model, width: 80)
        #expect(lines[2].contains("QUEUE") && lines[2].contains("WHY"))
        #expect(lines.contains { $0.contains(" a-gatew") && $0.contains("…") && $0.contains("plant-07  connected") })
        #expect(Self.lines(model, width: 200).contains { $0.contains(name) })
    }

    @Test func `each session has one line however narrow the terminal is`() {
        var model = TopModel()
        model.take((1...9).map { Self.status("a-gateway-in-the-basement-0\($0)", .reconnecting) }, at: Self.time(0))
        for _ in 0..<9 { _ = model.press(.down) }
        for width in [1, 10, 18, 20, 31] {
            let lines = Self.lines(model, width: width, height: 8)
            #expect(lines.count == 8, "\(width): \(lines)")
        }
    }

    @Test func `the selected session is shown however few lines there are`() {
        var model = TopModel()
        model.take((1...9).map { Self.status("s-\($0)") }, at: Self.time(0))
        for _ in 0..<4 { _ = model.press(.down) }
        for height in 1...9 {
            let lines = Self.lines(model, height: height)
            #expect(lines.count == height)
            #expect(lines.contains { $0.hasPrefix("> s-5 ") }, "\(height)")
            #expect(lines.contains { $0.contains("q quit") } == (height > 1))
            #expect(lines.contains { $0.contains("SESSION") } == (height > 2))
            #expect(lines.contains { $0.hasPrefix("9 sessions") } == (height > 3))
        }
    }

    @Test func `top without sessions says so`() {
        var model = TopModel()
        model.take([], at: Self.time(0))
        #expect(Self.lines(model)[0].hasPrefix("No session is configured"))
        #expect(model.press(.letter("r")) == nil)
    }

    @Test(
        arguments: [
            ("q", [.letter("q")]), ("\u{1B}[A\u{1B}[B", [.up, .down]), ("\u{1B}OA", [.up]), ("\u{1B}", [.escape]),
            ("\r", [.enter]), ("\u{4}", [.letter("q")]), ("\u{1B}[5~", [.letter("~")]), ("\u{7}", []),
        ] as [(String, [LiveKey])])
    func `keys are read`(_ text: String, _ keys: [LiveKey]) {
        #expect(LiveKey.keys(Array(text.utf8)[...]) == keys)
    }

    @Test(
        arguments: [
            ("abcdef", 4, "abc…"), ("abcd", 4, "abcd"), ("\u{1B}[32m●\u{1B}[0m abc", 5, "\u{1B}[32m●\u{1B}[0m abc"),
            ("\u{1B}[32m●\u{1B}[0m abcd", 5, "\u{1B}[32m●\u{1B}[0m ab…\u{1B}[0m"),
            ("会議室", 6, "会議室"), ("会議室", 5, "会議…"), ("会議室", 4, "会…"), ("会議室", 2, "…"),
        ])
    func `a line is cut to the width, and colours take none`(_ line: String, _ width: Int, _ fitted: String) {
        #expect(Terminal.fitted(line, to: width) == fitted)
    }
}
