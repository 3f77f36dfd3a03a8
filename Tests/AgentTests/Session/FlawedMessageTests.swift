import ControlAPI
import MQTT
import NIOCore
import Support
import Testing

@testable import Agent

/// What another publisher sends must not stop a session.
@Suite(.timeLimit(.minutes(10)))
struct FlawedMessageTests {
    @Test(arguments: [ProtocolVersion.five, .threeOneOne])
    func `an unusable message is reported and counted, and the next one arrives`(
        _ version: ProtocolVersion
    ) async throws {
        try await DaemonUnderTest.run("[mqtt]\nversion = \"\(version)\"\nmaximum-packet-size = \"1KiB\"\n") {
            daemon, peer in
            try await peer.call("message.subscribe", #"{"session":"main","filter":"a/#","qos":1,"consumer":"all"}"#)
            // A topic with a wildcard and an escape sequence, then a message that is too large, then a good one.
            let topic = ByteBuffer(string: "a/#\u{1B}[2J")
            var bytes = ByteBuffer(bytes: [0x32])
            let rest: [UInt8] = [0x03, 0xE7] + (version == .five ? [0x00] : []) + [0x78]
            bytes.writeInteger(UInt8(2 + topic.readableBytes + rest.count))
            bytes.writeInteger(UInt16(topic.readableBytes))
            bytes.writeImmutableBuffer(topic)
            bytes.writeBytes(rest)
            await daemon.server.send(bytes)
            // With MQTT 5 the server has been told what is too large.
            let size = version == .five ? 5 : 5000
            await daemon.server.publish("a/large\n", String(repeating: "x", count: size), qos: .exactlyOnce)
            await daemon.server.publish("a/good", "x", qos: .atLeastOnce)

            let first = try await Self.refused(peer)
            #expect(first["topic"]?.text == "a/#\u{1B}[2J")
            #expect(first["reason"]?["code"] == "unusable-content")
            #expect(first["reason"]?["message"]?.text?.contains("Topic Name contains a wildcard") == true)
            #expect(try await Self.refused(peer)["topic"] == "a/large\n")
            #expect(try await peer.notification("message.received")["topic"] == "a/good")
            for number: UInt16 in [999, 2] {
                _ = try await daemon.server.packet { packet -> Bool? in
                    if case .puback(let answer) = packet, answer.packetID.rawValue == number { true } else { nil }
                }
            }
            let status = try await peer.call("session.status", #"{"session":"main"}"#)
            #expect(status["state"] == "connected")
            #expect(status["counters"]?["refused"] == 2)
            #expect(status["counters"]?["connects"] == 1)
        }
    }

    private static func refused(_ peer: ControlPeer) async throws -> JSONValue {
        try await peer.notification("session.event", ["event": "message-refused"])
    }

    @Test(arguments: ["message.publish", "publication.put"])
    func `a topic with a control character is refused, and the error says why`(_ method: String) async throws {
        try await DaemonUnderTest.run { daemon, peer in
            let id = try await peer.request(method, #"{"session":"main","topic":"a\nb","payload":"x"}"#)
            let error = try await peer.answer(id)["error"]
            #expect(error?["data"]?["code"] == "invalid-topic")
            #expect(error?["message"]?.text?.contains("control characters") == true)
            await #expect(throws: ControlPeer.CallFailure(code: "invalid-topic")) {
                try await peer.call("message.subscribe", #"{"session":"main","filter":"a\u001b/#"}"#)
            }
        }
    }
}
