/// The packet identifiers of one session: one space for PUBLISH, SUBSCRIBE and UNSUBSCRIBE that we send (2.2.1).
///
/// Identifiers are given out in turn, so that one that was freed rests as long as possible before it is used again.
struct PacketIDAllocator: Sendable {
    /// One bit for each identifier that is in use; bit 0 stands for the value that is no identifier.
    private var used: [UInt64]
    /// The identifier that was given out last.
    private var last: UInt16 = 0

    init() {
        used = [UInt64](repeating: 0, count: 1024)
        used[0] = 1
    }

    /// The next free identifier, from now on in use; `nil` if all 65,535 are.
    mutating func allocate() -> PacketID? {
        var candidate = Int(last) + 1
        // One more than there are words: the first one is visited again for the bits below the start.
        for _ in 0...1024 {
            if candidate > 0xFFFF { candidate = 0 }
            let free = ~used[candidate >> 6] & (~0 << UInt64(candidate & 63))
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
        used[Int(id.rawValue) >> 6] |= 1 << UInt64(id.rawValue & 63)
    }

    /// Goes on behind this identifier, so that ids of before a restart rest too.
    mutating func resume(after id: PacketID) {
        last = id.rawValue
    }

    mutating func free(_ id: PacketID) {
        used[Int(id.rawValue) >> 6] &= ~(1 << UInt64(id.rawValue & 63))
    }

    /// Frees all identifiers; the order in which they are used continues.
    mutating func freeAll() {
        for index in used.indices { used[index] = 0 }
        used[0] = 1
    }

    func isUsed(_ id: PacketID) -> Bool {
        used[Int(id.rawValue) >> 6] & (1 << UInt64(id.rawValue & 63)) != 0
    }
}
