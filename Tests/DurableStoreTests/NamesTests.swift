import MQTT
import NIOCore
import Session
import SessionCore
import Testing

@testable import DurableStore

/// A row for each name of a session, of which there are 32,767.
@Suite struct `The names of sessions` {
    let directory: TemporaryDirectory

    /// Every row is taken, by `s1` to `s32767`; the first ten own something.
    init() async throws {
        directory = try TemporaryDirectory()
        let store = try openStore(directory)
        try await store.close()
        let database = try Database(path: "\(directory.path)/\(DurableStore.fileName)")
        try database.execute(
            """
            WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 32767)
                INSERT INTO session (id, name, established) SELECT n, 's' || n, n = 11 FROM number;
            INSERT INTO message (key, accepted_at, size, qos, retain, topic, payload)
                SELECT (id << 48) + 1, 0, 1, 1, 0, 't', x'00' FROM session WHERE id <= 4;
            INSERT INTO consumer (session, name, filter, qos) SELECT id, 'c', 'f', 1 FROM session WHERE id IN (5, 6);
            INSERT INTO publication (session, topic, qos, payload, since) VALUES (7, 't', 1, x'00', 0);
            INSERT INTO retained (session, topic) VALUES (8, 't');
            INSERT INTO publish_key (session, key, sequence, time) VALUES (9, 'k', 1, unixepoch() * 1000);
            INSERT INTO publish_key (session, key, sequence, time) VALUES (12, 'k', 1, 0);
            INSERT INTO subscription (session, filter) VALUES (12, 'f');
            """)
        database.close()
    }

    private func name(_ text: String) throws -> SessionName { try #require(SessionName(text)) }

    private func present(_ numbers: ClosedRange<Int>) throws -> [SessionName: [Endpoint]] {
        Dictionary(uniqueKeysWithValues: try numbers.map { (try name("s\($0)"), []) })
    }

    @Test func `are used again when they are gone and own nothing`() async throws {
        let store = try openStore(directory)
        let new = try name("new")
        await #expect(throws: StoreError.self) {
            try await store.commit([(new, [.mqtt(.setEstablished(true))])])
        }
        // The tenth is present.
        try await store.setPresent([try name("s10"): [], new: []])
        try await store.commit([(new, [.mqtt(.insert(message(1)))])])
        #expect(await store.sessionNames.count == 32_767)
        let isKept = await store.sessionNames.contains(try name("s12"))
        #expect(!isKept, "s11 may have a session at a server, and comes later")
        #expect(try await store.session(new).mqtt.rememberedSubscriptions.isEmpty)
        #expect(try await store.session(new).mqtt.queuedCount == 1)
        for number in [1, 5, 7, 8, 9, 10, 11] {
            let isKept = await store.sessionNames.contains(try name("s\(number)"))
            #expect(isKept, "s\(number)")
        }
    }

    @Test func `are not used again if the last one has a message`() async throws {
        let database = try Database(path: "\(directory.path)/\(DurableStore.fileName)")
        try database.execute(
            """
            INSERT INTO message (key, accepted_at, size, qos, retain, topic, payload)
                VALUES ((32767 << 48) + 1, 0, 1, 1, 0, 't', x'00')
            """)
        database.close()
        let store = try openStore(directory)
        try await store.setPresent(try present(1...32_766))
        await #expect(throws: StoreError.self) {
            try await store.commit([(try name("new"), [.mqtt(.setEstablished(true))])])
        }
        #expect(try await store.session(try name("s32767")).mqtt.queuedCount == 1)
    }

    @Test func `are not used again while each owns something or is present`() async throws {
        let store = try openStore(directory)
        try await store.setPresent(try present(1...32_767))
        await #expect(throws: StoreError.self) {
            try await store.commit([(try name("new"), [.mqtt(.setEstablished(true))])])
        }
    }
}

/// What the store has of sessions that are not configured any more.
@Suite struct `Absent sessions` {
    let directory: TemporaryDirectory
    let store: DurableStore
    let (old, new, other): (SessionName, SessionName, SessionName)

    init() async throws {
        directory = try TemporaryDirectory()
        store = try openStore(directory)
        old = try #require(SessionName("old"))
        new = try #require(SessionName("new"))
        other = try #require(SessionName("other"))
        try await store.commit([
            (old, [.mqtt(.insert(message(1))), .mqtt(.insert(message(2)))]), (other, [.mqtt(.insert(message(1)))]),
        ])
    }

    private func absent(besides present: Set<SessionName>) async throws -> [SessionName: Int] {
        let found = try await store.absentStates(besides: present)
        return Dictionary(uniqueKeysWithValues: found.map { ($0.session, $0.messages) })
    }

    @Test func `are those with messages, as they are after each commit`() async throws {
        #expect(try await absent(besides: []) == [old: 2, other: 1])
        #expect(try await absent(besides: [other]) == [old: 2])
        let sizes = try await store.absentStates(besides: [other]).map(\.bytes)
        #expect(sizes == [Int64(message(1).message.size + message(2).message.size)])
        try await store.commit([(old, [.mqtt(.acknowledge(.init(rawValue: 1)))])])
        #expect(try await absent(besides: [other]) == [old: 1])
        try await store.commit([(old, [.mqtt(.acknowledge(.init(rawValue: 2)))])])
        #expect(try await absent(besides: [other]) == [:])
    }

    @Test func `do not find the session that a later one left at the server`() async throws {
        let packetID = try id(7)
        let (here, there) = (try Endpoint("mqtt://here.example"), try Endpoint("mqtt://there.example"))
        func hold(_ name: SessionName, at home: Endpoint) async throws {
            try await store.commit([
                (name, [.mqtt(.setEstablished(true)), .mqtt(.setClientID("me")), .setHomes([.init(home.description)])])
            ])
        }
        let elsewhere = [there]
        try await store.setPresent([old: [here], other: elsewhere])
        try await hold(old, at: here)
        try await store.commit([(old, [.mqtt(.assign(sequence(1), packetID)), .mqtt(.release(sequence(1)))])])
        // At another server: the configuration allows one client identifier at one server only once.
        try await hold(other, at: there)
        #expect(try await store.mqtt(old).established)
        // The first is absent when another one connects elsewhere for the first time.
        let third = try #require(SessionName("third"))
        try await store.setPresent([third: elsewhere, other: elsewhere])
        try await hold(third, at: there)
        #expect(try await store.mqtt(old).established, "its server still has its session")
        // One of these servers is where it was, in another scheme.
        try await store.setPresent([new: [there, try Endpoint("mqtts://here.example")], other: elsewhere])
        try await hold(new, at: there)
        #expect(try await store.mqtt(other).established)
        #expect(try await store.mqtt(new).established)
        let state = try await store.mqtt(old)
        #expect(!state.established)
        #expect(state.inFlight.map(\.state) == [.released(packetID)], "it is sent again")
        try await store.setPresent([old: [here, there], other: elsewhere])
        try await hold(old, at: here)
        #expect(try await !store.mqtt(new).established)
    }

    @Test func `of one client identifier are found without reading all sessions`() async throws {
        try await store.close()
        let database = try Database(path: "\(directory.path)/\(DurableStore.fileName)")
        defer { database.close() }
        let plan = try database.rows(
            text: "EXPLAIN QUERY PLAN \(DurableStore.Contents.othersAtServer)", with: [.integer(1)]
        ) { $0.text(3) }
        #expect(plan.first?.contains("session_client_id") == true && !plan.contains { $0.contains("SCAN") }, "\(plan)")
    }

    @Test func `are listed whatever is in the file`() async throws {
        try await store.execute("UPDATE message SET size = 9223372036854775807, accepted_at = -9223372036854775807")
        #expect(try await absent(besides: [other]) == [old: 2])
        try await store.execute("UPDATE message SET size = -5")
        #expect(try await store.absentStates(besides: []).allSatisfy { $0.bytes >= 0 })
    }

    @Test func `are listed with their consumers, received messages and publications`() async throws {
        let billing = try #require(ConsumerName("billing"))
        let collected = CollectedMessage(
            sequence: .init(rawValue: 1),
            message: .init(
                topic: "a", payload: .init(string: "x"), qos: .atLeastOnce, retain: false, duplicate: false,
                properties: .init()),
            receivedAt: .now)
        try await store.commit(
            new, .putConsumer(billing, filter: "a", .atLeastOnce), .collect(collected, for: [billing], nil))
        #expect(
            try await store.absentStates(besides: [old, other]) == [
                AbsentState(session: new, consumers: 1, received: 1)
            ])
        try await store.commit(new, .removeConsumer(billing))
        #expect(try await store.absentStates(besides: [old, other]).isEmpty)
        try await store.commit(
            new,
            .putPublication(
                Publication(
                    topic: "t", payload: .init(string: "x"), qos: .atLeastOnce, properties: .init(), since: .now)))
        #expect(try await store.absentStates(besides: [old, other]) == [AbsentState(session: new, publications: 1)])
    }

    @Test func `are kept for their servers`() async throws {
        let (here, there) = (try Endpoint("mqtt://here.example"), try Endpoint("mqtt://there.example"))
        let elsewhere = try Endpoint("mqtt://elsewhere.example")
        func foreign(_ servers: Endpoint...) async throws -> ForeignState? {
            try await store.foreignStates(among: [old: servers])[old]
        }
        try await store.setPresent([old: [here], other: [here]])
        #expect(try await foreign(there) == nil, "a file that is there may be changed")
        try await store.setPresent([old: [there, elsewhere], other: [here]])
        // A file with errors says nothing, nor does one that was never seen.
        try await store.setPresent([old: []])
        #expect(try await foreign(here) == nil)
        for known in [[:], [old: []], [old: [here]]] as [[SessionName: [Endpoint]]] {
            try await store.setPresent(known)
            let expected = ForeignState(
                servers: [there, elsewhere], state: try await store.absentStates(besides: [other])[0])
            #expect(try await foreign(here) == expected)
            #expect(expected.state.messages == 2)
            #expect(try await store.session(old).wasAbsent)
            #expect(try await foreign(here, try Endpoint("mqtts://there.example")) == nil, "in another scheme")
            #expect(try await foreign() == nil, "it has errors")
        }
        try await store.close()
        let reopened = try openStore(directory)
        #expect(try await reopened.foreignStates(among: [old: [here], other: [here]]).keys.sorted() == [old])
        try await reopened.setPresent([old: [elsewhere]])
        #expect(try await reopened.foreignStates(among: [old: [there]]).isEmpty)
        #expect(try await !reopened.session(old).wasAbsent)
    }

    @Test func `have the servers of their file when they come into being, and none if these are not known`()
        async throws
    {
        let (here, there) = (try Endpoint("mqtt://here.example"), try Endpoint("mqtt://there.example"))
        try await store.setPresent([new: [here], old: []])
        try await store.commit([(new, [.mqtt(.insert(message(1)))])])
        try await store.setPresent([:])
        #expect(try await store.foreignStates(among: [new: [there], old: [there]]).keys.sorted() == [new])
    }

    @Test func `are kept for their servers with publications and received messages, and not for consumers alone`()
        async throws
    {
        let (here, there) = (try Endpoint("mqtt://here.example"), try Endpoint("mqtt://there.example"))
        let billing = try #require(ConsumerName("billing"))
        let key = try #require(PublishKey("k"))
        let publication = Publication(
            topic: "t", payload: .init(string: "x"), qos: .atLeastOnce, properties: .init(), since: .now)
        let collected = CollectedMessage(
            sequence: .init(rawValue: 1),
            message: .init(
                topic: "a", payload: .init(string: "x"), qos: .atLeastOnce, retain: false, duplicate: false,
                properties: .init()),
            receivedAt: .now)
        func isForeign() async throws -> Bool { try await !store.foreignStates(among: [new: [there]]).isEmpty }
        try await store.setPresent([new: [here]])
        try await store.commit(
            new, .putConsumer(billing, filter: "a", .atLeastOnce), .rememberKey(key, sequence(1), at: .now))
        try await store.setPresent([:])
        #expect(try await !isForeign())
        try await store.commit(new, .collect(collected, for: [billing], nil))
        #expect(try await isForeign())
        try await store.commit(new, .removeConsumer(billing))
        #expect(try await !isForeign())
        try await store.commit(new, .putPublication(publication))
        #expect(try await isForeign())
        try await store.commit(
            new, .removePublication("t"), .rememberRetained("t"), .setPresenceTopics(["room/main"]))
        #expect(try await store.mqtt(new).hasKeys)
        try await store.setPresent([new: [there]])
        let moved = try await store.session(new)
        #expect(!moved.mqtt.hasKeys, "a key is that of the session that published with it")
        #expect(moved.retainedTopics.isEmpty && moved.presenceTopics.isEmpty, "nothing is cleared at another server")
    }
}
