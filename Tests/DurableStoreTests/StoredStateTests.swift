import DurableStore
import Glibc
import MQTT
import NIOCore
import Session
import SessionCore
import Testing
import Vocabulary

@Suite struct `The stored state` {
    let directory: TemporaryDirectory
    let main: SessionName

    init() throws {
        directory = try TemporaryDirectory()
        main = try session()
    }

    /// Commits, closes, opens again and hands over the new store.
    private func afterRestart(
        _ changes: [[DurableChange]], sourceLocation: SourceLocation = #_sourceLocation
    ) async throws -> DurableStore {
        let store = try openStore(directory)
        for changes in changes { try await store.commit([(main, changes)]) }
        let before = try await store.mqtt(main)
        try await store.close()
        let next = try openStore(try directory.copyAsItIs())
        #expect(try await next.mqtt(main) == before, sourceLocation: sourceLocation)
        return next
    }

    static let properties: [Publish.Properties] = [
        .init(),
        .init(payloadFormat: .unspecified),
        .init(payloadFormat: .utf8),
        .init(messageExpiryInterval: 0),
        .init(messageExpiryInterval: .max),
        .init(topicAlias: 65535),
        .init(responseTopic: ""),
        .init(responseTopic: "answers/ä"),
        .init(correlationData: ByteBuffer()),
        .init(correlationData: ByteBuffer(bytes: [0, 255, 0])),
        .init(userProperties: [
            UserProperty(name: "", value: ""), UserProperty(name: "a", value: "1"), UserProperty(name: "a", value: "1"),
            UserProperty(name: "é", value: "\n"),
        ]),
        .init(subscriptionIDs: [1, 268_435_455, 1]),
        .init(contentType: "text/plain"),
        .init(
            payloadFormat: .utf8, messageExpiryInterval: 60, topicAlias: 1, responseTopic: "r",
            correlationData: ByteBuffer(string: "c"), userProperties: [UserProperty(name: "n", value: "v")],
            subscriptionIDs: [7], contentType: "t"),
    ]

    @Test(arguments: properties) func `has every property of a message`(properties: Publish.Properties) async throws {
        var stored = message(1)
        stored.message.properties = properties
        let store = try await afterRestart([[.insert(stored)]])
        #expect(try await store.queue(main) == [stored])
    }

    @Test(arguments: QoS.allCases, [false, true])
    func `has every quality of service, retained or not`(qos: QoS, retain: Bool) async throws {
        var stored = message(1)
        stored.message.qos = qos
        stored.message.retain = retain
        stored.message.expiresAt = Timestamp(rawValue: 1_763_000_000_123)
        let store = try await afterRestart([[.insert(stored)]])
        #expect(try await store.queue(main) == [stored])
    }

    @Test(arguments: [0, 1, 4096, 65536, 1 << 20])
    func `has payloads of every size`(bytes: Int) async throws {
        let stored = message(1, bytes: bytes)
        let store = try await afterRestart([[.insert(stored)]])
        #expect(try await store.queue(main) == [stored])
    }

    @Test func `has a payload that was a slice of a larger buffer`() async throws {
        var packet = ByteBuffer(string: "header payload trailer")
        packet.moveReaderIndex(forwardBy: 7)
        let slice = packet.readSlice(length: 7)
        let payload = try #require(slice)
        var stored = message(1)
        stored.message.payload = payload
        let store = try await afterRestart([[.insert(stored)]])
        #expect(try await store.queue(main).map { String(buffer: $0.message.payload) } == ["payload"])
    }

    @Test func `has messages in every state`() async throws {
        let messages = [
            message(1), message(2, .inFlight(try id(1))), message(3, .released(try id(65535))),
            message(4, .quarantined(.packetTooLarge, "1 MiB is too much\nfor it")), message(5),
        ]
        let store = try await afterRestart([messages.map { .insert($0) }])
        let state = try await store.mqtt(main)
        #expect(state.inFlight == [messages[1], messages[2]])
        #expect(state.nextSequence == sequence(6))
        #expect((state.queuedCount, state.queuedBytes) == (2, 2 * messages[0].message.size))
        #expect((state.quarantinedCount, state.quarantinedBytes) == (1, messages[3].message.size))
        #expect(try await store.queue(main) == [messages[0], messages[4]])
        #expect(try await store.quarantined(main) == [messages[3]])
        for stored in messages {
            #expect(try await store.message(main, stored.sequence) == stored)
        }
        #expect(try await store.message(main, sequence(6)) == nil)
    }

    @Test func `follows a message through its states`() async throws {
        let store = try openStore(directory)
        func state() async throws -> StoredMessage.State? { try await store.message(main, sequence(1))?.state }
        try await store.commit(main, .insert(message(1)))
        #expect(try await state() == .queued)
        try await store.commit(main, .assign(sequence(1), try id(9)))
        #expect(try await state() == .inFlight(try id(9)))
        try await store.commit(main, .unassign(sequence(1)))
        #expect(try await state() == .queued)
        try await store.commit(main, .assign(sequence(1), try id(10)), .release(sequence(1)))
        #expect(try await state() == .released(try id(10)))
        try await store.commit(main, .quarantine(sequence(1), .quotaExceeded, "enough"))
        #expect(try await state() == .quarantined(.quotaExceeded, "enough"))
        try await store.commit(main, .quarantine(sequence(1), nil, "the server has not said why"))
        #expect(try await state() == .quarantined(nil, "the server has not said why"))
        try await store.commit(main, .remove(sequence(1)))
        #expect(try await state() == nil)
        #expect(await store.statistics().messages == 0)
    }

    /// Otherwise an empty commit would succeed on a file system that takes nothing any more.
    @Test func `is written to by a commit without changes`() async throws {
        let store = try openStore(directory)
        try await store.commit(main, .insert(message(1)))
        let before = try readFile("\(directory.path)/holdfast.db-wal").count
        let nothing: [(session: SessionName, changes: [SessionChange])] = []
        try await store.commit(nothing)
        #expect(try readFile("\(directory.path)/holdfast.db-wal").count > before)
        #expect(await store.statistics().messages == 1)
    }

    @Test func `puts a retried message at the end of the queue`() async throws {
        let store = try await afterRestart([
            [.insert(message(1)), .insert(message(2)), .quarantine(sequence(1), .payloadFormatInvalid, "no")],
            [.requeue(sequence(1), as: sequence(3), at: .init(rawValue: 7))],
        ])
        var moved = message(1)
        moved.sequence = sequence(3)
        moved.message.acceptedAt = .init(rawValue: 7)
        #expect(try await store.queue(main) == [message(2), moved])
        #expect(try await store.quarantined(main).isEmpty)
        #expect(try await store.message(main, sequence(1)) == nil)
        #expect(try await store.mqtt(main).nextSequence == sequence(4))
        await #expect(throws: StoreError.self, "a sequence is used a second time") {
            try await store.commit(main, .requeue(sequence(3), as: sequence(2), at: .init(rawValue: 7)))
        }
        #expect(await store.statistics().messages == 2)
    }

    @Test func `lists the outbox by state, page by page, without payloads`() async throws {
        let messages = [
            message(1), message(2, .inFlight(try id(1))), message(3, .quarantined(.notAuthorized, "no")), message(4),
            message(5, .released(try id(2))),
        ]
        let store = try await afterRestart([messages.map { .insert($0) }])
        func listed(_ filter: DurableStore.MessageFilter, after: Int64 = 0, limit: Int = 10) async throws -> [Int64] {
            try await store.summaries(main, filter, after: sequence(after), limit: limit).map(\.sequence.rawValue)
        }
        #expect(try await listed(.all) == [1, 2, 3, 4, 5])
        #expect(try await listed(.all, after: 2, limit: 2) == [3, 4])
        #expect(try await listed(.queued) == [1, 4])
        #expect(try await listed(.inFlight) == [2, 5])
        #expect(try await listed(.quarantined) == [3])
        #expect(try await listed(.quarantined, after: 3) == [])
        #expect(
            try await store.summaries(main, of: [sequence(3), sequence(9)]) == [StoredMessageSummary(messages[2])])
        #expect(try await store.summaries(try session("other"), limit: 10) == [])
    }

    @Test func `moves only the requested times when the clock is set`() async throws {
        var messages = [message(1), message(2), message(3)]
        for index in messages.indices {
            messages[index].message.acceptedAt = Timestamp(rawValue: Int64(index + 1) * 100)
        }
        messages[1].message.expiresAt = Timestamp(rawValue: 900)
        let shift = DurableChange.shiftTimes(
            by: 5000, acceptedWithin: Timestamp(rawValue: 150)...Timestamp(rawValue: 250))
        let store = try await afterRestart([messages.map { .insert($0) }, [shift]])
        messages[1].message.acceptedAt = Timestamp(rawValue: 5200)
        messages[1].message.expiresAt = Timestamp(rawValue: 5900)
        #expect(try await store.queue(main) == messages)
    }

    @Test func `retries only a quarantined message`() async throws {
        let store = try openStore(directory)
        try await store.commit(
            main, .insert(message(1, .inFlight(try id(1)))),
            .requeue(sequence(1), as: sequence(2), at: .init(rawValue: 7)))
        #expect(try await store.mqtt(main).inFlight == [message(1, .inFlight(try id(1)))])
        #expect(try await store.message(main, sequence(2)) == nil)
    }

    @Test func `ignores changes of a message that is not there`() async throws {
        let store = try openStore(directory)
        try await store.commit(
            main, .assign(sequence(1), try id(1)), .release(sequence(1)), .unassign(sequence(1)),
            .quarantine(sequence(1), .banned, ""), .remove(sequence(1)))
        #expect(try await store.mqtt(main) == DurableSession())
    }

    @Test func `has identifiers, subscriptions and the server's settings`() async throws {
        let filters = try ["a/+/c", "a/#", "$share/g/é", "e\u{301}", "\u{E9}"].map { try TopicFilter($0) }
        let store = try await afterRestart([
            [.setEstablished(true), .setAssignedClientID("auto-7")],
            [.insertInbound(try id(1)), .insertInbound(try id(65535)), .insertInbound(try id(1))],
            filters.map { .rememberSubscription($0) } + [.rememberSubscription(filters[0])],
        ])
        let state = try await store.mqtt(main)
        #expect(state.established)
        #expect(state.assignedClientID == "auto-7")
        #expect(state.inboundIDs == [try id(1), try id(65535)])
        #expect(state.rememberedSubscriptions == Set(filters))

        try await store.commit(
            main, .removeInbound(try id(1)), .forgetSubscription(filters[0]), .setEstablished(false))
        let fewer = try await store.mqtt(main)
        #expect(fewer.inboundIDs == [try id(65535)])
        #expect(fewer.rememberedSubscriptions == Set(filters.dropFirst()))
        #expect(!fewer.established)

        try await store.commit(main, .removeAllInbound, .forgetAllSubscriptions)
        let none = try await store.mqtt(main)
        #expect(none.inboundIDs.isEmpty && none.rememberedSubscriptions.isEmpty)
    }

    @Test func `is separate for each session`() async throws {
        let other = try session("other")
        let store = try openStore(directory)
        try await store.commit([
            (main, [.insert(message(1)), .insertInbound(try id(1))]),
            (other, [.insert(message(1, topic: "other")), .setEstablished(true)]),
        ])
        try await store.commit(other, .remove(sequence(1)))
        #expect(try await store.queue(main) == [message(1)])
        #expect(try await store.queue(other).isEmpty)
        #expect(try await store.mqtt(other).inboundIDs.isEmpty)
        #expect(try await !store.mqtt(main).established)
    }

    @Test func `loads up to a count and a size, but always one message`() async throws {
        let store = try openStore(directory)
        let size = message(1).message.size
        try await store.commit([(main, (1...10).map { .insert(message($0)) })])
        try await store.commit(main, .assign(sequence(2), try id(1)), .quarantine(sequence(3), .banned, "no"))
        func load(_ after: Int64, _ count: Int, _ bytes: Int) async throws -> [Int64] {
            try await store.load(main, after: sequence(after), maxCount: count, maxBytes: bytes)
                .map(\.sequence.rawValue)
        }
        #expect(try await load(0, 3, .max) == [1, 4, 5])
        #expect(try await load(5, 100, .max) == [6, 7, 8, 9, 10])
        #expect(try await load(0, 100, 2 * size) == [1, 4])
        #expect(try await load(0, 100, 2 * size - 1) == [1])
        #expect(try await load(0, 100, 0) == [1])
        #expect(try await load(10, 100, .max) == [])
        #expect(try await load(0, 0, .max) == [])
        #expect(try await load(.max, 1, .max) == [])
        #expect(try await store.load(try session("nobody"), after: .zero, maxCount: 1, maxBytes: 1) == [])
    }

    @Test func `keeps, replaces and forgets verdicts`() async throws {
        let failed = Verdict(
            state: "failed", reasonCode: "banned", message: "the server refuses us", serverCode: 0x8A,
            bootID: "b1", since: Timestamp(rawValue: 12), configuration: "c0ffee", rejectedFile: "1:2 3 4.5 6.7")
        let disconnected = Verdict(
            state: "disconnected", reasonCode: "user-disconnect", message: "", bootID: "b2",
            since: Timestamp(rawValue: 13))
        let store = try openStore(directory)
        #expect(try await store.session(main).verdict == nil)
        try await store.commit(main, .setVerdict(nil))
        try await store.commit(main, .setVerdict(failed))
        #expect(try await openStore(try directory.copyAsItIs()).session(main).verdict == failed)
        try await store.commit(main, .setVerdict(disconnected))
        #expect(try await store.session(main).verdict == disconnected)
        try await store.commit(main, .setVerdict(nil))
        #expect(try await openStore(try directory.copyAsItIs()).session(main).verdict == nil)
    }

    @Test func `never uses a sequence again, even with an empty outbox`() async throws {
        let store = try await afterRestart([[.insert(message(41)), .remove(sequence(41))], [.setEstablished(true)]])
        #expect(try await store.mqtt(main).nextSequence == sequence(42))
        for used: Int64 in [41, 40, 1, 0] {
            await #expect(throws: StoreError.self, "\(used)") {
                try await store.commit(main, .setEstablished(false), .insert(message(used)))
            }
        }
        #expect(try await store.mqtt(main).established, "the rest of a refused batch was applied")
        try await store.commit(main, .insert(message(50)))
        #expect(try await store.mqtt(main).nextSequence == sequence(51))
    }

    @Test func `applies a batch as a whole or not at all`() async throws {
        let store = try openStore(directory)
        let new = try session("new")
        try await store.commit(main, .insert(message(1)))
        let before = try await store.mqtt(main)
        await #expect(throws: StoreError.self) {
            try await store.commit([
                (new, [.insert(message(1))]),
                (main, [.remove(sequence(1)), .insertInbound(try id(1)), .insert(message(1))]),
            ])
        }
        #expect(try await store.mqtt(main) == before)
        #expect(try await store.mqtt(new) == DurableSession())
        #expect(await store.statistics().messages == 1)
        try await store.commit(new, .insert(message(1)))
        #expect(try await store.queue(new) == [message(1)])
    }

    @Test func `is refused by a closed store, which has left no log`() async throws {
        let store = try openStore(directory)
        try await store.commit(main, .insert(message(1)))
        #expect(await store.statistics().logBytes > 0)
        try await store.close()
        try await store.close()
        await #expect(throws: StoreError.closed) { try await store.commit(main, .insert(message(2))) }
        await #expect(throws: StoreError.closed) { try await store.mqtt(main) }
        #expect(directory.names == ["holdfast.db", "holdfast.db-mark", "holdfast.spare", "lock"])
    }

    @Test(arguments: [Durability.normal, .full])
    func `has large messages in the log until that is 16 MiB long`(durability: Durability) async throws {
        let store = try openStore(directory, durability)
        for number in 1...10 as ClosedRange<Int64> {
            try await store.commit(main, .insert(message(number, bytes: 1_000_000)))
        }
        #expect(await store.statistics().logBytes > 10_000_000)
        #expect(await store.statistics().fileBytes < 1_000_000)
        for number in 11...40 as ClosedRange<Int64> {
            try await store.commit(main, .insert(message(number, bytes: 1_000_000)))
        }
        #expect(await store.statistics().logBytes < 18 << 20)
        #expect(await store.statistics().fileBytes > 20_000_000)
    }

    @Test func `is not flushed for an acknowledgement alone with durability full`() async throws {
        let store = try openStore(directory, .full)
        for number in 1...4 as ClosedRange<Int64> { try await store.commit(main, .insert(message(number))) }
        #expect(await store.statistics().commits.flushes == 4)
        try await store.commit(
            main, .acknowledge(sequence(1)),
            .concludeKey(sequence(1), .delivered(.success), at: .init(rawValue: 0)))
        try await store.commit(main, .acknowledge(sequence(2)))
        #expect(await store.statistics().commits.flushes == 4)
        try await store.commit(main, .acknowledge(sequence(3)), .remove(sequence(4)))
        #expect(await store.statistics().commits.flushes == 5)
        #expect(try await store.mqtt(main).queuedCount == 0)
    }

    @Test func `is flushed only when numbers are reserved with durability normal`() async throws {
        let store = try openStore(directory, .normal)
        for number in 1...4 as ClosedRange<Int64> { try await store.commit(main, .insert(message(number))) }
        #expect(await store.statistics().commits.flushes == 1)
    }

    @Test func `is flushed by the next commit if a flush fails`() async throws {
        let store = try openStore(directory, .normal)
        let log = "\(directory.path)/holdfast.db-wal"
        // SQLite has the file open; flushing opens it again, and follows no link.
        #expect(rename(log, log + ".away") == 0 && symlink(log + ".away", log) == 0)
        try await store.commit(main, .insert(message(1)))
        #expect(await store.statistics().commits.flushes == 0)
        #expect(rename(log + ".away", log) == 0)
        try await store.commit(main, .insert(message(2)))
        try await store.commit(main, .insert(message(3)))
        #expect(await store.statistics().commits.flushes == 1)
    }

    @Test func `has statistics of sizes and commits`() async throws {
        let store = try openStore(directory, .full)
        try await store.commit(main, .insert(message(1, bytes: 100_000)))
        let statistics = await store.statistics()
        #expect(statistics.commits.count == 1 && statistics.commits.failed == 0 && statistics.messages == 1)
        #expect(statistics.logBytes > 100_000 && statistics.schemaVersion == 9)
        #expect((statistics.freeBytes ?? 0) > 0)
        #expect(statistics.path == "\(directory.path)/holdfast.db")
    }
}
