import MQTT
import NIOCore
import Session
import SessionCore
import Support
import Testing
import Vocabulary

@testable import DurableStore

/// What a session's state should be, in memory.
struct ModelSession {
    var messages: [MessageSequence: StoredMessage] = [:]
    var last = MessageSequence.zero
    var state = DurableSession()
    /// Without the protocol's part.
    var rest = StoredSession()

    /// - Returns: whether the store accepts the change.
    mutating func apply(_ change: SessionChange) -> Bool {
        guard let change = rest.apply(change) else { return true }
        return apply(change)
    }

    private mutating func apply(_ change: DurableChange) -> Bool {
        switch change {
        case .insert(let stored):
            guard stored.sequence > last else { return false }
            last = stored.sequence
            messages[stored.sequence] = stored
        case .assign(let sequence, let packetID):
            if case .quarantined = messages[sequence]?.state { return true }
            messages[sequence]?.state = .inFlight(packetID)
        case .unassign(let sequence):
            switch messages[sequence]?.state {
            case .inFlight, .released: messages[sequence]?.state = .queued
            default: break
            }
        case .release(let sequence):
            if case .inFlight(let packetID) = messages[sequence]?.state {
                messages[sequence]?.state = .released(packetID)
            }
        case .remove(let sequence), .acknowledge(let sequence): messages[sequence] = nil
        case .quarantine(let sequence, let code, let text): messages[sequence]?.state = .quarantined(code, text)
        case .requeue(let sequence, let newSequence, let time):
            guard newSequence > last else { return false }
            last = newSequence
            if case .quarantined = messages[sequence]?.state, var stored = messages.removeValue(forKey: sequence) {
                stored.sequence = newSequence
                stored.state = .queued
                stored.message.acceptedAt = time
                messages[newSequence] = stored
            }
        case .shiftTimes(let milliseconds, let range):
            for (sequence, stored) in messages where range.contains(stored.message.acceptedAt) {
                messages[sequence]?.message.acceptedAt = .init(
                    rawValue: stored.message.acceptedAt.rawValue + milliseconds)
                messages[sequence]?.message.expiresAt = stored.message.expiresAt.map {
                    .init(rawValue: $0.rawValue + milliseconds)
                }
            }
        case .insertInbound(let packetID): state.inboundIDs.insert(packetID)
        case .removeInbound(let packetID): state.inboundIDs.remove(packetID)
        case .removeAllInbound: state.inboundIDs = []
        case .retireIdentifier(let packetID): state.retiredIDs.insert(packetID)
        case .suspectIdentifier(let packetID): state.suspectIDs.insert(packetID)
        case .clearSuspect(let packetID): state.suspectIDs.remove(packetID)
        case .freeRetiredIdentifiers:
            state.retiredIDs = []
            state.suspectIDs = []
        case .setClientID(let clientID): state.clientID = clientID
        case .rememberSubscription(let filter): state.rememberedSubscriptions.insert(filter)
        case .forgetSubscription(let filter): state.rememberedSubscriptions.remove(filter)
        case .forgetAllSubscriptions: state.rememberedSubscriptions = []
        case .setAssignedClientID(let clientID): state.assignedClientID = clientID
        case .setEstablished(let established): state.established = established
        // InboxTests has the inbox.
        case .collect, .removeCollected, .putConsumer, .removeConsumer, .setGiven, .dropCollected, .toldMissed: break
        // KeyTests has the keys.
        case .rememberKey, .concludeKey: break
        }
        return true
    }

    /// The store was not closed: reserved sequences are skipped, reserved identifiers are suspect.
    mutating func crashed(_ found: DurableSession) {
        guard found.nextSequence > last else { return }
        last = MessageSequence(rawValue: found.nextSequence.rawValue - 1)
        state.suspectIDs = found.suspectIDs
    }

    private func ordered(_ isWanted: (StoredMessage.State) -> Bool) -> [StoredMessage] {
        messages.values.filter { isWanted($0.state) }.sorted { $0.sequence < $1.sequence }
    }

    var queued: [StoredMessage] { ordered { $0 == .queued } }

    var quarantined: [StoredMessage] {
        ordered { state in
            if case .quarantined = state { return true }
            return false
        }
    }

    var stored: StoredSession {
        var stored = rest
        stored.mqtt = durable
        return stored
    }

    private var durable: DurableSession {
        var durable = state
        durable.nextSequence = last.next
        durable.inFlight = ordered { state in
            switch state {
            case .inFlight, .released: true
            default: false
            }
        }
        durable.queuedCount = queued.count
        durable.queuedBytes = queued.reduce(0) { $0 + $1.message.size }
        durable.quarantinedCount = quarantined.count
        durable.quarantinedBytes = quarantined.reduce(0) { $0 + $1.message.size }
        return durable
    }
}

@Suite struct `Store and model` {
    @Test(arguments: UInt64(1)...24)
    func `agree after every batch, through restarts and crashes`(seed: UInt64) async throws {
        var random = SplitMix64(seed: seed)
        var directory = try TemporaryDirectory()
        var store: DurableStore? = try openStore(directory)
        let names = [try session("a"), try session("b"), try session("c-3")]
        var model: [SessionName: ModelSession] = [:]

        for _ in 0..<80 {
            let current = try #require(store)
            var next = model
            var isValid = true
            var batch: [(session: SessionName, changes: [SessionChange])] = []
            for _ in 0..<Int.random(in: 1...3, using: &random) {
                let name = try #require(names.randomElement(using: &random))
                var session = next[name] ?? ModelSession()
                var changes: [SessionChange] = []
                for _ in 0..<Int.random(in: 0...12, using: &random) {
                    let change =
                        try Self.next(after: changes.last, &random) ?? Self.change(after: session.last, &random)
                    changes.append(change)
                    isValid = session.apply(change) && isValid
                    switch change {
                    case .mqtt(.setClientID), .mqtt(.setEstablished(true)):
                        guard let clientID = session.state.clientID else { break }
                        for other in names where other != name && next[other]?.state.clientID == clientID {
                            next[other]?.state.established = false
                        }
                    default: break
                    }
                }
                next[name] = session
                batch.append((name, changes))
            }
            if isValid {
                try await current.commit(batch)
                model = next
            } else {
                await #expect(throws: StoreError.self) { try await current.commit(batch) }
            }

            switch Int.random(in: 0..<10, using: &random) {
            case 0:
                try await current.close()
                store = nil
                directory = try directory.copyAsItIs()
                store = try openStore(directory)
            case 1:
                directory = try directory.copyAsItIs()
                store = try openStore(directory)
                for name in Array(model.keys) { model[name]?.crashed(try await #require(store).mqtt(name)) }
            default: break
            }
            for name in names {
                let session = model[name] ?? ModelSession()
                let store = try #require(store)
                let found = try await store.session(name)
                try #require(found == session.stored, "\(found) is not \(session.stored)")
                try #require(try await store.queue(name) == session.queued)
                try #require(try await store.quarantined(name) == session.quarantined)
                let summaries = try await store.summaries(name, limit: .max)
                let all = session.messages.values.sorted { $0.sequence < $1.sequence }
                try #require(summaries == all.map { StoredMessageSummary($0) })
            }
            #expect(await store?.statistics().messages == model.values.reduce(0) { $0 + $1.messages.count })
        }
    }

    /// Most messages are sent or finished in ranges.
    private static func next(after change: SessionChange?, _ random: inout SplitMix64) throws -> SessionChange? {
        guard Int.random(in: 0..<4, using: &random) > 0 else { return nil }
        switch change {
        case .mqtt(.assign(let sequence, let packetID))?:
            return .mqtt(.assign(sequence.next, try id(packetID.rawValue % .max + 1)))
        case .mqtt(.unassign(let sequence))?: return .mqtt(.unassign(sequence.next))
        case .mqtt(.release(let sequence))?: return .mqtt(.release(sequence.next))
        case .mqtt(.remove(let sequence))?: return .mqtt(.remove(sequence.next))
        case .mqtt(.acknowledge(let sequence))?: return .mqtt(.acknowledge(sequence.next))
        default: return nil
        }
    }

    /// No two messages have one packet identifier.
    private static func ownID(of sequence: MessageSequence) throws -> PacketID {
        try id(UInt16((sequence.rawValue + 65_534) % 65_535 + 1))
    }

    private static func change(
        after last: MessageSequence, _ random: inout SplitMix64
    ) throws -> SessionChange {
        // Most of the older ones are gone.
        let recent = max(0, last.rawValue - 30)...max(last.rawValue, 1)
        let known = MessageSequence(rawValue: Int64.random(in: recent, using: &random))
        let packetID = try id(UInt16.random(in: 1...20, using: &random))
        let filter = try TopicFilter("filter/\(Int.random(in: 0..<5, using: &random))")
        switch Int.random(in: 0..<52, using: &random) {
        case 0..<12:
            let isReused = Int.random(in: 0..<60, using: &random) == 0
            let step = Int64.random(in: 1...3, using: &random)
            var message = OutboundMessage(
                topic: "t/\(Int.random(in: 0..<9, using: &random))",
                payload: ByteBuffer(repeating: 7, count: Int.random(in: 0...2000, using: &random)),
                qos: try #require(QoS.allCases.randomElement(using: &random)),
                retain: Bool.random(using: &random),
                properties: try #require(
                    `The stored state`.properties.randomElement(using: &random)))
            message.acceptedAt = Timestamp(rawValue: last.rawValue)
            if Bool.random(using: &random) { message.expiresAt = Timestamp(rawValue: last.rawValue + 1000) }
            return .mqtt(
                .insert(
                    StoredMessage(
                        sequence: isReused ? last : MessageSequence(rawValue: last.rawValue + step), message: message,
                        state: Bool.random(using: &random)
                            ? .queued : .inFlight(try ownID(of: .init(rawValue: last.rawValue + step))))))
        case 12..<17: return .mqtt(.assign(known, try ownID(of: known)))
        case 17..<19: return .mqtt(.unassign(known))
        case 19..<22: return .mqtt(.release(known))
        case 22..<25: return .mqtt(.remove(known))
        case 25..<28: return .mqtt(.acknowledge(known))
        case 28, 29: return .mqtt(.quarantine(known, .payloadFormatInvalid, "seed"))
        case 30:
            return .mqtt(
                .requeue(
                    known, as: MessageSequence(rawValue: last.rawValue + 1),
                    at: Timestamp(rawValue: last.rawValue + 500)))
        case 31, 32: return .mqtt(.insertInbound(packetID))
        case 33: return .mqtt(.removeInbound(packetID))
        case 34: return .mqtt(Bool.random(using: &random) ? .removeAllInbound : .forgetAllSubscriptions)
        case 35, 36: return .mqtt(.rememberSubscription(filter))
        case 37: return .mqtt(.forgetSubscription(filter))
        case 39, 40:
            return .putPublication(
                Publication(
                    topic: "p/\(Int.random(in: 0..<5, using: &random))",
                    payload: ByteBuffer(repeating: 7, count: Int.random(in: 1...2000, using: &random)),
                    qos: Bool.random(using: &random) ? .atMostOnce : .atLeastOnce,
                    properties: try #require(
                        `The stored state`.properties.randomElement(using: &random)),
                    since: Timestamp(rawValue: last.rawValue)))
        case 41: return .removePublication("p/\(Int.random(in: 0..<5, using: &random))")
        case 42, 43: return .rememberRetained("p/\(Int.random(in: 0..<5, using: &random))")
        case 45:
            let start = Int64.random(in: 0...last.rawValue, using: &random)
            return .mqtt(
                .shiftTimes(
                    by: Int64.random(in: -50...50, using: &random),
                    acceptedWithin: Timestamp(rawValue: start)...Timestamp(rawValue: start + 20)))
        case 44: return .forgetRetained("p/\(Int.random(in: 0..<5, using: &random))")
        case 46: return .mqtt(.retireIdentifier(packetID))
        case 47: return .mqtt(.freeRetiredIdentifiers)
        case 48:
            let older = try (1..<Int.random(in: 1...3, using: &random)).map { number in
                SessionHome(
                    "mqtt://\(number)",
                    left: LeftSession(
                        unreleased: [packetID], inbound: [packetID, try id(UInt16(number))], filters: [filter]),
                    retained: RetainedTopics(publications: ["p/\(number)"], presences: ["r/\(number)"]),
                    endsAt: Bool.random(using: &random) ? nil : Timestamp(rawValue: last.rawValue))
            }
            let home = SessionHome(
                "mqtt://\(packetID)", expiry: UInt32(packetID.rawValue), keepAlive: packetID.rawValue)
            return .setHomes([home] + older)
        case 49:
            if Bool.random(using: &random) {
                return .setPresenceTopics(Set((0...2).map { _ in "p/\(Int.random(in: 0...9, using: &random))" }))
            }
            return .setPresences(
                Set((0...2).map { _ in Timestamp(rawValue: .random(in: 0...last.rawValue, using: &random)) }))
        case 50:
            return .setVerdict(
                Bool.random(using: &random)
                    ? nil
                    : Verdict(
                        state: "failed", reasonCode: "banned", message: "seed", bootID: "\(packetID)",
                        since: Timestamp(rawValue: last.rawValue)))
        case 51:
            return .setChosenRoom(
                Bool.random(using: &random) ? nil : ChosenRoom(room: "\(packetID)", configured: "", bootID: "b"))
        case 38 where Bool.random(using: &random): return .mqtt(.setClientID("client-\(packetID.rawValue % 2)"))
        case 38: return .mqtt(.setAssignedClientID("client-\(packetID)"))
        default: return .mqtt(.setEstablished(Bool.random(using: &random)))
        }
    }
}
