package import ControlAPI

/// Distinguishes one connection of a session from all others. Presence carries it, so that a session whose connection
/// was closed without a reason sees whether another device has connected since.
///
/// It contains a hash of the connection's client identifier: only connections with the same client identifier displace
/// each other.
package struct ConnectionMark: Hashable, Sendable, CustomStringConvertible {
    /// The hash of the client identifier.
    package let client: UInt32
    /// Distinguishes the connection from all others with the same client identifier.
    package let number: String

    /// - Parameters:
    ///   - time: the current time, so that a repeated random number still gives another mark. It is never compared with
    ///     another host's.
    ///   - random: any number.
    package init(clientID: String, time: Timestamp, random: UInt64) {
        client = Self.hash(clientID)
        number = String(UInt64(bitPattern: time.rawValue), radix: 16) + String(random, radix: 16)
    }

    /// Reads what ``description`` writes.
    package init?(_ text: String) {
        let parts = text.split(separator: "-", omittingEmptySubsequences: false)
        guard parts.count == 2, let client = UInt32(parts[0], radix: 16), (1...64).contains(parts[1].utf8.count) else {
            return nil
        }
        self.client = client
        number = String(parts[1])
    }

    package var description: String { "\(String(client, radix: 16))-\(number)" }

    /// FNV-1a.
    package static func hash(_ text: String) -> UInt32 {
        text.utf8.reduce(2_166_136_261) { ($0 ^ UInt32($1)) &* 16_777_619 }
    }
}
