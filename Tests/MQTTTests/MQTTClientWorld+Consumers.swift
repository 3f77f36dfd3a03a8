import MQTT
import NIOCore
import Support

// Two durable consumers whose filters overlap, each with a program that takes messages from the store.

extension MQTTClientWorld {
    static let consumers: [(name: String, filter: String)] = [("all", "in/#"), ("one", "in/1")]

    /// They are durable; what their filters stand for is not.
    mutating func putConsumers() {
        for consumer in Self.consumers {
            guard let name = ConsumerName(consumer.name), let filter = try? TopicFilter(consumer.filter) else {
                continue
            }
            handle(.consumer(name, .put(filter: consumer.filter, .exactlyOnce, matching: filter)))
        }
    }

    mutating func sendToConsumers() {
        nextPayload += 1
        let qos: QoS = chance(50) ? .atLeastOnce : .exactlyOnce
        let topic = chance(50) ? "in/1" : "in/2"
        guard server.publish("in \(nextPayload)", qos: qos, topic: topic) else { return }
        sentToConsumers.append(("in \(nextPayload)", topic, qos, server.epoch))
        var output = server.takeOutput()
        downlink.writeBuffer(&output)
    }

    /// A program takes the first few messages that are in the store, and does not take them again if it is not killed
    /// before that is durable: only what is durable counts as taken.
    mutating func take() {
        guard let consumer = Self.consumers.randomElement(using: &random), let name = ConsumerName(consumer.name) else {
            return
        }
        let messages = (store.inboxes[name] ?? []).filter { message in !isBeingTaken(message.sequence, name) }
            .prefix(Int.random(in: 1...3, using: &random))
        guard !messages.isEmpty else { return }
        handle(.consumer(name, .taken(messages.map { TakenMessage(sequence: $0.sequence, size: $0.size) })))
    }

    private func isBeingTaken(_ sequence: InboxSequence, _ name: ConsumerName) -> Bool {
        disk.contains { job in
            if case .commit(let changes, _, _, _) = job {
                changes.contains(.removeCollected(sequence, name))
            } else {
                false
            }
        }
    }

    /// Notes what this commit takes out of the inboxes.
    mutating func noteTaken(_ changes: [DurableChange]) {
        for case .removeCollected(let sequence, let name) in changes {
            guard let message = store.inboxes[name]?.first(where: { $0.sequence == sequence }) else {
                problems.append("\(sequence) was taken by \(name) and is not there")
                continue
            }
            taken[name, default: []].append(String(buffer: message.message.payload))
        }
    }

    mutating func resumeCollecting() {
        guard mayResumeCollecting else { return }
        mayResumeCollecting = false
        handle(.resumeCollecting)
    }

    /// Everything that the server has sent in its present session reached every consumer that wants it: once with
    /// QoS 2, and in order.
    mutating func checkTaken() {
        for consumer in Self.consumers {
            guard let name = ConsumerName(consumer.name) else { continue }
            var seen: [String: Int] = [:]
            var last = 0
            for payload in taken[name] ?? [] {
                seen[payload, default: 0] += 1
                let number = Int(payload.dropFirst(3)) ?? 0
                if seen[payload] == 1 {
                    if number < last { problems.append("\(payload) came too late to \(name)") }
                    last = number
                }
            }
            for message in sentToConsumers {
                let times = seen[message.payload] ?? 0
                guard consumer.name == "all" || message.topic == "in/1" else {
                    if times > 0 { problems.append("\(name) got \(message.payload)") }
                    continue
                }
                if message.qos == .exactlyOnce, times > 1 {
                    problems.append("\(message.payload) was collected \(times) times for \(name)")
                }
                if message.qos == .exactlyOnce, !noticedEpochs.contains(message.epoch) { continue }
                if message.epoch == server.epoch, times == 0 {
                    problems.append("\(message.payload) never came to \(name)")
                }
            }
        }
        let counts = machine.inboxCounts
        if counts.messages != 0 || counts.bytes != 0 || counts.withheld != 0 {
            problems.append("the inbox at rest: \(counts)")
        }
    }
}
