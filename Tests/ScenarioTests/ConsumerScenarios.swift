import ControlAPI
import MQTT
import SessionCore
import Support
import Testing

@testable import Agent
@testable import SimulationSupport

/// A program that comes and goes, a daemon that is killed, a room that changes: a durable consumer gets everything.
@Suite("Durable consumers", .timeLimit(.minutes(10)))
struct ConsumerScenarios {
    /// A publishes, B has the consumer `billing` of `orders/#`, and its program is attached.
    private static func together(
        _ extra: String = "",
        _ body: @Sendable (isolated Scenario, _ a: Host, _ b: Host, SubscriptionID) async throws -> Void
    ) async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", ZEGOScenarios.room).connected()
            let b = try await scenario.host("B", ZEGOScenarios.room + extra).connected()
            try await body(scenario, a, b, try await b.consume("billing", "orders/#"))
        }
    }

    private static func publish(_ texts: String..., to topic: String = "orders/1", by host: Host) async throws {
        for (index, text) in texts.enumerated() {
            try await host.publish(topic, text, qos: index % 2 == 0 ? .exactlyOnce : .atLeastOnce)
        }
    }

    @Test func `messages that arrive without a program are given to the next one, in order`() async throws {
        try await Self.together { scenario, a, b, first in
            try await Self.publish("1", "2", by: a)
            await scenario.sleep(.seconds(1))
            #expect(await b.takeGiven() == ["1", "2"])
            try await b.acknowledge(1, by: first)
            try await b.detach(first)
            try await Self.publish("3", "4", by: a)
            await scenario.sleep(.seconds(1))
            #expect(await b.takeGiven() == [])
            #expect(try await b.status().inbox.messages == 3)
            let second = try await b.consume("billing", "orders/#")
            await scenario.sleep(.seconds(1))
            #expect(await b.takeGiven() == ["2*", "3", "4"])
            try await b.acknowledge(4, upTo: true, by: second)
            #expect(try await b.status().inbox.messages == 0)
        }
    }

    /// The model's server sends one copy for each subscription, as mosquitto and EMQX do.
    @Test func `a message reaches each consumer once, even if their filters overlap`() async throws {
        try await Self.together { scenario, a, b, first in
            let urgent = try await b.consume("urgent", "orders/1")
            let all = try await b.consume("all", "+/1")
            await scenario.sleep(.seconds(1))
            try await Self.publish("x", by: a)
            await scenario.sleep(.seconds(1))
            #expect(await b.takeGiven() == ["x", "x", "x"])
            #expect(try await b.status().inbox.messages == 3)
            for subscription in [first, urgent, all] { try await b.detach(subscription) }
            // Messages queued with a subscription identifier from before the restart go to the same consumers.
            await b.kill()
            try await Self.publish("y", by: a)
            await scenario.sleep(.seconds(1))
            try await b.start()
            try await b.until(.connected)
            await scenario.sleep(.seconds(1))
            #expect(try await b.status().inbox.messages == 6)
        }
    }

    @Test func `a killed daemon gives unacknowledged messages again, and those the server kept`() async throws {
        try await Self.together { scenario, a, b, first in
            try await Self.publish("1", "2", by: a)
            await scenario.sleep(.seconds(1))
            try await b.acknowledge(1, by: first)
            _ = await b.takeGiven()
            await b.kill()
            try await Self.publish("3", by: a)
            await scenario.sleep(.seconds(5))
            try await b.start()
            try await b.until(.connected)
            await scenario.sleep(.seconds(1))
            #expect(try await b.status().inbox.consumers.first?.attached == false)
            try await b.consume("billing", "orders/#")
            await scenario.sleep(.seconds(1))
            #expect(await b.takeGiven() == ["2*", "3"])
        }
    }

    @Test func `a full inbox withholds acknowledgements until the program takes a message`() async throws {
        try await Self.together("\n[inbox]\nmax-messages = 3\nwhen-full = \"withhold\"\n") {
            scenario, a, b, first in
            try await b.detach(first)
            for number in 1...8 { try await Self.publish("\(number)", by: a) }
            await scenario.sleep(.seconds(10))
            let full = try await b.status().inbox
            #expect(full.messages == 3)
            #expect(full.withheld == 5)
            // Withheld messages are dropped with the connection, and the server sends them again.
            scenario.cut(b)
            try await b.until(.reconnecting)
            scenario.mend(b)
            try await b.until(.connected)
            let second = try await b.consume("billing", "orders/#")
            var given: [String] = []
            for _ in 0..<8 {
                await scenario.sleep(.seconds(1))
                given += await b.takeGiven()
                if let last = await b.lastGiven { try await b.acknowledge(last, upTo: true, by: second) }
            }
            #expect(given == (1...8).map { "\($0)" })
            #expect(try await b.status().inbox.withheld == 0)
        }
    }

    @Test func `an abandoned consumer loses its oldest messages, and the session goes on`() async throws {
        try await Self.together("\n[inbox]\nmax-messages = 3\n") { scenario, a, b, first in
            try await b.detach(first)
            for number in 1...8 { try await Self.publish("\(number)", by: a) }
            await scenario.sleep(.seconds(10))
            let full = try await b.status().inbox
            #expect(full.messages == 3)
            #expect(full.withheld == 0)
            #expect(full.dropped == 5)
            #expect(full.consumers.first?.missed == 5)
            let second = try await b.consume("billing", "orders/#")
            await scenario.sleep(.seconds(1))
            #expect(await b.takeGiven() == ["6", "7", "8"])
            #expect(try await b.status().inbox.consumers.first?.missed == 0)
            if let last = await b.lastGiven { try await b.acknowledge(last, upTo: true, by: second) }
            #expect(try await b.status().inbox.messages == 0)
        }
    }

    @Test func `a second program takes over the consumer, and the first is told`() async throws {
        try await Self.together { scenario, a, b, first in
            try await Self.publish("1", by: a)
            await scenario.sleep(.seconds(1))
            _ = await b.takeGiven()
            let second = try await b.consume("billing", "orders/#")
            await scenario.sleep(.seconds(1))
            #expect(await b.takenOver.map(\.id) == [first])
            #expect(await b.takeGiven() == ["1*"])
            await #expect(throws: RPCError.self) { try await b.acknowledge(1, by: first) }
            try await b.acknowledge(1, by: second)
        }
    }

    @Test func `a consumer in a room follows the session to another room`() async throws {
        try await Self.together { scenario, a, b, _ in
            try await b.consume("room", "~/chat")
            try await b.switchRoom(to: "r2")
            await scenario.sleep(.seconds(1))
            try await Self.publish("old", to: "holdfast/rooms/r1/chat", by: a)
            try await Self.publish("new", to: "holdfast/rooms/r2/chat", by: a)
            await scenario.sleep(.seconds(1))
            #expect(await b.takeGiven() == ["new"])
            await b.kill()
            try await b.start()
            try await b.until(.connected)
            try await Self.publish("later", to: "holdfast/rooms/r2/chat", by: a)
            await scenario.sleep(.seconds(1))
            try await b.consume("room", "~/chat")
            await scenario.sleep(.seconds(1))
            #expect(await b.takeGiven() == ["new*", "later"])
        }
    }

    @Test func `a consumer that was ended collects nothing`() async throws {
        try await Self.together { scenario, a, b, _ in
            try await b.endConsumer("billing")
            try await Self.publish("1", by: a)
            await scenario.sleep(.seconds(1))
            #expect(try await b.status().inbox == .init())
            #expect(await b.takenOver.count == 1)
        }
    }
}
