/// The packet identifiers of one session: one space for PUBLISH, SUBSCRIBE and UNSUBSCRIBE that we send (2.2.1).
///
/// Identifiers are given out in turn, so that a freed one stays unused for as long as possible.
struct PacketIDAllocator: Sendable {
    /// One bit for each identifier that is in use. Empty words are left out: most sessions use few identifiers at once.
    private var used: [Int: UInt64] = [:]
    /// The identifier that was given out last.
    private var last: UInt16 = 0

    init() {}

    /// The next free identifier, from now on in use; `nil` if all 65,535 are.
    mutating func allocate() -> PacketID? {
        var candidate = Int(last) + 1
        // One more than there are words: the first one is visited again for the bits below the start.
        for _ in 0...1024 {
            // 0 is not an identifier.
            if candidate > 0xFFFF { candidate = 1 }
            let free = ~(used[candidate >> 6] ?? 0) & (~0 << UInt64(candidate & 63))
            if free != 0 {
                let value = UInt16(candidate & ~63 | free.trailingZeroBitCount)
                guard let id = PacketID(rawValue: value) else { return nil }
                last = value
                reserve(id)
                return id
            }
            candidate = (candidate & ~63) + 64
        }
        return nil
    }

    /// Marks an identifier as in use: one that was durable when the daemon started.
    mutating func reserve(_ id: PacketID) {
        used[Int(id.rawValue) >> 6, default: 0] |= 1 << UInt64(id.rawValue & 63)
    }

    /// Continues after this identifier, so that identifiers used before a restart stay unused as well.
    mutating func resume(after id: PacketID) {
        last = id.rawValue
    }

    mutating func free(_ id: PacketID) {
        guard let place = used.index(forKey: Int(id.rawValue) >> 6) else { return }
        used.values[place] &= ~(1 << UInt64(id.rawValue & 63))
        if used.values[place] == 0 { used.remove(at: place) }
    }

    /// Frees all identifiers; the order in which they are used continues.
    mutating func freeAll() {
        used = [:]
    }

    func isUsed(_ id: PacketID) -> Bool {
        (used[Int(id.rawValue) >> 6] ?? 0) & (1 << UInt64(id.rawValue & 63)) != 0
    }
}

/// The packet identifiers of a session, and what the server may still hold under them.
struct Identifiers: Sendable {
    var allocator = PacketIDAllocator()
    /// Identifiers under which the server may hold a message of QoS 2 that is not known here.
    var suspects: Set<PacketID>
    /// Identifiers of messages that the server owns, and that were dropped here before they were released.
    var unreleased: Set<PacketID> = []
    /// Whether there are identifiers that the server may hold on to although nothing is in flight with them.
    var hasRetired: Bool
    /// Whether the server was asked to release the suspects.
    var hasAskedAboutSuspects = false
    /// How many identifiers the server called in use that were free here, since the session began.
    var clashes = 0

    /// - Parameter inUse: those of the messages in flight, in the order in which they were given out.
    init(_ durable: DurableSession, inUse: [PacketID]) {
        suspects = durable.suspectIDs
        hasRetired = !durable.retiredIDs.isEmpty
        for id in durable.suspectIDs { allocator.reserve(id) }
        for id in durable.retiredIDs { allocator.reserve(id) }
        for id in inUse { allocator.reserve(id) }
        if let last = inUse.last { allocator.resume(after: last) }
    }
}
