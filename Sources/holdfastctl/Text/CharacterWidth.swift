// How many columns of a terminal text takes. wcwidth(3) knows it only in a UTF-8 locale, and a service or a script often
// has none.

extension StringProtocol {
    /// How many columns a terminal uses for a text without escape sequences.
    var columns: Int { reduce(0) { $0 + $1.columns } }
}

extension Character {
    /// How many columns a terminal uses for it: 0, 1 or 2. The parts of a letter with accents, or of an emoji, share the
    /// columns of the widest part.
    var columns: Int { isASCII ? 1 : unicodeScalars.map(\.columns).max() ?? 0 }
}

extension Unicode.Scalar {
    /// The East Asian letters of two columns: those that Unicode's EastAsianWidth.txt calls wide or full-width, in few
    /// ranges. Emojis are added by their property.
    private static let wide: [ClosedRange<UInt32>] = [
        0x1100...0x115F, 0x2329...0x232A, 0x2E80...0x303E, 0x3041...0xA4CF, 0xA960...0xA97F, 0xAC00...0xD7A3,
        0xF900...0xFAFF, 0xFE10...0xFE19, 0xFE30...0xFE6F, 0xFF01...0xFF60, 0xFFE0...0xFFE6, 0x16FE0...0x18DFF,
        0x1AFF0...0x1B2FF, 0x1F200...0x1F265, 0x20000...0x3FFFD,
    ]

    fileprivate var columns: Int {
        switch properties.generalCategory {
        case .nonspacingMark, .enclosingMark: return 0
        // Terminals show a soft hyphen.
        case .format where value != 0xAD: return 0
        default: break
        }
        // The vowels and final consonants of a Korean syllable are drawn into the columns of its first consonant.
        if (0x1160...0x11FF).contains(value) { return 0 }
        return properties.isEmojiPresentation || Self.wide.contains(where: { $0.contains(value) }) ? 2 : 1
    }
}
