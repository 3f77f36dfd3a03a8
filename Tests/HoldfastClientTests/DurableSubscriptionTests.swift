import ControlAPI
import HoldfastClient
import Testing

/// Durable consumers over restarts of the daemon, which is a script here.
@Suite(.timeLimit(.minutes(10)))
struct DurableSubscriptionTests {
    private static func message(_ id: Int64) -> [UInt8] {
        let message = ReceivedMessage(
            subscription: SubscriptionID(rawValue: "s1"), session: "main", id: id, topic: "t",
            payload: .init(text: "\(id)"), qos: .exactlyOnce, retain: false, duplicate: false)
        return OutgoingLine.notification(message) ?? []
    }

    /// Answers the request for the consumer.
    private static func subscribe(
        _ peer: inout LineServer.Peer, missed: Int? = nil, epoch: String = "e"
    ) async throws {
        let (id, method, _) = try await peer.request()
        #expect(method == "message.subscribe")
        try await peer.answer(
            id,
            MessageSubscribeMethod.Result(
                subscription: SubscriptionID(rawValue: "s1"), grantedQoS: .exactlyOnce, missed: missed, epoch: epoch))
    }

    private static func acknowledge(_ expected: Int64, _ peer: inout LineServer.Peer) async throws {
        let (id, method, parameters) = try await peer.request()
        #expect(method == "message.ack")
        #expect(parameters?["id"] == .integer(expected))
        try await peer.answer(id, MessageAckMethod.Result(acknowledged: 1))
    }

    /// The client signals that it has come this far, and gets a message before it goes on.
    private static func proceed(_ peer: inout LineServer.Peer, giving message: [UInt8]? = nil) async throws {
        let (id, method, _) = try await peer.request()
        #expect(method == "session.list")
        if let message { try await peer.write(message) }
        try await peer.answer(id, [SessionStatus]())
    }

    private static func proceed(_ client: HoldfastClient) async throws {
        _ = try await client.callUndecoded(SessionListMethod.self, NoParameters())
    }

    private func serve(
        _ daemon: @escaping @Sendable (inout LineServer.Accepting) async throws -> Void,
        _ body: (HoldfastClient, inout DurableSubscription.AsyncIterator) async throws -> Void
    ) async throws {
        try await withSocket { socket in
            let server = try await LineServer.start(socket)
            async let served: Void = server.run(daemon)
            let client = impatientClient(socket)
            let messages = try await client.consume(session: "main", filter: "t", consumer: "c")
            var iterator = messages.makeAsyncIterator()
            let outcome: Result<Void, any Error>
            do { outcome = .success(try await body(client, &iterator)) } catch { outcome = .failure(error) }
            await client.close()
            try outcome.get()
            try await served
        }
    }

    @Test func `a refusal that comes once the session is connected ends the sequence behind its messages`() async throws
    {
        try await serve { accepting in
            try await accepting.greet { peer in
                try await Self.subscribe(&peer)
                try await peer.write(Self.message(1))
                for line in LineServer.lateAnswers { try await peer.write(line) }
                let (left, method, parameters) = try await peer.request()
                #expect(method == "message.unsubscribe" && parameters?["keep"] == .bool(true))
                try await peer.answer(left, JSONValue.object([:]))
                try await peer.end()
            }
        } _: { _, messages in
            let first = try await messages.next()
            #expect(first?.message.id == 1)
            let error = await #expect(throws: ClientError.self) { try await messages.next() }
            #expect(error == .refused(.subscriptionRefused("t", "not authorized (0x87)", reasonCode: 0x87)))
        }
    }

    @Test func `one call acknowledges a message and all before it`() async throws {
        try await serve { accepting in
            try await accepting.greet { peer in
                try await Self.subscribe(&peer)
                for id in Int64(1)...3 { try await peer.write(Self.message(id)) }
                let (id, method, parameters) = try await peer.request()
                #expect(method == "message.ack")
                #expect(parameters?["id"] == .integer(2) && parameters?["upTo"] == .bool(true))
                try await peer.answer(id, MessageAckMethod.Result(acknowledged: 2))
                // The first is not asked about again.
                try await Self.acknowledge(3, &peer)
                try await peer.end()
            }
        } _: { _, messages in
            var given: [DurableSubscription.Element] = []
            for _ in 1...3 { given.append(try #require(try await messages.next())) }
            #expect(try await given[1].ackUpToHere() == .committed)
            #expect(try await given[0].ack() == .committed)
            #expect(try await given[2].ack() == .committed)
        }
    }

    /// The daemon takes an acknowledgement only of what it has given on this connection, and gives a few at a time.
    @Test func `a message of the previous connection is acknowledged when the daemon gives it again`() async throws {
        try await serve { accepting in
            try await accepting.greet { peer in
                try await Self.subscribe(&peer)
                for id in Int64(1)...3 { try await peer.write(Self.message(id)) }
                try await Self.proceed(&peer)
            }
            try await accepting.greet { peer in
                try await Self.subscribe(&peer)
                try await Self.proceed(&peer)
                try await Self.proceed(&peer, giving: Self.message(1))
                try await Self.acknowledge(1, &peer)
                try await Self.proceed(&peer, giving: Self.message(2))
                try await Self.acknowledge(2, &peer)
                // 3 was dropped meanwhile.
                try await peer.write(Self.message(4))
                try await Self.acknowledge(4, &peer)
                try await peer.end()
            }
        } _: { client, messages in
            var given: [DurableSubscription.Element] = []
            for _ in 1...3 { given.append(try #require(try await messages.next())) }
            try await Self.proceed(client)
            // On the next connection: the daemon has made the consumer by then, and given nothing.
            while (try? await Self.proceed(client)) == nil {}
            #expect(try await given[0].ack() == .pending)
            try await Self.proceed(client)
            try await Self.proceed(client)
            #expect(try await given[1].ack() == .committed)
            let fourth = try #require(try await messages.next())
            #expect(fourth.message.id == 4)
            try await given[2].ack()
            #expect(try await fourth.ack() == .committed)
        }
    }

    @Test func `what was dropped while the client was away is reported with the next message`() async throws {
        try await serve { accepting in
            try await accepting.greet { peer in
                try await Self.subscribe(&peer, missed: 1)
                try await peer.write(Self.message(2))
                try await Self.proceed(&peer)
            }
            try await accepting.greet { peer in
                try await Self.subscribe(&peer, missed: 3)
                for id in Int64(6)...7 { try await peer.write(Self.message(id)) }
                try await peer.end()
            }
        } _: { client, messages in
            #expect(try await messages.next()?.missed == 0)
            try await Self.proceed(client)
            #expect(try await messages.next()?.missed == 3)
            #expect(try await messages.next()?.missed == 0)
        }
    }

    @Test func `a program learns that its consumer has lost the daemon`() async throws {
        try await withSocket { socket in
            let server = try await LineServer.start(socket)
            let (told, continuation) = AsyncStream.makeStream(of: ClientError.self)
            async let served: Void = server.run { accepting in
                try await accepting.greet { try await Self.subscribe(&$0) }
            }
            let client = impatientClient(socket)
            let messages = try await client.consume(
                session: "main", filter: "t", consumer: "c", detached: { continuation.yield($0) })
            var errors = told.makeAsyncIterator()
            #expect(await errors.next() == .connectionLost)
            try await served
            await client.close()
            withExtendedLifetime(messages) {}
        }
    }

    /// The daemon sends it again on every connection.
    @Test func `a message that cannot be read a second time ends the sequence with an error`() async throws {
        let tooLong = String(repeating: " ", count: (1 << 16) + 1)
        try await serve { accepting in
            try await accepting.greet { peer in
                try await Self.subscribe(&peer)
                try await peer.write(tooLong)
                try await peer.end()
            }
            try await accepting.greet { peer in
                try await Self.subscribe(&peer)
                try await peer.write(Self.message(1))
                try await peer.write(tooLong)
                try await peer.end()
            }
            try await accepting.greet { peer in
                try await Self.subscribe(&peer)
                try await peer.write(Self.message(1))
                try await peer.write(tooLong)
                try await peer.end()
            }
        } _: { _, messages in
            let first = try await messages.next()
            #expect(first?.message.id == 1, "a new message is progress")
            await #expect(throws: ClientError.invalidAnswer("the line is too long")) { try await messages.next() }
        }
    }

    @Test(arguments: [RPCError.notCommitted("the consumer", because: "no space left"), .tooManyRequests("too many")])
    func `a consumer that the daemon cannot create now is requested again`(refusal: RPCError) async throws {
        try await serve { accepting in
            try await accepting.greet { try await Self.subscribe(&$0) }
            try await accepting.greet { peer in
                let (id, _, _) = try await peer.request()
                try await peer.write(OutgoingLine.failure(id, refusal))
                try await Self.subscribe(&peer)
                try await peer.write(Self.message(1))
                try await Self.acknowledge(1, &peer)
                try await peer.end()
            }
        } _: { _, messages in
            try await #require(try await messages.next()).ack()
        }
    }

    /// What the daemon says when another program has taken the consumer.
    private static let end =
        #"{"jsonrpc":"2.0","method":"session.event","params":{"watch":"s1","session":"main","sequence":1,"#
        + #""time":"2026-11-23T00:00:00Z","event":"consumer-ended","consumer":"c"}}"#

    @Test func `the sequence ends with an error when the session is removed`() async throws {
        try await serve { accepting in
            try await accepting.greet { peer in
                try await Self.subscribe(&peer)
                try await peer.write(Self.end.replacing("consumer-ended", with: "session-removed"))
                try await peer.end()
            }
        } _: { _, messages in
            await #expect(throws: ClientError.refused(.sessionRemoved("main"))) { try await messages.next() }
        }
    }

    @Test func `an acknowledgement after a take-over fails like the sequence`() async throws {
        try await serve { accepting in
            try await accepting.greet { peer in
                try await Self.subscribe(&peer)
                for id in Int64(1)...2 { try await peer.write(Self.message(id)) }
                let (id, method, _) = try await peer.request()
                #expect(method == "message.ack")
                try await peer.write(Self.end)
                try await peer.write(OutgoingLine.failure(id, .unknownSubscription(SubscriptionID(rawValue: "s1"))))
                try await peer.end()
            }
        } _: { _, messages in
            let first = try #require(try await messages.next())
            let second = try #require(try await messages.next())
            await #expect(throws: ClientError.consumerEnded("c")) { try await first.ack() }
            await #expect(throws: ClientError.consumerEnded("c")) { try await second.ack() }
            await #expect(throws: ClientError.consumerEnded("c")) { try await messages.next() }
        }
    }

    @Test func `a consumer taken over while the client subscribes again ends`() async throws {
        try await serve { accepting in
            try await accepting.greet { try await Self.subscribe(&$0) }
            try await accepting.greet { peer in
                let (id, _, _) = try await peer.request()
                try await peer.write(OutgoingLine.failure(id, .consumerEnded("c")))
                try await peer.end()
            }
        } _: { _, messages in
            await #expect(throws: ClientError.consumerEnded("c")) { try await messages.next() }
        }
    }

    @Test func `a consumer taken over before the daemon has answered is an error`() async throws {
        try await withSocket { socket in
            let server = try await LineServer.start(socket)
            async let served: Void = server.run { accepting in
                try await accepting.greet { peer in
                    let (id, _, _) = try await peer.request()
                    try await peer.write(OutgoingLine.failure(id, .consumerEnded("c")))
                    try await peer.end()
                }
            }
            let client = impatientClient(socket)
            await #expect(throws: ClientError.consumerEnded("c")) {
                _ = try await client.consume(session: "main", filter: "t", consumer: "c")
            }
            await client.close()
            try await served
        }
    }

    @Test func `an acknowledgement after the client was closed says that`() async throws {
        try await serve { accepting in
            try await accepting.greet { peer in
                try await Self.subscribe(&peer)
                try await peer.write(Self.message(1))
                try await peer.end()
            }
        } _: { client, messages in
            let message = try #require(try await messages.next())
            await client.close()
            await #expect(throws: ClientError.closed) { try await message.ack() }
        }
    }

    @Test func `a message of a store that was replaced is not called acknowledged`() async throws {
        try await serve { accepting in
            try await accepting.greet { peer in
                try await Self.subscribe(&peer)
                try await peer.write(Self.message(1))
                try await Self.proceed(&peer)
            }
            try await accepting.greet { peer in
                try await Self.subscribe(&peer, epoch: "f")
                // The same message, under the number that it has in the new store.
                try await peer.write(Self.message(7))
                try await Self.acknowledge(7, &peer)
                try await peer.end()
            }
        } _: { client, messages in
            let earlier = try #require(try await messages.next())
            try await Self.proceed(client)
            let again = try #require(try await messages.next())
            #expect(again.message.id == 7)
            #expect(try await earlier.ack() == .outdated)
            #expect(try await again.ack() == .committed)
        }
    }
}
