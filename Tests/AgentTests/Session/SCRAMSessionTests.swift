import ControlAPI
import Glibc
import MQTT
import NIOCore
import SessionCore
import Support
import Testing

@testable import Agent

/// Enhanced authentication, with a whole daemon.
@Suite(.timeLimit(.minutes(10))) struct SCRAMSessionTests {
    /// How long a password is valid, in seconds; longer than connecting with it takes. The thread sanitizer checks each of
    /// the thousands of rounds of a proof.
    private static let life = Sanitizer.inUse == .thread ? 30 : 10

    /// Configures a helper that prints the file `output`, and from then on the file `next` if there is one.
    private static func configuration(_ scratch: CredentialScratch) throws -> String {
        let helper = try scratch.helper("cat $here/output; [ ! -e $here/next ] || mv $here/next $here/output")
        return """
            password = "exec:\(helper.joined(separator: " "))"
            mqtt.authentication = "SCRAM-SHA-256"
            """
    }

    private static func run(
        _ output: String, next: String? = nil,
        _ behave: @Sendable @escaping (inout LoopbackServer.Behaviour) -> Void = { _ in },
        _ body: (DaemonUnderTest, CredentialScratch) async throws -> Void
    ) async throws {
        let scratch = try CredentialScratch()
        try scratch.write("output", output)
        if let next { try scratch.write("next", next) }
        let prepare: (LoopbackServer) async throws -> Void = { server in
            await server.set {
                $0.scramPassword = "pencil"
                behave(&$0)
            }
        }
        try await DaemonUnderTest.run(try configuration(scratch), autoconnect: false, prepare: prepare) { daemon in
            try await body(daemon, scratch)
        }
    }

    private static func connect(_ daemon: DaemonUnderTest, _ state: String) async throws -> (ControlPeer, JSONValue) {
        let peer = try await daemon.watcher("disconnected")
        try await peer.call("session.connect", #"{"session":"main"}"#)
        return (peer, try await peer.state(state))
    }

    @Test func `a session proves its password, and the password is never sent`() async throws {
        try await Self.run("pencil") { daemon, _ in
            _ = try await Self.connect(daemon, "connected")
            let connect = try await daemon.server.connect()
            #expect(connect.password == nil)
            #expect(connect.properties.authenticationMethod == "SCRAM-SHA-256")
        }
    }

    @Test func `a wrong password fails the session`() async throws {
        try await Self.run("pen") { daemon, _ in
            let (_, failed) = try await Self.connect(daemon, "failed")
            #expect(failed["reason"]?["code"] == "not-authorized")
        }
    }

    @Test func `a server without a valid proof fails the session`() async throws {
        try await Self.run("pencil", { $0.spoilsProof = true }) { daemon, _ in
            let (_, failed) = try await Self.connect(daemon, "failed")
            #expect(failed["reason"]?["code"] == "server-unauthenticated")
        }
    }

    @Test func `a server without the method is told apart from a wrong password`() async throws {
        try await DaemonUnderTest.run(
            autoconnect: false, prepare: { server in await server.set { $0.scramPassword = "pencil" } }
        ) { daemon in
            let (_, failed) = try await Self.connect(daemon, "failed")
            #expect(failed["reason"]?["code"] == "authentication-method-rejected")
        }
    }

    /// A server may ask for a million iterations, and hang up.
    @Test func `a key is derived no further than its connection lasts, and the next one goes on with it`()
        async throws
    {
        let steps = DerivationSteps(held: 2)
        try await DaemonUnderTest.withServer { directory, server, group in
            await server.set { $0.scramPassword = "pencil" }
            try directory.write("password", "pencil")
            try directory.write(
                "sessions.d/main.toml",
                await DaemonUnderTest.session(
                    server,
                    """
                    password = "file:\(directory.path)/password"
                    mqtt.authentication = "SCRAM-SHA-256"
                    """))
            try await DaemonUnderTest.run(
                in: directory, server, on: group, surround: { $0.derive = { await steps.take($0) } }
            ) { daemon in
                await steps.untilHeld()
                await server.drop()
                let peer = try await daemon.watcher("connected")
                #expect(await steps.count == 4, "one was done, and the one that is held is done again")
                await steps.release()
                await server.drop()
                try await peer.state("reconnecting")
                try await peer.state("connected")
                #expect(await steps.count == 4, "the key is known")
            }
        }
    }

    /// In real time, with a real helper; the rest of it is tested in scenarios.
    @Test func `a password that expires is renewed on the same connection`() async throws {
        try await Self.run(
            #"{"token": "pencil", "expiresIn": \#(Self.life)}"#, next: #"{"token": "brush", "expiresIn": 3600}"#,
            { $0.nextSCRAMPassword = "brush" }
        ) { daemon, _ in
            let (peer, _) = try await Self.connect(daemon, "connected")
            _ = try await daemon.server.packet { packet -> Bool? in
                if case .auth(let auth) = packet, auth.reasonCode == .reauthenticate { true } else { nil }
            }
            _ = try await daemon.server.packet { packet -> Bool? in
                if case .auth(let auth) = packet, auth.reasonCode == .continueAuthentication { true } else { nil }
            }
            try await peer.call(
                "message.publish", #"{"session":"main","topic":"t","payload":"x","wait":"delivered"}"#)
            let status = try await peer.call("session.status", #"{"session":"main"}"#)
            #expect(status["state"] == "connected")
            #expect(status["counters"]?["connects"] == 1)
            // The next connection uses the password that is valid now.
            await daemon.server.drop()
            try await peer.state("reconnecting")
            try await peer.state("connected")
        }
    }
}

/// Counts the steps of derivations, and holds one.
private actor DerivationSteps {
    private let held: Int
    private(set) var count = 0
    private let isHeld = AsyncStream<Void>.makeStream()
    private let isReleased = AsyncStream<Void>.makeStream()

    init(held: Int) { self.held = held }

    func take(_ derivation: SCRAMClient.Derivation) async -> SCRAMClient.Derivation {
        count += 1
        if count == held {
            isHeld.continuation.finish()
            for await _ in isReleased.stream {}
        }
        return derivation.advanced()
    }

    func untilHeld() async { for await _ in isHeld.stream {} }

    func release() { isReleased.continuation.finish() }
}
