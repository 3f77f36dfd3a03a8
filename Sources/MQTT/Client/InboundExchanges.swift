/// The unfinished QoS 1 and 2 messages from the server.
struct InboundExchanges: Sendable {
    /// QoS 2 identifiers between PUBLISH and PUBREL. A PUBLISH with one of them is not delivered again [MQTT-4.3.3-10].
    private(set) var identifiers: Set<PacketID>
    /// Identifiers of exchanges that the server may have lost with its session, or with a part of it. A PUBLISH with one
    /// of them and DUP 0 is a new message: one that is sent again has DUP 1 [MQTT-3.3.1-1].
    private var doubtful: Set<PacketID> = []
    /// What the server has sent on this connection and we have not fully acknowledged.
    var outstanding: Set<PacketID> = []
    /// What CONNECT announces: how many of `outstanding` the server may send.
    private(set) var receiveMaximum = 1
    /// Whether the server has exceeded our Receive Maximum. On every connection it first sends what is unacknowledged: if
    /// that is too much, it would be too much every time. So a server that exceeds the limit is told so, and has none on
    /// the next connection.
    private var isLimitIgnored = false

    init(_ identifiers: Set<PacketID>) {
        self.identifiers = identifiers
    }

    mutating func connectionOpened(receiveMaximum: Int) {
        self.receiveMaximum = isLimitIgnored ? max(receiveMaximum, Int(UInt16.max)) : receiveMaximum
    }

    mutating func connectionClosed() {
        outstanding.removeAll()
    }

    mutating func resumed() { doubtful = identifiers }

    /// The server has an older copy of the session, with these identifiers in use.
    mutating func returned(to identifiers: Set<PacketID>) {
        self.identifiers = identifiers
        doubtful = identifiers
    }

    /// Returns whether there was anything to forget.
    mutating func sessionLost() -> Bool {
        doubtful.removeAll()
        isLimitIgnored = false
        guard !identifiers.isEmpty else { return false }
        identifiers.removeAll()
        return true
    }

    /// Notes that a QoS 1 or 2 PUBLISH arrived. Returns whether the server keeps to our Receive Maximum.
    mutating func arrived(_ id: PacketID) -> Bool {
        outstanding.insert(id)
        guard outstanding.count > receiveMaximum else { return true }
        isLimitIgnored = true
        return false
    }

    enum Arrival {
        case new
        /// New as well. The identifier was in use for an exchange that the server no longer has.
        case newInDoubt
        case duplicate
    }

    /// Whether a QoS 2 PUBLISH is not a duplicate.
    func isNew(_ publish: Publish) -> Bool {
        guard let id = publish.packetID, identifiers.contains(id) else { return true }
        return doubtful.contains(id) && !publish.duplicate
    }

    /// Begins the exchange of a QoS 2 PUBLISH.
    mutating func begin(_ id: PacketID, duplicate: Bool) -> Arrival {
        let wasDoubtful = doubtful.remove(id) != nil
        if identifiers.insert(id).inserted { return .new }
        return wasDoubtful && !duplicate ? .newInDoubt : .duplicate
    }

    /// Ends an exchange with PUBREL. Returns whether the identifier was in use.
    mutating func end(_ id: PacketID) -> Bool {
        doubtful.remove(id)
        return identifiers.remove(id) != nil
    }
}
