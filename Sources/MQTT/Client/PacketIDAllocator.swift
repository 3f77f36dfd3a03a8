/// The packet identifiers of one session: one space for PUBLISH, SUBSCRIBE and UNSUBSCRIBE that we send (2.2.1).
///
/// Identifiers are given out in turn, so that a freed one stays unused for as long as possible.
struct PacketIDAllocator: Sendable {
    /// One bit for each identifier that is in use. Empty words are left out: most sessions use few identifiers at once.
    private var used: [Int: UInt64] = [:]
    /// The identifier that was given out last in turn.
    private(set) var last: UInt16 = 0

    /// The next free identifier, from now on in use; `nil` if all 65,535 are.
    mutating func allocate() -> PacketID? {
        guard let id = allocate(after: last) else { return nil }
        last = id.rawValue
        return id
    }

    /// The same out of turn: the next free one after another.
    mutating func allocate(after other: UInt16) -> PacketID? {
        var candidate = Int(other) + 1
        // One more than there are words: the first one is visited again for the bits below the start.
        for _ in 0...1024 {
            // 0 is not an identifier.
            if candidate > 0xFFFF { candidate = 1 }
            let free = ~(used[candidate >> 6] ?? 0) & (~0 << UInt64(candidate & 63))
            if free != 0 {
                let value = UInt16(candidate & ~63 | free.trailingZeroBitCount)
                guard let id = PacketID(rawValue: value) else { return nil }
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
