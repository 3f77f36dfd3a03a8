extension String {
    /// The first control character or Unicode noncharacter other than U+0000. MQTT advises against both in any string,
    /// and lets a receiver close the connection for one (1.5.4).
    var discouragedCharacter: Unicode.Scalar? {
        guard utf8.contains(where: { $0 < 0x20 || $0 >= 0x7F }) else { return nil }
        return unicodeScalars.first { $0.isControlCharacter || $0.isNonCharacter }
    }
}

extension Unicode.Scalar {
    /// U+0001 to U+001F and U+007F to U+009F.
    var isControlCharacter: Bool { (0x01...0x1F).contains(value) || (0x7F...0x9F).contains(value) }

    /// U+FDD0 to U+FDEF, and the last two of each plane, such as U+FFFE.
    var isNonCharacter: Bool { (0xFDD0...0xFDEF).contains(value) || value & 0xFFFE == 0xFFFE }

    /// As the standard writes it, for example `U+000A`.
    var codePoint: String {
        let digits = String(value, radix: 16, uppercase: true)
        return "U+" + String(repeating: "0", count: max(0, 4 - digits.count)) + digits
    }
}
