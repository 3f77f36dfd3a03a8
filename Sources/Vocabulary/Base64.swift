import FoundationEssentials

/// Base64 with padding (RFC 4648, 4), strict in what it reads.
package enum Base64 {
    package static func encode(_ bytes: [UInt8]) -> String { Data(bytes).base64EncodedString() }

    /// - Returns: `nil` for everything that `encode` would not write.
    package static func decode(_ text: some StringProtocol) -> [UInt8]? {
        // Foundation ignores bits that belong to no byte.
        guard let data = Data(base64Encoded: String(text)), data.base64EncodedString() == text else { return nil }
        return Array(data)
    }
}
