import ControlAPI

/// A timeline as a self-contained picture: an SVG file without scripts, fonts or references.
///
/// The colours are those of Okabe and Ito, which people with any colour vision can tell apart; the heights of the bars
/// convey the same without colour.
struct TimelineDrawing {
    var timeline: Timeline
    /// Seconds that the local clock is ahead of UTC.
    var offset: Int64

    private static let width = 960
    private static let margin = 24
    private static let rowHeight = 36
    private static let barHeight = 22
    private static let top = 76

    private var nameWidth: Int { min(max((timeline.rows.map(\.session.count).max() ?? 0) * 8, 64), 240) + 12 }
    private var left: Int { Self.margin + nameWidth }
    private var right: Int { Self.width - Self.margin - 72 }
    private var bottom: Int { Self.top + Self.rowHeight * max(timeline.rows.count, 1) }
    private var height: Int { bottom + 84 }

    var svg: String {
        let title = "Sessions from \(date(timeline.start)) to \(date(timeline.end))"
        var lines = [
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"\(Self.width)\" height=\"\(height)\" "
                + "viewBox=\"0 0 \(Self.width) \(height)\" role=\"img\" aria-labelledby=\"title description\" "
                + "font-family=\"sans-serif\" font-size=\"13\" fill=\"#222222\">",
            "<title id=\"title\">\(Self.escaped(title))</title>",
            "<desc id=\"description\">\(Self.escaped(description))</desc>",
            "<rect width=\"\(Self.width)\" height=\"\(height)\" fill=\"#FFFFFF\"/>",
            text(Self.margin, 32, title, " font-size=\"17\" font-weight=\"bold\""),
            text(Self.margin, 53, summary, " fill=\"#555555\""),
        ]
        lines += axis
        for (index, row) in timeline.rows.enumerated() { lines += drawn(row, top: Self.top + Self.rowHeight * index) }
        lines += legend
        lines.append("</svg>")
        return lines.joined(separator: "\n") + "\n"
    }

    private var summary: String {
        let count = timeline.outages.count
        return count == 0 ? "No outages" : count == 1 ? "1 outage" : "\(count) outages"
    }

    /// The picture in words, one sentence per session, for people who cannot see it.
    private var description: String {
        timeline.rows.map { row in
            let part = row.availability.map { "connected \(TimelineText.percent($0)) of the time" } ?? "unknown"
            return "\(row.session): \(part), \(row.outages.count) outage\(row.outages.count == 1 ? "" : "s")."
        }.joined(separator: " ")
    }

    private func drawn(_ row: Timeline.Row, top: Int) -> [String] {
        let baseline = top + (Self.rowHeight + Self.barHeight) / 2
        var lines = [
            text(left - 12, baseline - 6, row.session, " text-anchor=\"end\""),
            text(
                Self.width - Self.margin, baseline - 6, row.availability.map(TimelineText.percent) ?? "–",
                " text-anchor=\"end\""),
        ]
        // The spans without a connection are drawn last, and every span at least a pixel wide, so that short ones can
        // be seen.
        let spans = row.spans.sorted { ($0.condition == .connected ? 0 : 1) < ($1.condition == .connected ? 0 : 1) }
        for span in spans {
            let (from, to) = (x(span.start), x(span.end))
            let height = Double(Self.barHeight) * span.condition.look.height
            let reason = span.reason.map { ": \($0)" } ?? ""
            let tip =
                "\(row.session), \(span.condition.look.name) from \(date(span.start)) to \(date(span.end)) "
                + "(\(TimeText.duration(Double(span.end - span.start) / 1000)))\(reason)"
            lines.append(
                "<rect x=\"\(Self.number(from))\" y=\"\(Self.number(Double(baseline) - height))\" "
                    + "width=\"\(Self.number(max(to - from, 1)))\" height=\"\(Self.number(height))\" "
                    + "fill=\"\(span.condition.look.colour)\"><title>\(Self.escaped(tip))</title></rect>")
        }
        return lines
    }

    private var axis: [String] {
        let scale = TimeScale(
            start: timeline.start, end: timeline.end, maximumCount: (right - left) / 64, offset: offset)
        var lines = scale.ticks.flatMap { tick in
            let position = Self.number(x(tick.time))
            return [
                "<line x1=\"\(position)\" y1=\"\(Self.top)\" x2=\"\(position)\" y2=\"\(bottom + 5)\" "
                    + "stroke=\"#DDDDDD\"/>",
                "<text x=\"\(position)\" y=\"\(bottom + 20)\" text-anchor=\"middle\" font-size=\"12\" "
                    + "fill=\"#555555\">\(Self.escaped(tick.label))</text>",
            ]
        }
        lines.append("<line x1=\"\(left)\" y1=\"\(bottom)\" x2=\"\(right)\" y2=\"\(bottom)\" stroke=\"#888888\"/>")
        return lines
    }

    private var legend: [String] {
        var position = left
        let used = Set(timeline.rows.flatMap { $0.spans.map(\.condition) })
        return Timeline.Condition.allCases.filter(used.contains).flatMap { condition in
            defer { position += 34 + condition.look.name.count * 8 }
            let height = 14 * condition.look.height
            return [
                "<rect x=\"\(position)\" y=\"\(Self.number(Double(bottom + 60) - height))\" width=\"14\" "
                    + "height=\"\(Self.number(height))\" fill=\"\(condition.look.colour)\"/>",
                text(position + 20, bottom + 58, condition.look.name, " font-size=\"12\""),
            ]
        }
    }

    private func text(_ x: Int, _ y: Int, _ text: String, _ attributes: String = "") -> String {
        "<text x=\"\(x)\" y=\"\(y)\"\(attributes)>\(Self.escaped(text))</text>"
    }

    private func x(_ time: Int64) -> Double {
        let part = Double(time - timeline.start) / Double(max(timeline.end - timeline.start, 1))
        return Double(left) + part * Double(right - left)
    }

    private func date(_ time: Int64) -> String { Timestamp(rawValue: time).dateAndTime(offset: offset) }

    /// Returns a number with at most two digits after the point.
    private static func number(_ value: Double) -> String {
        let hundredths = Int((value * 100).rounded())
        let (whole, rest) = (hundredths / 100, hundredths % 100)
        if rest == 0 { return "\(whole)" }
        return rest % 10 == 0 ? "\(whole).\(rest / 10)" : "\(whole).\(rest / 10)\(rest % 10)"
    }

    /// Makes text from servers and users safe for XML.
    static func escaped(_ text: String) -> String {
        var escaped = ""
        for character in printable(text).unicodeScalars {
            switch character {
            case "&": escaped += "&amp;"
            case "<": escaped += "&lt;"
            case ">": escaped += "&gt;"
            case "\"": escaped += "&quot;"
            // XML does not allow these characters, not even escaped.
            case "\u{FFFE}", "\u{FFFF}": escaped += "\u{FFFD}"
            default: escaped.unicodeScalars.append(character)
            }
        }
        return escaped
    }
}

extension Timeline.Condition {
    /// The height is a fraction of the full bar.
    fileprivate var look: (name: String, colour: String, height: Double) {
        switch self {
        case .connected: ("connected", "#009E73", 1)
        case .trying: ("trying", "#E69F00", 0.75)
        case .offline: ("no network", "#56B4E9", 0.5)
        case .down: ("down", "#D55E00", 0.3)
        case .unknown: ("unknown", "#BBBBBB", 0.12)
        }
    }
}
