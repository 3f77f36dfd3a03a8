import Configuration
import ControlAPI
import NIOCore
import Session
import Support

@testable import Agent
@testable import MQTT
@testable import SessionCore

// The end of a run: everything is mended, and then everything must be well, within the time that the policy promises.

extension Simulation {
    /// The longest delay of the table and the floor of a busy server, with what randomness adds to them, a heartbeat's
    /// silence, and what an attempt takes at each of two servers.
    static let bound: Duration = .seconds(64 + 64 + 64 + 2 * 40)

    func heal() async throws {
        trace?.append("everything is mended")
        for resident in residents {
            resident.host.here { $0.spare() }
            resident.host.disk.here { disk in
                disk.fault = nil
                disk.delay = .zero
            }
        }
        if seed % 8 == 0 { await restOffline() }
        for index in residents.indices {
            let host = residents[index].host
            scenario.here { scenario in
                scenario.withUplink(host) { uplink in
                    (uplink.latency, uplink.piece, uplink.resetAfter) = (Scenario.latency, nil, [:])
                    (uplink.dialFault, uplink.abortLoses, uplink.reorders) = (nil, false, false)
                }
                scenario.slowDown(host, to: nil)
            }
            mend(host)
            scenario.here { scenario in
                scenario.unsilence(host)
            }
            try await start(index)
        }
        let usual = world.serverLimits
        var formerly: [ModelBroker.Dislike] = []
        scenario.here { scenario in
            for server in Scenario.ServerName.allCases {
                scenario.resume(server)
                if !scenario.isUp(server) { scenario.start(server) }
                scenario.with(server) { broker, _ in
                    (broker.refusals, broker.refusedTopics, broker.refusedFilters) = ([:], [:], [:])
                    formerly += broker.dislikedFilters.values
                    // A message that the server cannot bear stays one; the others must still arrive.
                    broker.forgetDislikes { !$0.hasPrefix("out/") }
                    broker.connackProperties = usual
                    (broker.closesAfterConnack, broker.claimsSession, broker.holdsAnswers) = (false, false, false)
                }
            }
        }
        formerlyDislikedFilters = formerly
        scenario.here { $0.holdsFlushes = false }
        mendToken()
        endLies()
        noteContext(of: Step(.welcome))
        // What servers said last is still on its way, and may be the end of a connection.
        await pass(.seconds(60))
        finish()
        guard violations.isEmpty else { return }
        // A person looks, and connects what was disconnected or has failed. The others must come back on their own.
        noteContext(of: Step(.connect))
        for index in mustConnect where isDown(index) { connect(index) }
        drain()
        await pass(.nanoseconds(Self.bound.nanoseconds))
        if seed % 4 == 1 { await restartOlder() }
        // A refused filter is requested again after ten minutes, when a heartbeat is due; after an hour if it was taken
        // for the reason why a connection ended.
        for minutes: Int64 in [11, 61] where residents.contains(where: hasRefusals) {
            await pass(.minutes(minutes))
            // A program that attached sooner was refused at once.
            drain(again: true)
            await pass(.minutes(1))
        }
        await waitForDisliked()
        finish()
        guard violations.isEmpty, !world.sharesIdentity else { return }
        await publishKeysAgain()
    }

    /// Sets the clock a day ahead when nothing is under way, and publishes everything that was published with a key
    /// again: each message must stay one.
    private func publishKeysAgain() async {
        for index in residents.indices { setClock(index, by: 86_400) }
        await pass(.seconds(1))
        for index in residents.indices {
            for key in 0..<Self.keys where isKeyKnown(key, of: index) { publishWithKey(on: index, key, 0) }
        }
        await pass(.seconds(60))
        finish()
    }

    /// Waits until what a server cannot bear has been found, which takes the ends of a few connections and the delays
    /// after them.
    private func waitForDisliked() async {
        let count = scenario.here { scenario in
            Scenario.ServerName.allCases.reduce(0) { $0 + scenario.broker($1).disliked.count }
        }
        // Programs keep publishing: while a server answers nothing at all, no message can be blamed.
        for minute in 0..<20 * count where residents.contains(where: isSending) {
            for index in residents.indices where minute % 2 == 0 && minute < 20 * count - 5 {
                if isSending(residents[index]) { publish(on: index, 0, 1) }
            }
            await pass(.minutes(1))
        }
    }

    private func isSending(_ resident: Resident) -> Bool {
        let counts = resident.host.here { $0.driver() }?.here { $0.session.mqtt.counts }
        return counts.map { $0.queued + $0.inFlight > 0 } ?? false
    }

    private func hasRefusals(_ resident: Resident) -> Bool {
        let driver = resident.host.here { $0.driver() }
        return driver?.here { driver in
            driver.subscriptionStatus.contains { $0.state == .refused }
                || driver.session.publications.entries.contains { $0.isRefusedForNow }
                || !driver.session.mqtt.subscriptions.left.isEmpty
                || driver.session.rooms.membership?.refusedAt != nil
        } ?? false
    }

    /// Of two hosts with the same identity, only one can be connected.
    private var mustConnect: Range<Int> { world.sharesIdentity ? 0..<1 : residents.indices }

    /// Ends what servers claimed. A client that was told of a session that did not exist relies on what that session
    /// would have had, until a new one begins; and a client that was told of limits observes them.
    private func endLies() {
        let (liars, limiters, clients) = (liars, limiters, Set(residents.map(\.clientID)).sorted())
        scenario.here { scenario in
            for server in Scenario.ServerName.allCases {
                if liars.contains(server) {
                    scenario.stop(server, remembering: .nothing)
                    scenario.start(server)
                } else if limiters.contains(server) {
                    for client in clients {
                        scenario.with(server) { broker, now in broker.disconnect(client, nil, at: now) }
                    }
                }
            }
        }
        (self.liars, self.limiters) = ([], [])
    }

    /// Attaches a program for everything that waits for one; `again`, for what still does.
    private func drain(again: Bool = false) {
        guard !world.sharesIdentity else { return }
        isDraining = true
        for index in residents.indices {
            let there = residents[index].host.disk.here {
                $0.sessions.values.flatMap(\.mqtt.consumers.keys).map(\.description)
            }
            for (number, consumer) in Self.consumers.enumerated()
            where there.contains(consumer.0) && (!again || residents[index].attached[consumer.0] == nil) {
                attach(number, on: index)
            }
        }
    }

    /// Spends an hour without a network, in which nobody does anything: it costs one attempt every five minutes, and
    /// next to no timers.
    private func restOffline() async {
        for resident in residents { cut(resident.host) }
        await pass(.minutes(2))
        let (dials, timers) = (countDials(), scenario.loop.firedTimers)
        await pass(.hours(1))
        // In a room, each attempt may be preceded by a look.
        for (host, count) in countDials() where count - (dials[host] ?? 0) > 13 * 2 {
            note(.offlineIsFree, "\(host) dialed \(count - (dials[host] ?? 0)) times in an hour offline")
        }
        let fired = scenario.loop.firedTimers - timers
        // What a killed daemon still does has no effect, but its timers are on the same loop.
        let onlyLives = residents.allSatisfy { $0.host.here { $0.life } <= 1 }
        if onlyLives, fired > 100 * residents.count { note(.offlineIsFree, "\(fired) timers in an hour offline") }
        coverage.count("ends", "an hour offline")
    }

    /// Restarts the servers in a state from before programs set up something more, which has to be set up again.
    private func restartOlder() async {
        guard !world.sharesIdentity else { return }
        scenario.here { scenario in
            for server in Scenario.ServerName.allCases { scenario.with(server) { broker, _ in broker.save() } }
        }
        for index in residents.indices {
            subscribe(on: index)
            for number in 0...2 { putPublication(number, on: index) }
        }
        await pass(.seconds(10))
        for server in Scenario.ServerName.allCases { crash(server, 3) }
        await pass(.seconds(1))
        scenario.here { scenario in
            for server in Scenario.ServerName.allCases { scenario.start(server) }
        }
        await pass(.seconds(60))
        // One that has a budget for its attempts may have used it up.
        for index in mustConnect where isDown(index) { connect(index) }
        await pass(.nanoseconds(Self.bound.nanoseconds))
        coverage.count("ends", "restarted in an older state")
    }

    private func countDials() -> [String: Int] {
        scenario.here { $0.dials.merging($0.knocks) { $0 + $1 }.mapValues(\.count) }
    }

    private func isDown(_ index: Int) -> Bool {
        let state = residents[index].host.here { $0.driver() }?.here { $0.session.state }
        return state == .disconnected || state == .failed
    }

    func checkEnd() {
        guard !world.sharesIdentity else {
            let states = residents.compactMap { resident in
                resident.host.here { $0.driver() }?.here { $0.session.state }
            }
            let isIdle = residents.contains { $0.configuration.onDemand } && states.contains(.disconnected)
            // Where the two servers have nothing in common, one that yields may stop because of what the other one left at
            // the server that it has moved away from, until the will removes it, whatever stopped the other one.
            let hasYielded = residents.contains { $0.rest == .failed(Reason.Code.yielded.rawValue) }
            let mayYieldToRemains = world[.endpoints] + world[.redirects] > 0 && hasYielded
            if !states.contains(.connected), !isIdle, !mayYieldToRemains {
                note(.heals, "nobody is connected: \(states)")
            }
            return finish()
        }
        for index in residents.indices {
            let (resident, host) = (residents[index], residents[index].host)
            guard let driver = host.here({ $0.driver() }) else {
                note(.heals, "\(host.name) does not run")
                continue
            }
            let (status, counts, rests) = driver.here {
                ($0.session.machine.status, $0.session.mqtt.counts, $0.session.machine.isResting)
            }
            let inbox = driver.here { $0.session.mqtt.inboxCounts }
            for call in resident.openCalls.sorted(by: { $0.key < $1.key }) {
                note(.heals, "\(host.name) has not answered \(call.value)")
            }
            if inbox.messages > 0 || inbox.withheld > 0 {
                note(.heals, "\(host.name) has \(inbox), and every consumer has a program")
            }
            if status.state == .disconnected, resident.configuration.onDemand, rests, counts.queued == 0,
                counts.inFlight == 0
            {
                // The session is on demand, and not in use.
            } else if status.state != .connected {
                note(
                    .heals, "\(host.name) is \(status.state) (\(status.reason.code)) \(Self.bound) after all was mended"
                )
            } else if driver.here({ $0.session.machine.isOnFormerPath }) {
                note(.heals, "\(host.name) is connected over a path that moved, \(Self.bound) after all was mended")
            } else if counts.queued > 0 || counts.inFlight > 0 {
                note(.heals, "\(host.name) is connected and has \(counts) \(Self.bound) after all was mended")
            } else {
                checkServers(of: index, driver)
            }
        }
        checkDisks()
        ledger.checkOutgoing { host in
            residents.first { $0.host.name == host }.map { storedNumbers(on: $0.host) } ?? []
        }
        ledger.checkIncoming { host, server in
            guard let resident = residents.first(where: { $0.host.name == host }),
                let name = Scenario.ServerName(rawValue: server)
            else { return nil }
            let broker = scenario.here { $0.broker(name) }
            // What is still to be sent waits for the client to come back to this server.
            return broker.outgoingCount(of: resident.clientID) == 0 ? broker.epoch(of: resident.clientID) : nil
        }
        finish()
    }

    /// Watches for five minutes what is well now: it must stay so, and messages in both directions must still arrive.
    func watchEnd() async {
        guard violations.isEmpty else { return }
        for index in residents.indices { residents[index].unrest = [] }
        let up = residents.indices.filter { residents[$0].state == .connected && !residents[$0].configuration.onDemand }
        for _ in 0..<20 {
            await pass(.seconds(15))
            finish()
            guard violations.isEmpty else { return }
        }
        guard !world.sharesIdentity else { return }
        for index in up where !residents[index].unrest.isEmpty {
            note(
                .heals,
                "\(residents[index].host.name) was well and became \(residents[index].unrest.joined(separator: ", "))")
        }
        for index in residents.indices {
            publish(on: index, 0, 1)
            publish(on: index, 1, 2)
        }
        for server in Scenario.ServerName.allCases { foreign(server, 1, 2) }
        await pass(.nanoseconds(Self.bound.nanoseconds))
        coverage.count("ends", "watched")
        checkEnd()
    }

    /// What a session has set up at the server that it is connected to.
    private struct Setup {
        /// The filters that it wants, and those that the server has granted.
        var wanted: Set<String>
        var granted: Set<String>
        /// The filters that it waits for, and those that the server refuses as far as it knows.
        var pending: Set<String>
        var refused: Set<String>
        var presence: String?
        var publications: [Publications.Entry]
        /// Topics that it has published on and may have to clear.
        var retained: Set<String>
        /// Whether the limits that were announced for this connection differ from the present ones.
        var isLimited: Bool

        init(_ driver: isolated SessionDriver, _ usual: Connack.Properties) {
            wanted = Set(driver.session.wantedFilters.map(\.string))
            let states = driver.subscriptionStatus
            granted = Set(states.filter { $0.state == .granted }.map(\.filter))
            pending = Set(states.filter { $0.state == .pending }.map(\.filter))
            refused = Set(states.filter { $0.state == .refused }.map(\.filter))
            presence = driver.session.rooms.membership?.topic
            (publications, retained) = (driver.session.publications.entries, driver.session.publications.retained)
            isLimited = true
            var usual = usual
            // A server of MQTT 3.1.1 cannot say that it knows them.
            if driver.session.mqtt.version == .threeOneOne { usual.topicAliasMaximum = nil }
            if case .connected(let session) = driver.session.mqtt.connection {
                isLimited =
                    session.limits != MQTTClientMachine.ServerLimits(usual, driver.session.mqtt.version)
            }
        }
    }

    /// Checks that the server has what the session reports, and nothing else.
    private func checkServers(of index: Int, _ driver: SessionDriver) {
        let usual = world.serverLimits
        let (resident, setup) = (residents[index], driver.here { Setup($0, usual) })
        let name = resident.host.name
        guard
            let server = Scenario.ServerName.allCases.first(where: { server in
                scenario.here { $0.broker(server).isConnected(resident.clientID) }
            })
        else { return note(.statusIsTrue, "\(name) is connected, and no server knows of that") }
        if setup.isLimited {
            return note(.heals, "\(name) holds to limits that no server has any more")
        }
        guard !overtaken.contains(resident.clientID) else {
            return coverage.count("ends", "overtaken by a killed daemon")
        }
        coverage.count("ends", "compared with the server")
        let waiting = scenario.here { $0.broker(server).outgoingCount(of: resident.clientID) }
        if waiting > 0 { note(.heals, "\(name) has not acknowledged \(waiting) messages") }
        let broker = scenario.here { $0.broker(server) }
        let there = broker.subscriptions(of: resident.clientID)
        for filter in setup.granted.intersection(setup.wanted).subtracting(there).sorted() {
            note(.heals, "\(name) is not subscribed to \(filter), and believes it is")
        }
        // What was subscribed to in moments that were lost stays there until the session ends.
        // The same holds for what a server has again that it had lost.
        let isInDoubt = isDoubtful(index, at: server, .misled, .rolledBack, .wentBack)
        for filter in there.subtracting(setup.wanted).sorted() where !isInDoubt {
            note(.heals, "\(name) is subscribed to \(filter), which nobody wants")
        }
        for filter in setup.pending.sorted() {
            note(.heals, "\(name) is connected, and does not know whether it is subscribed to \(filter)")
        }
        for filter in setup.refused.sorted() {
            note(.heals, "\(name) holds \(filter) to be refused, and the server would grant it")
        }
        if let topic = setup.presence, broker.retained[topic] == nil {
            note(.heals, "\(name) is connected, and its room does not know")
        }
        for entry in setup.publications {
            guard let topic = entry.topic else { continue }
            switch entry.state {
            case .published where broker.retained[topic]?.payload != entry.publication.payload:
                note(.heals, "\(name) has published on \(topic), and the server does not have it")
            case .pending, .sending: note(.heals, "\(name) is connected, and has not published on \(topic)")
            case .refused where entry.isRefusedForNow:
                note(.heals, "\(name) holds its publication on \(topic) to be refused, and the server would take it")
            default: break
            }
        }
        let mine = "pub/\(name.lowercased())/"
        let wanted = Set(setup.publications.compactMap(\.topic)).union(setup.retained)
        let unknown = leftovers[server] ?? []
        guard !isDoubtful(index, at: server, .misled) else { return }
        for topic in broker.retained.keys.sorted()
        where topic.hasPrefix(mine) && !wanted.contains(topic) && !unknown.contains(topic) {
            note(.heals, "\(name) has removed \(topic), and the server still has it")
        }
    }

    private func checkDisks() {
        for resident in residents {
            let stores = resident.host.disk.here { $0.sessions }
            for store in stores.values.map(\.mqtt) {
                for sentence in store.violations { note(.standard, "the store of \(resident.host.name): \(sentence)") }
                let left = store.messages.values.filter { if case .quarantined = $0.state { false } else { true } }
                if !left.isEmpty { note(.heals, "\(resident.host.name) has \(left.count) messages left in its store") }
            }
        }
    }
}

extension Publications.Entry {
    /// Whether the server has refused it with a code that may not hold for ever.
    fileprivate var isRefusedForNow: Bool { if case .refused(_, isFatal: false) = state { true } else { false } }
}

extension SessionMachine {
    /// Whether the session is connected over another path than the one that the kernel would use now.
    fileprivate var isOnFormerPath: Bool {
        guard case .connected(let connected) = state, let former = connected.path,
            let path = endpoints[connected.attempt.endpoint]
        else { return false }
        return !former.leadsLike(path)
    }
}
