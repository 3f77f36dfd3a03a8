/// Values as a configuration file writes them.
enum TOML {
    static let never = "\"never\""

    /// A basic string: toml.io, v1.0.0, "String".
    static func text(_ text: String) -> String {
        var written = ""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"", "\\": written += "\\\(scalar)"
            case "\n": written += "\\n"
            case "\t": written += "\\t"
            default: written.unicodeScalars.append(scalar)
            }
        }
        return "\"\(written)\""
    }

    /// With the greatest unit that leaves a whole number.
    static func duration(_ duration: Duration) -> String {
        let (seconds, attoseconds) = duration.components
        guard attoseconds == 0 else { return quoted(seconds * 1000 + attoseconds / 1_000_000_000_000_000, "ms") }
        let units: [(Int64, String)] = [(86_400, "d"), (3600, "h"), (60, "min")]
        let unit = units.first { seconds != 0 && seconds % $0.0 == 0 && ($0.1 != "d" || seconds > 86_400) } ?? (1, "s")
        return quoted(seconds / unit.0, unit.1)
    }

    /// - Parameter bytes: at least 0.
    static func size(_ bytes: Int) -> String {
        let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")]
        let unit = units.first { bytes != 0 && bytes % $0.0 == 0 } ?? (1, "B")
        return quoted(Int64(bytes / unit.0), unit.1)
    }

    private static func quoted(_ number: Int64, _ unit: String) -> String { "\"\(number)\(unit)\"" }
}
