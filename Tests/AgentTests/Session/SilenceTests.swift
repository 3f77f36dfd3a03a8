import ControlAPI
import Glibc
import Logging
import MQTT
import NIOCore
import NIOPosix
import Session
import SessionCore
import Support
import Testing
import Transport
import Vocabulary

@testable import Agent

/// What servers do that must not go unnoticed, and what they say that must be reported unchanged.
@Suite(.timeLimit(.minutes(10)))
struct SilenceTests {
    private func status(_ peer: ControlPeer) async throws -> JSONValue {
        try await peer.call("session.status", #"{"session":"main"}"#)
    }

    @Test(arguments: [(15, 5, 10), (5, 15, 10), (30, 10, 20), (1, 1, 6)])
    func `the longest wait for an acknowledgement is shorter than the heartbeat's, and longer than a flap`(
        interval: Int, timeout: Int, seconds: Int
    ) {
        var heartbeat = HeartbeatPolicy()
        (heartbeat.interval, heartbeat.timeout) = (.seconds(interval), .seconds(timeout))
        #expect(heartbeat.deliveryTimeout == .seconds(seconds))
    }

    // MARK: What is said last

    /// The server says 0x8E and closes while its socket has unread bytes, so that TCP resets the connection; the client
    /// happens to write at that moment. As a result, the reset arrives before the client has read what came before it.
    @Test func `a DISCONNECT before a close is read, even if the connection is reset`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            let driver = try await daemon.registry.driver("main")
            var displaced = 0
            for round in 1...100 {
                await daemon.server.stopReading()
                try await peer.call("message.publish", #"{"session":"main","topic":"t","payload":"\#(round)"}"#)
                try await daemon.eventLoop.submit {
                    daemon.server.assumeIsolated { $0.disconnect(.sessionTakenOver) }
                    driver.assumeIsolated { $0.run(.ping) }
                }.get()
                let ended = try await peer.notification(
                    "session.event", ["event": "state-changed", "from": "connected"])
                if ended["reason"]?["code"] == "displaced" { displaced += 1 }
                try await peer.call("session.connect", #"{"session":"main"}"#)
                try await peer.state("connected")
            }
            #expect(displaced >= 99)
        }
    }

    // MARK: Floods

    /// Everything that others wait for is delayed by the flood if it is processed in one go.
    @Test func `a server that floods and closes is read to its end, while others get their turns`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            let driver = try await daemon.registry.driver("main")
            let (turns, longest) = try await daemon.eventLoop.submit {
                driver.assumeIsolated { driver in
                    guard let connection = driver.session.link?.connection else { return (0, 0) }
                    var flood = ByteBuffer(bytes: repeatElement([0xD0, 0x00] as [UInt8], count: 60_000).joined())
                    Packet.disconnect(Disconnect(reasonCode: .serverBusy)).encode(into: &flood, as: .five)
                    driver.take(.received(flood), of: connection)
                    driver.take(.closed(.closedByPeer), of: connection)
                    // In the same turn, since this test may get its next one when the flood is over.
                    peer.assumeIsolated {
                        $0.pour(
                            #"{"jsonrpc":"2.0","id":77,"method":"session.status","params":{"session":"main"}}"# + "\n",
                            count: 1)
                    }
                    return (driver.session.mqtt.isBehind ? 1 : 0, driver.session.mqtt.configuration.packetsPerInput)
                }
            }.get()
            #expect(turns == 1, "the rest waits")
            #expect(longest <= 256)
            // The control socket is answered meanwhile: the state has not changed yet.
            #expect(try await peer.answer(77)["result"]?["state"] == "connected")
            let lost = try await peer.state("reconnecting")
            #expect(lost["reason"]?["code"] == "server-busy")
        }
    }

    /// Two of them are enough to keep the loop busy: while one has its turn, it is time for the other's.
    @Test func `the loop polls for others while two servers flood`() async throws {
        try await DaemonUnderTest.withServer { directory, server, group in
            for name in ["a", "b"] {
                try directory.write("sessions.d/\(name).toml", await DaemonUnderTest.session(server, user: name))
            }
            try await DaemonUnderTest.run(in: directory, server, on: group) { daemon in
                for name in ["a", "b"] { _ = try await daemon.watcher(of: name) }
                let drivers = [try await daemon.registry.driver("a"), try await daemon.registry.driver("b")]
                let other = try await daemon.eventLoop.submit {
                    NIOLoopBoundBox<LoopPoll?>(nil, eventLoop: daemon.eventLoop)
                }.get()
                let (polls, polled) = AsyncStream.makeStream(of: Void.self)
                let arrival = try await LoopPoll.open(on: daemon.eventLoop) {
                    let areBehind = drivers.contains { $0.assumeIsolated { $0.session.mqtt.isBehind } }
                    guard areBehind else { return polled.finish() }
                    polled.yield()
                    other.value?.ask()
                }
                try await daemon.eventLoop.submit {
                    other.value = arrival
                    let flood = ByteBuffer(bytes: repeatElement([0xD0, 0x00] as [UInt8], count: 30_000).joined())
                    for driver in drivers {
                        driver.assumeIsolated { driver in
                            guard let connection = driver.session.link?.connection else { return }
                            driver.take(.received(flood), of: connection)
                        }
                    }
                    arrival.ask()
                }.get()
                // 30,000 packets are 118 turns of each session.
                #expect(await polls.reduce(0) { count, _ in count + 1 } >= 20)
                try await daemon.eventLoop.submit { arrival.close() }.get()
            }
        }
    }

    // MARK: Subscriptions

    @Test(arguments: ["", #","consumer":"meter""#])
    func `a new subscription that is refused is not said to be requested again`(consumer: String) async throws {
        try await DaemonUnderTest.run { daemon, peer in
            await daemon.server.set { $0.refusedFilters = ["a/+": .notAuthorized] }
            _ = try await peer.request(
                "message.subscribe", #"{"session":"main","filter":"a/+","qos":1\#(consumer)}"#)
            let event = try await peer.notification("session.event", ["event": "subscription-changed"])
            #expect(event["subscription"]?["state"] == "refused")
            #expect(event["subscription"]?["retryAt"] == .null)
            #expect(try await status(peer)["subscriptions"] == .array([]))
            let lines = daemon.log.lines.map(\.message).filter { $0.contains("refuses the subscription") }
            #expect(lines.count == 1)
            #expect(lines.first?.hasSuffix("it is requested again when a program subscribes") == true)
            #expect(lines.first?.contains("durable consumer") == false)
        }
    }

    @Test(arguments: ["", #","consumer":"meter""#])
    func `a program that subscribes while the session is away is told how the server answers`(
        consumer: String
    ) async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            await daemon.server.set { $0.refusedFilters = ["no": .notAuthorized] }
            func subscribe(_ filter: String, _ consumer: String) async throws -> (ControlPeer, JSONValue) {
                let program = try await daemon.peer()
                let made = try await program.call(
                    "message.subscribe", #"{"session":"main","filter":"\#(filter)"\#(consumer)}"#)
                #expect(made["grantedQoS"] == .null)
                return (program, made["subscription"] ?? .null)
            }
            let (refused, one) = try await subscribe("no", consumer)
            let (granted, two) = try await subscribe("yes", consumer.replacing("meter", with: "other"))
            try await peer.call("session.connect", #"{"session":"main"}"#)
            let refusal = try await refused.notification(
                "session.event", ["event": "subscription-changed", "watch": one])
            #expect(refusal["subscription"]?["filter"] == "no")
            #expect(refusal["subscription"]?["state"] == "refused")
            #expect(refusal["subscription"]?["reasonCode"] == 0x87)
            #expect(refusal["subscription"]?["message"] == "not authorized (0x87)")
            let grant = try await granted.notification(
                "session.event", ["event": "subscription-changed", "watch": two])
            #expect(grant["subscription"]?["state"] == "granted")
            // The same answer as before is no news to others.
            try await peer.call("session.disconnect", #"{"session":"main","wait":true}"#)
            let (later, three) = try await subscribe("no", consumer.replacing("meter", with: "third"))
            try await peer.call("session.connect", #"{"session":"main"}"#)
            _ = try await later.notification("session.event", ["event": "subscription-changed", "watch": three])
            #expect(try await status(peer)["subscriptions"]?.elements?.count == 2, "it is asked for again")
        }
    }

    @Test func `a subscription refused at a reconnect is reported everywhere`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            try await peer.call("message.subscribe", #"{"session":"main","filter":"a/+","qos":1}"#)
            try await peer.call("message.subscribe", #"{"session":"main","filter":"b","qos":1,"consumer":"meter"}"#)
            #expect(try await status(peer)["subscriptions"]?.elements?.map { $0["state"] } == ["granted", "granted"])
            for _ in 0..<2 {
                let event = try await peer.notification("session.event", ["event": "subscription-changed"])
                #expect(event["subscription"]?["state"] == "granted")
            }
            await daemon.server.set { $0.refusedFilters = ["a/+": .notAuthorized, "b": .quotaExceeded] }
            await daemon.server.loseSession()
            await daemon.server.drop()
            for (filter, code) in [("a/+", 0x87), ("b", 0x97)] as [(String, Int64)] {
                let event = try await peer.notification("session.event", ["event": "subscription-changed"])
                #expect(event["subscription"]?["filter"] == .string(filter))
                #expect(event["subscription"]?["state"] == "refused")
                #expect(event["subscription"]?["reasonCode"] == .integer(code))
            }
            try await peer.state("connected")
            let status = try await status(peer)
            #expect(status["state"] == "connected")
            let subscriptions = status["subscriptions"]?.elements ?? []
            #expect(subscriptions.map { $0["message"] } == ["not authorized (0x87)", "quota exceeded (0x97)"])
            #expect(subscriptions.allSatisfy { $0["retryAt"]?.text != nil && $0["since"]?.text != nil })
            #expect(status["inbox"]?["consumers"]?.elements?.first?["refused"] == "quota exceeded (0x97)")
            let warnings = daemon.log.lines.filter { $0.level == .warning }
            let lines = warnings.filter { $0.message.contains("refuses the subscription") }
            #expect(lines.count == 2)
            #expect(lines.last?.message.contains("nothing new arrives for the durable consumer meter") == true)
            await daemon.server.set { $0.refusedFilters = [:] }
            await daemon.server.drop()
            for _ in 0..<2 {
                let event = try await peer.notification("session.event", ["event": "subscription-changed"])
                #expect(event["subscription"]?["state"] == "granted")
            }
            try await peer.state("connected")
            #expect(try await self.status(peer)["inbox"]?["consumers"]?.elements?.first?["refused"] == .null)
            await daemon.server.publish("b", "x")
            _ = try await peer.notification("message.received", ["topic": "b"])
        }
    }

    @Test func `what the session does not ask of a server with limits is not told as the server's refusal`()
        async throws
    {
        let prepare: (LoopbackServer) async throws -> Void = { server in
            await server.set {
                $0.connack.properties.retainAvailable = false
                $0.connack.properties.sharedSubscriptionAvailable = false
            }
        }
        let noRetain = "the session does not send it, because the server does not retain messages"
        let noShare = "the session does not ask for it, because the server has no shared subscriptions"
        try await DaemonUnderTest.run("room = \"plant\"", prepare: prepare) { daemon in
            let peer = try await daemon.watcher()
            try await peer.call("publication.put", #"{"session":"main","topic":"lamp","payload":"on"}"#)
            let changed = try await peer.notification(
                "session.event", ["event": "publication-changed", "publication": "refused"])
            #expect(changed["topic"] == "lamp" && changed["reasonCode"] == nil)
            let lamp = try await peer.call("publication.list", #"{"session":"main"}"#)["publications"]?.elements?.first
            #expect(lamp?["state"] == "refused" && lamp?["reasonCode"] == .null)
            #expect(lamp?["message"] == .string(noRetain))

            for consumer in ["", #","consumer":"meter""#] {
                let subscribe = #"{"session":"main","filter":"$share/g/a","qos":1\#(consumer)}"#
                let answer = try await peer.answer(try await peer.request("message.subscribe", subscribe))
                let error = answer["error"]
                #expect(error?["data"]?["code"] == "subscription-refused")
                #expect(error?["data"]?["reasonCode"] == nil)
                #expect(error?["message"] == .string(#"there is no subscription to "$share/g/a": \#(noShare)"#))
                let event = try await peer.notification("session.event", ["event": "subscription-changed"])
                #expect(event["subscription"]?["state"] == "refused")
                #expect(event["subscription"]?["reasonCode"] == .null)
                #expect(event["subscription"]?["message"] == .string(noShare))
            }
            #expect(try await status(peer)["presenceRefused"] == .string(noRetain))

            let lines = daemon.log.lines.map(\.message)
            #expect(lines.filter { $0.contains("refuse") } == [])
            #expect(lines.contains("main: the session is not announced in its room: \(noRetain)"))
            #expect(lines.contains("main: lamp is not published, or not cleared: \(noRetain)"))
            #expect(lines.contains { $0.hasPrefix("main: there is no subscription to $share/g/a: \(noShare); ") })
        }
    }

    // MARK: Granted

    @Test(
        arguments: [
            (3600, "it keeps the session for 60 min, not 24 h"),
            (0, "it does not keep the session, so what is sent to it during an outage is lost"),
        ] as [(UInt32, String)])
    func `limits of the server are in the status, and in one line of log`(expiry: UInt32, words: String) async throws {
        let prepare: (LoopbackServer) async throws -> Void = { server in
            await server.set {
                $0.connack.properties.sessionExpiryInterval = expiry
                $0.connack.properties.maximumQoS = .atLeastOnce
                $0.connack.properties.receiveMaximum = 20
                $0.connack.properties.serverKeepAlive = 10
                $0.connack.properties.retainAvailable = false
                $0.connack.properties.maximumPacketSize = 1000
            }
        }
        try await DaemonUnderTest.run(prepare: prepare) { daemon in
            let peer = try await daemon.watcher()
            let granted = try await status(peer)["granted"]
            #expect(granted?["sessionExpiry"] == .integer(Int64(expiry)))
            #expect(granted?["maximumQoS"] == .integer(1))
            #expect(granted?["receiveMaximum"] == .integer(20))
            #expect(granted?["keepAlive"] == .integer(10))
            #expect(granted?["retain"] == .bool(false))
            #expect(granted?["maximumPacketSize"] == .integer(1000))
            await daemon.server.drop()
            try await peer.state("reconnecting")
            try await peer.state("connected")
            let lines = daemon.log.lines.map(\.message).filter { $0.contains("grants less") }
            #expect(lines.count == 1, "it is the same as before")
            let line = try #require(lines.first)
            #expect(line.hasPrefix("main: the server grants less than was requested: \(words)"))
            for part in [
                "keep-alive of 10 s, not 3600 s", "QoS 1 at most", "no messages",
            ] {
                #expect(line.contains(part))
            }
            for part in ["20 ", "1000 bytes"] {
                #expect(!line.contains(part), "nothing was requested about what may be sent to the server")
            }
        }
    }

    /// With a timeout of 20 s, the session asks for a keep-alive of 5 s, and its will is delayed by 12 s.
    @Test(
        arguments: [
            (
                60,
                "it wants a keep-alive of 60 s, not 5 s, so the room may learn of a loss only after 102 s, not 20 s"
            ),
            (
                0,
                "it never notices silence (its keep-alive is 0), so the room may not learn that the session is gone"
            ), (5, nil), (4, "it wants a keep-alive of 4 s, not 5 s"),
        ] as [(UInt16, String?)])
    func `a server whose keep-alive voids the presence timeout is in the log`(
        seconds: UInt16, words: String?
    ) async throws {
        let prepare: (LoopbackServer) async throws -> Void = { server in
            await server.set { $0.connack.properties.serverKeepAlive = seconds }
        }
        try await DaemonUnderTest.run("room = \"plant\"\npresence.timeout = \"20s\"", prepare: prepare) { daemon in
            _ = try await daemon.watcher()
            let line = daemon.log.lines.map(\.message).first { $0.contains("grants less") }
            #expect(line == words.map { "main: the server grants less than was requested: \($0)" })
        }
    }

    @Test func `without a room, a long keep-alive of the server is no loss`() async throws {
        let prepare: (LoopbackServer) async throws -> Void = { server in
            await server.set { $0.connack.properties.serverKeepAlive = 0 }
        }
        try await DaemonUnderTest.run(prepare: prepare) { daemon in
            _ = try await daemon.watcher()
            #expect(!daemon.log.lines.contains { $0.message.contains("grants less") })
        }
    }

    // MARK: Other protocols

    @Test(arguments: [
        ("HTTP/1.1 400 Bad Request\r\n\r\n", "a web server: it answers HTTP"),
        ("SSH-2.0-OpenSSH_9.2p1\r\n", "an SSH server"),
        ("\u{15}\u{3}\u{3}\u{0}\u{2}\u{2}\u{46}", "a TLS server, and the endpoint's scheme is one without TLS"),
    ])
    func `a server of another protocol is named, with a hint`(greeting: String, name: String) async throws {
        let prepare: (LoopbackServer) async throws -> Void = { server in
            await server.set { $0.greeting = ByteBuffer(string: greeting) }
        }
        try await DaemonUnderTest.run(autoconnect: false, prepare: prepare) { daemon in
            let peer = try await daemon.watcher("disconnected")
            try await peer.call("session.connect", #"{"session":"main"}"#)
            let event = try await peer.notification("session.event", ["event": "phase-changed", "phase": "waiting"])
            #expect(event["reason"]?["code"] == "wrong-protocol")
            let port = await daemon.server.port
            #expect(event["reason"]?["message"] == .string("at 127.0.0.1:\(port) is \(name)"))
            #expect(event["reason"]?["hint"]?.text?.contains("check the port and the scheme") == true)
            #expect(event["reason"]?["serverCode"] == .null)
        }
    }

    @Test func `a code of our own is not reported as the server's`() async throws {
        let prepare: (LoopbackServer) async throws -> Void = { server in
            // A packet of type 0.
            await server.set { $0.greeting = ByteBuffer(bytes: [0x00, 0x00]) }
        }
        try await DaemonUnderTest.run(autoconnect: false, prepare: prepare) { daemon in
            let peer = try await daemon.watcher("disconnected")
            try await peer.call("session.connect", #"{"session":"main"}"#)
            let event = try await peer.notification("session.event", ["event": "phase-changed", "phase": "waiting"])
            #expect(event["reason"]?["code"] == "protocol-error")
            #expect(event["reason"]?["serverCode"] == .null)
        }
    }

    // MARK: Texts

    @Test func `text of a server is made harmless and limited in length`() async throws {
        let text = "bad\n<0>holdfast: main: failed\u{1B}[2J" + String(repeating: "x", count: 60_000)
        try await DaemonUnderTest.run { daemon, peer in
            await daemon.server.disconnect(.serverBusy, .init(reasonString: text))
            let lost = try await peer.state("reconnecting")
            let message = try #require(lost["reason"]?["message"]?.text)
            let beginning = "the server said: server busy (0x89), \"bad <0>holdfast: main: failed\u{FFFD}[2Jxxx"
            #expect(message.hasPrefix(beginning))
            #expect(message.unicodeScalars.count <= 500)
            try await peer.state("connected")
            for line in daemon.log.lines {
                #expect(line.message.unicodeScalars.count < 1000)
                #expect(line.message == line.message.plain(atMost: 1000))
            }
        }
    }
}
