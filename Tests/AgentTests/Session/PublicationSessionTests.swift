import ControlAPI
import DurableStore
import Glibc
import MQTT
import NIOCore
import NIOPosix
import Session
import SessionCore
import Support
import Testing

@testable import Agent

/// The publications of a session of a whole daemon, with a server in the same process.
@Suite(.timeLimit(.minutes(10)))
struct PublicationSessionTests {
    static let main = #"{"session":"main"}"#

    /// Returns the payload of the next message from the client on a topic.
    private func published(_ server: LoopbackServer, _ topic: String) async throws -> String {
        try await server.packet { packet in
            guard case .publish(let publish) = packet, publish.topic == topic, publish.retain else { return nil }
            return String(buffer: publish.payload)
        }
    }

    /// Returns how many messages the client has sent.
    private func publishes(_ server: LoopbackServer) async -> Int {
        await server.events.all.count { event in if case .packet(.publish) = event { true } else { false } }
    }

    private func put(_ peer: ControlPeer, _ topic: String, _ payload: String = "1") async throws {
        try await peer.call(
            "publication.put", #"{"session":"main","topic":"\#(topic)","payload":"\#(payload)"}"#)
    }

    /// Returns `topic state` for every publication.
    private func list(_ peer: ControlPeer) async throws -> [String] {
        let result = try await peer.call("publication.list", Self.main)
        guard case .array(let publications)? = result["publications"] else { return [] }
        return publications.map { "\($0["topic"]?.text ?? "") \($0["state"]?.text ?? "")" }
    }

    /// Waits until the list is as wanted.
    private func expect(_ peer: ControlPeer, _ wanted: [String]) async throws {
        try await until("the list is \(wanted)") { try await list(peer) == wanted }
    }

    @Test func `a publication is published with its properties, and listed`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            try await peer.call(
                "publication.put",
                #"{"session":"main","topic":"a/1","payload":"on","qos":0,"properties":{"contentType":"text/plain"}}"#)
            let message = try await daemon.server.message()
            #expect(message.topic == "a/1" && message.retain && message.qos == .atMostOnce)
            #expect(message.properties.contentType == "text/plain")
            try await put(peer, "a/2")
            #expect(try await published(daemon.server, "a/2") == "1")
            try await expect(peer, ["a/1 published", "a/2 published"])
            let listed = try await peer.call("publication.list", Self.main)
            guard case .array(let publications)? = listed["publications"], let first = publications.first else {
                throw ControlPeer.CallFailure(code: "shape")
            }
            #expect(first["payload"] == "on")
            #expect(first["qos"] == .integer(0))
            #expect(first["properties"]?["contentType"] == "text/plain")
            #expect(first["since"]?.text?.hasSuffix("Z") == true)
            #expect(first["reasonCode"] == .null)
        }
    }

    @Test(arguments: [
        (#""topic":"a/+","payload":"1""#, "invalid-topic"),
        (#""topic":"~/a","payload":"1","qos":2"#, "invalid-parameters"),
        (#""topic":"a","payload":"""#, "invalid-parameters"),
        (#""topic":"a","payload":"1","retain":true"#, "invalid-parameters"),
        (#""topic":"~/","payload":"1""#, "invalid-topic"),
        (#""topic":"~/presence/ann/phone","payload":"1""#, "invalid-topic"),
        (#""topic":"holdfast/rooms/plant/a","payload":"1""#, "invalid-topic"),
    ])
    func `an invalid publication is refused`(parameters: String, code: String) async throws {
        try await DaemonUnderTest.run("room = \"plant\"", autoconnect: false) { daemon, peer in
            try await put(peer, "~/a")
            await #expect(throws: ControlPeer.CallFailure(code: code)) {
                try await peer.call("publication.put", #"{"session":"main",\#(parameters)}"#)
            }
            await #expect(throws: ControlPeer.CallFailure(code: "unknown-publication")) {
                try await peer.call("publication.remove", #"{"session":"main","topic":"b"}"#)
            }
            #expect(try await list(peer) == ["~/a pending"])
        }
    }

    @Test func `a session is connected once its publications are answered, even with a refusal`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            for topic in ["a", "b"] { try await put(peer, topic) }
            await daemon.server.set { $0.answersMessages = false }
            try await peer.call("session.connect", Self.main)
            let first = try await daemon.server.message()
            let second = try await daemon.server.message()
            #expect(try await peer.call("session.status", Self.main)["phase"] == "restoring")
            let (one, two) = (try #require(first.packetID), try #require(second.packetID))
            await daemon.server.send(.puback(Acknowledgement(packetID: one, reasonCode: .notAuthorized)))
            #expect(try await peer.call("session.status", Self.main)["phase"] == "restoring")
            await daemon.server.send(.puback(Acknowledgement(packetID: two)))
            try await peer.state("connected")
            #expect(try await list(peer) == ["a refused", "b published"])
            #expect(daemon.log.lines.filter { $0.message.contains("refused the publication a") }.count == 1)
            let listed = try await peer.call("publication.list", Self.main)
            guard case .array(let publications)? = listed["publications"] else {
                throw ControlPeer.CallFailure(code: "shape")
            }
            #expect(publications.first?["reasonCode"] == .integer(0x87))
        }
    }

    @Test func `publications are published again after each reconnect, as the server may be in an older state`()
        async throws
    {
        try await DaemonUnderTest.run { daemon, peer in
            try await put(peer, "a")
            #expect(try await published(daemon.server, "a") == "1")
            try await expect(peer, ["a published"])
            for isResumed in [true, false] {
                if !isResumed { await daemon.server.loseSession() }
                await daemon.server.drop()
                #expect(try await peer.state("connected")["resumed"] == .bool(isResumed))
                #expect(try await published(daemon.server, "a") == "1")
            }
            #expect(await publishes(daemon.server) == 3)
        }
    }

    @Test func `a removal is made when the session is connected again, and a disconnect clears publications`()
        async throws
    {
        try await DaemonUnderTest.run { daemon, peer in
            for topic in ["a", "b"] {
                try await put(peer, topic)
                #expect(try await published(daemon.server, topic) == "1")
            }
            try await expect(peer, ["a published", "b published"])
            try await peer.call("session.disconnect", Self.main)
            #expect(try await published(daemon.server, "a") == "")
            #expect(try await published(daemon.server, "b") == "")
            try await peer.state("disconnected")
            #expect(try await list(peer) == ["a pending", "b pending"])
            let removed = try await peer.call("publication.remove", #"{"session":"main","topic":"a"}"#)
            #expect(removed["state"] == "removed", "the server has nothing of it")
            try await peer.call("session.connect", Self.main)
            #expect(try await published(daemon.server, "b") == "1")
            try await peer.state("connected")
            try await expect(peer, ["b published"])
        }
    }

    @Test func `a relative publication follows a change of rooms`() async throws {
        try await DaemonUnderTest.run("room = \"plant\"") { daemon, peer in
            try await put(peer, "~/a")
            #expect(try await published(daemon.server, "holdfast/rooms/plant/a") == "1")
            try await peer.call("session.switchRoom", #"{"session":"main","room":"lab"}"#)
            #expect(try await published(daemon.server, "holdfast/rooms/plant/a") == "")
            #expect(try await published(daemon.server, "holdfast/rooms/lab/a") == "1")
            try await peer.state("connected")
            try await expect(peer, ["~/a published"])
        }
    }

    @Test func `publications are limited, however many are put at once`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            let count = Publications.maximumCount
            let requests = (1...count + 5).map { number in
                #"{"jsonrpc":"2.0","id":\#(number + 1000),"method":"publication.put","params":"#
                    + #"{"session":"main","topic":"t/\#(number)","payload":"x"}}"#
            }
            try await peer.sendRaw(requests.joined(separator: "\n") + "\n")
            var refused = 0
            for number in 1...count + 5 {
                let answer = try await peer.answer(number + 1000)
                if answer["error"]?["data"]?["code"] == "publications-full" { refused += 1 }
            }
            #expect(refused == 5)
            // What was refused or removed does not count forever.
            try await peer.call("publication.remove", #"{"session":"main","topic":"t/1"}"#)
            try await peer.call("publication.put", #"{"session":"main","topic":"t/new","payload":"x"}"#)
        }
    }

    /// Runs several lives of a daemon on one state directory, each with its own session file.
    private func lives(
        _ lives: [(file: String, body: (DaemonUnderTest, ControlPeer) async throws -> Void)],
        bootIDs: [String] = []
    ) async throws {
        try await DaemonUnderTest.run(autoconnect: false) { outer in
            let directory = try TemporaryDirectory()
            defer { directory.remove() }
            let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
            try directory.makeFolder("sessions.d")
            for (index, life) in lives.enumerated() {
                try directory.write(
                    "sessions.d/main.toml", await DaemonUnderTest.session(outer.server, life.file))
                let boot = index < bootIDs.count ? bootIDs[index] : "boot"
                try await DaemonUnderTest.run(in: directory, outer.server, on: group, bootID: boot) { daemon in
                    try await life.body(daemon, try await daemon.watcher())
                }
            }
            try await group.shutdownGracefully()
        }
    }

    @Test func `publications outlive the daemon, whose end does not clear them`() async throws {
        try await lives([
            (
                "",
                { daemon, peer in
                    try await put(peer, "a")
                    #expect(try await published(daemon.server, "a") == "1")
                    try await expect(peer, ["a published"])
                }
            ),
            (
                "",
                { daemon, peer in
                    #expect(try await published(daemon.server, "a") == "1", "nothing was cleared in between")
                    try await expect(peer, ["a published"])
                    // As if the daemon was killed after a removal that the server does not know of.
                    let main = try #require(SessionName("main"))
                    try await daemon.store.commit([(session: main, changes: [.removePublication("a")])])
                }
            ),
            (
                "",
                { daemon, peer in
                    #expect(try await published(daemon.server, "a") == "")
                    try await expect(peer, [])
                }
            ),
            (
                "",
                { daemon, peer in
                    #expect(try await list(peer) == [])
                    try await put(peer, "last")
                    #expect(try await published(daemon.server, "last") == "1")
                }
            ),
        ])
    }

    @Test func `a session removed from the configuration leaves nothing at the server`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            try await put(peer, "a")
            #expect(try await published(daemon.server, "a") == "1")
            try await expect(peer, ["a published"])
            // A change of the file is not leaving.
            try await daemon.writeSession("[heartbeat]\ninterval = \"77s\"")
            try await peer.call("daemon.reload")
            #expect(try await published(daemon.server, "a") == "1")
            #expect(unlink("\(daemon.directory.path)/sessions.d/main.toml") == 0)
            try await peer.call("daemon.reload")
            #expect(try await published(daemon.server, "a") == "")
        }
    }

    @Test func `a switched room outlives the daemon, but not a reboot or another room in the file`()
        async throws
    {
        func isIn(_ room: String) -> (DaemonUnderTest, ControlPeer) async throws -> Void {
            { _, peer in
                let status = try await peer.call("session.status", Self.main)
                #expect(status["room"] == .string(room))
            }
        }
        let switches: (DaemonUnderTest, ControlPeer) async throws -> Void = { _, peer in
            try await peer.call("session.switchRoom", #"{"session":"main","room":"lab"}"#)
        }
        try await lives(
            [
                (#"room = "plant""#, switches), (#"room = "plant""#, isIn("lab")), (#"room = "hall""#, isIn("hall")),
                (#"room = "plant""#, isIn("plant")),
                (#"room = "plant""#, switches), (#"room = "plant""#, isIn("plant")),
            ], bootIDs: ["boot", "boot", "boot", "boot", "boot", "other"])
    }
}
