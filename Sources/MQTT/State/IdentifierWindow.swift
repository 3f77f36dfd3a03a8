/// Packet identifiers that are reserved ahead for messages of QoS 2.
///
/// A store that loses its last moments when the power fails must not forget that an identifier was used. The server may
/// still hold a message under it, and would treat a new one as its duplicate. So identifiers are reserved in blocks. A
/// block, and everything before it, is certain to be on the disk before its first identifier is used; after a loss,
/// exactly the identifiers of the last block are suspect.
public struct IdentifierWindow: Hashable, Sendable {
    /// How many identifiers are reserved at once: one flush of the disk pays for this many messages.
    public static let size = 512
    private static let all = Int(UInt16.max)

    /// The first identifier; 0 for a window that has none.
    public private(set) var first: UInt16
    /// How many identifiers it has, 0 to 65,535.
    public private(set) var count: Int

    /// - Parameters:
    ///   - first: 0 creates a window without identifiers.
    ///   - count: limited to 0 to 65,535. 1 follows after 65,535.
    public init(first: UInt16 = 0, count: Int = 0) {
        self.first = first
        self.count = first == 0 ? 0 : max(0, min(count, Self.all))
    }

    /// Whether the identifier is reserved.
    public func contains(_ id: PacketID) -> Bool {
        count > 0 && (Int(id.rawValue) - Int(first) + Self.all) % Self.all < count
    }

    /// Makes room for an identifier that is about to be used.
    ///
    /// - Returns: whether the window has changed, and has to be flushed to the disk.
    public mutating func reserve(_ id: PacketID) -> Bool {
        guard !contains(id) else { return false }
        self = IdentifierWindow(first: id.rawValue, count: Self.size)
        return true
    }

    /// All of them, in order.
    public var identifiers: [PacketID] {
        (0..<count).compactMap { PacketID(rawValue: UInt16((Int(first) - 1 + $0) % Self.all + 1)) }
    }
}

/// Numbers that are reserved ahead, so that none is used again after the store has lost its last moments.
public enum ReservedSequence {
    /// How many are reserved at once.
    public static let block: Int64 = 4096
}
