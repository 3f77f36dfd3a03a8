import ControlAPI
import MQTT
import NIOCore
import SessionCore
import Testing

@testable import Session

/// What programs ask of a session, and what they are told, one line per step.
struct SessionProgramsTests {
    private let call = CallID(rawValue: 1)
    private let second = CallID(rawValue: 2)
    private let program = SubscriptionID(rawValue: "s")

    private func filter(_ text: String = "a/#") throws -> TopicFilter { try TopicFilter(text) }

    private func message(_ payload: String, _ number: UInt16? = nil, topic: String = "a/b") -> Packet {
        .publish(
            Publish(
                topic: topic, payload: ByteBuffer(string: payload), qos: number == nil ? .atMostOnce : .atLeastOnce,
                packetID: number.flatMap { PacketID(rawValue: $0) }))
    }

    private func accept(
        _ session: inout SessionUnderTest, topic: String = "t", key: PublishKey? = nil
    ) throws -> MessageSequence {
        let message = OutboundMessage(topic: topic, payload: ByteBuffer(string: "x"), qos: .atLeastOnce)
        session.ask { _ in }
        let sequence = try session.session.accept(message, key: key, at: session.time)
        session.session.commitAccepted(at: session.time)
        return sequence
    }

    // MARK: Subscriptions

    @Test(arguments: [ReasonCode.grantedQoS1, .notAuthorized])
    func `the server's answer to a subscription goes to the program that waits for it`(code: ReasonCode) throws {
        var session = try SessionUnderTest().connected()
        _ = try attach(&session)
        #expect(session.take(.subscribe(try filter(), call)) == ["send SUBSCRIBE"])
        #expect(session.toldOf("call") == [])
        #expect(try session.grants(code) == [])
        #expect(session.toldOf("call") == ["call 1: granted \(code.rawValue)"])
    }

    @Test func `a program that subscribes before the session is connected does not wait for the server`() throws {
        var session = try SessionUnderTest()
        _ = try attach(&session)
        #expect(session.take(.subscribe(try filter(), call)) == [])
        #expect(session.toldOf("call") == ["call 1: no answer"])
        session.dials()
        #expect(session.receives(.connack(Connack())) == ["send SUBSCRIBE"])
        #expect(try session.grants(.grantedQoS1) == ["connected"])
    }

    @Test func `a program does not wait for the answer to a subscription when the connection has ended`() throws {
        var session = try SessionUnderTest().connected()
        _ = try attach(&session)
        _ = session.take(.subscribe(try filter(), call))
        _ = session.take(.closed(Reason(.reset)))
        #expect(session.toldOf("call") == ["call 1: no answer"])
    }

    @Test func `a program does not wait for the answer to a subscription that nobody wants any more`() throws {
        var session = try SessionUnderTest().connected()
        let consumer = LiveConsumer(id: program, filter: try filter(), qos: .atLeastOnce)
        #expect(session.take(.consume(consumer, call)) == ["send SUBSCRIBE"])
        _ = session.take(.unsubscribe(program))
        #expect(session.toldOf("call") == ["call 1: no answer"])
    }

    @Test func `the server is asked for the highest QoS that a program wants, and keeps it until the last is gone`()
        throws
    {
        var session = try SessionUnderTest().connected()
        let other = SubscriptionID(rawValue: "other")
        _ = session.take(.consume(LiveConsumer(id: program, filter: try filter(), qos: .exactlyOnce), call))
        #expect(session.session.mqtt.subscriptionStates.first?.qos == .exactlyOnce)
        _ = try session.grants(.grantedQoS2)
        _ = session.take(.consume(LiveConsumer(id: other, filter: try filter(), qos: .atMostOnce), second))
        #expect(session.session.mqtt.subscriptionStates.first?.qos == .exactlyOnce)
        #expect(session.take(.unsubscribe(program)) == [])
        #expect(session.take(.unsubscribe(other)) == ["send UNSUBSCRIBE"])
    }

    // MARK: Messages to programs

    @Test func `a message goes to the programs that want it, and is counted`() throws {
        var session = try SessionUnderTest().connected()
        _ = session.take(.consume(LiveConsumer(id: program, filter: try filter(), qos: .atMostOnce), call))
        _ = try session.grants(.success)
        _ = session.receives(message("1"), message("2", topic: "elsewhere"), message("3"))
        #expect(session.toldOf("give") == ["give 1 to s", "give 3 to s"])
        #expect(session.session.counts.received == 3)
    }

    @Test func `a message with unusable content is reported and counted, and not given to a program`() throws {
        var session = try SessionUnderTest().connected()
        _ = session.take(.consume(LiveConsumer(id: program, filter: try filter(), qos: .atMostOnce), call))
        _ = try session.grants(.success)
        let text = Publish.Properties(payloadFormat: .utf8)
        _ = session.receives(.publish(Publish(topic: "a/b", payload: ByteBuffer(bytes: [0xFF]), properties: text)))
        #expect(session.toldOf("give", "refused") == ["refused a/b"])
        #expect(session.session.counts.refused == 1)
    }

    // MARK: Commands

    @Test(arguments: [(SessionState.connected, "connected"), (.failed, "failed"), (.disconnected, "disconnected")])
    func `a command is answered with the state that it has led to`(state: SessionState, outcome: String) throws {
        var session = try SessionUnderTest()
        _ = session.take(.connect(Reason(.userConnect)))
        _ = session.take(.awaitOutcome(call, until: nil))
        #expect(session.toldOf("call") == [])
        _ = session.opens()
        switch state {
        case .failed: _ = session.receives(.connack(Connack(reasonCode: .banned)))
        case .disconnected: _ = session.take(.disconnect(Reason(.userDisconnect)))
        default: _ = session.receives(.connack(Connack()))
        }
        #expect(session.session.state == state)
        #expect(session.toldOf("call") == ["call 1: \(outcome)"])
    }

    @Test func `a command is answered when its time is up`() throws {
        var session = try SessionUnderTest()
        _ = session.take(.connect(Reason(.userConnect)))
        _ = session.take(.awaitOutcome(call, until: session.now.advanced(by: .seconds(3))))
        _ = session.wait(2)
        #expect(session.toldOf("call") == [])
        _ = session.wait(1)
        #expect(session.toldOf("call") == ["call 1: timeout"])
    }

    @Test func `a session that is no longer disconnecting says so`() throws {
        var session = try SessionUnderTest().connected()
        _ = session.take(.disconnect(Reason(.userDisconnect)))
        #expect(session.toldOf("is not") == [])
        _ = session.take(.closed(Reason(.userDisconnect)))
        #expect(session.toldOf("is not") == ["is not disconnecting"])
    }

    @Test func `calls that decide about the outbox take turns`() throws {
        var session = try SessionUnderTest()
        _ = session.take(.awaitQueue(call))
        #expect(session.told == ["call 1: its turn"])
        _ = session.take(.awaitQueue(second))
        #expect(session.told == [])
        _ = session.take(.endQueue)
        #expect(session.told == ["call 2: its turn"])
        _ = session.take(.endQueue)
        #expect(session.told == [])
    }

    // MARK: Messages from programs

    @Test func `a message is reported and counted when it is durable, when it is delivered and when it is dropped`()
        throws
    {
        var session = try SessionUnderTest().connected()
        let first = try accept(&session)
        #expect(session.proceed() == ["send PUBLISH t"])
        #expect(session.toldOf("accepted") == ["accepted \(first)"])
        #expect(session.session.counts.published == 1)
        _ = try session.takes()
        #expect(session.toldOf("delivered") == ["delivered \(first)"])
        _ = session.take(.closed(Reason(.reset)))
        let second = try accept(&session)
        _ = session.proceed()
        let stored = StoredMessage(
            sequence: second, message: OutboundMessage(topic: "t", payload: ByteBuffer(string: "x")))
        _ = session.session.drop(StoredMessageSummary(stored))
        _ = session.proceed()
        #expect(session.toldOf("dropped") == ["dropped \(second)"])
        #expect(session.session.counts.dropped == 1)
        #expect(session.session.mqtt.counts.total == 0)
    }

    @Test func `a message that the server refuses is reported, and is sent again when a person says so`() throws {
        var session = try SessionUnderTest().connected()
        let sequence = try accept(&session)
        _ = session.proceed()
        _ = try session.takes(.notAuthorized)
        #expect(session.toldOf("rejected") == ["rejected \(sequence)"])
        let stored = StoredMessage(
            sequence: sequence, message: OutboundMessage(topic: "t", payload: ByteBuffer(string: "x")),
            state: .quarantined(.notAuthorized, ""))
        guard case .done(let again) = session.session.retry(stored) else {
            Issue.record("the message is skipped")
            return
        }
        #expect(session.proceed() == ["send PUBLISH t"])
        #expect(session.toldOf("accepted") == ["accepted \(again)"])
    }

    @Test func `a call decides about the messages that there are, and a retry about the quarantined ones`() throws {
        let found = [1, 2].map {
            StoredMessageSummary(
                StoredMessage(
                    sequence: MessageSequence(rawValue: $0),
                    message: OutboundMessage(topic: "t", payload: ByteBuffer(string: "x")),
                    state: $0 == 1 ? .queued : .quarantined(.notAuthorized, "")))
        }
        let drop = Session.MessageChoice(.ids([3, 1, 2, 3]), found: found, isRetry: false)
        #expect(drop.messages == found && !drop.more)
        #expect(drop.skipped.map(\.code) == ["unknown-message"])
        let retry = Session.MessageChoice(.ids([1, 2]), found: found, isRetry: true)
        #expect(retry.messages == [found[1]])
        #expect(retry.skipped.map(\.code) == ["not-quarantined"])
        let all = [StoredMessageSummary](repeating: found[0], count: Session.MessageChoice.maximum + 1)
        let many = Session.MessageChoice(.all(.queued), found: all, isRetry: false)
        #expect(many.messages.count == 1000 && many.more)
    }

    @Test func `a message that has expired, has left the quarantine, or is gone, is skipped`() throws {
        var session = try SessionUnderTest()
        var message = OutboundMessage(topic: "t", payload: ByteBuffer(string: "x"))
        message.expiresAt = Timestamp(rawValue: 0)
        var stored = StoredMessage(
            sequence: MessageSequence(rawValue: 1), message: message, state: .quarantined(.notAuthorized, ""))
        guard case .skipped(let expired) = session.session.retry(stored) else {
            Issue.record("the message is accepted again")
            return
        }
        #expect(expired.code == "expired")
        stored.state = .inFlight(try #require(PacketID(rawValue: 1)))
        guard case .skipped(let chosenBefore) = session.session.retry(stored) else {
            Issue.record("the message is accepted again")
            return
        }
        #expect(chosenBefore.code == "not-quarantined")
        guard case .skipped(let gone) = session.session.drop(StoredMessageSummary(stored)) else {
            Issue.record("the message is dropped")
            return
        }
        #expect(gone.code == "unknown-message")
    }

    @Test func `a message for which the disk has no room is reported, and frees its key`() throws {
        var session = try SessionUnderTest()
        let key = try #require(PublishKey("k"))
        #expect(session.ask { $0.takeTurn(with: key, for: call) } != nil)
        session.diskIsFull = true
        let sequence = try accept(&session, key: key)
        #expect(session.ask { $0.takeTurn(with: key, for: second) } == nil)
        _ = session.proceed()
        #expect(session.told == ["call 2: its turn", "not accepted \(sequence)"])
    }

    @Test func `a call with a key waits until the message with that key is durable`() throws {
        var session = try SessionUnderTest()
        let key = try #require(PublishKey("k"))
        let other = try #require(PublishKey("other"))
        #expect(session.ask { $0.takeTurn(with: key, for: call) } != nil)
        #expect(session.ask { $0.takeTurn(with: key, for: second) } == nil)
        #expect(session.ask { $0.takeTurn(with: other, for: second) } != nil)
        let sequence = try accept(&session, key: key)
        _ = session.proceed()
        #expect(session.told == ["call 2: its turn", "accepted \(sequence)"])
    }

    @Test func `a call that gives up a key lets the next one try`() throws {
        var session = try SessionUnderTest()
        let key = try #require(PublishKey("k"))
        let turn = try #require(session.ask { $0.takeTurn(with: key, for: call) })
        #expect(session.ask { $0.takeTurn(with: key, for: second) } == nil)
        _ = session.take(.endKey(key, turn))
        #expect(session.told == ["call 2: its turn"])
    }

    @Test func `messages that are too old make room for a new one`() throws {
        var session = try SessionUnderTest()
        session.session.mqtt.configuration.outbox.messages = 1
        session.session.mqtt.configuration.outbox.maximumAge = 10
        let first = try accept(&session)
        _ = session.proceed()
        #expect(throws: MQTTClientMachine.PublishError.outboxFull) { try accept(&session) }
        _ = session.wait(1)
        let second = try accept(&session)
        _ = session.proceed()
        #expect(session.toldOf("dropped", "accepted") == ["dropped \(first)", "accepted \(second)"])
    }

    @Test func `a new message that the configuration drops is reported`() throws {
        var session = try SessionUnderTest()
        session.session.mqtt.configuration.outbox.messages = 0
        session.session.mqtt.configuration.outbox.whenFull = .dropNew
        #expect(throws: MQTTClientMachine.PublishError.dropped) { try accept(&session) }
        _ = session.proceed()
        #expect(session.told == ["dropped a new message on t"])
        #expect(session.session.counts.dropped == 1)
    }

    @Test func `a message is a use of a session on demand until it is delivered`() throws {
        var session = try SessionUnderTest(idleTimeout: .seconds(1))
        _ = try accept(&session)
        #expect(session.proceed() == ["dial a.example", "connecting"])
        _ = session.opens()
        #expect(session.receives(.connack(Connack())) == ["connected", "send PUBLISH t"])
        session.answersPings = true
        #expect(session.wait(20) == [])
        #expect(try session.takes() == [])
        #expect(session.wait(2) == ["disconnecting", "send DISCONNECT", "close"])
    }

    // MARK: Durable consumers

    @Test func `a durable consumer collects for its program, which takes the messages one by one`() throws {
        var (session, name) = try consuming()
        _ = session.receives(message("1", 1), message("2", 2))
        #expect(session.toldOf("read") == ["read the inbox"])
        let given = try #require(session.session.giveAhead { _ in true })
        #expect(given.map { String(decoding: $0.payload.bytes, as: UTF8.self) } == ["1", "2"])
        #expect(given.map(\.subscription) == [program, program])
        let first = InboxSequence(rawValue: given[0].id)
        let taken = try session.session.acknowledge(first, upTo: false, by: program)
        #expect(taken.name == name && taken.messages.map(\.sequence) == [first])
        #expect(session.session.mqtt.backlog(of: name).messages == 2, "that is not carried out yet")
        _ = session.proceed()
        #expect(session.session.mqtt.backlog(of: name).messages == 1)
        for (id, subscription, code) in [
            (InboxSequence(rawValue: 99), program, "invalid-parameters"),
            (first, SubscriptionID(rawValue: "other"), "unknown-subscription"),
        ] {
            let error = #expect(throws: RPCError.self) {
                try session.session.acknowledge(id, upTo: false, by: subscription)
            }
            #expect(error?.data?.code == code)
        }
    }

    @Test func `messages that are too old are not given to a program, and leave the inbox`() throws {
        var (session, name) = try consuming(maximumAge: 10_000)
        _ = session.receives(message("1", 1))
        _ = session.wait(10)
        #expect(session.ask { $0.giveAhead { _ in true } } == [])
        #expect(session.ask { $0.giveAhead { _ in true } } == nil)
        _ = session.proceed()
        #expect(session.session.mqtt.backlog(of: name).messages == 0)
    }

    @Test func `a program that attaches takes over, and the filter is asked for only if it has changed`() throws {
        var (session, name) = try consuming()
        let other = SubscriptionID(rawValue: "other")
        let same = try session.session.attach(other, to: name, "a/#", try filter(), .atLeastOnce)
        #expect(same.granted == .grantedQoS1 && same.takenOver == program)
        let changed = try session.session.attach(program, to: name, "a/#", try filter(), .exactlyOnce)
        #expect(changed.granted == nil && changed.takenOver == other)
        let moved = try session.session.attach(program, to: name, "b", try filter("b"), .exactlyOnce)
        #expect(moved.granted == nil)
    }

    @Test func `a consumer with a new filter gets what matches the old one until the new one is granted`() throws {
        var (session, name) = try consuming()
        let attaching = try session.session.attach(program, to: name, "b", try filter("b"), .atLeastOnce)
        #expect(session.take(.subscribe(try filter("b"), call)) == ["send SUBSCRIBE"])
        _ = session.receives(message("1", 1))
        #expect(session.session.mqtt.backlog(of: name).messages == 1)
        _ = try session.grants(.grantedQoS1)
        _ = session.receives(message("2", 2))
        #expect(session.session.mqtt.backlog(of: name).messages == 1, "it no longer matches")
        session.ask { $0.answered(attaching, .grantedQoS1) }
        #expect(session.proceed() == ["send UNSUBSCRIBE"])
    }

    @Test func `a consumer that no longer wants its former filter does not get what matches it`() throws {
        var (session, name) = try consuming()
        let attaching = try session.session.attach(program, to: name, "b", try filter("b"), .atLeastOnce)
        session.ask { $0.answered(attaching, nil) }
        #expect(session.proceed() == ["send UNSUBSCRIBE"])
        _ = session.receives(message("1", 1), message("2", 2, topic: "b"))
        #expect(session.session.mqtt.backlog(of: name).messages == 1)
    }

    @Test func `a durable consumer gets the retained messages once, no matter who else asks for them`() throws {
        var session = try SessionUnderTest().connected()
        func retained(_ session: SessionUnderTest, _ number: UInt16) throws -> Packet {
            let properties = Publish.Properties(subscriptionIDs: [try #require(session.subscriptionID)])
            return .publish(
                Publish(
                    topic: "a/b", payload: ByteBuffer(), qos: .atLeastOnce, retain: true,
                    packetID: PacketID(rawValue: number), properties: properties))
        }
        _ = session.take(.consume(LiveConsumer(id: program, filter: try filter(), qos: .atLeastOnce), call))
        _ = try session.grants(.grantedQoS1)
        let name = try #require(ConsumerName("billing"))
        _ = try session.session.attach(SubscriptionID(rawValue: "d"), to: name, "a/#", try filter(), .atLeastOnce)
        _ = session.take(.subscribe(try filter(), call))
        _ = try session.grants(.grantedQoS1)
        _ = session.receives(try retained(session, 1))
        #expect(session.session.mqtt.backlog(of: name).messages == 1)
        let other = LiveConsumer(id: SubscriptionID(rawValue: "other"), filter: try filter(), qos: .atLeastOnce)
        _ = session.take(.consume(other, call))
        _ = try session.grants(.grantedQoS1)
        _ = session.receives(try retained(session, 2))
        #expect(session.session.mqtt.backlog(of: name).messages == 1)
        #expect(session.toldOf("give") == ["give  to s", "give  to other"])
    }

    @Test func `a consumer whose new filter is refused gets what matches its old one again`() throws {
        var (session, name) = try consuming()
        let attaching = try session.session.attach(program, to: name, "b", try filter("b"), .atLeastOnce)
        _ = session.take(.subscribe(try filter("b"), call))
        _ = try session.grants(.notAuthorized)
        session.ask { $0.answered(attaching, .notAuthorized) }
        #expect(session.proceed() == [])
        _ = session.receives(message("1", 1), message("2", 2, topic: "b"))
        #expect(session.session.mqtt.backlog(of: name).messages == 1)
        #expect(session.session.durableConsumers[name]?.attachment == nil)
    }

    @Test func `a new consumer whose filter is refused is removed`() throws {
        var session = try SessionUnderTest().connected()
        let name = try #require(ConsumerName("billing"))
        let attaching = try session.session.attach(program, to: name, "a/#", try filter(), .atLeastOnce)
        _ = session.take(.subscribe(try filter(), call))
        _ = try session.grants(.notAuthorized)
        session.ask { $0.answered(attaching, .notAuthorized) }
        #expect(session.proceed() == [])
        #expect(session.session.durableConsumers[name] == nil)
    }

    /// The program's call has attached it, and is not done.
    @Test(arguments: [false, true])
    func `a consumer that is removed before its filter is subscribed to leaves no subscription`(isUp: Bool) throws {
        var session = isUp ? try SessionUnderTest().connected() : try SessionUnderTest()
        let (name, attaching) = try attach(&session)
        _ = session.proceed()
        #expect(try session.session.removeConsumer(name) == program)
        _ = session.proceed()
        #expect(session.take(.subscribe(try filter(), call)) == [])
        #expect(session.toldOf("call") == ["call 1: no answer"])
        session.ask { $0.answered(attaching, nil) }
        #expect(session.session.mqtt.subscriptionStates.isEmpty)
        #expect(!session.session.holds(attaching))
    }

    @Test func `a consumer that is removed needs neither its filter nor its messages`() throws {
        var (session, name) = try consuming()
        _ = session.receives(message("1", 1))
        #expect(try session.session.removeConsumer(name) == program)
        #expect(session.proceed() == ["send UNSUBSCRIBE"])
        let error = #expect(throws: RPCError.self) { try session.session.removeConsumer(name) }
        #expect(error?.data?.code == "unknown-consumer")
        #expect(session.session.mqtt.backlog(of: name).messages == 0)
    }

    @Test func `a program that is gone leaves its consumer, which keeps collecting`() throws {
        var (session, name) = try consuming()
        #expect(session.take(.detach(program)) == [])
        #expect(session.session.durableConsumers[name]?.attachment == nil)
        _ = session.receives(message("1", 1))
        #expect(session.session.mqtt.backlog(of: name).messages == 1)
    }

    @Test func `a program is told once how much its consumer has missed`() throws {
        var (session, name) = try consuming {
            ($0.inbox.messages, $0.inbox.whenFull) = (1, .dropOldest)
        }
        _ = session.receives(message("1", 1))
        _ = session.receives(message("2", 2))
        #expect(session.toldOf("billing") == ["billing missed messages"])
        #expect(session.session.losses.dropped == 1)
        _ = session.wait(1)
        #expect(session.toldOf("the inbox") == ["the inbox dropped 1"])
        #expect(session.ask { $0.ready(name, program) } == 1)
        _ = session.proceed()
        #expect(session.ask { $0.ready(name, program) } == 0)
    }

    /// Attaches a program to a new durable consumer, and does not subscribe to its filter.
    private func attach(_ session: inout SessionUnderTest) throws -> (ConsumerName, Session.Attaching) {
        let name = try #require(ConsumerName("billing"))
        return (name, try session.session.attach(program, to: name, "a/#", try filter(), .atLeastOnce))
    }

    /// A session that is connected, with a durable consumer whose program is attached.
    private func consuming(
        maximumAge: Int64? = nil, _ configure: (inout MQTTClientMachine.Configuration) -> Void = { _ in }
    ) throws -> (SessionUnderTest, ConsumerName) {
        var session = try SessionUnderTest { $0.maximumInboxAge = maximumAge }
        configure(&session.session.mqtt.configuration)
        session = session.connected()
        let name = try #require(ConsumerName("billing"))
        let attaching = try session.session.attach(program, to: name, "a/#", try filter(), .atLeastOnce)
        #expect(attaching.granted == nil && attaching.takenOver == nil)
        #expect(session.take(.subscribe(try filter(), call)) == ["send SUBSCRIBE"])
        _ = try session.grants(.grantedQoS1)
        #expect(session.session.durableConsumers.attaching == [program])
        #expect(session.ask { $0.ready(name, program) } == 0)
        #expect(session.session.durableConsumers.attaching == [])
        return (session, name)
    }

    // MARK: The credential

    @Test(arguments: [
        ("", nil, true, "a token has 1 to 65535 bytes"),
        ("t", 0, true, "the token has already expired"),
        (
            "t", nil, false,
            "the token would be sent unencrypted: session main needs mqtts:// or wss://, or insecure = true"
        ),
    ])
    func `a token that cannot be used is refused`(token: String, end: Int64?, isSafe: Bool, message: String) throws {
        var session = try SessionUnderTest { $0.mayCarryPassword = isSafe }
        let error = #expect(throws: RPCError.self) {
            try session.session.give(token, expires: end.map { Timestamp(rawValue: $0) })
        }
        #expect(error?.message == message)
        #expect(session.session.credentials.given == nil)
    }

    @Test func `a token with which no SCRAM login can be made is refused`() throws {
        var session = try SessionUnderTest { $0.provesPassword = true }
        let error = #expect(throws: RPCError.self) { try session.session.give("t\n", expires: nil) }
        #expect(error?.message == "with SCRAM-SHA-256 a token has no control characters, such as a line's end")
        #expect(session.session.credentials.given == nil)
    }

    @Test func `a token that a program gives is taken to the server at once`() throws {
        var session = try SessionUnderTest().connected()
        try session.session.give("t", expires: Timestamp(rawValue: 1000))
        #expect(session.proceed() == ["abort", "dial a.example", "reconnecting"])
        #expect(session.session.credentialEnd == Timestamp(rawValue: 1000))
    }

    // MARK: The room

    @Test func `who is in the room is known while the session is connected and has been told`() throws {
        func error(_ session: SessionUnderTest) -> String? {
            #expect(throws: RPCError.self) { try session.session.participants() }?.data?.code
        }
        #expect(error(try SessionUnderTest()) == "wrong-state", "it is in no room")
        var session = try SessionUnderTest(room: "r")
        #expect(error(session) == "not-connected")
        session = session.connected()
        _ = try session.grants(.notAuthorized)
        _ = try session.takes()
        #expect(error(session) == "wrong-state", "the server does not tell it")
    }

    @Test(arguments: [(ReasonCode.success, true), (.notAuthorized, false)])
    func `who is in the room is not known for certain while the server refuses the session's own presence`(
        code: ReasonCode, isComplete: Bool
    ) throws {
        var session = try SessionUnderTest(room: "r").connected()
        _ = try session.grants(.grantedQoS1)
        _ = try session.takes(code)
        if isComplete {
            let topic = try #require(session.session.rooms.membership?.topic)
            let own = Publish(topic: topic, payload: try #require(session.published[topic]))
            _ = session.receives(.publish(own))
        }
        #expect(try session.session.participants().result.complete == isComplete)
    }

    // MARK: The end

    @Test(arguments: [(true, ["disconnecting", "send DISCONNECT", "close"]), (false, [])])
    func `a session that is stopped disconnects once`(isConnected: Bool, texts: [String]) throws {
        var session = try SessionUnderTest()
        if isConnected { session = session.connected() }
        let reason = Reason(.shutdown)
        #expect(session.take(.stop(reason, .leavingRoom)) == texts)
        #expect(session.take(.stop(reason, .leavingRoom)) == [])
    }

    @Test func `a session that is about to rest and is stopped does not wake up again`() throws {
        var session = try SessionUnderTest(idleTimeout: .seconds(1)).connected()
        let consumer = LiveConsumer(id: program, filter: try filter(), qos: .atLeastOnce)
        #expect(session.wait(2) == ["disconnecting", "send DISCONNECT", "close"])
        _ = session.take(.stop(Reason(.shutdown), .leavingRoom))
        _ = session.take(.consume(consumer, call))
        #expect(session.take(.closed(Reason(.userDisconnect))) == ["disconnected"])
    }

    @Test func `a consumer whose second change is refused gets what matches its first one alone, once that is granted`()
        throws
    {
        var (session, name) = try consuming()
        _ = try session.session.attach(program, to: name, "b", try filter("b"), .atLeastOnce)
        #expect(session.take(.subscribe(try filter("b"), call)) == ["send SUBSCRIBE"])
        let second = try session.session.attach(program, to: name, "c", try filter("c"), .atLeastOnce)
        #expect(session.take(.subscribe(try filter("c"), self.second)) == ["send SUBSCRIBE"])
        let first = try #require(PacketID(rawValue: 2))
        _ = session.receives(.suback(Suback(packetID: first, reasonCodes: [.grantedQoS1])))
        _ = try session.grants(.notAuthorized)
        session.ask { $0.answered(second, .notAuthorized) }
        _ = session.proceed()
        _ = session.receives(message("1", 1), message("2", 2, topic: "b"))
        #expect(session.session.mqtt.backlog(of: name).messages == 1)
        #expect(session.session.durableConsumers[name]?.former == [])
    }

    @Test func `a message uses a session on demand even if the disk has no room for it`() throws {
        var session = try SessionUnderTest(idleTimeout: .seconds(1))
        session.diskIsFull = true
        let sequence = try accept(&session)
        #expect(session.proceed() == ["dial a.example", "connecting"])
        #expect(session.toldOf("not") == ["not accepted \(sequence)"])
    }
}
