import ControlAPI
import MQTT
import NIOCore
import NIOPosix
import SessionCore
import Support
import Testing

@testable import Agent

@Suite(.timeLimit(.minutes(10)))
struct PublishKeyTests {
    private static func publish(_ key: String, wait: String = "accepted", payload: String = "x") -> String {
        #"{"session":"main","topic":"t","payload":"\#(payload)","key":"\#(key)","wait":"\#(wait)"}"#
    }

    @Test func `a repeated call is the same message and gets the same answer`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            let first = try await peer.call("message.publish", Self.publish("a", wait: "delivered"))
            #expect(first["id"] == 1)
            #expect(first["repeated"] == nil)
            for (wait, payload) in [("delivered", "x"), ("accepted", "x"), ("accepted", "another")] {
                let again = try await peer.call("message.publish", Self.publish("a", wait: wait, payload: payload))
                #expect(again["id"] == 1 && again["repeated"] == .bool(true))
                if wait == "delivered" {
                    var members = try #require(again.members)
                    members["repeated"] = nil
                    #expect(.object(members) == first)
                }
            }
            #expect(try await peer.call("message.publish", Self.publish("b", wait: "delivered"))["id"] == 2)
            #expect(try await daemon.server.message().payload == ByteBuffer(string: "x"))
            #expect(try await daemon.server.message().payload == ByteBuffer(string: "x"))
            let status = try await peer.call("session.status", #"{"session":"main"}"#)
            #expect(status["counters"]?["published"] == 2)
        }
    }

    @Test func `concurrent calls are one message, and each is answered`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            var calls: [Int] = []
            for number in 0..<20 {
                calls.append(
                    try await peer.request(
                        "message.publish", Self.publish("a", wait: number % 2 == 0 ? "accepted" : "delivered")))
            }
            for call in stride(from: 0, to: 20, by: 2) {
                #expect(try await peer.answer(calls[call])["result"]?["id"] == 1)
            }
            try await peer.call("session.connect", #"{"session":"main"}"#)
            for call in stride(from: 1, to: 20, by: 2) {
                #expect(try await peer.answer(calls[call])["result"]?["delivered"] == .bool(true))
            }
            let status = try await peer.call("session.status", #"{"session":"main"}"#)
            #expect(status["counters"]?["published"] == 1)
        }
    }

    @Test(arguments: ["accepted", "delivered"])
    func `of a message that the store has lost does not say that it was delivered`(wait: String) async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            try await peer.call("message.publish", Self.publish("a"))
            try await daemon.store.execute("DELETE FROM message")
            await #expect(throws: ControlPeer.CallFailure(code: "message-lost")) {
                try await peer.call("message.publish", Self.publish("a", wait: wait))
            }
        }
    }

    private static func hasPublishers(_ driver: isolated SessionDriver) -> Bool {
        !driver.programs.publishers.isEmpty
    }

    @Test(.timeLimit(.minutes(10)))
    func `a caller that no longer waits for the delivery is let go`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            let driver = try await daemon.registry.driver("main")
            let peer = try await daemon.watcher("disconnected")
            let late = #"{"session":"main","topic":"t","payload":"x","key":"a","wait":"delivered","timeout":0.01}"#
            for time in 1...3 {
                let answer = try await peer.call("message.publish", late)
                #expect(answer["id"] == 1 && answer["delivered"] == .bool(false))
                #expect(answer["repeated"] == (time == 1 ? nil : .bool(true)), "only the first call published anything")
                #expect(await !Self.hasPublishers(driver))
            }
            for key in ["a", "b"] {
                let gone = try await daemon.peer()
                try await gone.request("message.publish", Self.publish(key, wait: "delivered"))
                try await until("the caller waits") { await Self.hasPublishers(driver) }
                try await gone.close()
                try await until("the caller is let go") { await !Self.hasPublishers(driver) }
            }
        }
    }

    @Test func `a repeated call for a refused message is refused again`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            await daemon.server.set { $0.refusedTopics = ["t": .notAuthorized] }
            var (messages, hints): ([JSONValue?], [JSONValue?]) = ([], [])
            for _ in 1...2 {
                let call = try await peer.request("message.publish", Self.publish("a", wait: "delivered"))
                let error = try await peer.answer(call)["error"]
                #expect(error?["data"]?["code"] == "message-rejected")
                messages.append(error?["message"])
                hints.append(error?["data"]?["hint"])
            }
            #expect(
                hints.first
                    == "it is kept: holdfastctl queue retry main 1 sends it again, and queue drop deletes it")
            #expect(messages.first == "the server rejected the message: not authorized (0x87)")
            #expect(messages.first == messages.last)
            let status = try await peer.call("session.status", #"{"session":"main"}"#)
            #expect(status["outbox"]?["quarantined"] == 1, "it is the same message")
        }
    }

    @Test func `another daemon on the same state knows the key`() async throws {
        try await DaemonUnderTest.withServer { directory, server, group in
            try directory.write("sessions.d/main.toml", await DaemonUnderTest.session(server))
            try await DaemonUnderTest.run(in: directory, server, on: group) { daemon in
                let peer = try await daemon.watcher()
                #expect(try await peer.call("message.publish", Self.publish("a", wait: "delivered"))["id"] == 1)
            }
            try await DaemonUnderTest.run(in: directory, server, on: group) { daemon in
                let peer = try await daemon.watcher()
                let again = try await peer.call("message.publish", Self.publish("a", wait: "delivered"))
                #expect(again["id"] == 1)
                #expect(again["delivered"] == .bool(true))
            }
        }
    }

    @Test(arguments: [true, false])
    func `a message whose key is looked up while its session stops is taken by the next one, or the daemon stops`(
        isReload: Bool
    ) async throws {
        try await DaemonUnderTest.run { daemon, peer in
            let driver = try await daemon.registry.driver("main")
            let standstill = Standstill(of: daemon.disk)
            let publish = try await peer.request("message.publish", Self.publish("a"))
            // This call follows the publish on the connection: when it is answered, the key is being looked up.
            try await peer.call("daemon.logLevel", #"{"level":"info"}"#)
            async let stopped: Void = isReload ? () : daemon.registry.stop()
            if isReload {
                try await daemon.writeSession("room = \"hall\"")
                try await peer.request("daemon.reload")
            }
            try await until("the session stops") { await driver.isStopping }
            standstill.end()
            await stopped
            let answer = try await peer.answer(publish)
            if isReload {
                #expect(answer["result"]?["id"] == 1)
            } else {
                #expect(answer["error"]?["message"] == "the daemon is stopping")
            }
        }
    }

    @Test(arguments: ["", "a b"])
    func `an invalid key is refused`(key: String) async throws {
        try await DaemonUnderTest.run { daemon, peer in
            await #expect(throws: ControlPeer.CallFailure(code: "invalid-parameters")) {
                try await peer.call("message.publish", Self.publish(key))
            }
        }
    }
}
