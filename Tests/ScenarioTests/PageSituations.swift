import ControlAPI
import MQTT
import NIOCore
import SessionCore
import Support
import Synchronization
import Testing

@testable import Agent
@testable import Session
@testable import SimulationSupport

/// What happens to a session, without a word of what it reports then: the SDKs' codes are explained with these.
struct Situation: Sendable {
    /// Different for each.
    let name: String
    let body: @Sendable (isolated Scenario, inout Outcome) async throws -> Void

    init(_ name: String, _ body: @escaping @Sendable (isolated Scenario, inout Outcome) async throws -> Void) {
        (self.name, self.body) = (name, body)
    }

    /// What the daemons of the hosts said.
    struct Outcome: Sendable {
        /// All events of all hosts.
        var told: [SessionEvent] = []
        /// The one that says what happened.
        var last: SessionEvent?
        /// The codes of calls that failed.
        var errors: Set<String> = []
    }

    /// What happened in the situations that were needed so far: rows of several pages are about the same.
    private static let outcomes = Mutex<[String: Task<Outcome, any Error>]>([:])

    func outcome() async throws -> Outcome {
        let task = Self.outcomes.withLock { outcomes in
            if let task = outcomes[name] { return task }
            let task = Task { try await happen() }
            outcomes[name] = task
            return task
        }
        return try await task.value
    }

    private func happen() async throws -> Outcome {
        try await Scenario.run { scenario in
            var outcome = Outcome()
            try await body(scenario, &outcome)
            for host in scenario.hosts { outcome.told += await host.told() }
            return outcome
        }
    }
}

// MARK: Building blocks

extension Situation {
    private static func up(_ scenario: isolated Scenario, _ extra: String = "") async throws -> Host {
        let a = try await scenario.host("A", extra).connected()
        return a
    }

    /// The next state or phase that is reported with another reason than the host's last one.
    private static func next(_ host: Host) async throws -> SessionEvent {
        let before = await host.told().last { $0.reason != nil }?.reason?.code
        return try await host.until("another reason") { $0.state != nil && $0.reason?.code != before }
    }

    /// The server refuses CONNECT.
    static func refusal(_ code: ReasonCode) -> Situation {
        Situation("the server refuses with \(code)") { scenario, outcome in
            scenario.with { broker, _ in broker.refusals["a"] = code }
            outcome.last = try await next(try await up(scenario, refused: true))
        }
    }

    private static func up(_ scenario: isolated Scenario, refused: Bool) async throws -> Host {
        let a = try await scenario.host("A")
        try await a.until(.connecting)
        return a
    }

    /// The server ends the connection.
    static func end(_ code: ReasonCode?) -> Situation {
        Situation("the server ends the connection with \(code.map { "\($0)" } ?? "nothing")") { scenario, outcome in
            let a = try await up(scenario)
            scenario.with { broker, now in broker.disconnect("a", code, at: now) }
            outcome.last = try await next(a)
        }
    }

    /// The connection breaks, and the next one cannot be set up.
    static func dial(_ fault: Scenario.DialFault) -> Situation {
        Situation("the dial fails: \(fault)") { scenario, outcome in
            let a = try await up(scenario)
            scenario.withUplink(a) { $0.dialFault = fault }
            scenario.reset(a)
            try await a.until(.reconnecting)
            outcome.last = try await next(a)
        }
    }

    /// The first connection cannot be set up.
    static func firstDial(_ fault: Scenario.DialFault) -> Situation {
        Situation("the first dial fails: \(fault)") { scenario, outcome in
            let a = try await scenario.host("A", "autoconnect = false")
            scenario.withUplink(a) { $0.dialFault = fault }
            try await a.connect()
            outcome.last = try await a.until(.failed)
        }
    }

    /// The session's file has this line, which is wrong.
    static func badFile(_ line: String, user: String = "a") -> Situation {
        Situation("the file of \"\(user)\" says \(line)") { scenario, outcome in
            let a = try await scenario.host("A", line, user: user)
            outcome.last = try await a.until(.failed)
        }
    }

    /// The session's file has an endpoint that cannot be read.
    static let badEndpoint = Situation("the endpoint cannot be read") { scenario, outcome in
        let a = try await scenario.host("A", sessions: ["main": "endpoints = [\"mqtt//one\"]\nuser = \"a\"\n"])
        outcome.last = try await a.until(.failed)
    }

    /// A call that is refused.
    static func call(
        _ name: String, _ extra: String = "",
        _ body: @escaping @Sendable (isolated Scenario, Host) async throws -> Void
    ) -> Situation {
        Situation(name) { scenario, outcome in
            let a = try await up(scenario, extra)
            do {
                try await body(scenario, a)
            } catch let error as RPCError {
                outcome.errors.insert(error.data?.code ?? "")
            }
        }
    }

    /// The session has a token from a service, which the server does not take.
    private static func rejected(_ code: ReasonCode) -> Situation {
        Situation("the token is wrong, and the server says \(code)") { scenario, outcome in
            let service = TokenService(scenario.loop)
            scenario.with { broker, _ in broker.refusals["a"] = code }
            let a = try await scenario.host("A", CredentialScenarios.session + "\nautoconnect = false")
            await a.use(service)
            try await a.connect()
            outcome.last = try await a.until(.failed)
            #expect(await service.asked == 2, "the credential is fetched once more")
        }
    }
}

// MARK: Coming and going

extension Situation {
    static let starts = Situation("the daemon starts") { scenario, outcome in
        let a = try await scenario.host("A")
        outcome.last = try await a.until(.connecting)
        try await a.until(.connected)
    }
    static let connect = Situation("somebody connects") { scenario, outcome in
        let a = try await scenario.host("A", "autoconnect = false")
        try await a.connect()
        outcome.last = try await a.until(.connecting)
        try await a.until(.connected)
    }
    static let connected = Situation("it connects") { scenario, outcome in
        let a = try await scenario.host("A")
        outcome.last = try await a.until(.connected)
    }
    static let disconnect = Situation("somebody disconnects") { scenario, outcome in
        let a = try await up(scenario)
        try await a.disconnect()
        outcome.last = try await a.until(.disconnected)
    }
    static let disconnecting = Situation("a disconnect is under way") { scenario, outcome in
        let a = try await up(scenario)
        try await a.disconnect()
        outcome.last = try await a.until(.disconnecting)
    }
    static let cancel = Situation("somebody disconnects before the session is connected") { scenario, outcome in
        scenario.hang(.one)
        let a = try await scenario.host("A")
        await scenario.sleep(.seconds(1))
        try await a.disconnect()
        outcome.last = try await a.until(.disconnected)
    }
    static let disconnectUnheard = Situation("a disconnect that the server cannot hear") { scenario, outcome in
        let a = try await up(scenario, "room = \"r\"")
        scenario.cut(a)
        try await a.until(.reconnecting)
        try await a.disconnect()
        outcome.last = try await a.until(.disconnected)
    }
    static let reconnect = Situation("somebody reconnects") { scenario, outcome in
        let a = try await up(scenario)
        try await a.reconnect(.quick)
        outcome.last = try await a.until(.reconnecting)
        try await a.until(.connected)
    }
    static let quick = Situation("the connection breaks, and the server has the session") { scenario, outcome in
        let a = try await up(scenario)
        scenario.reset(a)
        try await a.until(.reconnecting)
        try await a.until(.connected)
    }
    static let full = Situation("the server has lost the session") { scenario, outcome in
        let a = try await up(scenario)
        scenario.stop(remembering: .nothing)
        try await a.until(.reconnecting)
        scenario.start()
        try await a.until(.connected)
    }
    static let switchRoom = Situation("the session switches its room") { scenario, outcome in
        let a = try await up(scenario, "room = \"r1\"")
        try await a.switchRoom(to: "r2")
        try await a.until(.reconnectCompleted)
    }
    static let idle = Situation("no program uses the session for two minutes") { scenario, outcome in
        let a = try await scenario.host("A", "preset = \"nexconn\"")
        try await a.connect()
        try await a.until(.connected)
        outcome.last = try await a.until(.disconnected)
    }
    static let demand = Situation("a program uses the session again") { scenario, outcome in
        let a = try await scenario.host("A", "preset = \"nexconn\"")
        try await a.publish("t", "hello")
        outcome.last = try await a.until(.connecting)
    }
    static let suspend = Situation("the host goes to sleep") { scenario, outcome in
        let a = try await up(scenario)
        try await a.sleep(for: .seconds(600))
        outcome.last = try await a.until(.disconnected)
    }
    static let wake = Situation("the host wakes") { scenario, outcome in
        let a = try await up(scenario)
        try await a.sleep(for: .seconds(600))
        try await a.until(.disconnected)
        outcome.last = try await a.until(.connecting)
    }
    static let newFile = Situation("the session's file changes") { scenario, outcome in
        let a = try await up(scenario)
        let proxy = "[proxy]\nurl = \"http://192.0.2.9:3128\"\n"
        try await a.write("main", "endpoints = [\"\(Scenario.ServerName.one.endpoint)\"]\nuser = \"a\"\n" + proxy)
        _ = try await a.registry().apply(await a.configuration())
        outcome.last = try await a.until("connecting again") {
            $0.event == .stateChanged && $0.state == .connecting && $0.reason?.code != "autoconnect"
        }
    }
    static let failedThenConnect = Situation("somebody connects a session that failed") { scenario, outcome in
        scenario.with { broker, _ in broker.refusals["a"] = .banned }
        let a = try await scenario.host("A")
        outcome.last = try await a.until(.failed)
        scenario.with { broker, _ in broker.refusals = [:] }
        try await a.connect()
        try await a.until(.connected)
    }
}

// MARK: The network

extension Situation {
    static let closed = end(nil)
    static let reset = Situation("the connection is reset") { scenario, outcome in
        let a = try await up(scenario)
        scenario.reset(a)
        outcome.last = try await a.until(.reconnecting)
    }
    static let silence = Situation("the network swallows everything") { scenario, outcome in
        let a = try await up(scenario)
        scenario.silence(a)
        outcome.last = try await a.until(.reconnecting)
    }
    static let silenceWithData = Situation("the network swallows data on its way") { scenario, outcome in
        let a = try await up(scenario)
        scenario.withUplink(a) { $0.isMeasured = true }
        await scenario.sleep(.seconds(60))
        scenario.silence(a)
        try await a.publish("t", "hello")
        outcome.last = try await a.until(.reconnecting)
    }
    static let pathLost = Situation("the path is lost") { scenario, outcome in
        let a = try await up(scenario)
        scenario.cut(a)
        let began = scenario.now
        outcome.last = try await a.until(.reconnecting)
        #expect(began.duration(to: scenario.now) == .seconds(5))
        try await a.until("waiting for the network") { $0.phase == .waitingForNetwork }
    }
    static let pathMoved = Situation("the host moves to another network") { scenario, outcome in
        let a = try await up(scenario)
        scenario.move(a)
        outcome.last = try await a.until(.reconnecting)
    }
    static let pathGained = Situation("the network comes back") { scenario, outcome in
        let a = try await up(scenario)
        scenario.cut(a)
        try await a.until(.reconnecting)
        await scenario.sleep(.seconds(1))
        scenario.mend(a)
        outcome.last = try await next(a)
    }
    static let pathReturned = Situation("the same path comes back") { scenario, outcome in
        let a = try await up(scenario)
        scenario.cut(a)
        try await a.until(.reconnecting)
        scenario.mend(a)
        outcome.last = try await next(a)
    }
    static let pathStranded = Situation("the old connection is dead on another path") { scenario, outcome in
        var stream = try await Stream(scenario)
        scenario.shift(stream.host, strands: true, .hangs)
        try await stream.run(scenario, 20)
        outcome.last = try await stream.host.until(.reconnecting)
    }
    static let noPath = Situation("there is no network from the start") { scenario, outcome in
        let a = try scenario.addHost("A")
        scenario.withUplink(a) { $0.path = nil }
        try await a.write("main", "endpoints = [\"\(Scenario.ServerName.one.endpoint)\"]\nuser = \"a\"\n")
        try await a.start()
        outcome.last = try await a.until("waiting") { $0.phase == .waitingForNetwork }
    }
    static let authenticateTimeout = Situation("the server does not answer CONNECT") { scenario, outcome in
        scenario.hang(.one)
        let a = try await scenario.host("A")
        try await a.until(.connecting)
        outcome.last = try await next(a)
    }
    static let restoreTimeout = Situation("the server does not answer SUBSCRIBE") { scenario, outcome in
        let filter = "holdfast/rooms/r/presence/+/+"
        scenario.with { broker, _ in broker.dislikedFilters[filter] = .ignores }
        let a = try await scenario.host("A", "room = \"r\"")
        try await a.until(.connecting)
        outcome.last = try await next(a)
    }
    static let serverIsDown = Situation("the server is down") { scenario, outcome in
        let a = try await up(scenario)
        scenario.stop()
        try await a.until(.reconnecting)
        outcome.last = try await a.until("waiting") { $0.phase == .waiting }
        try await a.until(.connectionLost)
    }
    static let givenUp = Situation("the server is down for longer than give-up-after") { scenario, outcome in
        let a = try await up(scenario, "preset = \"agora\"")
        let began = scenario.now
        scenario.stop()
        outcome.last = try await a.until(.failed)
        #expect((Duration.seconds(1200)...Duration.seconds(1201)).contains(began.duration(to: scenario.now)))
    }
    static let attemptsUsedUp = Situation("ten attempts fail") { scenario, outcome in
        let a = try await up(scenario, "preset = \"livekit\"")
        scenario.stop()
        outcome.last = try await a.until(.failed)
    }
    /// - Parameter milliseconds: the round trip from the first packet on.
    static func roundTrip(_ milliseconds: Int64) -> Situation {
        Situation("a round trip takes \(milliseconds) ms") { scenario, outcome in
            let a = try scenario.addHost("A")
            scenario.withUplink(a) { ($0.isMeasured, $0.latency) = (true, .milliseconds(milliseconds / 2)) }
            try await a.write("main", "endpoints = [\"\(Scenario.ServerName.one.endpoint)\"]\nuser = \"a\"\n")
            try await a.start()
            try await a.until(.qualityChanged)
            await scenario.sleep(.seconds(600))
            #expect(await a.told(.qualityChanged).count == 1)
        }
    }
    static let quality = Situation("the connections become poor") { scenario, outcome in
        let b = try await scenario.host("B", "room = \"r\"")
        let a = try await up(scenario, "room = \"r\"")
        scenario.withUplink(a) { ($0.isMeasured, $0.latency) = (true, .milliseconds(300)) }
        try await a.until(.qualityChanged)
        outcome.last = try await b.until(.participantChanged)
    }
}

// MARK: The server's word

extension Situation {
    static let banned = refusal(.banned)
    static let removed = end(.administrativeAction)
    static let notAuthorized = refusal(.notAuthorized)
    static let clientIdentifier = refusal(.clientIdentifierNotValid)
    static let version = refusal(.unsupportedProtocolVersion)
    static let keepAlive = end(.keepAliveTimeout)
    static let serverBusy = end(.serverBusy)
    static let quota = end(.quotaExceeded)
    static let serverError = end(.unspecifiedError)
    static let serverShutdown = end(.serverShuttingDown)
    static let rateLimited = end(.messageRateTooHigh)
    static let protocolError = end(.protocolError)
    static let stateMismatch = end(.packetIdentifierNotFound)
    static let unknown = end(ReasonCode(rawValue: 0xFE))
    static let moved = Situation("the server sends the session to another one") { scenario, outcome in
        let a = try await up(scenario, "[mqtt]\nredirects = [\"\(Scenario.ServerName.two.address)\"]")
        scenario.with { broker, now in
            var properties = Disconnect.Properties()
            properties.serverReference = Scenario.ServerName.two.address
            broker.disconnect("a", .serverMoved, properties, at: now)
        }
        outcome.last = try await a.until(.reconnecting)
    }
    static let redirected = Situation("the server sends the session to one that is not allowed") { scenario, outcome in
        let a = try await up(scenario)
        scenario.with { broker, now in
            var properties = Disconnect.Properties()
            properties.serverReference = Scenario.ServerName.two.address
            broker.disconnect("a", .serverMoved, properties, at: now)
        }
        outcome.last = try await a.until(.failed)
    }
    static let displaced = Situation("the same user connects elsewhere") { scenario, outcome in
        let a = try await up(scenario)
        try await (try await scenario.host("B", user: "a")).until(.connected)
        outcome.last = try await a.until(.failed)
    }
    static let yielded = Situation("a device comes back, and another one is online") { scenario, outcome in
        let a = try await scenario.host("A", NexconnScenarios.device("yield"), user: "u").connected()
        scenario.cut(a)
        try await a.until(.reconnecting)
        try await (try await scenario.host("B", NexconnScenarios.device("yield"), user: "u")).until(.connected)
        scenario.mend(a)
        outcome.last = try await a.until(.failed)
    }
    static let tokenRejected = rejected(.badUserNameOrPassword)
    /// As mosquitto says it.
    static let tokenNotAuthorized = rejected(.notAuthorized)
    static let tokenEnded = Situation("the token ends, and the server takes it no more") { scenario, outcome in
        let service = TokenService(scenario.loop)
        await service.set("first", lifetime: .seconds(600))
        let a = try await scenario.host("A", CredentialScenarios.session + "\nautoconnect = false")
        await a.use(service)
        try await a.connect()
        try await a.until(.connected)
        await service.set("first", lifetime: .zero)
        await scenario.sleep(.seconds(700))
        scenario.with { broker, now in
            broker.password = "second"
            broker.disconnect("a", .notAuthorized, at: now)
        }
        outcome.last = try await a.until(.failed)
    }
    static let tokenRenewed = Situation("a program renews the token") { scenario, outcome in
        let a = try await up(scenario, "insecure = true")
        _ = try await a.registry().driver("main").renewToken("fresh", expires: nil)
        outcome.last = try await a.until(.reconnecting)
    }
    static let tokenCorrected = Situation("the file with the rejected token changes") { scenario, outcome in
        scenario.with { broker, _ in broker.refusals["a"] = .badUserNameOrPassword }
        let a = try await scenario.host("A")
        try await a.until(.failed)
        let driver = try await a.registry().driver("main")
        // What the watch on the file does; virtual time has no files to watch.
        driver.here { $0.take(.credentialChanged) }
        outcome.last = try await a.until(.connecting)
    }
    static let tokenUnreadable = Situation("the token cannot be read") { scenario, outcome in
        let service = TokenService(scenario.loop)
        await service.fail("no such file")
        let a = try await scenario.host("A", CredentialScenarios.session + "\nautoconnect = false")
        await a.use(service)
        try await a.connect()
        outcome.last = try await a.until("waiting") { $0.phase == .waiting }
    }
}

// MARK: Others, messages and publications

extension Situation {
    private static func together(_ scenario: isolated Scenario) async throws -> (a: Host, b: Host) {
        let b = try await scenario.host("B", "preset = \"agora\"\nroom = \"r\"").connected()
        let a = try await scenario.host("A", "preset = \"agora\"\nroom = \"r\"").connected()
        try await b.until(.participantJoined)
        return (a, b)
    }
    static let joins = Situation("another participant enters the room") { scenario, outcome in
        _ = try await together(scenario)
    }
    static let leaves = Situation("another participant leaves the room") { scenario, outcome in
        let (a, b) = try await together(scenario)
        let began = scenario.now
        try await a.disconnect()
        try await b.until(.participantLeft)
        #expect(began.duration(to: scenario.now) < .seconds(1))
    }
    static let isLost = Situation("another participant is lost") { scenario, outcome in
        let (a, b) = try await together(scenario)
        let began = scenario.now
        scenario.silence(a)
        try await b.until(.participantLeft)
        #expect((Duration.seconds(12)...Duration.seconds(23)).contains(began.duration(to: scenario.now)))
    }
    static let publication = Situation("a publication is made, published again, and removed") { scenario, outcome in
        let a = try await up(scenario)
        let driver = try await a.registry().driver("main")
        _ = try await driver.putPublication(.init(session: "main", topic: "p", payload: .init(text: "1")))
        try await a.until("published") { $0.publication == .published }
        try await a.reconnect(.full)
        try await a.until("pending") { $0.publication == .pending }
        try await a.until("published") { $0.publication == .published }
        _ = try await driver.removePublication(.init(session: "main", topic: "p"))
        try await a.until("removed") { $0.publication == .removed }
    }
    static let messageRejected = Situation("the server rejects a message") { scenario, outcome in
        scenario.with { broker, _ in broker.refusedTopics["t"] = .notAuthorized }
        let a = try await up(scenario)
        try await a.publish("t", "x")
        try await a.until(.messageRejected)
    }
    static let messageTooLarge = call("a message is larger than the server takes") { scenario, a in
        scenario.with { broker, _ in broker.connackProperties.maximumPacketSize = 100 }
        scenario.reset(a)
        try await a.until(.reconnecting)
        try await a.until(.connected)
        try await a.publish("t", String(repeating: "x", count: 200))
    }
    static let acceptedMessageTooLarge = Situation("an accepted message is larger than the server takes") {
        scenario, outcome in
        let a = try await up(scenario)
        scenario.stop()
        try await a.until(.reconnecting)
        try await a.publish("t", String(repeating: "x", count: 200))
        scenario.with { broker, _ in broker.connackProperties.maximumPacketSize = 100 }
        scenario.start()
        try await a.until(.messageRejected)
    }
    static let outboxFull = call("the outbox is full", "[outbox]\nmax-messages = 1") { scenario, a in
        scenario.stop()
        for text in ["1", "2"] { try await a.publish("t", text) }
    }
    static let diskFull = call("the disk is full") { _, a in
        a.disk.here { $0.fault = .failing }
        try await a.publish("t", "1")
    }
    static let badTopic = call("a topic is invalid") { _, a in try await a.publish("a/+", "1") }
    static let badRoom = call("a room's name is invalid", "room = \"r\"") { _, a in try await a.switchRoom(to: "a/+") }
    static let emptyRoom = call("a room has no name", "room = \"r\"") { _, a in try await a.switchRoom(to: "") }
    static let noRoom = call("the session is in no room") { _, a in _ = try await a.participants() }
    static let notConnected = call("the session is not connected", "room = \"r\"") { scenario, a in
        scenario.stop()
        try await a.until(.reconnecting)
        try await a.switchRoom(to: "r2")
    }
    static let noSession = call("there is no such session") { _, a in _ = try await a.registry().driver("other") }
    static let subscriptionRefused = call("the server refuses a subscription") { scenario, a in
        scenario.with { broker, _ in broker.refusedFilters["t"] = .notAuthorized }
        try await a.subscribe("t")
    }
}

// MARK: Faults that a person simulates

extension Situation {
    private static func simulate(_ parameters: SessionSimulateMethod.Parameters, _ host: Host) async throws {
        _ = try await host.registry().driver("main").simulate(parameters)
    }

    static let simulatedShortLoss = Situation("simulate path-lost --duration 3s") { scenario, outcome in
        let a = try await up(scenario)
        try await simulate(.init(session: "main", fault: .pathLost, duration: 3), a)
        let told = await a.told().count
        #expect(try await a.status().doubt == .pathLost)
        // The return of the path is checked with one question to the server.
        await scenario.sleep(.seconds(3) + .milliseconds(100))
        #expect(try await a.status().doubt == nil)
        await scenario.sleep(.seconds(60))
        #expect(Set(await a.told().dropFirst(told).map(\.event)) == [.pathChanged, .qualityChanged])
    }
    static let simulatedLoss = Situation("simulate path-lost --duration 60s") { scenario, outcome in
        let a = try await up(scenario)
        let began = scenario.now
        try await simulate(.init(session: "main", fault: .pathLost, duration: 60), a)
        outcome.last = try await a.until(.reconnecting)
        #expect(began.duration(to: scenario.now) == .seconds(5))
        try await a.until(.connectionLost)
        #expect(began.duration(to: scenario.now) == .seconds(15))
        try await a.until(.connected)
        #expect((Duration.seconds(60)...Duration.seconds(61)).contains(began.duration(to: scenario.now)))
    }
    static let simulatedLongLoss = Situation("simulate path-lost with lost-after = 30s") { scenario, outcome in
        let a = try await up(scenario, "preset = \"livekit\"\n[reconnect]\nlost-after = \"30s\"")
        let began = scenario.now
        try await simulate(.init(session: "main", fault: .pathLost, duration: 60), a)
        try await a.until(.reconnecting)
        let reconnecting = scenario.now
        try await a.until(.connectionLost)
        #expect(reconnecting.duration(to: scenario.now) == .seconds(30))
        #expect(began.duration(to: scenario.now) == .seconds(35))
    }
    static let simulatedDrop = Situation("simulate drop") { scenario, outcome in
        let a = try await up(scenario)
        try await simulate(.init(session: "main", fault: .drop), a)
        outcome.last = try await a.until(.reconnecting)
        try await a.until(.connected)
    }
    static let simulatedSilence = Situation("simulate silence") { scenario, outcome in
        let a = try await up(scenario)
        let began = scenario.now
        try await simulate(.init(session: "main", fault: .silence), a)
        outcome.last = try await a.until(.reconnecting)
        #expect(began.duration(to: scenario.now) <= .seconds(20))
        let before = await a.told().prefix { $0.state != .reconnecting }
        #expect(before.last { $0.event == .qualityChanged }?.quality == .lost)
    }
    static let simulatedFullReconnect = Situation("simulate full-reconnect") { scenario, outcome in
        let a = try await up(scenario)
        try await simulate(.init(session: "main", fault: .fullReconnect), a)
        outcome.last = try await a.until(.reconnecting)
        try await a.until(.connected)
    }
    static let background = Situation("disconnect, then connect") { scenario, outcome in
        let a = try await up(scenario)
        try await a.disconnect()
        outcome.last = try await a.until(.disconnected)
        try await a.connect()
        try await a.until(.connected)
    }
}
