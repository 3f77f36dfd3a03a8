import ControlAPI
package import MQTT
package import SessionCore

/// Everything that decides about one session, as one value, with no I/O, clock, closure or reference in it.
///
/// It is composed of machines and nouns that know nothing of each other. The extensions `Session+….swift` decide what
/// concerns several of them; the driver in module Agent carries out the actions. See Documentation/ARCHITECTURE.md.
///
/// Other modules can read all of it. What happens reaches it as inputs. The methods of `Session+Programs.swift`,
/// `Session+Queue.swift` and `Session+Consumers.swift` answer at once; a few others change what cannot wait in the queue
/// of inputs, or is no event. The driver calls them between two inputs.
package struct Session: Sendable {
    package let settings: SessionSettings
    /// When to try, where, and when to stop.
    package internal(set) var machine: SessionMachine
    /// The protocol: packets, identifiers, exchanges.
    package internal(set) var mqtt: MQTTClientMachine
    package internal(set) var servers: Servers
    package internal(set) var addresses: EndpointAddresses
    package internal(set) var connections = Connections()
    package internal(set) var credentials: CredentialState
    package internal(set) var knocks = Knocks()
    package internal(set) var rooms: Rooms
    /// The look into the room, if one is under way.
    package internal(set) var looking: PresenceLook?
    package internal(set) var publications: Publications
    package internal(set) var consumers: LiveConsumers
    package internal(set) var durableConsumers: DurableConsumers
    package internal(set) var losses = InboxLosses()
    package internal(set) var calls = Calls()
    /// The driver restores what an earlier session of the same name had counted.
    package var counts = MessageCounts()
    /// The client identifier that the server knows this session by.
    package internal(set) var clientID: String
    /// What was decided about the session and is durable, or is about to be.
    package internal(set) var verdict: Verdict?
    /// How the session leaves its server when it goes down.
    var parting = Parting.leavingRoom
    var funnel: Funnel

    package var state: SessionState { machine.status.state }
    /// Whether an attempt is under way that must not be delayed by telling people what happened.
    package var isHurrying: Bool { link?.isDialed == true && state != .connected }
    /// The room that the session is in, whether or not it is connected.
    package var room: Room? { rooms.membership?.room }

    package init(
        settings: SessionSettings, machine: SessionMachine, mqtt: MQTTClientMachine, servers: Servers,
        addresses: EndpointAddresses, rooms: Rooms, publications: Publications = Publications(),
        consumers: LiveConsumers = LiveConsumers(), durableConsumers: DurableConsumers,
        credential: SessionCredential? = nil, clientID: String, verdict: Verdict? = nil, at moment: Moment
    ) {
        self.settings = settings
        self.machine = machine
        self.mqtt = mqtt
        self.servers = servers
        self.addresses = addresses
        credentials = CredentialState(isConfigured: settings.hasPassword)
        credentials.given = credential
        if credential != nil { self.servers.redirections.passwordGiven() }
        self.rooms = rooms
        self.publications = publications
        self.consumers = consumers
        self.durableConsumers = durableConsumers
        self.clientID = clientID
        self.verdict = verdict
        funnel = Funnel(moment: moment)
    }

    /// The attempt under way and the connection that it becomes.
    package internal(set) var link: Link? {
        get { connections.link }
        _modify { yield &connections.link }
    }

    // MARK: Time

    /// The clocks' readings while one input is handled.
    package var moment: Moment {
        get { funnel.moment }
        set { funnel.moment = newValue }
    }

    var now: Instant { funnel.moment.now }
    var wallClock: Timestamp { funnel.moment.wallClock }

    /// When `timeReached` is due; `nil` when there is nothing to wait for.
    package var nextDeadline: Instant? {
        var earliest = machine.nextDeadline
        func consider(_ deadline: Instant?) {
            if let deadline { earliest = earliest.map { min($0, deadline) } ?? deadline }
        }
        consider(mqtt.nextDeadline.map { now.advanced(by: .milliseconds(max(0, $0.rawValue - wallClock.rawValue))) })
        consider(link?.login.renewal?.deadline)
        consider(looking?.deadline)
        consider(losses.nextDeadline)
        consider(calls.outcomeWaiters.nextDeadline)
        return earliest
    }

    // MARK: Subscriptions

    /// The highest QoS at which live consumers, durable consumers or the session itself want a filter; `nil` if none of
    /// them does.
    func wantedQoS(of filter: TopicFilter) -> QoS? {
        [
            consumers.qos(of: filter), durableConsumers.qos(of: filter),
            // The session's own subscription: to the room that it is in, and to the one that it is joining.
            rooms.wants(filter) ? .atLeastOnce : nil,
        ].compactMap(\.self).max()
    }

    /// All filters that the session has to be subscribed to at the server.
    package var wantedFilters: Set<TopicFilter> {
        var filters = durableConsumers.filters.union(consumers.filters)
        if let presence = rooms.membership?.filter { filters.insert(presence) }
        return filters
    }

    /// Asks the server for a subscription to a filter.
    ///
    /// - Parameter isLive: whether only a live consumer needs the retained messages.
    mutating func subscribe(to filter: TopicFilter, qos: QoS, isLive: Bool = false) {
        withAnswers { session, answers in
            do throws(InvalidTopic) {
                let subscription = Subscription(filter: filter.string, qos: qos)
                try session.mqtt.subscribe(subscription, isLive: isLive, at: session.wallClock, into: &answers)
            } catch {
                preconditionFailure("a filter was checked when it was made: \(error)")
            }
        }
    }

    /// Unsubscribes from a filter if nothing wants it any more.
    mutating func unsubscribeIfUnwanted(_ filter: TopicFilter?) {
        guard let filter, wantedQoS(of: filter) == nil else { return }
        take(.mqtt(.unsubscribe(filter)))
        // The server's answer to the subscription no longer matters.
        act(.answer(consumers.answered(filter), .subscription(nil)))
    }

    // MARK: Uses

    /// The uses of the session that began or ended since its machine was last told.
    var changedUses: [SessionMachine.Input] {
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
