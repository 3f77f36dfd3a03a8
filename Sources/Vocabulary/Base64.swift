import FoundationEssentials

/// Base64 with padding (RFC 4648, 4), strict in what it reads.
package enum Base64 {
    package static func encode(_ bytes: [UInt8]) -> String { Data(bytes).base64EncodedString() }

    /// - Returns: `nil` for everything that `encode` would not write.
    package static func decode(_ text: some StringProtocol) -> [UInt8]? { decode(utf8: text.utf8) }

    /// - Returns: `nil` for everything that `encode` would not write.
    package static func decode(utf8 text: some Collection<UInt8>) -> [UInt8]? {
        let text = Data(text)
        // Foundation ignores bits that belong to no byte, and accepts padding in other places.
        guard let data = Data(base64Encoded: text), data.base64EncodedData() == text else { return nil }
        return Array(data)
    }
}
