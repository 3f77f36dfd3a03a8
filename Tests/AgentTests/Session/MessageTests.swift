import ControlAPI
import Glibc
import MQTT
import NIOCore
import SessionCore
import Support
import Testing

@testable import Agent

@Suite(.timeLimit(.minutes(10)))
struct MessageTests {
    private static func publish(
        _ topic: String = "t", qos: Int, wait: String = "accepted", payload: String = "x", session: String = "main"
    ) -> String {
        #"{"session":"\#(session)","topic":"\#(topic)","payload":"\#(payload)","qos":\#(qos),"wait":"\#(wait)"}"#
    }

    @Test(arguments: [0, 1, 2])
    func `a message is accepted, and delivered if the call waits for that`(qos: Int) async throws {
        try await DaemonUnderTest.run { daemon, peer in
            let accepted = try await peer.call("message.publish", Self.publish(qos: qos))
            #expect(
                accepted == .object(["id": 1, "accepted": .bool(true), "delivered": .bool(false), "reasonCode": .null]))
            let delivered = try await peer.call("message.publish", Self.publish(qos: qos, wait: "delivered"))
            #expect(
                delivered == .object(["id": 2, "accepted": .bool(true), "delivered": .bool(true), "reasonCode": 0]))
            let message = try await daemon.server.message()
            #expect(message.topic == "t")
            #expect(Int(message.qos.rawValue) == qos)
        }
    }

    @Test func `messages are accepted while the session is down, and sent later`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            for number in 0..<5 {
                try await peer.call("message.publish", Self.publish(qos: number % 3, payload: "\(number)"))
            }
            let waiting = try await peer.request(
                "message.publish", Self.publish(qos: 1, wait: "delivered", payload: "5"))
            try await peer.call("session.connect", #"{"session":"main"}"#)
            for number in 0...5 {
                #expect(try await daemon.server.message().payload == ByteBuffer(string: "\(number)"))
            }
            #expect(try await peer.answer(waiting)["result"]?["delivered"] == .bool(true))
        }
    }

    @Test func `pipelined messages keep the order in which they were written`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            let count = 500
            for number in 0..<count {
                try await peer.request("message.publish", Self.publish(qos: 1, payload: "\(number)"))
            }
            var received: [String] = []
            while received.count < count { received.append(String(buffer: try await daemon.server.message().payload)) }
            #expect(received == (0..<count).map { "\($0)" })
        }
    }

    @Test(arguments: [1, 2])
    func `a message that the server refuses is reported to its publisher and to watchers`(qos: Int) async throws {
        try await DaemonUnderTest.run { daemon, peer in
            await daemon.server.set { $0.refusedTopics = ["t": .notAuthorized] }
            let id = try await peer.request("message.publish", Self.publish(qos: qos, wait: "delivered"))
            let event = try await peer.notification("session.event", ["event": "message-rejected"])
            #expect(event["id"] == 1)
            #expect(event["topic"] == "t")
            #expect(event["reasonCode"] == 0x87)
            let error = try await peer.answer(id)["error"]
            #expect(error?["data"]?["code"] == "message-rejected")
            #expect(error?["data"]?["reasonCode"] == 0x87)
            #expect(error?["data"]?["id"] == 1, "it was accepted")
            let status = try await peer.call("session.status", #"{"session":"main"}"#)
            #expect(status["outbox"]?["quarantined"] == 1)
        }
    }

    @Test(arguments: [
        (#"{"session":"main","topic":"a/#","payload":""}"#, "invalid-topic"),
        (#"{"session":"main","topic":"","payload":""}"#, "invalid-topic"),
        (#"{"session":"mian","topic":"t","payload":""}"#, "unknown-session"),
        (#"{"session":"main","topic":"t","payload":"","qos":3}"#, "invalid-parameters"),
        (#"{"session":"main","topic":"t","payload":"","color":"red"}"#, "invalid-parameters"),
    ])
    func `an invalid message is refused at once`(parameters: String, code: String) async throws {
        try await DaemonUnderTest.run { daemon in
            let peer = try await daemon.peer()
            await #expect(throws: ControlPeer.CallFailure(code: code)) {
                try await peer.call("message.publish", parameters)
            }
        }
    }

    @Test func `an expiry beyond all times is limited`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            try await peer.call("message.publish", #"{"session":"main","topic":"t","payload":"x","expiry":1e300}"#)
            #expect(try await daemon.server.message().properties.messageExpiryInterval != nil)
        }
    }

    @Test(arguments: [0, 1, 2])
    func `a subscription gets matching messages until it is ended`(qos: Int) async throws {
        try await DaemonUnderTest.run { daemon, peer in
            let made = try await peer.call("message.subscribe", #"{"session":"main","filter":"a/+","qos":\#(qos)}"#)
            #expect(made["grantedQoS"] == .integer(Int64(qos)))
            await daemon.server.publish("b/1", "not asked for")
            await daemon.server.publish("a/1", "hello", qos: QoS(rawValue: UInt8(qos)) ?? .atMostOnce)
            let message = try await peer.notification("message.received")
            #expect(message["topic"] == "a/1")
            #expect(message["payload"] == "hello")
            #expect(message["subscription"] == made["subscription"])
            if qos > 0 {
                _ = try await daemon.server.packet { packet -> Bool? in
                    switch packet {
                    case .puback, .pubcomp: true
                    default: nil
                    }
                }
            }
            let id = try #require(made["subscription"]?.text)
            try await peer.call("message.unsubscribe", #"{"subscription":"\#(id)"}"#)
            let filters = try await daemon.server.packet {
                if case .unsubscribe(let packet) = $0 { packet.filters } else { nil }
            }
            #expect(filters == ["a/+"])
            await #expect(throws: ControlPeer.CallFailure(code: "unknown-subscription")) {
                try await peer.call("message.unsubscribe", #"{"subscription":"\#(id)"}"#)
            }
        }
    }

    @Test func `the answer to subscribe comes before its messages, whatever else is answered`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            await daemon.server.set { $0.answersSubscribe = false }
            let request = try await peer.request("message.subscribe", #"{"session":"main","filter":"a"}"#)
            let id = try await daemon.server.packet {
                if case .subscribe(let packet) = $0 { packet.packetID } else { nil }
            }
            try await peer.call("session.list")
            await daemon.server.publish("a", "early")
            try await peer.call("session.list")
            await daemon.server.send(.suback(Suback(packetID: id, reasonCodes: [.grantedQoS1])))
            let first = try await peer.lines.first { line in
                line?["id"] == .integer(Int64(request)) || line?["method"] == "message.received" ? line : nil
            }
            #expect(first["result"]?["grantedQoS"] == 1)
            #expect(try await peer.notification("message.received")["payload"] == "early")
        }
    }

    @Test func `a subscription that the server refuses is an error`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            await daemon.server.set { $0.refusedFilters = ["secret": .notAuthorized] }
            await #expect(throws: ControlPeer.CallFailure(code: "subscription-refused")) {
                try await peer.call("message.subscribe", #"{"session":"main","filter":"secret"}"#)
            }
        }
    }

    @Test func `a subscription that waits for its answer when the connection ends is answered`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            await daemon.server.set { $0.answersSubscribe = false }
            let request = try await peer.request("message.subscribe", #"{"session":"main","filter":"a"}"#)
            _ = try await daemon.server.packet { if case .subscribe = $0 { true } else { nil } }
            await daemon.server.set { $0.answersSubscribe = true }
            await daemon.server.drop()
            let answer = try await peer.answer(request)
            #expect(answer["result"]?["grantedQoS"] == .null)
            try await peer.state("connected")
            await daemon.server.publish("a", "late")
            #expect(try await peer.notification("message.received")["payload"] == "late")
        }
    }

    @Test func `two programs with one filter share one subscription at the server`() async throws {
        try await DaemonUnderTest.run { daemon in
            let (one, two) = (try await daemon.watcher(), try await daemon.peer())
            let first = try await one.call("message.subscribe", #"{"session":"main","filter":"a"}"#)
            try await two.call("message.subscribe", #"{"session":"main","filter":"a"}"#)
            await daemon.server.publish("a", "both")
            _ = try await one.notification("message.received")
            _ = try await two.notification("message.received")
            let id = try #require(first["subscription"]?.text)
            try await one.call("message.unsubscribe", #"{"subscription":"\#(id)"}"#)
            await daemon.server.publish("a", "one")
            #expect(try await two.notification("message.received")["payload"] == "one")
            let isEnded = await daemon.server.events.all.contains { event in
                if case .packet(.unsubscribe) = event { true } else { false }
            }
            #expect(!isEnded, "the other program still has the filter")
            try await two.close()
            _ = try await daemon.server.packet { if case .unsubscribe = $0 { true } else { nil } }
        }
    }

    @Test func `a call waiting for delivery is answered when the daemon stops`() async throws {
        var peer: ControlPeer?
        var request = 0
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            peer = try await daemon.watcher("disconnected")
            request = try await peer?.request("message.publish", Self.publish(qos: 1, wait: "delivered")) ?? 0
            try await peer?.call("session.list")
            await daemon.registry.stop()
            let answer = try await peer?.answer(request)
            #expect(answer?["result"]?["accepted"] == .bool(true))
            #expect(answer?["result"]?["delivered"] == .bool(false))
            await #expect(throws: ControlPeer.CallFailure(code: "shutting-down")) {
                try await peer?.call("message.publish", Self.publish(qos: 1))
            }
        }
    }
}
