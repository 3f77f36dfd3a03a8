import Configuration
import ControlAPI
import Glibc
import MQTT
import NIOCore
import SessionCore
import Support
import Testing
import Vocabulary

@testable import Agent
@testable import Transport

/// check.run: a connection beside the session's own, made step by step.
struct EndpointCheckTests {
    private func check(
        _ endpoint: String, until last: CheckStep = .connect, hasProxy: Bool = false, isBound: Bool = false,
        greeting: Connect? = Connect(clientID: "a-check")
    ) throws -> EndpointCheck {
        EndpointCheck(
            endpoint: try Endpoint(endpoint), until: last, hasProxy: hasProxy, isBound: isBound, greeting: greeting,
            version: .five, maximumPacketSize: 1 << 20, remedies: try remedies(password: greeting?.password != nil),
            at: at(0))
    }

    private func remedies(password: Bool = false) throws -> Remedies {
        var configuration = SessionConfiguration()
        if password { configuration.password = .file("/etc/holdfast/a.secret") }
        return Remedies(session: try #require(SessionName("a")), configuration: configuration, occasion: .check)
    }

    private func at(_ milliseconds: Int) -> Instant {
        Instant(nanoseconds: 0).advanced(by: .milliseconds(milliseconds))
    }

    private let address: SocketAddress

    init() throws {
        address = try SocketAddress(ipAddress: "203.0.113.9", port: 8883)
    }

    private func opened(_ tls: String?) -> ConnectionEvent {
        .opened(Opened(peer: address, local: address, tlsVersion: tls))
    }

    private func connack(_ code: ReasonCode) -> ConnectionEvent {
        .received(encoded(.connack(Connack(reasonCode: code))))
    }

    @Test func `each step has a duration, and the login is the last one`() throws {
        var check = try check("mqtts://broker.example")
        #expect(check.take(.resolving, at: at(0)) == nil)
        #expect(check.resolved([address], via: "wlan0", at: at(10)) == nil)
        #expect(check.take(.dialing, at: at(10)) == nil)
        #expect(check.take(.reached(address), at: at(33)) == .proceed)
        #expect(check.take(.securing(address), at: at(33)) == nil)
        guard case .send = check.take(opened("TLSv1.3"), at: at(80)) else {
            Issue.record("CONNECT is sent")
            return
        }
        #expect(check.farewell == nil)
        #expect(check.take(connack(.success), at: at(100)) == .finish)
        #expect(check.steps.map(\.step) == [.dns, .route, .tcp, .tls, .connect])
        #expect(check.steps.map { Int(($0.duration * 1000).rounded()) } == [10, 0, 23, 47, 20])
        #expect(check.steps.allSatisfy { $0.ok })
        #expect(check.steps.map(\.detail) == ["203.0.113.9", "via wlan0", "203.0.113.9:8883", "TLSv1.3", "MQTT 5"])
        #expect(check.farewell != nil, "the server is told goodbye")
    }

    @Test func `another server on the port is named, and a closed connection gets a hint`() throws {
        func checked(_ endpoint: String, _ events: ConnectionEvent...) throws -> CheckedStep? {
            var check = try check(endpoint)
            _ = check.resolved([address], via: "eth0", at: at(5))
            _ = check.take(.reached(address), at: at(6))
            for event in events { _ = check.take(event, at: at(7)) }
            return check.steps.last
        }
        let web = try checked("mqtt://b.example:80", opened(nil), .received(ByteBuffer(string: "HTTP/1.1 400 Bad\r\n")))
        #expect(web?.code == "wrong-protocol")
        #expect(web?.detail == "at 203.0.113.9:8883 is a web server: it answers HTTP")
        #expect(try web?.hint == remedies().hint(for: Reason(.wrongProtocol, detail: .webServer)))
        let hungUp = try checked("mqtt://b.example:8883", opened(nil), .closed(.closedByPeer))
        #expect(hungUp?.hint?.contains("mqtts://") == true)
        for failure in [
            TransportFailure(.reset, "the connection broke"),
            TransportFailure(.tlsFailed, "the server closed the connection", detail: .endedInHandshake),
        ] {
            let plain = try checked("mqtts://b.example:22", .securing(address), .closed(.failed(failure)))
            #expect(plain?.hint?.hasPrefix("check the port and the scheme of endpoints") == true)
            #expect(plain?.hint?.contains("clock") == false)
        }
        let expired = TransportFailure(.tlsFailed, "expired", detail: .certificateExpired)
        let old = try checked("mqtts://b.example", .closed(.failed(expired)))
        #expect(old?.hint?.contains("clock") == true)
    }

    @Test func `TLS files of our own that cannot be used are not blamed on TCP`() throws {
        let failure = TransportFailure(
            .tlsFailed, "cannot read the private key in k: Permission denied", detail: .ownFilesUnusable)
        for event in [ConnectionEvent.closed(.failed(failure)), .tlsFilesRejected(failure)] {
            var check = try check("mqtts://b.example")
            _ = check.resolved([address], via: "eth0", at: at(5))
            #expect(check.take(event, at: at(6)) == .finish)
            #expect(check.steps.map(\.step) == [.dns, .route, .tls])
            #expect(check.steps.last?.detail == failure.message)
        }
    }

    @Test func `the step that fails is the last one, with a hint`() throws {
        var lost = try check("mqtts://broker.example")
        #expect(lost.resolved([address], via: nil, at: at(5)) == .finish)
        #expect(lost.steps.last?.step == .route)
        #expect(lost.steps.last?.code == "no-path")
        // A session tries in that case, too.
        var detour = try check("mqtts://broker.example")
        #expect(detour.resolved([address], via: nil, hasDetour: true, at: at(5)) == nil)
        #expect(detour.steps.last?.step == .route && detour.steps.last?.ok == true)
        #expect(detour.steps.last?.detail?.contains("without a carrier") == true)
        var excluded = try check("mqtts://broker.example", isBound: true)
        #expect(excluded.resolved([address], via: nil, at: at(5)) == .finish)
        #expect(excluded.steps.last?.code == "network-not-allowed")

        var refused = try check("mqtt://broker.example")
        _ = refused.resolved([address], via: "eth0", at: at(5))
        #expect(refused.take(.closed(.failed(TransportFailure(.refused, "refused"))), at: at(9)) == .finish)
        #expect(refused.steps.map(\.ok) == [true, true, false])
        #expect(try refused.steps.last?.hint == remedies().hint(for: .refused))
        #expect(refused.take(.closed(.closedByPeer), at: at(10)) == nil, "it is over")

        var rejected = try check("mqtt://broker.example")
        _ = rejected.resolved([address], via: "eth0", at: at(5))
        _ = rejected.take(.reached(address), at: at(6))
        _ = rejected.take(opened(nil), at: at(7))
        #expect(rejected.take(connack(.badUserNameOrPassword), at: at(9)) == .finish)
        #expect(rejected.steps.last?.step == .connect)
        #expect(rejected.steps.last?.code == "credential-rejected")
        #expect(rejected.farewell == nil)
        #expect(rejected.steps.last?.hint?.hasPrefix("the session has no password") == true)

        var wrong = try check(
            "mqtt://broker.example", greeting: Connect(clientID: "a-check", password: ByteBuffer(string: "wrong")))
        _ = wrong.resolved([address], via: "eth0", at: at(5))
        _ = wrong.take(.reached(address), at: at(6))
        _ = wrong.take(opened(nil), at: at(7))
        #expect(wrong.take(connack(.badUserNameOrPassword), at: at(9)) == .finish)
        #expect(wrong.steps.last?.hint?.contains("the password in /etc/holdfast/a.secret") == true)
    }

    @Test func `a web server on the port is told apart from a broker`() throws {
        var check = try check("mqtt://broker.example")
        _ = check.resolved([address], via: "eth0", at: at(5))
        _ = check.take(.reached(address), at: at(6))
        _ = check.take(opened(nil), at: at(7))
        #expect(check.take(.received(ByteBuffer(string: "HTTP/1.1 400 Bad Request\r\n\r\n")), at: at(9)) == .finish)
        #expect(check.steps.last?.ok == false)
        #expect(check.steps.last?.code == "wrong-protocol")
    }

    @Test func `a proxy and a WebSocket are steps of their own, and SCRAM is not tried`() throws {
        var check = try check("ws://broker.example/mqtt", hasProxy: true, greeting: nil)
        _ = check.resolved([address], via: "eth0", at: at(5))
        #expect(check.take(.reached(address), at: at(6)) == .proceed)
        #expect(check.take(.upgrading(tlsVersion: nil), at: at(7)) == nil)
        #expect(check.take(opened(nil), at: at(9)) == .finish)
        #expect(check.steps.map(\.step) == [.dns, .route, .tcp, .proxy, .webSocket])
    }

    @Test func `TLS works although no WebSocket is opened behind it`() throws {
        var check = try check("wss://broker.example/mqtt")
        _ = check.resolved([address], via: "eth0", at: at(5))
        _ = check.take(.reached(address), at: at(6))
        _ = check.take(.securing(address), at: at(6))
        #expect(check.take(.upgrading(tlsVersion: "TLSv1.3"), at: at(8)) == nil)
        #expect(check.take(.closed(.failed(TransportFailure(.webSocketFailed, "no"))), at: at(9)) == .finish)
        #expect(check.steps.map(\.step) == [.dns, .route, .tcp, .tls, .webSocket])
        #expect(check.steps.map(\.ok) == [true, true, true, true, false])
        #expect(check.steps.map(\.detail).suffix(2) == ["TLSv1.3", "no"])
    }

    @Test(arguments: [ReasonCode.malformedPacket, .protocolError])
    func `a server that objects to CONNECT is not the one to blame`(code: ReasonCode) throws {
        var check = try check("mqtt://broker.example")
        _ = check.resolved([address], via: "eth0", at: at(5))
        _ = check.take(.reached(address), at: at(6))
        _ = check.take(opened(nil), at: at(7))
        _ = check.take(connack(code), at: at(9))
        #expect(check.steps.last?.hint == "see the server's log for what it objects to")
    }

    @Test func `a check ends at the step requested`() throws {
        var check = try check("mqtts://broker.example", until: .tcp)
        _ = check.resolved([address], via: "eth0", at: at(5))
        #expect(check.take(.reached(address), at: at(6)) == .finish)
        #expect(check.steps.map(\.step) == [.dns, .route, .tcp])
    }

    @Test func `a check does not go beyond the step requested if the endpoint does not have that step`() throws {
        var check = try check("mqtt://broker.example", until: .tls)
        _ = check.resolved([address], via: "eth0", at: at(5))
        #expect(check.take(.reached(address), at: at(6)) == .finish)
        #expect(check.steps.map(\.step) == [.dns, .route, .tcp])
    }
}

@Suite(.timeLimit(.minutes(10)))
struct CheckRunTests {
    @Test func `a server is checked while the session is down, with a separate client identifier`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            let peer = try await daemon.peer()
            let answer = try await peer.call("check.run", #"{"session":"main"}"#)
            let endpoints = try ParameterDecoder.decodeLeniently(CheckRunMethod.Result.self, from: answer).endpoints
            #expect(endpoints.count == 1)
            #expect(endpoints.first?.ok == true)
            #expect(endpoints.first?.steps.map(\.step) == [.dns, .route, .tcp, .connect])
            #expect(try await daemon.server.connect().clientID == "edge-42-check")
            #expect(try await peer.call("session.status", #"{"session":"main"}"#)["state"] == "disconnected")
        }
    }

    @Test func `a check with a program's token logs in as the session does`() async throws {
        try await DaemonUnderTest.run("insecure = true", autoconnect: false) { daemon in
            let peer = try await daemon.peer()
            try await peer.call("session.renewToken", #"{"session":"main","token":"fresh"}"#)
            try await peer.call("check.run", #"{"session":"main"}"#)
            let greeting = try await daemon.server.connect()
            #expect(greeting.username == "edge-42")
            #expect(greeting.password == ByteBuffer(string: "fresh"))
        }
    }

    @Test func `the draft of a file is checked, whatever the sessions are called`() async throws {
        let other = "endpoints = [\"mqtt://127.0.0.1:1\"]\nuser = \"a\"\nautoconnect = false\n"
        try await DaemonUnderTest.run(autoconnect: false, files: ["sessions.d/draft-1.toml": other]) { daemon in
            let peer = try await daemon.peer()
            let endpoint = "mqtt://127.0.0.1:\(await daemon.server.port)"
            let draft = #"endpoints = [\"\#(endpoint)\"]\nuser = \"b\""#
            for _ in 1...2 {
                let answer = try await peer.call("check.run", #"{"session":"new","configuration":"\#(draft)"}"#)
                let result = try ParameterDecoder.decodeLeniently(CheckRunMethod.Result.self, from: answer)
                #expect(result.session == "new")
                #expect(result.endpoints.map(\.ok) == [true])
            }
        }
    }

    @Test func `a refusal by the server is reported, and so is a server that is not there`() async throws {
        // No other test gets this port; any other might be that of a server that was stopped.
        let nobody = "endpoints = [\"mqtt://127.0.0.1:1\"]\nuser = \"a\"\nautoconnect = false\n"
        try await DaemonUnderTest.run(autoconnect: false, files: ["sessions.d/nobody.toml": nobody]) { daemon in
            let peer = try await daemon.peer()
            await daemon.server.set { $0.connack.reasonCode = .notAuthorized }
            func last(of session: String) async throws -> CheckedStep? {
                let answer = try await peer.call("check.run", "{\"session\":\"\(session)\"}")
                return try ParameterDecoder.decodeLeniently(CheckRunMethod.Result.self, from: answer).endpoints.first?
                    .steps.last
            }
            let refused = try await last(of: "main")
            #expect(refused?.step == .connect && refused?.ok == false && refused?.code == "not-authorized")
            let gone = try await last(of: "nobody")
            #expect(gone?.step == .tcp && gone?.ok == false && gone?.code == "refused")
        }
    }

    @Test func `a server of MQTT 3.1.1 lets a session in that finds the version out`() async throws {
        try await DaemonUnderTest.run("mqtt.version = \"auto\"", autoconnect: false) { daemon in
            let peer = try await daemon.peer()
            func last() async throws -> CheckedStep? {
                let answer = try await peer.call("check.run", #"{"session":"main"}"#)
                return try ParameterDecoder.decodeLeniently(CheckRunMethod.Result.self, from: answer).endpoints.first?
                    .steps.last
            }
            for refusal in [LoopbackServer.Behaviour.Refusal.inWords, .bySilence] {
                await daemon.server.set { $0.refusals = [.five: refusal] }
                let step = try await last()
                #expect(step?.ok == true && step?.detail == "MQTT 3.1.1")
            }
            await daemon.server.set { $0.refusals = [.five: .inWords, .threeOneOne: .inWords] }
            #expect(try await last()?.hint?.hasSuffix("its server speaks neither MQTT 5 nor 3.1.1") == true)
            await daemon.server.set { $0.refusals = [.five: .bySilence, .threeOneOne: .inWords] }
            #expect(try await last()?.code == "server-closed", "MQTT 5 is not what the server objects to")
        }
    }

    @Test func `the journal has the kernel's number of a refused connection`() async throws {
        // No other test gets this port; any other might be that of a server that was stopped.
        let closed = "endpoints = [\"mqtt://127.0.0.1:1\"]\nuser = \"a\"\n"
        try await DaemonUnderTest.run(autoconnect: false, files: ["sessions.d/closed.toml": closed]) { daemon in
            func refusals() -> [[String: String]] {
                daemon.log.lines.map(\.fields).filter { $0["HOLDFAST_REASON"] == "refused" }
            }
            try await until("an attempt was refused") { !refusals().isEmpty }
            #expect(refusals().allSatisfy { $0["ERRNO"] == "\(ECONNREFUSED)" })
        }
    }

    @Test func `an endpoint is found in each way in which it can be written`() async throws {
        let file = "endpoints = [\"mqtt://LOCALHOST\", \"ws://localhost:1/mqtt\"]\nuser = \"a\"\nautoconnect = false\n"
        try await DaemonUnderTest.run(autoconnect: false, files: ["sessions.d/far.toml": file]) { daemon in
            let peer = try await daemon.peer()
            for (text, found) in [
                ("mqtt://LOCALHOST", "mqtt://localhost:1883"), ("mqtt://localhost", "mqtt://localhost:1883"),
                ("mqtt://localhost:1883", "mqtt://localhost:1883"), ("ws://localhost:1", "ws://localhost:1/mqtt"),
            ] {
                let answer = try await peer.call(
                    "check.run", #"{"session":"far","endpoint":"\#(text)","until":"dns"}"#)
                let checked = try ParameterDecoder.decodeLeniently(CheckRunMethod.Result.self, from: answer)
                #expect(checked.endpoints.map(\.endpoint) == [found])
            }
        }
    }

    @Test func `an endpoint that the session does not have is refused`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            let peer = try await daemon.peer()
            await #expect(throws: ControlPeer.CallFailure(code: "invalid-parameters")) {
                try await peer.call("check.run", #"{"session":"main","endpoint":"mqtt://a.example"}"#)
            }
        }
    }
}
