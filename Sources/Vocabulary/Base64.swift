/// Base64 with padding (RFC 4648, 4), strict in what it reads.
package enum Base64 {
    private static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
    private static let padding = UInt8(ascii: "=")

    package static func encode(_ bytes: [UInt8]) -> String {
        var text: [UInt8] = []
        for start in stride(from: 0, to: bytes.count, by: 3) {
            let group = bytes[start..<min(start + 3, bytes.count)]
            let bits = group.reduce(UInt32(0)) { $0 << 8 | UInt32($1) } << UInt32(8 * (3 - group.count))
            for digit in 0..<4 {
                text.append(
                    digit <= group.count ? alphabet[Int(bits >> UInt32(18 - 6 * digit)) & 63] : padding)
            }
        }
        return String(decoding: text, as: UTF8.self)
    }

    /// - Returns: `nil` for everything that `encode` would not write.
    package static func decode(_ text: some StringProtocol) -> [UInt8]? {
        let digits = Array(text.utf8)
        guard digits.count % 4 == 0 else { return nil }
        var bytes: [UInt8] = []
        for start in stride(from: 0, to: digits.count, by: 4) {
            let group = digits[start..<start + 4]
            let values = group.prefix { $0 != padding }
            guard values.count >= 2, start + 4 == digits.count || values.count == 4 else { return nil }
            var bits: UInt32 = 0
            for digit in values {
                guard let value = alphabet.firstIndex(of: digit) else { return nil }
                bits = bits << 6 | UInt32(value)
            }
            bits <<= UInt32(6 * (4 - values.count))
            for index in 0..<values.count - 1 {
                bytes.append(UInt8(truncatingIfNeeded: bits >> UInt32(16 - 8 * index)))
            }
        }
        // This also refuses anything after the padding, and bits that belong to no byte.
        return encode(bytes).utf8.elementsEqual(digits) ? bytes : nil
    }
}
