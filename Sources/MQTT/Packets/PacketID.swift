/// A packet identifier, 1...65,535 (2.2.1). Zero is not an identifier and cannot be represented.
public struct PacketID: RawRepresentable, Hashable, Comparable, Sendable {
    /// The value on the wire, never 0.
    public let rawValue: UInt16

    /// `nil` for 0.
    public init?(rawValue: UInt16) {
        guard rawValue != 0 else { return nil }
        self.rawValue = rawValue
    }

    public static func < (left: PacketID, right: PacketID) -> Bool { left.rawValue < right.rawValue }
}

extension PacketID: CustomStringConvertible {
    public var description: String { "\(rawValue)" }
}
