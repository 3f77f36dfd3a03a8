import ControlAPI
import MQTT
import NIOCore
import SessionCore

@testable import Agent

// What programs and people ask of a daemon. Nobody waits for the answers: they come when they come, or never.

extension Simulation {
    static let topics = ["out/0", "out/1", "out/2", "out/big"]
    static let consumers = [("all", "in/#"), ("one", "in/1")]

    func publish(on index: Int, _ topic: Int, _ qos: Int) {
        let host = residents[index].host
        guard let driver = host.here({ $0.driver() }) else { return }
        let topic = Self.topics[topic % Self.topics.count]
        let qos = MessageQoS(rawValue: qos % 3) ?? .atLeastOnce
        let number = ledger.asked(topic, QoS(qos), on: host.name)
        let life = host.here { $0.life }
        Task {
            var isAccepted = true
            do {
                _ = try await driver.publish(
                    .init(session: "main", topic: topic, payload: .init(text: "\(number)"), qos: qos))
            } catch {
                isAccepted = false
                coverage.count("refused", (error as? RPCError)?.data?.code ?? "")
            }
            // The answer of a daemon that was killed meanwhile has reached nobody.
            if host.here({ $0.life }) == life, !world.sharesIdentity { ledger.answered(number, accepted: isAccepted) }
        }
    }

    func subscribe(on index: Int) {
        let host = residents[index].host
        guard residents[index].live == nil, let driver = host.here({ $0.driver() }),
            let filter = try? TopicFilter("in/#")
        else { return }
        let (id, life) = (nextSubscription(), host.here { $0.life })
        residents[index].live = id
        let consumer = LiveConsumer(id: id, filter: filter, qos: .atLeastOnce) { [weak self] message in
            self?.here { $0.ledger.saw(message.payload.text ?? "", on: host.name) }
        }
        Task {
            do {
                _ = try await driver.subscribe(consumer)
                guard residents[index].live == id, host.here({ $0.life }) == life else { return }
                ledger.subscribed(host.name, filter, life: life)
            } catch {
                if residents[index].live == id { residents[index].live = nil }
            }
        }
    }

    func unsubscribe(on index: Int) {
        guard let id = residents[index].live else { return }
        residents[index].live = nil
        ledger.unsubscribed(residents[index].host.name)
        residents[index].host.here { $0.driver() }?.here { $0.unsubscribe(id) }
    }

    func attach(_ consumer: Int, on index: Int) {
        let (host, (name, filter)) = (residents[index].host, Self.consumers[consumer % 2])
        guard let driver = host.here({ $0.driver() }), let consumer = ConsumerName(name),
            let parsed = try? TopicFilter(filter)
        else { return }
        let id = nextSubscription()
        residents[index].attached[name] = id
        residents[index].given[name] = []
        let life = host.here { $0.life }
        let attachment = DurableConsumers.Attachment(
            subscription: id,
            deliver: { [weak self] message in
                self?.here { simulation in
                    guard simulation.residents[index].attached[name] == id,
                        host.here({ $0.life }) == life
                    else { return }
                    simulation.ledger.given(message.id, to: name, on: host.name)
                    simulation.residents[index].given[name, default: []].append(message.id)
                }
            }, takenOver: {})
        Task {
            do {
                _ = try await driver.attach(attachment, to: consumer, filter, parsed, .exactlyOnce)
            } catch {
                if residents[index].attached[name] == id { residents[index].attached[name] = nil }
            }
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
        let life = host.here { $0.life }
        Task {
            guard (try? await driver.acknowledge(InboxSequence(rawValue: last), upTo: true, by: id)) != nil,
                host.here({ $0.life }) == life
            else { return }
            ledger.acknowledged(Array(ids), by: name, on: host.name)
        }
    }

    func endConsumer(_ consumer: Int, on index: Int) {
        let name = Self.consumers[consumer % 2].0
        guard let driver = residents[index].host.here({ $0.driver() }), let consumer = ConsumerName(name)
        else { return }
        residents[index].attached[name] = nil
        residents[index].given[name] = []
        Task(executorPreference: scenario.loop) { try? await driver.endConsumer(consumer) }
    }

    func putPublication(_ topic: Int, on index: Int) {
        guard let driver = residents[index].host.here({ $0.driver() }) else { return }
        let (text, own) = ("\(position)", publicationTopic(topic, on: index))
        Task(executorPreference: scenario.loop) {
            _ = try? await driver.putPublication(
                .init(session: "main", topic: own, payload: .init(text: text)))
        }
    }

    func removePublication(_ topic: Int, on index: Int) {
        guard let driver = residents[index].host.here({ $0.driver() }) else { return }
        let own = publicationTopic(topic, on: index)
        Task(executorPreference: scenario.loop) {
            _ = try? await driver.removePublication(.init(session: "main", topic: own))
        }
    }

    private func publicationTopic(_ number: Int, on index: Int) -> String {
        "pub/\(residents[index].host.name.lowercased())/\(number)"
    }

    /// A person decides about what is in quarantine, or waits.
    func decide(retry: Bool, on index: Int) {
        guard let driver = residents[index].host.here({ $0.driver() }) else { return }
        Task(executorPreference: scenario.loop) {
            if retry {
                _ = try? await driver.queueRetry(.init(session: "main", selection: .all(.quarantined)))
            } else {
                _ = try? await driver.queueDrop(.init(session: "main", selection: .all(.quarantined)))
            }
        }
    }

    // MARK: Commands

    func connect(_ index: Int) { command(index) { driver in _ = try await driver.connect() } }

    func reconnect(_ mode: Int, _ index: Int) {
        let mode: ReconnectMode? = [nil, .quick, .full][mode % 3]
        command(index) { driver in _ = try await driver.reconnect(mode) }
    }

    private func command(_ index: Int, _ body: @escaping @Sendable (SessionDriver) async throws -> Void) {
        guard let driver = residents[index].host.here({ $0.driver() }) else { return }
        residents[index].rest = nil
        residents[index].commands += 1
        Task(executorPreference: scenario.loop) { try? await body(driver) }
    }

    func disconnect(_ index: Int) {
        let host = residents[index].host
        guard let driver = host.here({ $0.driver() }) else { return }
        residents[index].commands += 1
        let (command, life) = (residents[index].commands, host.here { $0.life })
        Task {
            guard (try? await driver.disconnect()) != nil, residents[index].commands == command,
                host.here({ $0.life }) == life
            else { return }
            residents[index].rest = .disconnected
        }
    }

    func switchRoom(_ room: Int, _ index: Int) {
        guard world.isInRoom, let driver = residents[index].host.here({ $0.driver() }) else { return }
        Task(executorPreference: scenario.loop) { _ = try? await driver.switchRoom(to: ["r", "s"][room % 2]) }
    }

    private func nextSubscription() -> SubscriptionID {
        lastSubscription += 1
        return SubscriptionID(rawValue: "simulated-\(lastSubscription)")
    }
}
