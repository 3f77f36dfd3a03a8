package import ControlAPI

/// Tells one connection of a session from every other: presence carries it, so that a session that was closed without a
/// reason sees whether another device has connected since.
///
/// It says which client identifier the connection has, as a hash: only two connections of one client identifier throw each
/// other out.
package struct ConnectionMark: Hashable, Sendable, CustomStringConvertible {
    /// Of the client identifier.
    package let client: UInt32
    /// What makes the connection another one than those before.
    package let number: String

    /// - Parameters:
    ///   - time: the moment, so that a number that comes again is another mark. It is never compared with another host's.
    ///   - random: any number.
    package init(clientID: String, time: RFC3339, random: UInt64) {
        client = Self.hash(clientID)
        number = String(UInt64(bitPattern: time.milliseconds), radix: 16) + String(random, radix: 16)
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
