import ControlAPI
import MQTT
import NIOCore
import Session
import SessionCore
import Support

@testable import Agent

// What programs and people ask of a daemon. Nothing waits for the answers: they come when they come, or never.

extension Simulation {
    static let topics = ["out/0", "out/1", "out/2", "out/big"]
    static let consumers = [("all", "in/#"), ("one", "in/1")]

    /// - Parameter bytes: the least length of the payload.
    func publish(on index: Int, _ topic: Int, _ qos: Int, bytes: Int = 0) {
        let host = residents[index].host
        guard let driver = host.here({ $0.driver() }) else { return }
        let topic = Self.topics[topic % Self.topics.count]
        let qos = QoS(rawValue: UInt8(qos % 3)) ?? .atLeastOnce
        let number = ledger.asked(topic, qos, on: host.name, at: hostTime(index))
        // With zeros before it, it is the same number.
        let text = String(repeating: "0", count: max(0, bytes - "\(number)".count)) + "\(number)"
        let message = MessagePublishMethod.Parameters(
            session: "main", topic: topic, payload: .init(text: text), qos: qos)
        ask("publish \(number)", of: index) {
            try await driver.publish(message)
        } answered: { [self] answer in
            var isAccepted = true
            if case .failure(let error) = answer {
                isAccepted = false
                coverage.count("refused", (error as? RPCError)?.data?.code ?? "")
            }
            if !world.sharesIdentity { ledger.answered(number, accepted: isAccepted) }
        }
    }

    func subscribe(on index: Int) {
        let host = residents[index].host
        guard residents[index].live == nil, let driver = host.here({ $0.driver() }),
            let filter = try? TopicFilter("in/#")
        else { return }
        let (id, life) = (nextSubscription(), host.here { $0.life })
        residents[index].live = id
        let consumer = LiveConsumer(id: id, filter: filter, qos: .atLeastOnce)
        let subscriber = Subscriber(deliver: { [weak self] line in
            self?.here { simulation in
                simulation.ledger.saw(line.message.payload.text ?? "", on: host.name)
                simulation.countHandled(on: index)
            }
        })
        ask("subscribe", of: index) {
            try await driver.subscribe(consumer, subscriber)
        } answered: { [self] answer in
            guard residents[index].live == id else { return }
            switch answer {
            case .success: ledger.subscribed(host.name, filter, life: life)
            case .failure: residents[index].live = nil
            }
        }
    }

    func unsubscribe(on index: Int) {
        guard let id = residents[index].live else { return }
        residents[index].live = nil
        ledger.unsubscribed(residents[index].host.name)
        residents[index].host.here { $0.driver() }?.here { $0.unsubscribe(id) }
    }

    func attach(_ number: Int, on index: Int) {
        let (host, (name, filter)) = (residents[index].host, Self.consumers[number % 2])
        guard let driver = host.here({ $0.driver() }), let consumer = ConsumerName(name),
            let parsed = try? TopicFilter(filter)
        else { return }
        let id = nextSubscription()
        residents[index].attached[name] = id
        residents[index].given[name] = []
        let life = host.here { $0.life }
        let subscriber = Subscriber(
            deliver: { [weak self] line in
                let message = line.message
                self?.here { simulation in
                    guard simulation.residents[index].attached[name] == id,
                        host.here({ $0.life }) == life
                    else { return }
                    simulation.ledger.given(message.id, to: name, by: id, on: host.name)
                    simulation.mix(UInt64(bitPattern: message.id))
                    simulation.residents[index].given[name, default: []].append(message.id)
                    if simulation.isDraining { simulation.acknowledge(number, .max - 1, on: index) }
                }
            })
        ask("attach", of: index, about: "consumer \(name)") {
            try await driver.attach(subscriber, as: id, to: consumer, filter, parsed, .exactlyOnce)
        } holds: { _, _, store in
            store.consumers[consumer]?.filter == filter
        } answered: { [self] answer in
            if case .failure = answer, residents[index].attached[name] == id { residents[index].attached[name] = nil }
        }
    }

    func detach(_ consumer: Int, on index: Int) {
        let name = Self.consumers[consumer % 2].0
        guard let id = residents[index].attached.removeValue(forKey: name) else { return }
        residents[index].given[name] = []
        residents[index].host.here { $0.driver() }?.here { $0.detach(id) }
    }

    func acknowledge(_ consumer: Int, _ count: Int, on index: Int) {
        let (host, name) = (residents[index].host, Self.consumers[consumer % 2].0)
        guard let driver = host.here({ $0.driver() }), let id = residents[index].attached[name],
            let ids = residents[index].given[name]?.prefix(count + 1), let last = ids.last
        else { return }
        residents[index].given[name]?.removeFirst(ids.count)
        ledger.acknowledging(Array(ids), by: name, on: host.name)
        ask("acknowledge", of: index) {
            try await driver.acknowledge(InboxSequence(rawValue: last), upTo: true, by: id)
        } holds: { _, _, store in
            !store.inboxes.contains {
                $0.key.description == name && $0.value.contains { ids.contains($0.sequence.rawValue) }
            }
        } answered: { [self] answer in
            if case .success = answer { ledger.acknowledged(Array(ids), by: name, on: host.name) }
        }
    }

    func endConsumer(_ consumer: Int, on index: Int) {
        let name = Self.consumers[consumer % 2].0
        guard let driver = residents[index].host.here({ $0.driver() }), let consumer = ConsumerName(name)
        else { return }
        residents[index].attached[name] = nil
        residents[index].given[name] = []
        ask("end consumer", of: index, about: "consumer \(name)") {
            try await driver.endConsumer(consumer)
        } holds: { _, _, store in
            store.consumers[consumer] == nil
        }
    }

    func putPublication(_ topic: Int, on index: Int) {
        guard let driver = residents[index].host.here({ $0.driver() }) else { return }
        let (text, own) = ("\(position)", publicationTopic(topic, on: index))
        ask("put publication", of: index, about: own) {
            try await driver.putPublication(.init(session: "main", topic: own, payload: .init(text: text)))
        } holds: { _, stored, _ in
            stored.publications.contains { $0.topic == own && String(buffer: $0.payload) == text }
        }
    }

    func removePublication(_ topic: Int, on index: Int) {
        guard let driver = residents[index].host.here({ $0.driver() }) else { return }
        let own = publicationTopic(topic, on: index)
        ask("remove publication", of: index, about: own) {
            try await driver.removePublication(.init(session: "main", topic: own))
        } holds: { _, stored, _ in
            !stored.publications.contains { $0.topic == own }
        }
    }

    func publicationTopic(_ number: Int, on index: Int) -> String {
        "pub/\(residents[index].host.name.lowercased())/\(number)"
    }

    /// The name of the calls that drop all quarantined messages.
    static let droppingAll = "drop"

    /// Decides about the quarantined messages, like a person: all are retried, or dropped.
    func decide(retry: Bool, on index: Int) {
        guard let driver = residents[index].host.here({ $0.driver() }) else { return }
        if retry {
            ask("retry", of: index) {
                try await driver.queueRetry(.init(session: "main", selection: .all(.quarantined)))
            } holds: { answer, _, store in
                !answer.retried.contains { store.messages[.init(rawValue: $0.id)] != nil }
            }
        } else {
            ask(Self.droppingAll, of: index) {
                try await driver.queueDrop(.init(session: "main", selection: .all(.quarantined)))
            } holds: { answer, _, store in
                !answer.dropped.contains { store.messages[.init(rawValue: $0)] != nil }
            }
        }
    }

    /// Drops messages that are in flight, the oldest first, like a person who no longer wants them sent.
    func dropInFlight(_ count: Int, on index: Int) {
        let host = residents[index].host
        let ids = host.disk.here { disk in
            disk.sessions.values.flatMap(\.mqtt.messages.values).filter { stored in
                switch stored.state {
                case .inFlight, .released: true
                case .queued, .quarantined: false
                }
            }.map(\.sequence.rawValue).sorted().prefix(count + 1)
        }
        guard !ids.isEmpty, let driver = host.here({ $0.driver() }) else { return }
        residents[index].dropping += ids
        ask("drop in flight", of: index) {
            try await driver.queueDrop(.init(session: "main", selection: .ids(Array(ids))))
        } holds: { answer, _, store in
            !answer.dropped.contains { store.messages[.init(rawValue: $0)] != nil }
        } answered: { [self] _ in
            // Another call may have asked for the same.
            for id in ids {
                let place = residents[index].dropping.firstIndex(of: id)
                if let place { residents[index].dropping.remove(at: place) }
            }
        }
    }

    // MARK: Commands

    /// The name of the calls that make a session try to connect.
    static let connecting = "connect"

    func connect(_ index: Int) { command(index) { driver in _ = try await driver.connect() } }

    func reconnect(_ mode: Int, _ index: Int) {
        let mode: ReconnectMode? = [nil, .quick, .full][mode % 3]
        command(index) { driver in _ = try await driver.reconnect(mode) }
    }

    private func command(_ index: Int, _ body: @escaping @Sendable (SessionDriver) async throws -> Void) {
        guard let driver = residents[index].host.here({ $0.driver() }) else { return }
        residents[index].rest = nil
        residents[index].commands += 1
        let command = residents[index].commands
        ask(Self.connecting, of: index) {
            try await body(driver)
        } answered: { [self] answer in
            // It may have failed between the question and the command.
            let state = driver.here { $0.session.state }
            guard state != .failed, state != .disconnected else { return }
            residents[index].rest = nil
            guard case .success = answer, residents[index].commands == command else { return }
            checkVerdict(of: index, isDisconnected: false)
        }
    }

    func disconnect(_ index: Int) {
        let host = residents[index].host
        guard let driver = host.here({ $0.driver() }) else { return }
        residents[index].commands += 1
        let command = residents[index].commands
        ask("disconnect", of: index) {
            try await driver.disconnect()
        } answered: { [self] answer in
            guard case .success = answer, residents[index].commands == command else { return }
            residents[index].rest = .disconnected
            checkVerdict(of: index, isDisconnected: true)
        }
    }

    /// What was answered must hold if the daemon is killed now.
    private func checkVerdict(of index: Int, isDisconnected: Bool) {
        let host = residents[index].host
        let boot = bootID(of: residents[index])
        let verdict = host.disk.here { $0.sessions.values.lazy.compactMap(\.stored.verdict).first }
        let holds = verdict?.bootID == boot && verdict?.state == SessionState.disconnected.rawValue
        if holds != isDisconnected {
            note(
                .committedFirst,
                "\(host.name) was \(isDisconnected ? "disconnected" : "connected"), which is not committed")
        }
    }

    func switchRoom(_ room: Int, _ index: Int) {
        guard world.isInRoom, let driver = residents[index].host.here({ $0.driver() }) else { return }
        let (name, boot) = (["r", "s"][room % 2], bootID(of: residents[index]))
        ask("switch room", of: index, about: "room") {
            try await driver.switchRoom(to: name)
        } holds: { _, stored, _ in
            stored.chosenRoom.map { $0.room == name && $0.bootID == boot } ?? (name == "r")
        }
    }

    private func nextSubscription() -> SubscriptionID {
        lastSubscription += 1
        return SubscriptionID(rawValue: "simulated-\(lastSubscription)")
    }
}
