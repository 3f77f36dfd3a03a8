import ControlAPI
import Testing

@testable import Agent

/// The document of rpc.discover, compared with a running daemon.
@Suite(.timeLimit(.minutes(5)))
struct DiscoverAnswersTests {
    @Test func `the daemon's answers match the document`() async throws {
        try await DaemonUnderTest.run { daemon in
            let peer = try await daemon.watcher()
            let document = try await peer.call("rpc.discover")
            try await peer.call("publication.put", #"{"session":"main","topic":"p","payload":"1"}"#)
            let session = #"{"session":"main"}"#
            let calls = [
                ("rpc.hello", #"{"client":"test","protocol":1}"#), ("daemon.status", "{}"), ("daemon.metrics", "{}"),
                ("daemon.logLevel", "{}"), ("daemon.reload", #"{"dryRun":true}"#), ("session.list", "{}"),
                ("session.status", session), ("session.history", session), ("session.connect", session),
                ("session.watch", session), ("network.status", "{}"), ("publication.list", session),
                ("message.subscribe", #"{"session":"main","filter":"a/#","consumer":"c"}"#),
                ("message.publish", #"{"session":"main","topic":"a/b","payload":"1","wait":"delivered"}"#),
                ("message.queue.list", session),
                ("message.unsubscribe", #"{"session":"main","consumer":"c"}"#),
                ("publication.remove", #"{"session":"main","topic":"p"}"#), ("session.disconnect", session),
            ]
            for (name, parameters) in calls {
                let schema = try #require(Self.method(name, in: document)?["result"]?["schema"])
                let result = try await peer.call(name, parameters)
                #expect(Self.problems(result, schema, at: name) == [])
            }
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
