import NIOCore
import Testing

@testable import MQTT

/// What is known of subscriptions beyond one connection, and what is not.
@Suite struct SubscriptionsTests {
    private static func wanting(_ filters: String...) throws -> Subscriptions {
        var subscriptions = Subscriptions(remembered: [])
        for filter in filters {
            subscriptions.want(Subscription(filter: filter, qos: .atLeastOnce), for: try TopicFilter(filter))
        }
        return subscriptions
    }

    /// The server may still have queued it for a filter that was given up meanwhile.
    @Test func `a message for a filter that is no longer wanted is for every filter that matches`() throws {
        var subscriptions = try Self.wanting("a/#", "a/b")
        let (all, one) = (try TopicFilter("a/#"), try TopicFilter("a/b"))
        func message(for filters: TopicFilter...) -> Publish {
            var properties = Publish.Properties()
            properties.subscriptionIDs = filters.map(\.subscriptionID)
            return Publish(topic: "a/b", payload: ByteBuffer(), qos: .atMostOnce, properties: properties)
        }
        #expect(subscriptions.filters(of: message(for: all)) == [all])
        #expect(subscriptions.filters(of: message(for: all, one)) == [all, one])
        #expect(subscriptions.filters(of: message()) == nil)
        subscriptions.unwant(all)
        #expect(subscriptions.filters(of: message(for: all)) == nil)
        #expect(subscriptions.filters(of: message(for: all, one)) == [one])
        #expect(subscriptions.filters(of: message(for: one)) == [one])
    }

    @Test func `what was sent on an earlier connection is not sent on this one`() throws {
        var subscriptions = try Self.wanting("a")
        let filter = try TopicFilter("a")
        subscriptions.requests[id(1)] = .unsubscribe([filter])
        #expect(subscriptions.suspects.isEmpty)
        subscriptions.sent.insert(id(1))
        #expect(subscriptions.suspects == [filter])
        #expect(subscriptions.connectionClosed() == [id(1)])
        // The identifier is used again, by a request that waits for the disk.
        subscriptions.requests[id(1)] = .unsubscribe([filter])
        #expect(subscriptions.suspects.isEmpty)
    }

    /// Programs come and go with filters of their own for as long as a daemon runs.
    @Test func `nothing is kept of a filter that is no longer wanted`() throws {
        var subscriptions = try Self.wanting("a")
        let filter = try TopicFilter("a")
        subscriptions.noteRetained(of: filter, Subscription(filter: "a"), .grantedQoS1)
        _ = subscriptions.note(.said(.grantedQoS1), of: filter, at: Timestamp(rawValue: 0))
        subscriptions.noteRepeat(of: filter, isLive: true)
        #expect(subscriptions.repeated == [filter] && subscriptions.retainedSent == [filter])
        subscriptions.unwant(filter)
        #expect(subscriptions.repeated.isEmpty && subscriptions.retainedSent.isEmpty)
        #expect(subscriptions.answers.isEmpty && subscriptions.identified.isEmpty && subscriptions.wanted.isEmpty)
    }
}
