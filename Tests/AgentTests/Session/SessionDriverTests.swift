public import ControlAPI
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

/// A session of a whole daemon, with a server in the same process.
@Suite(.timeLimit(.minutes(10)))
struct SessionDriverTests {
    @Test func `a configured session connects on its own`() async throws {
        try await DaemonUnderTest.run { daemon in
            let connect = try await daemon.server.connect()
            #expect(connect.clientID == "edge-42")
            #expect(!connect.cleanStart)
            let peer = try await daemon.watcher()
            let status = try await peer.call("session.status", #"{"session":"main"}"#)
            #expect(status["endpoint"] == .string("mqtt://127.0.0.1:\(await daemon.server.port)"))
            #expect(status["resumed"] == .bool(false))
            #expect(status["path"]?["interface"] == "lo")
            #expect(status["clientID"] == "edge-42")
            #expect(status["counters"]?["connects"] == 1)
        }
    }

    @Test func `a session without autoconnect waits for connect`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            #expect(try await peer.call("session.connect", #"{"session":"main"}"#)["state"] == "connecting")
            try await peer.state("connected")
        }
    }

    @Test func `a dropped connection is resumed`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            await daemon.server.drop()
            let lost = try await peer.state("reconnecting")
            #expect(lost["reason"]?["code"] == "server-closed")
            #expect(lost["mode"] == "quick")
            let back = try await peer.state("connected")
            #expect(back["resumed"] == .bool(true))
            _ = try await daemon.server.connect()
            #expect(try await daemon.server.connect().cleanStart == false)
        }
    }

    @Test func `a server that lost the session gets the subscriptions again`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            try await peer.call("message.subscribe", #"{"session":"main","filter":"a/#"}"#)
            await daemon.server.loseSession()
            await daemon.server.drop()
            try await peer.state("reconnecting")
            let back = try await peer.state("connected")
            #expect(back["resumed"] == .bool(false))
            let filters = await daemon.server.events.all.compactMap { event -> [String]? in
                if case .packet(.subscribe(let subscribe)) = event {
                    subscribe.subscriptions.map(\.filter)
                } else {
                    nil
                }
            }
            #expect(filters == [["a/#"], ["a/#"]])
        }
    }

    @Test func `a rejected password is reported as such, however fast the server closes`() async throws {
        let directory = try TemporaryDirectory()
        defer { directory.remove() }
        try directory.write("password", "wrong\n")
        let prepare: (LoopbackServer) async throws -> Void = { server in
            await server.set { $0.connack.reasonCode = .badUserNameOrPassword }
        }
        try await DaemonUnderTest.run(
            #"password = "file:\#(directory.path)/password""#, autoconnect: false, prepare: prepare
        ) { daemon in
            let peer = try await daemon.watcher("disconnected")
            for _ in 1...20 {
                try await peer.call("session.connect", #"{"session":"main"}"#)
                let failed = try await peer.state("failed")
                #expect(failed["reason"]?["code"] == "credential-rejected")
            }
            #expect(await daemon.server.events.all.filter { if case .opened = $0 { true } else { false } }.count == 20)
            #expect(daemon.log.lines.allSatisfy { !$0.message.contains("wrong") })
        }
    }

    @Test func `a replaced password is tried once more`() async throws {
        let directory = try TemporaryDirectory()
        defer { directory.remove() }
        try directory.write("password", "old\n")
        try await DaemonUnderTest.run(#"password = "file:\#(directory.path)/password""#) { daemon in
            let peer = try await daemon.watcher()
            _ = try await daemon.server.connect()
            try directory.write("password", "new\n")
            await daemon.server.disconnect(.notAuthorized)
            let connect = try await daemon.server.connect()
            #expect(connect.password == ByteBuffer(string: "new"))
            try await peer.state("connected")
        }
    }

    /// Runs two lives of a daemon on one state directory.
    private func twice(
        bootIDs: (String, String) = ("boot", "boot"), _ first: (DaemonUnderTest) async throws -> Void,
        then second: (DaemonUnderTest) async throws -> Void
    ) async throws {
        try await DaemonUnderTest.run { daemon in
            // The outer daemon only provides the server; these two have their own directory.
            let directory = try TemporaryDirectory()
            defer { directory.remove() }
            let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
            try directory.makeFolder("sessions.d")
            try directory.write(
                "sessions.d/main.toml", await DaemonUnderTest.session(daemon.server, user: "other"))
            try await DaemonUnderTest.run(in: directory, daemon.server, on: group, bootID: bootIDs.0, first)
            try await DaemonUnderTest.run(in: directory, daemon.server, on: group, bootID: bootIDs.1, second)
            try await group.shutdownGracefully()
        }
    }

    @Test func `an explicit disconnect outlives the daemon`() async throws {
        try await twice { daemon in
            let peer = try await daemon.watcher()
            try await peer.call("session.disconnect", #"{"session":"main"}"#)
        } then: { daemon in
            let status = try await daemon.registry.status("main")
            #expect(status.state == .disconnected)
            #expect(status.reason?.code == "user-disconnect")
            let peer = try await daemon.watcher("disconnected")
            try await peer.call("session.connect", #"{"session":"main"}"#)
            try await peer.state("connected")
        }
    }

    @Test func `an explicit disconnect is durable when it is answered`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            await daemon.server.set { $0.answersMessages = false }
            try await peer.call("message.publish", #"{"session":"main","topic":"t","payload":"x"}"#)
            _ = try await daemon.server.message()
            // Still disconnecting, unless the disk took longer than that: a daemon that is killed now must not connect
            // again.
            let state = try await peer.call("session.disconnect", #"{"session":"main"}"#)["state"]
            #expect(state == "disconnecting" || state == "disconnected")
            let name = try #require(SessionName("main"))
            #expect(try await daemon.store.session(name).verdict?.reasonCode == "user-disconnect")
            try await peer.call("session.connect", #"{"session":"main"}"#)
            #expect(try await daemon.store.session(name).verdict?.keepsDown != true)
        }
    }

    @Test func `a command that is repeated waits for the same decision`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            let standstill = Standstill(of: daemon.disk)
            let name = try #require(SessionName("main"))
            let driver = try #require(try await daemon.registry.driverNow("main"))
            let answers = Arrivals<String>(eventLoop: daemon.eventLoop)
            var calls: [Task<Void, any Error>] = []
            for _ in 1...3 { calls.append(await driver.beginDisconnect { await answers.append("answered") }) }
            try await peer.state("disconnected")
            // Whatever these calls can do without the disk is done by then.
            for _ in 1...100 { _ = try await daemon.eventLoop.submit {}.get() }
            #expect(await answers.all == [])
            standstill.end()
            for call in calls { try await call.value }
            #expect(try await daemon.store.session(name).verdict?.reasonCode == "user-disconnect")
        }
    }

    @Test func `a terminal reason outlives the daemon`() async throws {
        try await twice { daemon in
            let peer = try await daemon.watcher()
            await daemon.server.disconnect(.sessionTakenOver)
            try await peer.state("failed")
        } then: { daemon in
            let status = try await daemon.registry.status("main")
            #expect(status.state == .failed)
            #expect(status.reason?.code == "displaced")
            #expect(status.reason?.serverCode == 0x8E)
        }
    }

    @Test func `autoconnect decides again after a reboot`() async throws {
        try await twice(bootIDs: ("one", "two")) { daemon in
            let peer = try await daemon.watcher()
            try await peer.call("session.disconnect", #"{"session":"main"}"#)
            try await peer.state("disconnected")
        } then: { daemon in
            _ = try await daemon.watcher()
        }
    }

    @Test func `the daemon's end does not count as an explicit disconnect`() async throws {
        try await twice { daemon in
            _ = try await daemon.watcher()
        } then: { daemon in
            _ = try await daemon.watcher()
        }
    }
}

extension JSONValue: ExpressibleByStringLiteral, ExpressibleByIntegerLiteral {
    public init(stringLiteral value: String) { self = .string(value) }
    public init(integerLiteral value: Int64) { self = .integer(value) }
}

extension SessionDriver {
    /// Calls `disconnect`, and returns when the call waits.
    fileprivate func beginDisconnect(_ then: @escaping @Sendable () async -> Void) -> Task<Void, any Error> {
        Task.immediate {
            _ = try await self.disconnect()
            await then()
        }
    }
}
