/// The quality of service of a message or a subscription (MQTT 5, section 4.3).
public enum QoS: UInt8, Codable, Hashable, Comparable, Sendable, CaseIterable {
    /// QoS 0: never acknowledged, may be lost.
    case atMostOnce = 0
    /// QoS 1: sent again until acknowledged, may arrive twice.
    case atLeastOnce = 1
    /// QoS 2: arrives once.
    case exactlyOnce = 2

    public static func < (left: QoS, right: QoS) -> Bool { left.rawValue < right.rawValue }
}
