import NIOCore
import Support
import Testing

@testable import MQTT

/// What the server answered to each filter that is wanted.
@Suite struct SubscriptionStateTests {
    private static let minute: Int64 = 60_000

    private func state(_ client: MQTTClientHarness, _ filter: String = "a") throws -> SubscriptionState? {
        client.machine.subscriptionState(of: try TopicFilter(filter))
    }

    private func refusal(_ client: MQTTClientHarness, _ filter: String = "a") throws -> SubscriptionRefusal? {
        if case .refused(let refusal)? = try state(client, filter) { refusal } else { nil }
    }

    /// The server's answer to the last SUBSCRIBE.
    private func answer(
        _ client: inout MQTTClientHarness, _ codes: ReasonCode..., words: String? = nil
    ) throws -> [MQTTClientMachine.Event] {
        let id = try #require(client.subscribes.last?.packetID)
        let suback = Suback(packetID: id, reasonCodes: codes, properties: .init(reasonString: words))
        let bytes = encoded(.suback(suback), in: client.machine.version)
        var actions: [MQTTClientMachine.Action] = []
        client.machine.handle(.received(bytes), at: client.now, into: &actions)
        _ = client.describe(actions)
        return actions.compactMap {
            if case .event(.subscriptionChanged(let filter)) = $0 { .subscriptionChanged(filter) } else { nil }
        }
    }

    private var news: [MQTTClientMachine.Event] {
        get throws { [.subscriptionChanged(try TopicFilter("a"))] }
    }

    @Test func `a filter is pending until the server has answered, then granted as answered`() throws {
        var client = MQTTClientHarness()
        try client.subscribe("a", qos: .exactlyOnce)
        #expect(try state(client) == .pending)
        client.connect()
        #expect(try state(client) == .pending)
        #expect(try answer(&client, .grantedQoS1) == news)
        #expect(try state(client) == .granted(.atLeastOnce))
        client.handle(.connectionClosed)
        #expect(try state(client) == .granted(.atLeastOnce), "as far as is known the server still has it")
        client.connect(resumed: true)
        #expect(try state(client) == .granted(.atLeastOnce))
        #expect(client.subscribes.count == 1)
        client.handle(.unsubscribe(try TopicFilter("a")))
        #expect(try state(client) == nil)
        #expect(client.machine.subscriptionStates.isEmpty)
    }

    @Test func `a server that lost the session is asked again, and the same answer is not reported`() throws {
        var client = MQTTClientHarness()
        try client.subscribe("a")
        client.connect()
        #expect(try answer(&client, .grantedQoS1) == news)
        client.handle(.connectionClosed)
        client.connect()
        #expect(try state(client) == .pending)
        #expect(try answer(&client, .grantedQoS1) == [])
        #expect(try state(client) == .granted(.atLeastOnce))
        client.handle(.connectionClosed)
        client.connect()
        #expect(try answer(&client, .success) == news)
    }

    @Test func `a refusal at a reconnect is reported, with the server's words and the time`() throws {
        var client = MQTTClientHarness()
        try client.subscribe("a")
        client.connect()
        _ = try answer(&client, .grantedQoS1)
        client.handle(.connectionClosed)
        client.now = Timestamp(rawValue: client.now.rawValue + 5000)
        client.connect()
        #expect(try answer(&client, .notAuthorized, words: "not\nfor you") == news)
        #expect(
            try refusal(client)
                == SubscriptionRefusal(
                    answer: .said(.notAuthorized, "not for you"), since: client.now,
                    asksAgainAt: Timestamp(rawValue: client.now.rawValue + 10 * Self.minute)))
    }

    @Test func `a refused filter is requested again at every reconnect`() throws {
        var client = MQTTClientHarness()
        try client.subscribe("a")
        client.connect()
        _ = try answer(&client, .notAuthorized)
        let since = try #require(try refusal(client)).since
        for count in 2...4 {
            client.handle(.connectionClosed)
            client.now = Timestamp(rawValue: client.now.rawValue + 5000)
            client.connect(resumed: true)
            #expect(client.subscribes.count == count)
            #expect(try answer(&client, .notAuthorized) == [])
            #expect(try refusal(client)?.since == since)
        }
        client.handle(.connectionClosed)
        client.connect(resumed: true)
        #expect(try answer(&client, .grantedQoS1) == news)
        #expect(try state(client) == .granted(.atLeastOnce))
    }

    @Test func `a refused filter is requested again every ten minutes on a connection`() throws {
        var client = MQTTClientHarness()
        try client.subscribe("a")
        client.connect()
        _ = try answer(&client, .notAuthorized)
        for count in 2...3 {
            client.now = Timestamp(rawValue: client.now.rawValue + 10 * Self.minute - 1)
            client.handle(.timePassed)
            #expect(client.subscribes.count == count - 1)
            client.now = Timestamp(rawValue: client.now.rawValue + 1)
            client.handle(.timePassed)
            client.handle(.timePassed)
            #expect(client.subscribes.count == count, "asked once")
            #expect(try refusal(client) != nil, "it stays refused until the server answers")
            if count == 2 { #expect(try answer(&client, .notAuthorized) == []) }
        }
        #expect(try answer(&client, .grantedQoS1) == news)
        client.now = Timestamp(rawValue: client.now.rawValue + 60 * Self.minute)
        client.handle(.timePassed)
        #expect(client.subscribes.count == 3)
    }

    @Test func `a clock that is set does not change how long a refusal lasts`() throws {
        var client = MQTTClientHarness()
        try client.subscribe("a")
        client.connect()
        _ = try answer(&client, .notAuthorized)
        let day: Int64 = 86_400_000
        let range = Timestamp(rawValue: .min)...client.now
        client.now = Timestamp(rawValue: client.now.rawValue + day)
        client.handle(.clockStepped(by: day, acceptedWithin: range))
        client.handle(.timePassed)
        #expect(client.subscribes.count == 1)
        #expect(try refusal(client)?.since == client.now)
        client.now = Timestamp(rawValue: client.now.rawValue + 10 * Self.minute)
        client.handle(.timePassed)
        #expect(client.subscribes.count == 2)
    }

    @Test func `a filter that the server says it does not support is refused without asking`() throws {
        var client = MQTTClientHarness()
        try client.subscribe("a/#")
        client.connect(Connack.Properties(wildcardSubscriptionAvailable: false))
        #expect(client.subscribes.isEmpty)
        let answer = try #require(try refusal(client, "a/#")?.answer)
        #expect(answer.code == nil, "the server has said nothing about this filter")
        #expect(
            answer.words
                == "the session does not ask for it, because the server has no subscriptions with wildcards")
        client.handle(.connectionClosed)
        client.connect()
        #expect(client.subscribes.count == 1)
    }

    @Test func `the session is restored when the last filter is refused without asking`() throws {
        var client = MQTTClientHarness { $0.maximumSubscribeRequests = 1 }
        try client.subscribe("a")
        try client.subscribe("b/#")
        let words = client.connect(Connack.Properties(wildcardSubscriptionAvailable: false))
        #expect(words.last == "SUBSCRIBE a")
        let id = try #require(client.subscribes.last?.packetID)
        let answered = client.server(.suback(Suback(packetID: id, reasonCodes: [.grantedQoS1])))
        let refused = "the session does not ask for it, because the server has no subscriptions with wildcards"
        #expect(answered == ["subscribed a 01", "subscribed b/#: \(refused)", "restored"])
    }

    @Test func `a filter that ended a connection is requested again after an hour, or by a program`()
        throws
    {
        var client = MQTTClientHarness()
        try client.subscribe("a")
        client.connect()
        client.server(.disconnect(Disconnect(reasonCode: .topicFilterInvalid)))
        client.handle(.connectionClosed)
        let refusal = try #require(try refusal(client))
        #expect(refusal.answer.code == .topicFilterInvalid)
        #expect(refusal.asksAgainAt == client.now.advanced(by: 60 * Self.minute))
        client.connect(resumed: true)
        client.now = client.now.advanced(by: 60 * Self.minute - 1)
        client.handle(.timePassed)
        #expect(client.subscribes.count == 1)
        client.now = client.now.advanced(by: 1)
        client.handle(.timePassed)
        client.server(.pingresp)
        #expect(client.subscribes.count == 2)
        // It stays refused, whatever the server says.
        client.handle(.connectionEnded(.byServer))
        client.connect(resumed: true)
        #expect(client.subscribes.count == 2)
        client.now = client.now.advanced(by: 10 * Self.minute - 1)
        #expect(try client.subscribe("a") == ["subscribed a 8F"])
        #expect(client.subscribes.count == 2)
        client.now = client.now.advanced(by: 1)
        try client.subscribe("a")
        client.server(.pingresp)
        #expect(client.subscribes.count == 3)
        #expect(try self.refusal(client) != nil, "it stays refused until the server answers")
        client.handle(.connectionClosed)
        client.connectAndProve(resumed: true)
        #expect(client.subscribes.count == 4, "it is requested again even if the answer was lost")
        #expect(try answer(&client, .grantedQoS1) == news)
    }

    @Test func `the same refusal is reported once, however often programs ask`() throws {
        var client = MQTTClientHarness()
        try client.subscribe("a")
        client.connect()
        #expect(try answer(&client, .notAuthorized) == news)
        let since = try #require(try refusal(client)).since
        client.now = client.now.advanced(by: 5000)
        try client.subscribe("a")
        #expect(client.subscribes.count == 2)
        #expect(try refusal(client)?.since == since)
        #expect(try answer(&client, .notAuthorized) == [])
        #expect(try refusal(client)?.since == since)
        #expect(try refusal(client)?.asksAgainAt == client.now.advanced(by: 10 * Self.minute))
        try client.subscribe("a")
        #expect(try answer(&client, .quotaExceeded) == news, "the reason is another one")
        #expect(try refusal(client)?.since == client.now)
        try client.subscribe("a")
        #expect(try answer(&client, .grantedQoS1) == news)
    }

    @Test func `of two requests for a filter at once, only the answer to the second counts`() throws {
        var client = MQTTClientHarness().connected()
        try client.subscribe("a")
        try client.subscribe("a")
        let ids = client.subscribes.map(\.packetID)
        #expect(client.server(.suback(Suback(packetID: ids[0], reasonCodes: [.notAuthorized]))) == [])
        #expect(try state(client) == .pending)
        #expect(try answer(&client, .notAuthorized) == news)
    }

    @Test func `the session is restored although a filter is given up before the server has answered for it`() throws {
        var client = MQTTClientHarness()
        try client.subscribe("a")
        #expect(client.connect() == ["connected", "SUBSCRIBE a"])
        #expect(client.handle(.unsubscribe(try TopicFilter("a"))) == ["restored", "UNSUBSCRIBE a"])
    }

    @Test func `a filter that the server refused need not be taken back after a restart`() throws {
        var client = MQTTClientHarness().connected()
        try client.subscribe("a")
        #expect(client.changes.last == .rememberSubscription(try TopicFilter("a")))
        _ = try answer(&client, .notAuthorized)
        #expect(client.changes.last == .forgetSubscription(try TopicFilter("a")))
    }

    @Test func `filters are asked for together again after the server has answered for a suspect`() throws {
        var client = MQTTClientHarness()
        try client.subscribe("a")
        client.connect()
        client.server(.disconnect(Disconnect(reasonCode: .topicFilterInvalid)))
        client.handle(.connectionClosed)
        client.connect(resumed: true)
        client.now = client.now.advanced(by: 10 * Self.minute)
        #expect(try client.subscribe("a") == ["PINGREQ"], "it goes out alone, on a connection that works")
        #expect(client.server(.pingresp) == ["SUBSCRIBE a"])
        _ = try answer(&client, .grantedQoS1)
        for filter in ["b", "c"] { #expect(try client.subscribe(filter) == ["SUBSCRIBE \(filter)"]) }
    }
}
