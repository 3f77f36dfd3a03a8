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

    private static func message(_ topic: String, for filters: [String]?) throws -> MQTTClientMachine.InboundMessage {
        MQTTClientMachine.InboundMessage(
            topic: topic, payload: ByteBuffer(), qos: .atMostOnce, retain: false, duplicate: false,
            properties: Publish.Properties(), filters: try filters.map { try Set($0.map { try TopicFilter($0) }) })
    }

    private func wanting(_ topic: String, for filters: [String]? = nil) throws -> [String] {
        let received = consumers.received(
            try Self.message(topic, for: filters), number: 1, session: try #require(SessionName("main")))
        return received?.wanting.map(\.rawValue) ?? []
    }

    @Test mutating func `a message goes to those it was sent for, in the order in which they came`() throws {
        for (id, filter) in [("1", "a/#"), ("2", "a/b"), ("3", "c"), ("4", "a/#"), ("5", "+/b")] {
            consumers.add(try Self.consumer(id, filter))
        }
        #expect(try wanting("a/b") == ["1", "2", "4", "5"])
        #expect(try wanting("a/b", for: ["a/#"]) == ["1", "4"])
        #expect(try wanting("a/b", for: ["a/b", "+/b"]) == ["2", "5"])
        // What a server says that does not fit its own topic counts for nothing.
        #expect(try wanting("a/b", for: ["c"]) == [])
        #expect(try wanting("x") == [])
        _ = consumers.remove(SubscriptionID(rawValue: "1"))
        #expect(try wanting("a/b", for: ["a/#"]) == ["4"])
    }

    @Test mutating func `a message in the new room goes to who followed there`() throws {
        consumers.add(try Self.consumer("1", "p/old/x", relative: "~/x"))
        consumers.add(try Self.consumer("2", "p/new/x"))
        _ = consumers.follow(to: Room(prefix: "p", name: "new"))
        #expect(try wanting("p/old/x") == [])
        #expect(try wanting("p/new/x") == ["1", "2"])
    }
}
