import ControlAPI
package import MQTT
package import SessionCore
import Vocabulary

/// Everything that decides about one session, as one value: no I/O, no clock, no closure and no reference is in it.
///
/// It is composed of machines and nouns that know nothing of each other. What concerns several of them is decided here, in
/// the extensions `Session+….swift`; the driver in module Agent carries out the actions. See Documentation/ARCHITECTURE.md.
///
/// Others read all of it, and change it by inputs, and by the methods of `Session+Programs.swift` that answer at once.
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
    /// A look into the room that is under way.
    package internal(set) var looking: PresenceLook?
    package internal(set) var publications: Publications
    package internal(set) var consumers: LiveConsumers
    package internal(set) var durableConsumers: DurableConsumers
    package internal(set) var losses = InboxLosses()
    package internal(set) var calls = Calls()
    package internal(set) var counts = MessageCounts()
    /// The name that the server knows this client by.
    package internal(set) var clientID: String
    /// What was decided about the session and is durable, or about to be.
    package internal(set) var verdict: Verdict?
    var funnel: Funnel

    package init(
        settings: SessionSettings, machine: SessionMachine, mqtt: MQTTClientMachine, servers: Servers,
        addresses: EndpointAddresses, rooms: Rooms, publications: Publications = Publications(),
        consumers: LiveConsumers = LiveConsumers(), durableConsumers: DurableConsumers, clientID: String,
        verdict: Verdict? = nil, at moment: Moment
    ) {
        self.settings = settings
        self.machine = machine
        self.mqtt = mqtt
        self.servers = servers
        self.addresses = addresses
        credentials = CredentialState(isConfigured: settings.hasPassword)
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

    /// What the clocks show, as long as one input is worked on.
    package var moment: Moment {
        get { funnel.moment }
        set { funnel.moment = newValue }
    }

    var now: Instant { funnel.moment.now }
    var wallClock: RFC3339 { funnel.moment.wallClock }
    /// The wall clock as the protocol and the store have it.
    var timestamp: Timestamp { Timestamp(rawValue: wallClock.milliseconds) }

    /// `nil` when there is nothing to wait for.
    ///
    /// - Parameter wallClock: by which the protocol counts.
    package func nextDeadline(at now: Instant, wallClock: Timestamp) -> Instant? {
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

    /// The QoS with which a filter is wanted by consumers of both kinds and by the session itself; `nil` if by nobody.
    func wantedQoS(of filter: TopicFilter) -> QoS? {
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

    /// Asks the server for a filter.
    mutating func subscribe(to filter: TopicFilter, qos: QoS) {
        withAnswers { session, answers in
            do throws(InvalidTopic) {
                let subscription = Subscription(filter: filter.string, qos: qos)
                try session.mqtt.subscribe(subscription, at: session.timestamp, into: &answers)
            } catch {
                preconditionFailure("a filter was checked when it was made: \(error)")
            }
        }
    }

    /// Nobody may want the filter any more.
    mutating func unsubscribeIfUnwanted(_ filter: TopicFilter?) {
        guard let filter, wantedQoS(of: filter) == nil else { return }
        take(.mqtt(.unsubscribe(filter)))
        // The server's answer is not told any more.
        act(.answer(consumers.answered(filter), .subscription(nil)))
    }

    // MARK: Uses

    /// What uses the session began and ended since its machine was told last.
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
