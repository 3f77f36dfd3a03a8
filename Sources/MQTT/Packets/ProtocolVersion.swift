/// A version of MQTT: the byte that CONNECT has for it (3.1.2.2). The two versions differ in what packets can express:
///
/// | | 5 | 3.1.1 |
/// | --- | --- | --- |
/// | properties | on most packets | none |
/// | reason codes | on every answer and on DISCONNECT | CONNACK has return codes 0 to 5, SUBACK 0x80 |
/// | the session's life | Session Expiry Interval | the server's discretion, or none with Clean Session |
/// | the server's goodbye | DISCONNECT | none: it closes the connection |
///
/// Section numbers in parentheses are those of MQTT 5, unless they say 3.1.1; most are the same in both.
public enum ProtocolVersion: UInt8, Hashable, Sendable, CaseIterable {
    /// MQTT 3.1.1 (OASIS Standard, 2014).
    case threeOneOne = 4
    /// MQTT 5 (OASIS Standard, 2019).
    case five = 5
}

extension ProtocolVersion: CustomStringConvertible {
    /// `5` or `3.1.1`.
    public var description: String {
        switch self {
        case .threeOneOne: "3.1.1"
        case .five: "5"
        }
    }
}
