import ControlAPI
import MQTT
import NIOCore
import Support
import Testing

@testable import Agent

/// The outbox at its limits, as programs see it, and the decisions of operators.
@Suite("The outbox", .timeLimit(.minutes(10)))
struct QueueTests {
    private static func outbox(_ keys: String) -> String { "[outbox]\n\(keys)\n" }

    private static func publish(_ payload: String, topic: String = "t", wait: String = "accepted") -> String {
        #"{"session":"main","topic":"\#(topic)","payload":"\#(payload)","wait":"\#(wait)"}"#
    }

    private static let main = #"{"session":"main"}"#

    @Test func `that is full drops the oldest, tells its publisher and watchers, and counts it`() async throws {
        try await DaemonUnderTest.run(
            Self.outbox("max-messages = 3\nwhen-full = \"drop-oldest\""), autoconnect: false
        ) { daemon in
            let peer = try await daemon.watcher("disconnected")
            let first = try await peer.request("message.publish", Self.publish("1", wait: "delivered"))
            for payload in ["2", "3", "4"] { try await peer.call("message.publish", Self.publish(payload)) }
            let error = try await peer.answer(first)["error"]
            #expect(error?["data"]?["code"] == "message-dropped")
            let event = try await peer.notification("session.event", ["event": "message-dropped"])
            #expect(event["id"] == 1)
            #expect(event["topic"] == "t")
            #expect(event["reason"]?["code"] == "outbox-full")
            let status = try await peer.call("session.status", Self.main)
            #expect(status["outbox"]?["queued"] == 3)
            #expect(status["counters"]?["dropped"] == 1)
            let lines = daemon.log.lines.filter { $0.message.contains("was dropped") }
            #expect(lines.map(\.message) == ["main: message 1 was dropped: the outbox is full"])
            try await peer.call("session.connect", Self.main)
            for payload in ["2", "3", "4"] {
                #expect(try await daemon.server.message().payload == ByteBuffer(string: payload))
            }
        }
    }

    @Test func `that is full drops the new message, and says so`() async throws {
        try await DaemonUnderTest.run(
            Self.outbox("max-bytes = \"1KiB\"\nwhen-full = \"drop-new\""), autoconnect: false
        ) { daemon in
            let peer = try await daemon.watcher("disconnected")
            try await peer.call("message.publish", Self.publish(String(repeating: "x", count: 1000)))
            let large = Self.publish(String(repeating: "y", count: 100), topic: "u")
            await #expect(throws: ControlPeer.CallFailure(code: "message-dropped")) {
                try await peer.call("message.publish", large)
            }
            let event = try await peer.notification("session.event", ["event": "message-dropped"])
            #expect(event["id"] == nil)
            #expect(event["topic"] == "u")
            let status = try await peer.call("session.status", Self.main)
            #expect(status["outbox"]?["queued"] == 1)
            #expect(status["counters"]?["dropped"] == 1)
        }
    }

    @Test func `that drops many messages does not flood the journal`() async throws {
        try await DaemonUnderTest.run(
            Self.outbox("max-messages = 1\nwhen-full = \"drop-oldest\""), autoconnect: false
        ) { daemon in
            let peer = try await daemon.watcher("disconnected")
            let start = ContinuousClock.now
            for number in 0..<30 { try await peer.call("message.publish", Self.publish("\(number)")) }
            let count = daemon.log.lines.count { $0.message.contains("was dropped") }
            // In a test that takes longer, another period has begun.
            let isOnePeriod = start.duration(to: .now) < JournalPacer.period
            #expect(isOnePeriod ? count == JournalPacer.burst : count >= JournalPacer.burst, "\(count)")
        }
    }

    private static func codes(_ skipped: JSONValue?) -> [JSONValue?] {
        guard case .array(let messages)? = skipped else { return [] }
        return messages.map { $0["code"] }
    }

    @Test func `of a session that cannot be started can be decided about, and is counted`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            await daemon.server.set { $0.refusedTopics = ["secret": .notAuthorized] }
            for _ in 0..<2 {
                _ = try? await peer.call("message.publish", Self.publish("no", topic: "secret", wait: "delivered"))
                _ = try await daemon.server.message()
            }
            try await peer.call(
                "message.subscribe", #"{"session":"main","filter":"in","qos":1,"consumer":"billing"}"#)
            await daemon.server.publish("in", "kept")
            _ = try await peer.notification("message.received")
            try await peer.call("session.disconnect", Self.main)
            try await peer.state("disconnected")
            for number in 1...3 { try await peer.call("message.publish", Self.publish("\(number)")) }
            // A file that is new, and broken: there is no configuration to continue with.
            TemporaryDirectory.remove("\(daemon.directory.path)/sessions.d/main.toml")
            try await peer.call("daemon.reload")
            try daemon.directory.write("sessions.d/main.toml", "endpoints = 7\n")
            _ = try? await peer.call("daemon.reload")
            var status = try await peer.call("session.status", Self.main)
            #expect(status["state"] == "failed")
            #expect(status["outbox"]?["quarantined"] == 2 && status["outbox"]?["queued"] == 3)
            #expect(status["inbox"]?["messages"] == 1)

            let retried = try await peer.call("message.queue.retry", #"{"session":"main","ids":[1,3]}"#)
            #expect(retried["retried"] == .array([.object(["id": 1, "newID": 6])]))
            #expect(Self.codes(retried["skipped"]) == ["not-quarantined"])
            let dropped = try await peer.call("message.queue.drop", #"{"session":"main","ids":[2,4,99]}"#)
            #expect(dropped["dropped"] == .array([2, 4]))
            #expect(Self.codes(dropped["skipped"]) == ["unknown-message"])
            let event = try await peer.notification("session.event", ["event": "message-dropped"])
            #expect(event["id"] == 2 && event["topic"] == "secret")
            status = try await peer.call("session.status", Self.main)
            #expect(status["outbox"]?["quarantined"] == 0 && status["outbox"]?["queued"] == 3)

            // The counts follow when the store works again, without another call.
            try await daemon.store.setWritable(false)
            await #expect(throws: ControlPeer.CallFailure(code: "store-full")) {
                try await peer.call("message.queue.drop", #"{"session":"main","ids":[3]}"#)
            }
            try await daemon.store.setWritable(true)
            try await until("one is gone") {
                try await peer.call("session.status", Self.main)["outbox"]?["queued"] == 2
            }

            await daemon.server.set { $0.refusedTopics = [:] }
            try await daemon.writeSession()
            try await peer.call("daemon.reload")
            // It was disconnected on request before.
            try await peer.call("session.connect", Self.main)
            for payload in ["3", "no"] {
                #expect(try await daemon.server.message().payload == ByteBuffer(string: payload))
            }
        }
    }

    @Test func `is listed in pages, by state, with the reason of a quarantine`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            await daemon.server.set { $0.refusedTopics = ["secret": .notAuthorized] }
            _ = try? await peer.call("message.publish", Self.publish("no", topic: "secret", wait: "delivered"))
            try await peer.call("session.disconnect", Self.main)
            try await peer.state("disconnected")
            for number in 1...5 { try await peer.call("message.publish", Self.publish("\(number)")) }
            let first = try await peer.call("message.queue.list", #"{"session":"main","limit":2}"#)
            guard case .array(let messages)? = first["messages"] else { throw ControlPeer.CallFailure(code: "shape") }
            #expect(messages.map { $0["state"] } == ["quarantined", "queued"])
            #expect(messages[0]["id"] == 1)
            #expect(messages[0]["topic"] == "secret")
            #expect(messages[0]["reasonCode"] == 0x87)
            #expect(messages[0]["message"] != nil && messages[0]["message"] != .null)
            #expect(messages[1]["size"] == 2)
            #expect(messages[1]["acceptedAt"] != nil)
            #expect(first["next"] == 2)
            let rest = try await peer.call("message.queue.list", #"{"session":"main","after":2}"#)
            guard case .array(let others)? = rest["messages"] else { throw ControlPeer.CallFailure(code: "shape") }
            #expect(others.map { $0["id"] } == [3, 4, 5, 6])
            #expect(rest["next"] == .null)
            let set = try await peer.call("message.queue.list", #"{"session":"main","state":"quarantined"}"#)
            guard case .array(let quarantined)? = set["messages"] else { throw ControlPeer.CallFailure(code: "shape") }
            #expect(quarantined.map { $0["id"] } == [1])
            await #expect(throws: ControlPeer.CallFailure(code: "invalid-parameters")) {
                try await peer.call("message.queue.list", #"{"session":"main","state":"lost"}"#)
            }
        }
    }

    @Test func `has long topics on as many pages as it takes`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            // Any character may take six bytes in JSON.
            let topic = String(repeating: "x", count: 60_000)
            for _ in 0..<3 { try await peer.call("message.publish", Self.publish("x", topic: topic)) }
            var after = 0
            for page in 1...3 {
                let answer = try await peer.call("message.queue.list", #"{"session":"main","after":\#(after)}"#)
                if case .array(let messages)? = answer["messages"] { after += messages.count }
                if answer["next"] == .null { break }
                #expect(page < 3)
            }
            #expect(after == 3)
        }
    }

    @Test func `sends quarantined messages again, at the end of the queue`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            await daemon.server.set { $0.refusedTopics = ["secret": .notAuthorized] }
            for payload in ["a", "b"] {
                _ = try? await peer.call("message.publish", Self.publish(payload, topic: "secret", wait: "delivered"))
            }
            await daemon.server.set { $0.refusedTopics = [:] }
            let one = try await peer.call("message.queue.retry", #"{"session":"main","ids":[2,9]}"#)
            #expect(one["retried"] == .array([.object(["id": 2, "newID": 3])]))
            guard case .array(let skipped)? = one["skipped"] else { throw ControlPeer.CallFailure(code: "shape") }
            #expect(skipped.map { $0["code"] } == ["unknown-message"])
            await #expect(throws: ControlPeer.CallFailure.self) {
                try await peer.call("message.queue.retry", #"{"session":"main","all":"queued"}"#)
            }
            let all = try await peer.call("message.queue.retry", #"{"session":"main","all":"quarantined"}"#)
            #expect(all["retried"] == .array([.object(["id": 1, "newID": 4])]))
            #expect(all["more"] == .bool(false))
            // The first two are those that were refused.
            var payloads: [String] = []
            while payloads.count < 4 { payloads.append(String(buffer: try await daemon.server.message().payload)) }
            #expect(payloads == ["a", "b", "b", "a"])
            let status = try await peer.call("session.status", Self.main)
            #expect(status["outbox"]?["quarantined"] == 0)
        }
    }

    @Test func `drops messages on request, even those the server never answers`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            await daemon.server.set { $0.refusedTopics = ["secret": .notAuthorized] }
            _ = try? await peer.call("message.publish", Self.publish("a", topic: "secret", wait: "delivered"))
            await daemon.server.set { $0.answersMessages = false }
            try await peer.call("message.publish", Self.publish("b"))
            _ = try await daemon.server.packet { packet -> Bool? in
                if case .publish(let publish) = packet, publish.topic == "t" { true } else { nil }
            }
            let answer = try await peer.call("message.queue.drop", #"{"session":"main","ids":[1,2,3]}"#)
            #expect(answer["dropped"] == .array([1, 2]))
            guard case .array(let skipped)? = answer["skipped"] else { throw ControlPeer.CallFailure(code: "shape") }
            #expect(skipped.map { $0["code"] } == ["unknown-message"])
            #expect(skipped.first?["hint"] != .null)
            for id: Int64 in 1...2 {
                let event = try await peer.notification("session.event", ["event": "message-dropped"])
                #expect(event["id"] == .integer(id))
                #expect(event["reason"]?["code"] == "discarded")
            }
            let status = try await peer.call("session.status", Self.main)
            #expect(status["outbox"]?["quarantined"] == 0)
            #expect(status["outbox"]?["inFlight"] == 0)
        }
    }

    @Test func `drops everything that is queued, and says since when the oldest waited`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            for number in 0..<1200 { try await peer.request("message.publish", Self.publish("\(number)")) }
            try await peer.call("message.publish", Self.publish("last"))
            let before = try await peer.call("session.status", Self.main)
            #expect(before["outbox"]?["oldest"]?.text?.hasPrefix("20") == true)
            let all = #"{"session":"main","all":"queued"}"#
            let first = try await peer.call("message.queue.drop", all)
            #expect(first["more"] == .bool(true))
            let second = try await peer.call("message.queue.drop", all)
            #expect(second["more"] == .bool(false))
            let status = try await peer.call("session.status", Self.main)
            #expect(status["outbox"]?["queued"] == 0)
            #expect(status["outbox"]?["bytes"] == 0)
            #expect(status["outbox"]?["oldest"] == .null)
            try await peer.call("message.publish", Self.publish("new"))
            try await peer.call("session.connect", Self.main)
            #expect(try await daemon.server.message().payload == ByteBuffer(string: "new"))
        }
    }
}
