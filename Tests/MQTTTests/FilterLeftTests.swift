import NIOCore
import Testing

@testable import MQTT

/// Filters that the server may hold although it ended connections when it was asked for them, or asked to remove them.
@Suite struct FilterLeftTests {
    private static let hour: Int64 = 3_600_000

    /// The filter "bad" is set aside, and the next connection stays.
    private func clientWithFilterSetAside() throws -> MQTTClientHarness {
        var client = try MQTTClientHarness.withFilterSetAside()
        #expect(client.connect(resumed: true) == ["connected resumed", "subscribed bad refused", "restored"])
        return client
    }

    private func unsuback(_ client: inout MQTTClientHarness, _ codes: ReasonCode...) throws -> [String] {
        let id = try #require(client.machine.subscriptions.sent.first)
        return client.server(.unsuback(Unsuback(packetID: id, reasonCodes: codes)))
    }

    @Test func `a filter that was set aside is removed from the server as soon as nobody wants it`() throws {
        var client = try clientWithFilterSetAside()
        let bad = try TopicFilter("bad")
        #expect(client.handle(.unsubscribe(bad)) == ["PINGREQ"], "the connection may end for another reason")
        #expect(client.server(.pingresp) == ["UNSUBSCRIBE bad"])
        #expect(try unsuback(&client, .success) == ["unsubscribed bad 00"])
        #expect(client.changes.last == .forgetSubscription(bad))
        client.handle(.connectionClosed)
        #expect(client.connect(resumed: true) == ["connected resumed", "restored"])
    }

    @Test func `the next daemon removes a filter that was set aside and that nobody wants any more`() throws {
        let client = try clientWithFilterSetAside()
        let bad = try TopicFilter("bad")
        #expect(!client.changes.contains(.forgetSubscription(bad)))
        var next = MQTTClientHarness(durable: DurableSession(established: true, rememberedSubscriptions: [bad]))
        #expect(next.connectAndProve(resumed: true) == ["connected resumed", "restored", "UNSUBSCRIBE bad"])
    }

    @Test func `a filter whose removal ends connections is left at the server for an hour`() throws {
        var client = try clientWithFilterSetAside()
        let bad = try TopicFilter("bad")
        client.handle(.unsubscribe(bad))
        client.server(.pingresp)
        client.handle(.connectionEnded(.byServer))
        #expect(client.connectAndProve(resumed: true) == ["connected resumed", "restored", "UNSUBSCRIBE bad"])
        client.handle(.connectionEnded(.byServer))
        #expect(client.connect(resumed: true) == ["connected resumed", "restored"], "two ends are enough")
        client.now = client.now.advanced(by: Self.hour - 1)
        #expect(client.handle(.timePassed) == [])
        client.now = client.now.advanced(by: 1)
        #expect(client.handle(.timePassed) == ["PINGREQ"])
        #expect(client.server(.pingresp) == ["UNSUBSCRIBE bad"])
        #expect(try unsuback(&client, .success) == ["unsubscribed bad 00"])
        #expect(client.changes.last == .forgetSubscription(bad))
    }

    @Test func `a filter that a new session does not have is not left there`() throws {
        var client = try clientWithFilterSetAside()
        client.handle(.unsubscribe(try TopicFilter("bad")))
        client.server(.pingresp)
        client.handle(.connectionEnded(.byServer))
        client.connectAndProve(resumed: true)
        client.handle(.connectionEnded(.byServer))
        client.connect()
        #expect(client.changes.last == .forgetAllSubscriptions)
        client.now = client.now.advanced(by: Self.hour)
        #expect(client.handle(.timePassed) == [])
    }

    static let ends: [MQTTClientMachine.EndCause] = [.byServer, .unanswered]

    /// Nothing is to be restored on these connections, so each is restored before the server takes offence.
    @Test(arguments: ends)
    func `a filter is found whose removal ends each connection, or is never answered`(
        end: MQTTClientMachine.EndCause
    ) throws {
        let filters = try ["a", "bad", "c"].map { try TopicFilter($0) }
        let durable = DurableSession(established: true, rememberedSubscriptions: Set(filters))
        var client = MQTTClientHarness(durable: durable) { $0.requestTimeout = 30_000 }
        var rounds = 0
        while rounds < 10 {
            rounds += 1
            var words = client.connectAndProve(resumed: true)
            var isEnded = false
            while !words.isEmpty, !isEnded {
                let word = words.removeFirst()
                guard word.hasPrefix("UNSUBSCRIBE") else { continue }
                isEnded = word.contains("bad")
                let count = word.split(separator: " ").count - 1
                let id = try #require(client.machine.subscriptions.sent.first)
                guard !isEnded else { break }
                let codes = [ReasonCode](repeating: .success, count: count)
                words += client.server(.unsuback(Unsuback(packetID: id, reasonCodes: codes)))
            }
            guard isEnded else { break }
            client.now = client.now.advanced(by: 30_000)
            client.handle(.connectionEnded(end))
        }
        #expect(rounds == 6, "three ends, two more with the filter alone, and then none")
        #expect(client.machine.subscriptions.remembered == [filters[1]])
    }

    @Test func `unsubscribing does not make the client ask sooner for a filter that was set aside`() throws {
        var client = try clientWithFilterSetAside()
        let bad = try TopicFilter("bad")
        client.handle(.unsubscribe(bad))
        client.server(.pingresp)
        _ = try unsuback(&client, .noSubscriptionExisted)
        #expect(try client.subscribe("bad") == ["subscribed bad refused"])
        #expect(client.machine.subscriptionState(of: bad).map { if case .refused = $0 { true } else { false } } == true)
        client.handle(.unsubscribe(bad))
        client.now = client.now.advanced(by: Self.hour)
        #expect(client.handle(.timePassed) == [])
        #expect(client.machine.subscriptions.answers.isEmpty, "nothing is kept for ever")
        #expect(try client.subscribe("bad") == ["SUBSCRIBE bad"])
    }
}
