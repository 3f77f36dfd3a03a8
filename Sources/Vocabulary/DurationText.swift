/// A number and its unit, as written in files and on command lines: `250ms`, `64MiB`.
package enum Quantity {
    /// Parses digits followed by a unit, and nothing else.
    ///
    /// - Parameter units: the units, each with the number of smallest units in it.
    /// - Returns: the quantity in the smallest unit; `nil` if the text has another form or the number is too large.
    package static func parse(_ text: some StringProtocol, units: [(name: String, factor: Int)]) -> Int? {
        let digits = text.prefix { $0.isASCII && $0.isNumber }
        let unit = text.dropFirst(digits.count)
        guard let number = Int(digits), let factor = units.first(where: { $0.name == unit })?.factor else { return nil }
        let (product, overflow) = number.multipliedReportingOverflow(by: factor)
        return overflow ? nil : product
    }
}

extension Duration {
    private static let units = [("ms", 1), ("s", 1000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000)]

    /// Reads a duration with a unit: `250ms`, `15s`, `20min`, `24h`, `7d`.
    package init?(text: some StringProtocol) {
        guard let milliseconds = Quantity.parse(text, units: Self.units) else { return nil }
        self = .milliseconds(milliseconds)
    }

    /// The text that ``init(text:)`` reads, with the greatest unit that leaves a whole number.
    package var text: String {
        let (seconds, attoseconds) = components
        guard attoseconds == 0 else { return "\(wholeMilliseconds)ms" }
        let units: [(Int64, String)] = [(86_400, "d"), (3600, "h"), (60, "min")]
        // Exactly one day is written as 24 hours.
        let unit = units.first { seconds != 0 && seconds % $0.0 == 0 && ($0.1 != "d" || seconds > 86_400) } ?? (1, "s")
        return "\(seconds / unit.0)\(unit.1)"
    }
}

extension Duration {
    /// The whole duration in nanoseconds; saturates at ±292 years.
    public var nanoseconds: Int64 {
        let (seconds, attoseconds) = components
        let limit: Int64 = seconds < 0 ? .min : .max
        let (product, overflow) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
        let (sum, overflowOfSum) = product.addingReportingOverflow(attoseconds / 1_000_000_000)
        return overflow || overflowOfSum ? limit : sum
    }

    /// The whole duration in seconds, as the control socket writes durations.
    public var seconds: Double {
        let (seconds, attoseconds) = components
        return Double(seconds) + Double(attoseconds) / 1e18
    }

    /// The whole duration in milliseconds; what is below one is cut off.
    package var wholeMilliseconds: Int64 {
        let (seconds, attoseconds) = components
        return seconds * 1000 + attoseconds / 1_000_000_000_000_000
    }
}
