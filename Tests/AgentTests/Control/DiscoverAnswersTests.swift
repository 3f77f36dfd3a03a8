import ControlAPI
import MQTT
import NIOCore
import Support
import Testing

@testable import Agent

/// The document of rpc.discover, compared with a running daemon.
@Suite(.timeLimit(.minutes(10)))
struct DiscoverAnswersTests {
    /// Calls of every method, in an order in which each succeeds, and the state that the session then comes to.
    ///
    /// - Parameters:
    ///   - watch: a second watch of this connection, which would tell every state twice.
    ///   - consumer: the subscription of a durable consumer that was given message 1.
    private static func calls(watch: String, consumer: String) -> [(name: String, parameters: String, then: String?)] {
        let session = #"{"session":"main"}"#
        return [
            ("rpc.hello", #"{"client":"test","protocol":1}"#, nil), ("daemon.status", "{}", nil),
            ("daemon.clients", "{}", nil), ("daemon.metrics", "{}", nil), ("daemon.logLevel", "{}", nil),
            ("daemon.reload", #"{"dryRun":true}"#, nil), ("network.status", "{}", nil), ("session.list", "{}", nil),
            ("session.status", session, nil), ("session.history", session, nil), ("session.connect", session, nil),
            ("session.unwatch", #"{"watch":"\#(watch)"}"#, nil),
            ("publication.put", #"{"session":"main","topic":"p","payload":"1"}"#, nil),
            ("publication.list", session, nil),
            ("publication.remove", #"{"session":"main","topic":"p"}"#, nil),
            ("message.publish", #"{"session":"main","topic":"a/b","payload":"1","wait":"delivered"}"#, nil),
            ("message.ack", #"{"subscription":"\#(consumer)","id":1}"#, nil),
            ("message.unsubscribe", #"{"session":"main","consumer":"c"}"#, nil),
            ("message.queue.list", session, nil),
            ("message.queue.retry", #"{"session":"main","all":"quarantined"}"#, nil),
            ("message.queue.drop", #"{"session":"main","all":"quarantined"}"#, nil),
            ("session.switchRoom", #"{"session":"main","room":"lab"}"#, "connected"),
            ("session.reconnect", #"{"session":"main","wait":true}"#, "connected"),
            ("session.renewToken", #"{"session":"main","token":"fresh"}"#, "connected"),
            ("session.simulate", #"{"session":"main","fault":"drop"}"#, "connected"),
            ("session.disconnect", #"{"session":"main","wait":true}"#, nil),
            ("check.run", session, nil),
        ]
    }

    @Test func `the daemon's answers match the document`() async throws {
        try await DaemonUnderTest.run("room = \"plant\"\ninsecure = true\n") { daemon, peer in
            let document = try await peer.call("rpc.discover")
            func check(_ name: String, _ result: JSONValue) throws {
                let schema = try #require(Self.method(name, in: document)?["result"]?["schema"], "\(name)")
                #expect(Self.problems(result, schema, at: name) == [])
            }
            // The list of participants begins with the session's own presence; Bob's shows that it was received.
            let presence = try await daemon.server.message()
            await daemon.server.publish(presence.topic, String(buffer: presence.payload))
            await daemon.server.publish(
                "holdfast/rooms/plant/presence/bob/desk", RoomSessionTests.presence("bob", "desk"))
            _ = try await peer.notification("session.event", ["event": "participant-joined"])
            try check("room.participants", try await peer.call("room.participants", #"{"session":"main"}"#))
            let watch = try await peer.call("session.watch")
            try check("session.watch", watch)
            let consumer = try await peer.call(
                "message.subscribe", #"{"session":"main","filter":"a/#","qos":1,"consumer":"c"}"#)
            try check("message.subscribe", consumer)
            await daemon.server.publish("a/1", "x", qos: .atLeastOnce)
            _ = try await peer.notification("message.received")
            let calls = Self.calls(watch: watch["watch"]?.text ?? "", consumer: consumer["subscription"]?.text ?? "")
            for (name, parameters, then) in calls {
                try check(name, try await peer.call(name, parameters))
                if let then { try await peer.state(then) }
            }
            let called = Set(calls.map(\.name)).union([
                "rpc.discover", "room.participants", "session.watch", "message.subscribe",
            ])
            #expect(called == Set(ControlMethods.names))
        }
    }

    @Test func `a missing parameter is refused if the document requires it`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            let peer = try await daemon.peer()
            guard case .array(let methods)? = try await peer.call("rpc.discover")["methods"] else {
                Issue.record("there are no methods")
                return
            }
            var count = 0
            for method in methods {
                guard let name = method["name"]?.text, case .array(let parameters)? = method["params"],
                    parameters.contains(where: { $0["required"] == .bool(true) })
                else { continue }
                count += 1
                await #expect(throws: ControlPeer.CallFailure(code: "invalid-parameters"), "\(name)") {
                    try await peer.call(name)
                }
            }
            #expect(count > 0)
        }
    }

    private static func method(_ name: String, in document: JSONValue) -> JSONValue? {
        guard case .array(let methods)? = document["methods"] else { return nil }
        return methods.first { $0["name"] == .string(name) }
    }

    /// Returns the places where a value does not match a schema, including members that the schema does not have.
    private static func problems(_ value: JSONValue, _ schema: JSONValue, at path: String) -> [String] {
        guard let type = schema["type"] else { return schema.members?.isEmpty == true ? [] : ["\(path): no type"] }
        let types: [JSONValue] = if case .array(let types) = type { types } else { [type] }
        let kind: [String] =
            switch value {
            case .null: ["null"]
            case .bool: ["boolean"]
            case .integer: ["integer", "number"]
            case .number: ["number"]
            case .string: ["string"]
            case .array: ["array"]
            case .object: ["object"]
            }
        guard kind.contains(where: { types.contains(.string($0)) }) else {
            return ["\(path): is \(kind), not \(types)"]
        }
        if case .array(let values)? = schema["enum"], !values.contains(value) { return ["\(path): \(value)"] }
        switch value {
        case .array(let elements):
            return elements.flatMap { problems($0, schema["items"] ?? .null, at: path + "[]") }
        case .object(let members):
            var found: [String] = []
            if case .array(let required)? = schema["required"] {
                found += required.compactMap(\.text).filter { members[$0] == nil }.map { "\(path).\($0) is missing" }
            }
            for (name, member) in members {
                guard let own = schema["properties"]?[name] ?? schema["additionalProperties"] else {
                    found.append("\(path).\(name) is not in the schema")
                    continue
                }
                found += problems(member, own, at: "\(path).\(name)")
            }
            return found
        default: return []
        }
    }
}
