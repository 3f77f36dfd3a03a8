import NIOCore

/// The packet identifiers of a session, and what the server may still hold under them.
///
/// What a machine restores may be older than what the server has: the power failed, or a copy of the state directory was
/// put back. And what the server has may be older than what is known here, after a restart. It may then hold messages of
/// QoS 2 under any identifier, and would take a new message for one of them. So in a session that was restored or resumed,
/// a message of QoS 2 gets an identifier that was *cleared*: one for which the server has answered a PUBREL since. These
/// are used again and again, so that only as many are cleared as messages of QoS 2 are on their way at once.
///
///     free ──clear──▶ asked ──PUBCOMP──▶ ready ──next──▶ in flight ──free──▶ ready
///       ◀──connection closed──┘
///
/// The next connection asks about the same ones again, because what was sent on the last one may not have arrived. If
/// the server ends three in a row, or does not answer on them although it answers other things, they are used all the
/// same, before any other. An end that we, the network or another packet may have caused says nothing: after the first
/// one that counts, the server is asked only when it has shown that the connection works, and has answered for all filters
/// and announcements.
struct Identifiers: Sendable {
    var allocator = PacketIDAllocator()
    /// Identifiers under which the server probably holds a message of QoS 2 that is not known here.
    var suspects: Set<PacketID>
    /// Identifiers of messages that the server owns, and that were dropped here before they were released.
    var unreleased: Set<PacketID> = []
    /// Whether there are identifiers that the server may hold on to although nothing is in flight with them.
    var hasRetired: Bool
    /// Whether the server was asked to release the suspects.
    var hasAskedAboutSuspects = false
    /// On how many connections it may be asked before it is left alone.
    private var suspectConnections = 1
    /// How many identifiers the server called in use that were free here, since the session began.
    var clashes = 0

    /// Whether messages of QoS 2 need identifiers that were cleared.
    private var isInDoubt: Bool
    /// Those that are asked, ready, or in flight after they were ready. To the allocator they are all in use.
    /// Messages of QoS 2 use them before others, also when there is no doubt any more.
    private var cleared: Set<PacketID> = []
    /// Those whose PUBREL is not answered.
    private var asked: Set<PacketID> = []
    private var ready = CircularBuffer<PacketID>(initialCapacity: 1)
    /// The last one that was asked. The next ones follow it, because the store flushes the disk for every 512 in a row.
    private var lastAsked: UInt16?
    /// The one before the first of those in `asked`.
    private var beforeAsked: UInt16 = 0
    /// How many connections in a row have ended with PUBRELs unanswered, which may have been the reason.
    private var unansweredConnections = 0
    /// Whether what was asked may be the reason why the connection ends.
    private var mayEndBecauseAsked = false

    /// How many are cleared at once at first.
    private static let batch = 32
    /// After how many connections without an answer the server is not asked any more.
    private static let patience = 3

    /// - Parameter inUse: those of the messages in flight, in the order in which they were given out.
    init(_ durable: DurableSession, inUse: [PacketID]) {
        suspects = durable.suspectIDs
        hasRetired = !durable.retiredIDs.isEmpty
        isInDoubt = durable.established
        for id in durable.suspectIDs { allocator.reserve(id) }
        for id in durable.retiredIDs { allocator.reserve(id) }
        for id in inUse { allocator.reserve(id) }
        if let last = inUse.last { allocator.resume(after: last) }
    }

    /// Takes an identifier for a new message into use.
    ///
    /// - Returns: `nil` if none is free. If the message has QoS 2, ``clear(atMost:)`` can provide more.
    mutating func next(for qos: QoS) -> PacketID? {
        if qos == .exactlyOnce, let id = ready.popFirst() { return id }
        return isInDoubt && qos == .exactlyOnce ? nil : allocator.allocate()
    }

    mutating func free(_ id: PacketID) {
        if cleared.contains(id) { ready.append(id) } else { allocator.free(id) }
    }

    /// Makes sure that the identifier is not used any more.
    mutating func retire(_ id: PacketID) {
        if cleared.remove(id) != nil { ready.removeAll { $0 == id } }
        allocator.reserve(id)
        hasRetired = true
    }

    /// Returns the identifiers to be cleared now, as many as were cleared before: the server has to be sent a PUBREL for
    /// each.
    mutating func clear(atMost limit: Int) -> [PacketID] {
        guard isInDoubt, asked.isEmpty else { return [] }
        var ids: [PacketID] = []
        beforeAsked = lastAsked ?? allocator.last
        for _ in 0..<min(max(Self.batch, cleared.count), limit) {
            guard let id = allocator.allocate(after: lastAsked ?? beforeAsked) else { break }
            lastAsked = id.rawValue
            ids.append(id)
        }
        cleared.formUnion(ids)
        asked.formUnion(ids)
        return ids
    }

    /// Whether the server has to show that the connection works before it is asked to release any.
    var needsProof: Bool { unansweredConnections > 0 }

    /// Whether the server was asked to release the identifier only to clear it.
    func isAsked(_ id: PacketID) -> Bool { asked.contains(id) }

    /// Handles PUBCOMP; returns whether the identifier was asked for.
    mutating func answered(_ id: PacketID) -> Bool {
        guard asked.remove(id) != nil else { return false }
        unansweredConnections = 0
        ready.append(id)
        return true
    }

    /// Makes sure that the server is asked to release these, and that no other identifier is used before it was cleared.
    ///
    /// - Returns: those that were no suspects yet, in order.
    mutating func suspect(_ ids: Set<PacketID>) -> [PacketID] {
        isInDoubt = unansweredConnections < Self.patience
        let new = ids.subtracting(suspects).sorted()
        guard !new.isEmpty else { return [] }
        for id in new {
            cleared.remove(id)
            allocator.reserve(id)
        }
        ready.removeAll(where: ids.contains)
        suspects.formUnion(new)
        hasAskedAboutSuspects = false
        suspectConnections = Self.patience
        return new
    }

    /// Handles PUBCOMP for a suspect; returns whether it was one.
    mutating func clearSuspect(_ id: PacketID) -> Bool {
        guard hasAskedAboutSuspects, suspects.remove(id) != nil else { return false }
        if isInDoubt { cleared.insert(id) }
        free(id)
        return true
    }

    /// The server ends the connection, or leaves unanswered what was sent on it.
    mutating func mayEnd() { mayEndBecauseAsked = true }

    /// Some servers end the connection for a PUBREL that they do not expect, or do not answer it. Messages of QoS 2
    /// cannot wait for those.
    mutating func connectionClosed() {
        defer { mayEndBecauseAsked = false }
        if hasAskedAboutSuspects, !suspects.isEmpty, suspectConnections > 1 {
            suspectConnections -= 1
            hasAskedAboutSuspects = false
        }
        guard !asked.isEmpty else { return }
        if mayEndBecauseAsked { unansweredConnections += 1 }
        if unansweredConnections < Self.patience {
            for id in asked { allocator.free(id) }
            cleared.subtract(asked)
            lastAsked = beforeAsked
        } else {
            isInDoubt = false
            ready.append(contentsOf: asked.sorted())
        }
        asked = []
    }

    /// The session may be at another server, or in an older state. What a server has released, it may hold then.
    mutating func doubtCleared() {
        guard unansweredConnections < Self.patience else { return }
        isInDoubt = true
        for id in ready { allocator.free(id) }
        ready = []
        cleared = []
    }

    /// The server's session is a new one: it holds nothing. What it does when it is asked is not forgotten with the session.
    mutating func sessionLost(toAnotherServer isElsewhere: Bool) {
        allocator.freeAll()
        isInDoubt = false
        cleared = []
        asked = []
        ready = []
        if isElsewhere { unansweredConnections = 0 }
        hasRetired = false
        suspects = []
        unreleased = []
        clashes = 0
    }
}
