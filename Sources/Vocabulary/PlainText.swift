extension StringProtocol {
    /// The text as one line that is safe to show in the journal, a terminal or a status, no matter who wrote it.
    ///
    /// Line breaks and tabs become spaces. Every other control character (C0, DEL, C1), and the marks that change the
    /// direction of what follows, become U+FFFD.
    ///
    /// - Parameter limit: how many Unicode scalars to keep; if there were more, the last one is an ellipsis.
    public func plain(atMost limit: Int = 500) -> String {
        var shown = String.UnicodeScalarView()
        var count = 0
        for scalar in unicodeScalars {
            count += 1
            guard count <= limit else {
                shown.removeLast()
                shown.append("…")
                break
            }
            shown.append(scalar.plain)
        }
        return String(shown)
    }
}

extension Unicode.Scalar {
    /// Whether it is safe to show as it stands.
    public var isPlain: Bool { plain == self }

    /// What replaces it in plain text.
    fileprivate var plain: Unicode.Scalar {
        switch value {
        case 0x09...0x0D, 0x85, 0x2028, 0x2029: " "
        case 0..<0x20, 0x7F...0x9F, 0x061C, 0x200E, 0x200F, 0x202A...0x202E, 0x2066...0x2069: "\u{FFFD}"
        default: self
        }
    }
}
