import ControlAPI
import Glibc
import MQTT
import Session
import SessionCore
import Support
import Testing

@testable import Agent
@testable import SimulationSupport

/// What is remembered over a restart of the daemon, and how a changed configuration affects it.
@Suite("Restarts", .timeLimit(.minutes(10)))
struct RestartScenarios {
    private static func file(user: String = "a", _ extra: String = "") -> String {
        "endpoints = [\"\(Scenario.ServerName.one.endpoint)\"]\nuser = \"\(user)\"\n\(extra)\n"
    }

    /// A host whose session has failed because of its credential, and whose daemon does not run.
    private static func failed(
        _ body: @Sendable (isolated Scenario, _ a: Host, _ service: TokenService) async throws -> Void
    ) async throws {
        try await Scenario.run { scenario in
            let service = TokenService(scenario.loop)
            scenario.with { broker, _ in broker.password = "second" }
            let a = try await scenario.host("A", CredentialScenarios.session + "\nautoconnect = false")
            await a.use(service)
            try await a.connect()
            #expect(try await a.until(.failed).reason?.code == "credential-rejected")
            await scenario.sleep(.milliseconds(100))
            await a.kill()
            await a.forget()
            try await body(scenario, a, service)
        }
    }

    @Test func `a failure outlives a restart, even with a helper's token`() async throws {
        try await Self.failed { scenario, a, service in
            let dials = scenario.dials["A"]
            await service.set("second")
            try await a.start()
            await scenario.sleep(.seconds(3600))
            #expect(try await a.status().state == .failed)
            #expect(scenario.dials["A"] == dials)
            try await a.connect()
            try await a.until(.connected)
        }
    }

    @Test(arguments: [
        "username = \"other\"", "[tls]\nserver-name = \"one.example\"", "[timeouts]\nauthenticate = \"11s\"",
    ])
    func `a failure ends when the file was corrected while the daemon was down`(line: String) async throws {
        try await Self.failed { scenario, a, service in
            await service.set("second")
            try await a.write("main", Self.file(CredentialScenarios.session + "\nautoconnect = false\n" + line))
            try await a.start()
            let connecting = try await a.until(.connecting)
            #expect(connecting.reason?.code == "configuration-changed")
            try await a.until(.connected)
            await a.kill()
            await a.forget()
            try await a.start()
            // The failure is gone, and it is remembered that the session was started, although autoconnect is off.
            #expect(try await a.until(.connected).reason?.code == "user-connect")
        }
    }

    @Test func `a file with the same settings in another form changes nothing`() async throws {
        try await Self.failed { scenario, a, service in
            let text = """
                # The same.
                insecure   = true
                autoconnect = false
                user = 'a'
                password = "exec:/usr/bin/token"
                endpoints = ["\(Scenario.ServerName.one.endpoint)",]
                [timeouts]
                dial = "10s"
                """
            try await a.write("main", text)
            try await a.start()
            await scenario.sleep(.seconds(60))
            #expect(try await a.status().state == .failed)
        }
    }

    @Test func `an explicit disconnect outlives a change of the file`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
            try await a.disconnect()
            await a.kill()
            try await a.write("main", Self.file("[timeouts]\ndial = \"11s\""))
            try await a.start()
            await scenario.sleep(.seconds(60))
            #expect(try await a.status().state == .disconnected)
        }
    }

    @Test func `a disconnect that cannot be stored is made, reported as an error, and stored later`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
            a.disk.here { $0.fault = .failing }
            await #expect {
                try await a.disconnect()
            } throws: { error in
                (error as? RPCError)?.data?.code == "store-full"
            }
            try await a.until(.disconnected)
            a.disk.here { $0.fault = nil }
            await scenario.sleep(.seconds(5))
            await a.kill()
            try await a.start()
            await scenario.sleep(.seconds(60))
            #expect(try await a.status().state == .disconnected)
        }
    }

    @Test func `a message that is refused because the disk is full does not count as published`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
            try await a.publish("t", "one")
            a.disk.here { $0.fault = .full }
            await #expect {
                try await a.publish("t", "two")
            } throws: { error in
                (error as? RPCError)?.data?.code == "store-full"
            }
            a.disk.here { $0.fault = nil }
            try await a.publish("t", "three")
            #expect(try await a.status().counters.published == 2)
        }
    }

    @Test func `a session that cannot connect because of the disk does not blame the server`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
            a.disk.here { $0.fault = .failing }
            await #expect {
                try await a.reconnect(.full)
            } throws: { error in
                (error as? RPCError)?.data?.code == "store-full"
            }
            let event = try await a.until("the attempt is over") { $0.reason?.code == "store-unavailable" }
            #expect(event.reason?.hint?.contains("disk") == true)
            a.disk.here { $0.fault = nil }
            try await a.until(.connected)
        }
    }

    @Test func `a room that cannot be stored is joined, reported as an error, and stored later`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", "room = \"r1\"").connected()
            // The disk fails between the subscription and the end of the switch.
            let disk = a.disk
            disk.here { disk in
                disk.onChange = { [unowned disk] change, _ in
                    if case .setPresences = change { disk.here { $0.fault = .failing } }
                }
            }
            await #expect {
                try await a.switchRoom(to: "r2")
            } throws: { error in
                (error as? RPCError)?.data?.code == "store-full"
            }
            #expect(try await a.status().room == "r2")
            disk.here { disk in
                disk.onChange = { _, _ in }
                disk.fault = nil
            }
            await scenario.sleep(.seconds(60))
            try await a.switchRoom(to: "r2")
            await a.kill()
            try await a.start()
            try await a.until(.connected)
            #expect(try await a.status().room == "r2")
        }
    }

    @Test func `no secret is kept after a disconnect`() async throws {
        try await Scenario.run { scenario in
            let service = TokenService(scenario.loop)
            let a = try await scenario.host("A", CredentialScenarios.session + "\nautoconnect = false")
            await a.use(service)
            try await a.connect()
            try await a.until(.connected)
            #expect(try await a.keepsSecret())
            try await a.disconnect()
            try await a.until(.disconnected)
            #expect(try await !a.keepsSecret())
        }
    }

    @Test func `a reload stops all sessions that change at once`() async throws {
        try await Scenario.run { scenario in
            let names = ["one", "two", "three", "four"]
            let a = try await scenario.host(
                "A",
                sessions: Dictionary(
                    uniqueKeysWithValues: names.map { ($0, Self.file(user: $0, ZEGOScenarios.room)) }))
            await scenario.sleep(.seconds(1))
            for name in names { #expect(try await a.status(name).state == .connected) }
            scenario.silence(a)
            for name in names {
                try await a.write(name, Self.file(user: name, ZEGOScenarios.room + "\ndevice = \"another\""))
            }
            let begun = scenario.now
            let result = try await a.reload()
            #expect(result.changed == names.sorted())
            #expect(begun.duration(to: scenario.now) < .seconds(6))
            scenario.unsilence(a)
            await scenario.sleep(.seconds(60))
            for name in names { #expect(try await a.status(name).state == .connected) }
        }
    }

    @Test func `an outage goes on over a reload, and is told in full when it ends`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", sessions: ["main": Self.file("[reconnect]\nlost-after = \"30s\"")])
                .connected()
            scenario.stop()
            try await a.until(.reconnecting)
            let lost = scenario.now
            await scenario.sleep(.seconds(20))
            try await a.write("main", Self.file("[reconnect]\nlost-after = \"40s\""))
            _ = try await a.reload()
            #expect(try await a.status().state == .reconnecting)
            let event = try await a.until(.connectionLost)
            #expect(event.outage == 40)
            scenario.start()
            try await a.until(.connected)
            let length = lost.duration(to: scenario.now).seconds
            #expect(await a.told(.reconnectCompleted).map(\.outage) == [length])
            let counters = try await a.status().counters
            #expect(counters.outages == 1)
            #expect(counters.longestOutage == length)
            #expect(counters.connects == 2)
        }
    }

    @Test(arguments: [true, false])
    func `an outage goes on over a start of the daemon, and is told in full when it ends`(isKilled: Bool) async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", sessions: ["main": Self.file("[reconnect]\nlost-after = \"30s\"")])
                .connected()
            scenario.stop()
            let code = try await a.until(.reconnecting).reason?.code
            let lost = scenario.now
            await scenario.sleep(.seconds(20))
            if isKilled { await a.kill() } else { await a.stop() }
            await scenario.sleep(.seconds(5))
            await a.forget()
            try await a.start()
            let began = try await a.until(.reconnecting)
            #expect(began.reason?.code == code)
            #expect(try await a.status().counters.outages == 1)
            #expect(try await a.until(.connectionLost).outage == 30)
            #expect(try await a.status().lost == true)
            // The next one is after the time to report it, so it does so at once.
            await a.kill()
            await scenario.sleep(.seconds(5))
            await a.forget()
            try await a.start()
            try await a.until(.connectionLost, within: .seconds(1))
            scenario.start()
            try await a.until(.connected)
            let length = lost.duration(to: scenario.now).seconds
            let told = try #require(await a.told(.reconnectCompleted).last?.outage)
            // It is stored to the millisecond.
            #expect(abs(told - length) < 0.002)
            #expect(try await a.status().counters.longestOutage == told)
            // After another boot, nothing is known of an outage.
            scenario.stop()
            try await a.until(.reconnecting)
            await a.kill()
            await a.forget()
            try await a.start(bootID: "next")
            try await a.until(.connecting)
            #expect(try await a.status().counters.outages == 0)
        }
    }

    @Test(arguments: ["[outbox]\nmax-messages = 5", "[presence]\ntimeout = \"60s\"", "[heartbeat]\ninterval = \"9s\""])
    func `others in a room do not notice a reload that leaves a session the same participant`(
        change: String
    ) async throws {
        try await Scenario.run { scenario in
            let b = try await scenario.host("B", "room = \"r\"").connected()
            let a = try await scenario.host("A", sessions: ["main": Self.file("room = \"r\"")]).connected()
            try await b.until(.participantJoined)
            let since = try await b.registry().driver("main").session.participants().result.participants.map(\.since)
            await scenario.sleep(.seconds(60))
            await a.forget()
            await b.forget()
            for extra in [change, ""] {
                try await a.write("main", Self.file("room = \"r\"\n" + extra))
                #expect(try await a.reload().changed == ["main"])
                #expect(try await a.until(.connected).resumed == true)
                await scenario.sleep(.seconds(300))
            }
            #expect(await b.told(.participantJoined, .participantLeft).isEmpty)
            let now = try await b.registry().driver("main").session.participants().result.participants.map(\.since)
            #expect(now == since, "it has been there all the time")
        }
    }

    @Test func `others in a room learn that a session does not come back after a reload`() async throws {
        try await Scenario.run { scenario in
            let b = try await scenario.host("B", "room = \"r\"").connected()
            let a = try await scenario.host("A", sessions: ["main": Self.file("room = \"r\"")]).connected()
            try await b.until(.participantJoined)
            try await a.write("main", Self.file("room = \"r\"\n[outbox]\nmax-messages = 5"))
            _ = try await a.reload()
            await a.kill()
            let left = try await b.until(.participantLeft)
            #expect(left.user == "a" && left.cause == .lost)
        }
    }

    @Test func `a session that was removed and added again has counted nothing`() async throws {
        try await Scenario.run { scenario in
            let file = Self.file()
            let a = try await scenario.host("A", sessions: ["main": file, "other": Self.file(user: "other")])
                .connected()
            scenario.stop()
            try await a.until(.reconnecting)
            await a.remove("main")
            _ = try await a.reload()
            try await a.write("main", file)
            _ = try await a.reload()
            #expect(try await a.status().counters.outages == 0)
            #expect(try await a.status().counters.connects == 0)
        }
    }

    @Test(arguments: [true, false])
    func `a reload says what a server may keep of a session that ended out of its sight`(isRemoved: Bool) async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", sessions: ["main": Self.file("room = \"r\"")]).connected()
            scenario.silence(a)
            if isRemoved {
                await a.remove("main")
            } else {
                let elsewhere = "endpoints = [\"\(Scenario.ServerName.two.endpoint)\"]\nuser = \"a\"\nroom = \"r\"\n"
                try await a.write("main", elsewhere)
            }
            let left = try await a.reload().leftBehind
            #expect(left.map(\.session) == ["main"])
            #expect(left.first?.message.hasPrefix("others in the room may see the session for up to ") == true)
        }
    }

    /// The retained presences of host A's session.
    private static func presences(_ scenario: isolated Scenario) -> [String] {
        scenario.broker().retained.keys.filter { $0.contains("/presence/") && !$0.hasSuffix("/b/device-b") }.sorted()
    }

    @Test(
        arguments: [
            ("user = \"a\"\ndevice = \"d2\"\nroom = \"r\"", "holdfast/rooms/r/presence/a/d2"),
            ("user = \"other\"\ndevice = \"d1\"\nroom = \"r\"", "holdfast/rooms/r/presence/other/d1"),
            ("user = \"a\"\nroom = \"r\"", "holdfast/rooms/r/presence/a/device-a"),
            (
                "user = \"other\"\ndevice = \"d2\"\nroom = \"r2\"\nroom-prefix = \"p\"",
                "p/r2/presence/other/d2"
            ),
            ("user = \"other\"\ndevice = \"d2\"", nil),
        ] as [(String, String?)], [false, true])
    func `a participant whose name changes while there is no connection leaves under the old name`(
        change: (file: String, topic: String?), isKilled: Bool
    ) async throws {
        let start = "endpoints = [\"\(Scenario.ServerName.one.endpoint)\"]\nclient-id = \"c\"\n"
        try await Scenario.run { scenario in
            let b = try await scenario.host("B", "room = \"r\"").connected()
            let a = try await scenario.host(
                "A", sessions: ["main": start + "user = \"a\"\ndevice = \"d1\"\nroom = \"r\""])
            try await a.until(.connected)
            try await b.until(.participantJoined)
            #expect(Self.presences(scenario) == ["holdfast/rooms/r/presence/a/d1"])
            scenario.cut(a)
            try await a.until(.reconnecting)
            if isKilled { await a.kill() }
            try await a.write("main", start + change.file)
            if isKilled { try await a.start() } else { _ = try await a.reload() }
            scenario.mend(a)
            #expect(try await a.until(.connected).resumed == true)
            #expect(try await b.until(.participantLeft).user == "a")
            await scenario.sleep(.seconds(200))
            #expect(Self.presences(scenario) == [change.topic].compactMap(\.self))
            #expect(try await a.status().state == .connected)
        }
    }

    @Test func `an old name whose presence the server refuses to clear does not hold up the session`() async throws {
        let file = Self.file("client-id = \"c\"\nroom = \"r\"")
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", sessions: ["main": file + "device = \"d1\""]).connected()
            await a.kill()
            let old = "holdfast/rooms/r/presence/a/d1"
            scenario.with { broker, _ in broker.refusedTopics[old] = .notAuthorized }
            try await a.write("main", file + "device = \"d2\"")
            try await a.start()
            try await a.until(.connected)
            await scenario.sleep(.seconds(10))
            #expect(Self.presences(scenario) == [old, "holdfast/rooms/r/presence/a/d2"])
            // It is given up: a change of rooms does not wait for it, and it is not cleared later.
            try await a.switchRoom(to: "r2")
            scenario.with { broker, _ in broker.refusedTopics[old] = nil }
            await a.kill()
            try await a.start()
            try await a.until(.connected)
            await scenario.sleep(.seconds(10))
            #expect(Self.presences(scenario) == [old, "holdfast/rooms/r2/presence/a/d2"])
        }
    }

    @Test func `a session under a new name does not yield to what it said under the old one`() async throws {
        @Sendable func file(_ device: String) -> String {
            Self.file("client-id = \"c\"\nroom = \"r\"\ndevice = \"\(device)\"\n[reconnect]\nkick = \"yield\"")
        }
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", sessions: ["main": file("d1")]).connected()
            scenario.cut(a)
            try await a.until(.reconnecting)
            try await a.write("main", file("d2"))
            _ = try await a.reload()
            await scenario.sleep(.seconds(10))
            scenario.mend(a)
            await scenario.sleep(.seconds(10))
            #expect(try await a.status().state == .connected)
            #expect(Self.presences(scenario) == ["holdfast/rooms/r/presence/a/d2"])
        }
    }

    @Test func `a session whose state cannot be read in a reload fails, and the others go on`() async throws {
        try await Scenario.run { scenario in
            let names = ["one", "two"]
            let a = try await scenario.host(
                "A", sessions: Dictionary(uniqueKeysWithValues: names.map { ($0, Self.file(user: $0)) }))
            await scenario.sleep(.seconds(1))
            for name in names { #expect(try await a.status(name).state == .connected) }
            try await a.breakStore()
            try await a.write("one", Self.file(user: "one", "device = \"another\""))
            await #expect(throws: RPCError.self) { try await a.reload() }
            let status = try await a.status("one")
            #expect(status.state == .failed)
            #expect(status.reason?.message.contains("cannot be read") == true)
            #expect(try await a.status("two").state == .connected)
        }
    }

    @Test func `a session whose state could not be read for a moment is started when it can`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", sessions: ["main": Self.file()]).connected()
            try await a.executeInStore("ALTER TABLE verdict RENAME TO away")
            try await a.write("main", Self.file("device = \"another\""))
            await #expect(throws: RPCError.self) { try await a.reload() }
            await scenario.sleep(.seconds(10))
            #expect(try await a.status().state == .failed)
            try await a.executeInStore("ALTER TABLE away RENAME TO verdict")
            await scenario.sleep(.seconds(5))
            #expect(try await a.status().state == .connected)
        }
    }

    @Test(arguments: [
        ("[mqtt]\nreceive-maximum = 17", true), ("username = \"other\"", false), ("client-id = \"other\"", false),
    ])
    func `a token from a program outlives a reload, unless the file now names another client`(
        line: String, isKept: Bool
    ) async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", sessions: ["main": Self.file("insecure = true")]).connected()
            scenario.with { broker, _ in broker.password = "fresh" }
            _ = try await a.registry().driver("main").renewToken("fresh", expires: nil)
            try await a.until(.connected)
            try await a.write("main", Self.file("insecure = true\n" + line))
            _ = try await a.reload()
            await scenario.sleep(.seconds(10))
            #expect(try await a.status().state == (isKept ? .connected : .failed))
        }
    }
}

extension Host {
    fileprivate func reload() async throws -> DaemonReloadMethod.Result {
        try await registry().apply(configuration())
    }

    /// From now on verdicts can be neither written nor read.
    fileprivate func breakStore() async throws { try await executeInStore("DROP TABLE verdict") }

    fileprivate func keepsSecret() async throws -> Bool {
        try await registry().driver("main").session.connections.lastOpened != nil
    }
}
