import Configuration
import ControlAPI
import Session
import Support

@testable import Agent
@testable import MQTT
@testable import SessionCore

// What must be true of each session after each step: invariants 5 to 8.

extension Simulation {
    /// More dials than this in so short a time are an attack, whatever the server does.
    static let dialWindow: Duration = .seconds(30)
    static let dialsPerWindow = 24
    /// How often hosts with the same identity may displace each other while nothing else happens. A slow host is seen
    /// in the room only once the other one has reached a delay, further down its table, that is longer than the slow
    /// host takes.
    static let mostDisplacements = 20

    func noteContext(of step: Step) {
        guard step.disturbs else { return }
        disturbedAt = scenario.now
        displacements = [:]
        for index in residents.indices { residents[index].watch.disturbed() }
    }

    /// How much waits for a consumer, and how much was dropped without its having been told.
    private struct ConsumerCount: Hashable {
        var messages: Int
        var bytes: Int
        var missed: Int
    }

    /// What is checked of a session.
    private struct View {
        var status: SessionMachine.Status
        var heartbeat: Duration?
        var timeout: Duration
        var deadline: Instant?
        var hasPath: Bool
        /// Whether the session waits for longer than a second without the watch for endpoints that answer again.
        var isUnwatched: Bool
        /// Whether a second client says goodbye for a session that cannot do that itself any more.
        var isSayingGoodbye: Bool
        /// The session's own connection.
        var wire: Int?
        /// Whether the last bytes that arrived on it before it ended are being read, share by share.
        var isReadingLastWords: Bool
        var counts: MQTTClientMachine.Counts
        var inbox: MQTTClientMachine.InboxCounts
        /// Messages that wait for each durable consumer.
        var backlogs: [ConsumerName: ConsumerCount]
        /// Whether acknowledgements are withheld because there is no room.
        var isInboxFull: Bool
        /// Messages that are not durable yet; until they are, they take no other message's place.
        var undecided: Int
        /// Whether the messages that must go are only in the store, and are being read.
        var isReadingHead: Bool
        var readAhead: Int
        var subscriptions: [SessionStatus.Subscription]

        init(_ driver: isolated SessionDriver) {
            status = driver.session.machine.status
            subscriptions = driver.subscriptionStatus
            if case .connected(let connected) = driver.session.machine.state {
                heartbeat = connected.heartbeat.interval
            }
            timeout = driver.configuration.heartbeat.timeout
            deadline = driver.session.machine.nextDeadline
            hasPath = driver.session.machine.endpoints.hasPath
            let retryIn = status.retryAt.map { driver.now.duration(to: $0) } ?? .zero
            isUnwatched = retryIn > EndpointWatch.shortWait && !driver.session.machine.endpoints.watch.isWaiting
            isSayingGoodbye = if case .farewell = driver.session.looking?.purpose { true } else { false }
            let connection = driver.session.link?.connection.flatMap { driver.connections[$0] }
            wire = (connection as? ScenarioConnection)?.wire
            isReadingLastWords = driver.session.link?.flow.end != nil && driver.session.mqtt.isBehind
            undecided = driver.session.mqtt.commits.acceptances.count
            var outbox = driver.session.mqtt.outbox
            readAhead = driver.session.mqtt.configuration.readAhead.messages
            isReadingHead = outbox.isHeadMissing && outbox.nextLoad(messages: 1, bytes: 1) == nil
            backlogs = driver.session.mqtt.intake.collectors.mapValues {
                ConsumerCount(messages: $0.backlog.messages, bytes: $0.backlog.bytes, missed: $0.missed)
            }
            isInboxFull = driver.session.mqtt.intake.isFull
            (counts, inbox) = (driver.session.mqtt.counts, driver.session.mqtt.inboxCounts)
        }
    }

    func checkStatus(of index: Int) {
        let resident = residents[index]
        guard let driver = resident.host.here({ $0.driver() }) else { return }
        let view = driver.here { View($0) }
        guard min(view.counts.queued, view.counts.inFlight, view.counts.quarantined, view.counts.bytes) >= 0 else {
            return note(.statusIsTrue, "\(resident.host.name) has \(view.counts)")
        }
        scenario.here { scenario in
            scenario.digest.mix(UInt64(view.status.attempt))
            scenario.digest.mix(UInt64(view.counts.queued) << 32 | UInt64(view.counts.inFlight))
        }
        checkLife(view, resident)
        checkTimers(view, index)
        checkSubscriptions(view, resident)
        checkBounds(view, resident)
        checkCounts(view, resident)
        checkOffline(view, index)
        checkPace(index)
        // Encoding all of it takes longer than most steps.
        if world[.password] == 1, position % 32 == 0 { searchForSecret(driver.here { $0.status() }) }
    }

    private func checkLife(_ view: View, _ resident: Resident) {
        let (name, state) = (resident.host.name, view.status.state)
        switch state {
        case .disconnected, .failed:
            if scenario.here({ $0.hasConnection(name) }), !view.isSayingGoodbye {
                note(.terminalIsTerminal, "\(name) is \(state.rawValue) and has a connection")
            }
        case .connecting, .reconnecting, .disconnecting:
            if resident.rest == .disconnected, state != .disconnecting {
                note(.terminalIsTerminal, "\(name) was disconnected and is \(state.rawValue)")
            }
        case .connected:
            if resident.rest == .disconnected {
                note(.terminalIsTerminal, "\(name) was disconnected and is \(state.rawValue)")
            }
            checkConnected(view, view.wire.flatMap { wire in scenario.here { $0.heard(on: wire) } }, resident)
        }
    }

    /// Checks that the server's answer to each filter was reported.
    private func checkSubscriptions(_ view: View, _ resident: Resident) {
        for subscription in view.subscriptions where subscription.state != .pending {
            let told = resident.watch.subscriptions[subscription.filter]
            if told != subscription.state {
                note(
                    .statusIsTrue,
                    "\(resident.host.name): \(subscription.filter) is \(subscription.state.rawValue), and "
                        + "\(told?.rawValue ?? "nothing") was reported")
            }
        }
    }

    /// Checks that nothing is late, and that no session waits for nothing, or for a network that it has.
    private func checkTimers(_ view: View, _ index: Int) {
        let (name, now) = (residents[index].host.name, scenario.now)
        if let deadline = view.deadline, deadline.advanced(by: .seconds(1)) < now {
            // What has only just become due is carried out later in this moment. With a round trip that is longer than the
            // interval of the heartbeat, something else is due whenever an answer comes.
            if let late = residents[index].watch.late, late.deadline == deadline, late.since < now {
                note(.heals, "\(name) (\(view.status.state)) wanted to be woken \(deadline.duration(to: now)) ago")
            }
            if residents[index].watch.late?.deadline != deadline { residents[index].watch.late = (deadline, now) }
        } else {
            residents[index].watch.late = nil
        }
        if view.status.phase == .waiting, view.status.retryAt == nil {
            note(.heals, "\(name) waits, and nobody knows for what")
        }
        if view.isUnwatched {
            note(.heals, "\(name) waits, and would not notice that an endpoint answers again")
        }
        if view.status.phase == .waitingForNetwork, view.hasPath {
            note(.heals, "\(name) waits for a network, and has one")
        }
    }

    /// Checks that "connected" means that something was heard within the heartbeat's bound, or that there is doubt.
    private func checkConnected(_ view: View, _ heard: Instant?, _ resident: Resident) {
        let name = resident.host.name
        guard let heard else {
            if view.isReadingLastWords { return }
            note(.statusIsTrue, "\(name) is connected and has no connection")
            return
        }
        guard let interval = view.heartbeat else { return }
        // A connection on which an answer takes longer than the limit is given the time of two round trips.
        let measured = view.wire.flatMap { wire in scenario.here { $0.measure(wire) } }
        let timeout = max(view.timeout, min((measured?.roundTrip ?? .zero) * 2, .seconds(30)))
        let silence = heard.duration(to: scenario.now)
        // A short sleep raises no doubt.
        let awake = max(heard, resident.wokeAt ?? heard).duration(to: scenario.now)
        let slept = min(silence - awake, SessionMachine.shortSleep(interval))
        if view.status.doubt == nil, silence > interval + timeout + slept + .seconds(1) {
            note(.statusIsTrue, "\(name) is connected and has heard nothing for \(silence)")
        }
        // A doubt ends, with the probe's deadline or with the hold.
        if awake > interval + timeout * 2 + .seconds(6) {
            note(.statusIsTrue, "\(name) is connected, doubts it, and has heard nothing for \(silence)")
        }
    }

    /// Checks that a session does not give up a connection for want of an answer while the server cannot have read what
    /// it should answer.
    func checkVerdict(_ event: SessionEvent, on index: Int) {
        let codes: [Reason.Code] = [.heartbeatTimeout, .probeTimeout, .unacknowledged, .unanswered, .restoreTimeout]
        let wasConnected = event.from == .connected && event.state == .reconnecting
        guard let code = event.reason.flatMap({ Reason.Code(rawValue: $0.code) }), codes.contains(code),
            wasConnected || event.phase == .waiting && code == .restoreTimeout,
            disturbedAt.duration(to: scenario.now) > .seconds(10)
        else { return }
        let host = residents[index].host
        let isAboutMessages = code == .unanswered || code == .restoreTimeout
        if scenario.here({ $0.isOnlySlow(host, isAboutMessages: isAboutMessages) }) {
            note(.statusIsTrue, "\(host.name) takes its own slow uplink for a silent server (\(code.rawValue))")
        }
    }

    /// Checks that a connection does not outlive the address that it was made from.
    func checkSource(of host: Host, without departed: Path) {
        let isConnected = host.here({ $0.driver() })?.here { driver in
            guard case .connected(let connected) = driver.session.machine.state else { return false }
            return connected.path?.sharesSource(with: departed) ?? false
        }
        if isConnected == true {
            note(.statusIsTrue, "\(host.name) is connected from \(departed.source), which it does not have")
        }
    }

    private func checkBounds(_ view: View, _ resident: Resident) {
        let (counts, outbox, name) = (view.counts, resident.configuration.outbox, resident.host.name)
        if counts.queued < 0 || counts.inFlight < 0 || counts.bytes < 0 || counts.quarantined < 0 {
            note(.bounded, "\(name) counts \(counts)")
        }
        let waiting = outbox.whenFull == .dropOldest ? counts.queued - view.undecided : counts.queued + counts.inFlight
        // A daemon that was killed after accepting a message, but before dropping the oldest one for it, drops that
        // once it has read it.
        let tolerance = outbox.whenFull == .dropOldest && view.isReadingHead ? view.readAhead : 0
        if waiting > outbox.maxMessages + tolerance {
            note(.bounded, "\(name) has \(waiting) messages in an outbox for \(outbox.maxMessages)")
        }
        if counts.bytes > outbox.maxBytes {
            note(.bounded, "\(name) has \(counts.bytes) bytes in an outbox for \(outbox.maxBytes)")
        }
        let inbox = resident.configuration.inbox
        if let fullest = view.backlogs.values.map(\.messages).max(), fullest > inbox.maxMessages {
            note(.bounded, "a consumer of \(name) has \(fullest) messages in an inbox for \(inbox.maxMessages)")
        }
        if inbox.whenFull == .dropOldest, view.isInboxFull {
            note(.heals, "a consumer of \(name) is full, and holds up the others")
        }
        if world[.version] == 0, view.inbox.withheld > resident.configuration.mqtt.receiveMaximum {
            note(.bounded, "\(name) withholds \(view.inbox.withheld) acknowledgements")
        }
    }

    /// Checks that what is counted is what the disk has, when nothing is about to be written.
    private func checkCounts(_ view: View, _ resident: Resident) {
        guard view.undecided == 0, !resident.host.here({ $0.isCommitting }) else { return }
        let stores = resident.host.disk.here { Array($0.sessions.values) }
        guard let store = stores.first?.mqtt, stores.count == 1 else { return }
        var there = MQTTClientMachine.Counts()
        for stored in store.messages.values {
            there.bytes += stored.message.size
            switch stored.state {
            case .queued: there.queued += 1
            case .inFlight, .released: there.inFlight += 1
            case .quarantined: there.quarantined += 1
            }
        }
        if there != view.counts { note(.statusIsTrue, "\(resident.host.name) counts \(view.counts), and has \(there)") }
        var inboxes: [ConsumerName: ConsumerCount] = [:]
        for name in store.consumers.keys {
            let inbox = store.inboxes[name] ?? []
            inboxes[name] = ConsumerCount(
                messages: inbox.count, bytes: inbox.reduce(0) { $0 + $1.size }, missed: store.missed[name] ?? 0)
        }
        if inboxes != view.backlogs {
            note(.statusIsTrue, "\(resident.host.name) counts \(view.backlogs), and has \(inboxes)")
        }
    }

    /// Checks what happens without a path: the end of the hold, the report of the loss, the end of the budget, and one
    /// attempt every five minutes.
    private func checkOffline(_ view: View, _ index: Int) {
        let (host, now) = (residents[index].host, scenario.now)
        guard !view.hasPath else {
            residents[index].watch.offlineSince = nil
            return
        }
        if residents[index].watch.offlineSince == nil || scenario.now == disturbedAt {
            residents[index].watch.offlineSince = now
            residents[index].watch.deadlines = []
            residents[index].watch.dialsOffline = 0
        }
        if view.status.phase == .waitingForNetwork, let deadline = view.deadline {
            residents[index].watch.deadlines.insert(deadline)
        }
        guard let since = residents[index].watch.offlineSince else { return }
        let attempts = Int(since.duration(to: now) / .seconds(300)) + 2
        if residents[index].watch.dialsOffline > 2 * attempts {
            note(
                .offlineIsFree,
                "\(host.name) dialed \(residents[index].watch.dialsOffline) times in \(since.duration(to: now)) offline"
            )
        }
        if residents[index].watch.deadlines.count > attempts + 3 {
            note(.offlineIsFree, "\(host.name) had \(residents[index].watch.deadlines.count) deadlines offline")
        }
    }

    /// Checks that dials are not too frequent, and that the table of delays starts from its beginning after a long time
    /// without a network.
    private func checkPace(_ index: Int) {
        let resident = residents[index]
        let dials = resident.watch.dials(within: Self.dialWindow, of: scenario.now)
        // In a room, each attempt may be preceded by a look.
        if dials > Self.dialsPerWindow * (world.isInRoom ? 2 : 1) {
            note(.heals, "\(resident.host.name) dialed \(dials) times in \(Self.dialWindow)")
        }
        if let wait = resident.watch.firstWait {
            residents[index].watch.firstWait = nil
            let policy = resident.configuration.reconnect
            let longest = max(policy.delays[0], policy.spread) + policy.jitter + .milliseconds(1)
            let isNetwork = Reason.Code(rawValue: wait.reason)?.group == .network
            if isNetwork, Duration.seconds(wait.seconds) > longest {
                note(
                    .heals,
                    "\(resident.host.name) waits \(wait.seconds) s after \(wait.reason) although the network is back")
            }
        }
    }

    /// Checks that two hosts with the same identity do not fight for it.
    func checkPeace() {
        // A session that is not told, and cannot look, can only be slow.
        guard world.sharesIdentity, world.isInRoom || (world[.silentTakeOver] == 0 && world[.version] != 2) else {
            return
        }
        let rooms = residents.compactMap { resident in
            resident.host.here { $0.driver() }?.here { $0.session.room }
        }
        // A session that switched to another room than the other one cannot see it there either, and can only be slow.
        // Nor can it see another device where no server keeps retained messages.
        let presences = world.presences
        let keepsPresence = scenario.here { scenario in
            Scenario.ServerName.allCases.map { scenario.broker($0) }.allSatisfy { broker in
                broker.connackProperties.retainAvailable != false
                    && !presences.contains { broker.refusedTopics[$0] != nil }
                    && !World.presenceFilters.contains { broker.refusedFilters[$0] != nil }
            }
        }
        guard Set(rooms).count < 2, keepsPresence else {
            displacements = [:]
            return
        }
        for (client, count) in displacements where count > Self.mostDisplacements {
            note(.terminalIsTerminal, "\(client) was displaced \(count) times by its own other host, without cause")
        }
    }
}

extension Step {
    /// Whether sessions may answer it with attempts, so that many attempts are no surprise.
    var disturbs: Bool {
        switch what {
        case .settle, .turn, .next, .pass, .publish, .send, .acknowledge, .attach, .detach, .foreign, .subscribe,
            .unsubscribe, .putPublication, .removePublication, .diskDelay, .diskFault, .diskMended, .releaseAnswers,
            .holdAnswers, .latency, .slowUplink, .piece, .reorder, .publishLarge, .takeImage, .serverImage,
            .publishWithKey, .hog, .flawed, .flood, .dropInFlight, .holdFlushes:
            false
        default: true
        }
    }
}
