import ControlAPI
import MQTT
import NIOCore
import SessionCore
import Testing

@testable import Session

/// Programs that take messages as they arrive.
@Suite struct LiveConsumersTests {
    private var consumers = LiveConsumers()

    private static func consumer(
        _ id: String, _ filter: String, _ qos: QoS = .atLeastOnce, relative: String? = nil
    ) throws -> LiveConsumer {
        LiveConsumer(id: SubscriptionID(rawValue: id), filter: try TopicFilter(filter), qos: qos, relative: relative)
    }

    @Test mutating func `a filter is subscribed with the highest QoS that a consumer wants`() throws {
        let filter = try TopicFilter("a/#")
        #expect(consumers.qos(of: filter) == nil)
        consumers.add(try Self.consumer("1", "a/#", .atMostOnce))
        consumers.add(try Self.consumer("2", "a/#", .exactlyOnce))
        #expect(consumers.qos(of: filter) == .exactlyOnce)
        #expect(consumers.remove(SubscriptionID(rawValue: "2")) == filter)
        #expect(consumers.qos(of: filter) == .atMostOnce)
        #expect(consumers.remove(SubscriptionID(rawValue: "2")) == nil)
    }

    @Test mutating func `the server's answer goes once to every waiting call`() throws {
        let filter = try TopicFilter("a")
        let calls = [CallID(rawValue: 1), CallID(rawValue: 2)]
        for call in calls { consumers.await(filter, call) }
        #expect(consumers.answered(try TopicFilter("b")) == [])
        #expect(consumers.answered(filter) == calls)
        #expect(consumers.answered(filter) == [])
    }

    @Test mutating func `the end of the connection answers every call, in their order`() throws {
        for (number, filter) in ["c", "a", "b"].enumerated() {
            consumers.await(try TopicFilter(filter), CallID(rawValue: number))
        }
        #expect(consumers.connectionEnded() == (0...2).map { CallID(rawValue: $0) })
        #expect(consumers.connectionEnded() == [])
    }

    @Test mutating func `a relative filter follows the session to another room`() throws {
        consumers.add(try Self.consumer("1", "p/old/x", relative: "~/x"))
        consumers.add(try Self.consumer("2", "p/old/x"))
        let moves = consumers.follow(to: Room(prefix: "p", name: "new"))
        #expect(moves.map(\.old) == [try TopicFilter("p/old/x")])
        #expect(moves.map(\.new) == [try TopicFilter("p/new/x")])
        #expect(consumers.filters == [try TopicFilter("p/new/x"), try TopicFilter("p/old/x")])
    }
}
