/// A number and its unit, as files and command lines have them: `250ms`, `64MiB`.
package enum Quantity {
    /// Digits and a unit, nothing else.
    ///
    /// - Parameter units: with how many of the smallest they are.
    /// - Returns: how many of the smallest unit; `nil` also when that is too large a number.
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

    /// The text from which it is read, with the greatest unit that leaves a whole number.
    package var text: String {
        let (seconds, attoseconds) = components
        guard attoseconds == 0 else { return "\(seconds * 1000 + attoseconds / 1_000_000_000_000_000)ms" }
        let units: [(Int64, String)] = [(86_400, "d"), (3600, "h"), (60, "min")]
        // One day is 24 hours.
        let unit = units.first { seconds != 0 && seconds % $0.0 == 0 && ($0.1 != "d" || seconds > 86_400) } ?? (1, "s")
        return "\(seconds / unit.0)\(unit.1)"
    }
}
