import Support
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

    @Test func `the members of a request are those that its type reads, whatever it makes of them`() {
        #expect(
            MessagePublishMethod.Parameters.members == [
                "session", "topic", "payload", "payloadBase64", "qos", "retain", "expiry", "properties", "key", "wait",
                "timeout",
            ])
        #expect(MessageUnsubscribeMethod.Parameters.members == ["subscription", "keep", "session", "consumer"])
        #expect(MessageQueueParameters.members == ["session", "ids", "all"])
        #expect(MessageQueueListMethod.Parameters.members == ["session", "state", "after", "limit"])
        #expect(SessionHistoryMethod.Parameters.members == ["session", "since", "until", "limit"])
        #expect(
            PublicationPutMethod.Parameters.members == [
                "session", "topic", "payload", "payloadBase64", "qos", "properties",
            ])
    }

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

    @Test func `only what is accepted is described as possible`() throws {
        let put = Self.list(try Self.method("publication.put")["params"])
        let qos = try #require(put.first { $0["name"]?.text == "qos" }?["schema"])
        #expect(qos["enum"] == .array([.integer(0), .integer(1), .null]))
    }

    /// An entry of holdfast-rpc(7): the line that it begins with, and the text below it.
    private static func manual(_ item: String) throws -> (line: Substring, text: String) {
        let entries = try repositoryFile("man/holdfast-rpc.7").split(separator: "\n.It ")
        let entry = try #require(entries.first { $0.hasPrefix(item + "\n") || $0.hasPrefix(item + " ") }, "\(item)")
        let line = entry.prefix { $0 != "\n" }
        return (line, String(entry.dropFirst(line.count + 1)).replacing("\n", with: " "))
    }

    @Test func `the manual begins each entry with the document's summary`() throws {
        for name in ControlMethods.names {
            let summary = try #require(try Self.method(name)["summary"]?.text)
            #expect(try Self.manual("Ic \(name)").text.hasPrefix(summary), "\(name)")
        }
    }

    @Test func `the manual has every parameter`() throws {
        let manual = try repositoryFile("man/holdfast-rpc.7")
        for method in ControlMethods.all {
            let line = try Self.manual("Ic \(method.name)").line
            for name in Self.members(method) { #expect(line.contains(name), "\(method.name) \(name)") }
        }
        for name in MessageProperties.members { #expect(manual.contains(name), "\(name)") }
    }

    @Test func `the manual and the document mean the same with each error`() throws {
        let errors = try #require(RPCDiscoverMethod.document["components"]?["errors"]?.members)
        #expect(Set(errors.keys) == Set(RPCError.Code.allCases.map(\.name)))
        for (name, error) in errors {
            guard case .integer(let code)? = error["code"], let meaning = error["message"]?.text else {
                Issue.record("\(name) has no code or no message")
                continue
            }
            #expect(try Self.manual("\(code) \(name)").text.hasPrefix(meaning), "\(name)")
        }
    }

    @Test func `notifications are described`() {
        let notifications = Self.list(RPCDiscoverMethod.document["x-notifications"])
        #expect(notifications.map { $0["name"]?.text } == ["session.event", "message.received"])
        for notification in notifications {
            #expect(notification["schema"]?["properties"]?.members?.isEmpty == false)
        }
    }
}
