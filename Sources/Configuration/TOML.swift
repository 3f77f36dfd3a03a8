import Vocabulary

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

    static func duration(_ duration: Duration) -> String { "\"\(duration.text)\"" }

    /// - Parameter bytes: at least 0.
    static func size(_ bytes: Int) -> String {
        let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")]
        let unit = units.first { bytes != 0 && bytes % $0.0 == 0 } ?? (1, "B")
        return "\"\(bytes / unit.0)\(unit.1)\""
    }
}
