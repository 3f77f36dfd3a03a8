import Testing

@testable import ControlAPI

struct DiscoverTests {
    private static func list(_ value: JSONValue?) -> [JSONValue] {
        if case .array(let elements)? = value { elements } else { [] }
    }

    private static func method(_ name: String) throws -> JSONValue {
        try #require(
            list(RPCDiscoverMethod.document["methods"]).first { $0["name"] == .string(name) })
    }

    @Test func `every method is listed, with every parameter described`() throws {
        let methods = Self.list(RPCDiscoverMethod.document["methods"])
        #expect(methods.map { $0["name"]?.text } == ControlMethods.names)
        for method in ControlMethods.all {
            let described = try Self.method(method.name)
            let parameters = Self.list(described["params"])
            #expect(parameters.compactMap { $0["name"]?.text } == Self.members(method))
            for parameter in parameters {
                #expect(parameter["schema"]?["type"] != nil, "\(method.name) \(parameter["name"]?.text ?? "")")
            }
            #expect(described["result"]?["schema"] != nil)
        }
    }

    private static func members<Method: ControlMethod>(_ method: Method.Type) -> [String] { Method.Parameters.members }

    @Test func `a schema says what is required, what may be null, and which words are possible`() throws {
        let reconnect = Self.list(try Self.method("session.reconnect")["params"])
        #expect(reconnect.map { $0["required"] } == [.bool(true), .bool(false), .bool(false), .bool(false)])
        let mode = try #require(reconnect[1]["schema"])
        #expect(mode["type"] == .array([.string("string"), .string("null")]))
        let state = try Self.method("session.status")["result"]?["schema"]?["properties"]?["state"]
        let words = Self.list(state?["enum"])
        #expect(words.contains(.string("reconnecting")))
        let since = try Self.method("daemon.status")["result"]?["schema"]?["properties"]?["since"]
        #expect(since?["format"] == .string("date-time"))
        let sessions = try Self.method("session.list")["result"]?["schema"]?["properties"]?["sessions"]
        #expect(sessions?["items"]?["properties"]?["outbox"]?["properties"]?["queued"]?["type"] == .string("integer"))
    }

    @Test func `notifications are described`() {
        let notifications = Self.list(RPCDiscoverMethod.document["x-notifications"])
        #expect(notifications.map { $0["name"]?.text } == ["session.event", "message.received"])
        for notification in notifications {
            #expect(notification["schema"]?["properties"]?.members?.isEmpty == false)
        }
    }
}
