package import ControlAPI
package import MQTT
package import SessionCore
package import Vocabulary

/// Everything that decides about one session, as one value: no I/O, no clock, no closure and no reference is in it.
///
/// It is composed of machines and nouns that know nothing of each other. What concerns several of them is decided here;
/// the driver in module Agent carries out what they answer. See Documentation/ARCHITECTURE.md.
package struct Session {
    /// When to try, where, and when to stop.
    package var machine: SessionMachine
    /// The protocol: packets, identifiers, exchanges.
    package var mqtt: MQTTClientMachine
    package var servers: Servers
    package var addresses: EndpointAddresses
    package var credentials: CredentialState
    package var knocks = Knocks()
    package var rooms: Rooms
    /// A look into the room that is under way.
    package var looking: PresenceLook?
    package var publications: Publications
    package var consumers: LiveConsumers
    package var durableConsumers: DurableConsumers
    package var losses = InboxLosses()
    package var keys = KeysUnderWay()
    /// Who decides about the messages of the outbox: one at a time, since each reads what the one before has committed.
    package var queueTurns = Turns()
    package var outcomeWaiters = OutcomeWaiters()
    package var counts = MessageCounts()
    /// The name that the server knows this client by.
    package var clientID: String
    /// What was decided about the session and is durable, or about to be.
    package var verdict: Verdict?

    package init(
        machine: SessionMachine, mqtt: MQTTClientMachine, servers: Servers, addresses: EndpointAddresses,
        credentials: CredentialState, rooms: Rooms, publications: Publications, consumers: LiveConsumers,
        durableConsumers: DurableConsumers, clientID: String, verdict: Verdict?
    ) {
        self.machine = machine
        self.mqtt = mqtt
        self.servers = servers
        self.addresses = addresses
        self.credentials = credentials
        self.rooms = rooms
        self.publications = publications
        self.consumers = consumers
        self.durableConsumers = durableConsumers
        self.clientID = clientID
        self.verdict = verdict
    }

    // MARK: Time

    /// `nil` when there is nothing to wait for.
    ///
    /// - Parameter wallClock: by which the protocol counts.
    package func nextDeadline(at now: Instant, wallClock: Timestamp) -> Instant? {
        var earliest = machine.nextDeadline
        func consider(_ deadline: Instant?) {
            if let deadline { earliest = earliest.map { min($0, deadline) } ?? deadline }
        }
        consider(mqtt.nextDeadline.map { now.advanced(by: .milliseconds(max(0, $0.rawValue - wallClock.rawValue))) })
        consider(looking?.deadline)
        consider(losses.nextDeadline)
        consider(outcomeWaiters.nextDeadline)
        return earliest
    }

    // MARK: Subscriptions

    /// The QoS with which a filter is wanted by consumers of both kinds and by the session itself; `nil` if by nobody.
    package func wantedQoS(of filter: TopicFilter) -> QoS? {
        [
            consumers.qos(of: filter), durableConsumers.qos(of: filter),
            // The session's own, to the room that it is in and to the one that it is joining.
            rooms.wants(filter) ? .atLeastOnce : nil,
        ].compactMap(\.self).max()
    }

    /// Everything that the server has to be subscribed to.
    package var wantedFilters: Set<TopicFilter> {
        var filters = durableConsumers.filters.union(consumers.filters)
        if let presence = rooms.membership?.filter { filters.insert(presence) }
        return filters
    }

    // MARK: Connections

    /// Before an attempt: what CONNECT says of the room.
    ///
    /// - Parameters:
    ///   - keepAlive: within which the server notices that the session is gone, in seconds.
    package mutating func prepareConnect(keepAlive: UInt16, wallClock: RFC3339) {
        let mark = rooms.newMark(clientID: clientID, at: wallClock)
        rooms.willConnect(
            as: mark, isFirst: machine.status.state == .connecting && !machine.wasAccepted, at: wallClock)
        mqtt.configuration.will = rooms.membership?.will
        mqtt.configuration.keepAlive = keepAlive
    }

    /// A transport to the server is open, and CONNECT is about to be sent.
    ///
    /// - Returns: whether the server must discard the session that it may have.
    package mutating func connecting(to address: Endpoint, for attempt: Attempt) -> Bool {
        mqtt.configuration.version = servers.version(at: address)
        if !servers.isHome(address) { mqtt.doubtSession() }
        return attempt.discardsSession || servers.isStale(address)
    }

    /// Whether everything that the session itself publishes is published, as far as the server takes it.
    package var isRestored: Bool { !rooms.isAnnouncing && publications.isSettled }

    /// Whether nothing is on its way to the server.
    package var isFlushed: Bool { mqtt.counts.queued == 0 && mqtt.counts.inFlight == 0 && !mqtt.isAnnouncing }

    /// How to say goodbye: when the room does not know yet that the session left, the will tells it.
    package var goodbye: MQTT.ReasonCode { rooms.isLeaving ? .disconnectWithWill : .normalDisconnection }

    /// - Returns: the connections of knocks that are not wanted any more.
    package mutating func dropUnwantedKnocks() -> [DialID] {
        guard !knocks.isEmpty else { return [] }
        return knocks.drop(unless: machine.wantsKnock)
    }

    // MARK: Uses

    /// What uses the session began and ended since its machine was told last.
    package var changedUses: [SessionMachine.Input] {
        let counts = mqtt.counts
        let uses: [(Use, Bool)] = [
            (.messages, counts.queued + counts.inFlight > 0 || publications.needsServer),
            (.subscriptions, !consumers.isEmpty || durableConsumers.isAttached),
        ]
        return uses.compactMap { use, isUsed in
            machine.isUsed(for: use) == isUsed ? nil : isUsed ? .useBegan(use) : .useEnded(use)
        }
    }
}
