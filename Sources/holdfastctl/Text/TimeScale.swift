import ControlAPI

/// Ticks at round local times along a span.
struct TimeScale {
    struct Tick: Equatable {
        /// Milliseconds since 1970.
        var time: Int64
        var label: String
    }

    let ticks: [Tick]

    private static let steps: [Int64] = [
        1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 14_400, 21_600, 43_200, 86_400, 172_800,
        432_000, 864_000,
    ]

    /// - Parameters:
    ///   - maximumCount: how many labels there is room for.
    ///   - offset: seconds that the local clock is ahead of UTC.
    init(start: Int64, end: Int64, maximumCount: Int, offset: Int64) {
        let count = Int64(max(maximumCount, 1))
        guard end > start,
            let step = Self.steps.first(where: { (end - start) / ($0 * 1000) <= count }).map({ $0 * 1000 })
        else {
            ticks = []
            return
        }
        var local = start + offset * 1000
        let rest = ((local % step) + step) % step
        if rest > 0 { local += step - rest }
        var ticks: [Tick] = []
        while local - offset * 1000 < end {
            let time = local - offset * 1000
            ticks.append(Tick(time: time, label: Self.label(time, local: local, step: step, offset: offset)))
            local += step
        }
        self.ticks = ticks
    }

    /// Returns the time of day, or the date at the beginning of a day.
    private static func label(_ time: Int64, local: Int64, step: Int64, offset: Int64) -> String {
        let time = Timestamp(rawValue: time)
        if local % 86_400_000 == 0 { return String(time.date(offset: offset).suffix(5)) }
        return String(time.time(offset: offset).prefix(step < 60_000 ? 8 : 5))
    }
}
