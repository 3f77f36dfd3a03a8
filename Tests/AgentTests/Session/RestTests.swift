import ControlAPI
import DurableStore
import MQTT
import NIOCore
import NIOPosix
import Session
import SessionCore
import Support
import Testing

@testable import Agent

/// Sessions that are connected on demand, and the host's sleep, in a whole daemon.
@Suite(.timeLimit(.minutes(10)))
struct RestTests {
    private static let onDemand = "on-demand = true\nidle-timeout = \"1s\""
    private static let publish = #"{"session":"main","topic":"a","payload":"hello","wait":"delivered"}"#

    @Test(arguments: [0, 1, 2])
    func `a publish connects the session, which disconnects afterwards`(qos: Int) async throws {
        try await DaemonUnderTest.run(Self.onDemand) { daemon in
            let peer = try await daemon.watcher("disconnected")
            let other = try await daemon.peer()
            for _ in 1...2 {
                let result = try await other.call(
                    "message.publish",
                    #"{"session":"main","topic":"a","payload":"hello","qos":\#(qos),"wait":"delivered"}"#)
                #expect(result["delivered"] == .bool(true))
                #expect(try await peer.state("connecting")["reason"]?["code"] == "demand")
                try await peer.state("connected")
                #expect(try await peer.state("disconnecting")["reason"]?["code"] == "idle")
                #expect(try await peer.state("disconnected")["reason"]?["code"] == "idle")
            }
        }
    }

    @Test func `a program that is gone no longer counts as a use`() async throws {
        try await DaemonUnderTest.run(Self.onDemand) { daemon in
            let peer = try await daemon.watcher("disconnected")
            let program = try await daemon.peer()
            try await program.call("message.subscribe", #"{"session":"main","filter":"a/#"}"#)
            try await peer.state("connected")
            try await program.close()
            #expect(try await peer.state("disconnected")["reason"]?["code"] == "idle")
        }
    }

    @Test func `an explicit disconnect outlives the daemon, whatever messages wait`() async throws {
        try await DaemonUnderTest.withServer { directory, server, group in
            try directory.write("sessions.d/main.toml", await DaemonUnderTest.session(server, Self.onDemand))
            for _ in 1...2 {
                try await DaemonUnderTest.run(in: directory, server, on: group) { daemon in
                    let peer = try await daemon.watcher("disconnected")
                    try await peer.call("session.disconnect", #"{"session":"main"}"#)
                    try await peer.call("message.publish", #"{"session":"main","topic":"a","payload":"hello"}"#)
                    try await peer.call("message.subscribe", #"{"session":"main","filter":"b","consumer":"c"}"#)
                    let status = try await peer.call("session.status", #"{"session":"main"}"#)
                    #expect(status["state"] == "disconnected")
                    #expect(status["reason"]?["code"] == "user-disconnect")
                }
            }
            #expect(await server.events.all.isEmpty)
        }
    }

    @Test func `waiting messages connect the session when the daemon starts`() async throws {
        try await DaemonUnderTest.withServer { directory, server, group in
            try await server.stop()
            try directory.write("sessions.d/main.toml", await DaemonUnderTest.session(server, "on-demand = true"))
            try await DaemonUnderTest.run(in: directory, server, on: group) { daemon in
                let peer = try await daemon.watcher("disconnected")
                try await peer.call("message.publish", #"{"session":"main","topic":"a","payload":"hello"}"#)
                try await peer.state("connecting")
            }
            try await server.start()
            try await DaemonUnderTest.run(in: directory, server, on: group) { daemon in
                let peer = try await daemon.watcher("connected")
                let status = try await peer.call("session.status", #"{"session":"main"}"#)
                #expect(status["reason"]?["code"] == "demand")
            }
        }
    }

    @Test func `a session is down before sleep, and back on waking`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            await daemon.registry.hostWillSleep()
            let status = try await peer.call("session.status", #"{"session":"main"}"#)
            #expect(status["state"] == "disconnected")
            #expect(status["reason"]?["code"] == "suspend")
            await daemon.registry.hostWoke(slept: .seconds(100))
            #expect(try await peer.state("connecting")["reason"]?["code"] == "wake")
            try await peer.state("connected")
        }
    }

    @Test func `a session with on-suspend = keep is probed on waking`() async throws {
        // No heartbeat is due in the time of the test.
        try await DaemonUnderTest.run("on-suspend = \"keep\"\n[heartbeat]\ninterval = \"1h\"") { daemon, peer in
            await daemon.registry.hostWillSleep()
            await daemon.registry.hostWoke(slept: .seconds(100))
            _ = try await daemon.server.events.first { event -> Bool? in
                if case .packet(.pingreq) = event { true } else { nil }
            }
            #expect(try await peer.call("session.status", #"{"session":"main"}"#)["state"] == "connected")
        }
    }
}
