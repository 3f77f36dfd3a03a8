import ControlAPI

/// How times are shown: as spans relative to now, or as local dates.
struct TimeText {
    var now: Timestamp
    /// Seconds that the local clock is ahead of UTC.
    var offset: Int64 = 0
    var isAbsolute = false

    /// "for 3 h" or "since 2026-11-20 09:12:44".
    func span(since time: Timestamp) -> String {
        isAbsolute ? "since \(date(time))" : "for \(Self.duration(now.seconds(since: time)))"
    }

    /// "5 min ago" or "at 2026-11-20 09:12:44".
    func moment(_ time: Timestamp) -> String {
        isAbsolute ? "at \(date(time))" : "\(Self.duration(now.seconds(since: time))) ago"
    }

    /// "in 12 s" or "at 2026-11-20 09:12:44".
    func later(_ seconds: Double) -> String {
        guard isAbsolute, seconds.isFinite, abs(seconds) < 1e9 else { return "in \(Self.duration(seconds))" }
        return "at \(date(now.advanced(by: Int64(seconds * 1000))))"
    }

    /// The same for a time instead of a span from now.
    func later(_ time: Timestamp) -> String { isAbsolute ? moment(time) : later(time.seconds(since: now)) }

    private func date(_ time: Timestamp) -> String { time.dateAndTime(offset: offset) }

    /// For example `23 ms`, `12 s`, `3 min 20 s`, `25 min`, `3 h`, `2 d 4 h`. Negative spans are `0 s`.
    static func duration(_ seconds: Double) -> String {
        guard seconds > 0, seconds < 1e12 else { return seconds > 0 ? "forever" : "0 s" }
        if seconds < 0.000_05 { return shortest }
        if seconds < 0.0095 { return number(seconds * 1000) + " ms" }
        if seconds < 0.9995 { return "\(Int((seconds * 1000).rounded())) ms" }
        // Rounds down: "for 1 min" is said only when a minute has passed.
        let whole = Int(seconds)
        switch whole {
        case ..<60: return "\(max(whole, 1)) s"
        case ..<600: return join(whole / 60, "min", whole % 60, "s")
        case ..<3600: return "\(whole / 60) min"
        case ..<86_400: return join(whole / 3600, "h", whole / 60 % 60, "min")
        default: return join(whole / 86_400, "d", whole / 3600 % 24, "h")
        }
    }

    static let shortest = "under 0.1 ms"

    private static func join(_ major: Int, _ unit: String, _ minor: Int, _ smaller: String) -> String {
        minor == 0 ? "\(major) \(unit)" : "\(major) \(unit) \(minor) \(smaller)"
    }

    /// One digit after the point, unless it is zero.
    private static func number(_ value: Double) -> String {
        let tenths = Int((value * 10).rounded())
        return tenths % 10 == 0 ? "\(tenths / 10)" : "\(tenths / 10).\(tenths % 10)"
    }

    /// For example `512 B`, `1.5 KiB`, `64 MiB`.
    static func size(_ bytes: Int64) -> String {
        var value = Double(bytes)
        for unit in ["B", "KiB", "MiB", "GiB"] {
            if value < 1024 { return number(value) + " " + unit }
            value /= 1024
        }
        return number(value) + " TiB"
    }
}

extension Timestamp {
    /// "2026-11-20 09:12:44", by a clock that is ahead of UTC by this many seconds.
    func dateAndTime(offset: Int64) -> String { date(offset: offset) + " " + time(offset: offset).prefix(8) }
}
