import ControlAPI
import MQTT
import NIOCore
import SessionCore
import Support
import Testing

@testable import Agent
@testable import SimulationSupport

/// What Nexconn (RongCloud) documents: the table of delays, no attempt without a network, a table that restarts when
/// the network changes or the application wakes, and `reconnectKickEnable` with its story of the devices A and B.
@Suite("Nexconn", .timeLimit(.minutes(10)))
struct NexconnScenarios {
    /// Always in use, so that the preset's two minutes in the background do not end it.
    static let always = """
        preset = "nexconn"
        on-demand = false
        """
    static let table: [Duration] = [
        .milliseconds(50), .milliseconds(250), .milliseconds(500), .seconds(1), .seconds(2), .seconds(4), .seconds(8),
        .seconds(16), .seconds(32), .seconds(64), .seconds(64), .seconds(64),
    ]

    /// The times from the end of one attempt to the beginning of the next one. A refusal takes a round trip.
    private static func delays(_ dials: [Instant]) -> [Duration] {
        zip(dials, dials.dropFirst()).map { $0.duration(to: $1) - .milliseconds(10) }
    }

    @Test func `the delays are exactly those of the table, then always 64 seconds`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", Self.always).connected()
            await scenario.sleep(.seconds(60))
            scenario.stop()
            try await a.until(.reconnecting)
            let lost = scenario.now
            await scenario.sleep(.seconds(400))
            let dials = scenario.dials["A"]?.filter { $0 >= lost } ?? []
            #expect(lost.duration(to: dials[0]) == Self.table[0])
            #expect(Self.delays(dials).prefix(11) == Self.table.dropFirst())
            scenario.start()
            try await a.until(.connected, within: .seconds(65))
        }
    }

    @Test func `without a network only safety attempts are made, outside the table`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", Self.always).connected()
            scenario.cut(a)
            try await a.until("waiting for the network") { $0.phase == .waitingForNetwork }
            let dials = scenario.dials["A"]?.count
            await scenario.sleep(.seconds(280))
            #expect(scenario.dials["A"]?.count == dials)
            #expect(try await a.status().attempt == 1)
            // One safety attempt every five minutes, in case the kernel's message was missed.
            await scenario.sleep(.seconds(3600))
            #expect(scenario.dials["A"]?.count == dials.map { $0 + 12 })
            let healed = scenario.now
            scenario.mend(a)
            try await a.until(.connected)
            #expect(healed.duration(to: scenario.now) < .milliseconds(50))
        }
    }

    @Test func `the table restarts when the network changes`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", Self.always).connected()
            await scenario.sleep(.seconds(60))
            scenario.stop()
            await scenario.sleep(.seconds(200))
            #expect(try await a.status().retryIn ?? 0 > 1)
            scenario.move(a)
            let moved = scenario.now
            await scenario.sleep(.seconds(10))
            let dials = scenario.dials["A"]?.filter { $0 >= moved } ?? []
            #expect(dials.first == moved)
            #expect(Self.delays(dials).prefix(5) == Self.table.prefix(5))
        }
    }

    @Test func `an explicit disconnect ends all attempts, whatever the network does`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", Self.always).connected()
            scenario.stop()
            try await a.until(.reconnecting)
            await scenario.sleep(.seconds(20))
            try await a.disconnect()
            try await a.until(.disconnected)
            scenario.start()
            let dials = scenario.dials["A"]?.count
            scenario.move(a)
            scenario.cut(a)
            scenario.mend(a)
            await scenario.sleep(.seconds(3600))
            #expect(scenario.dials["A"]?.count == dials)
            #expect(try await a.status().reason?.code == "user-disconnect")
        }
    }

    @Test func `the table restarts on waking, and the first attempt is made at once`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", Self.always + "\non-suspend = \"keep\"").connected()
            await scenario.sleep(.seconds(60))
            scenario.stop()
            await scenario.sleep(.seconds(200))
            #expect(try await a.status().retryIn ?? 0 > 1)
            // The timers of a host that sleeps do not fire: the model's do, so it sleeps for less than the delay.
            try await a.sleep(for: .seconds(31))
            let woke = scenario.now
            await scenario.sleep(.seconds(10))
            let dials = scenario.dials["A"]?.filter { $0 >= woke } ?? []
            #expect(dials.first == woke)
            #expect(Self.delays(dials).prefix(5) == Self.table.prefix(5))
        }
    }

    // MARK: Background

    @Test func `in the background for two minutes: disconnected, and back at once in the foreground`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", "preset = \"nexconn\"")
            #expect(try await a.status().state == .disconnected)
            let foreground = try await a.subscribe("news")
            try await a.until(.connected)
            await scenario.sleep(.seconds(3600))
            #expect(try await a.status().state == .connected)

            try await a.unsubscribe(foreground)
            let left = scenario.now
            let idle = try await a.until(.disconnected)
            #expect(idle.reason?.code == "idle")
            #expect((Duration.seconds(120)...Duration.seconds(121)).contains(left.duration(to: scenario.now)))
            let dials = scenario.dials["A"]?.count
            await scenario.sleep(.seconds(3600))
            #expect(scenario.dials["A"]?.count == dials)

            let asked = scenario.now
            try await a.subscribe("news")
            let back = try await a.until(.connected)
            #expect(back.resumed == true)
            #expect(asked.duration(to: scenario.now) < .milliseconds(100))
        }
    }

    @Test func `back in the foreground within two minutes: nothing happens`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", "preset = \"nexconn\"")
            for _ in 1...5 {
                let foreground = try await a.subscribe("news")
                await scenario.sleep(.seconds(60))
                try await a.unsubscribe(foreground)
                await scenario.sleep(.seconds(110))
            }
            #expect(scenario.dials["A"]?.count == 1)
        }
    }

    @Test func `the system suspends it: disconnected before, and connected at once on waking`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", "preset = \"nexconn\"\nroom = \"r\"")
            let b = try await scenario.host("B", "room = \"r\"")
            try await a.subscribe("news")
            try await a.until(.connected)
            await scenario.sleep(.seconds(60))
            try await a.sleep(for: .seconds(900))
            let asleep = try await a.until(.disconnected)
            #expect(asleep.reason?.code == "suspend")
            let woke = scenario.now
            let back = try await a.until(.connected)
            #expect(back.resumed == true)
            #expect(woke.duration(to: scenario.now) < .milliseconds(100))
            // Other participants are told at once that it leaves.
            #expect(await b.told(.participantLeft).count == 1)
        }
    }

    // MARK: reconnectKickEnable

    static func device(_ strategy: String) -> String {
        """
        preset = "nexconn"
        on-demand = false
        room = "r"
        [reconnect]
        kick = "\(strategy)"
        """
    }

    @Test(arguments: ["take-over", "yield"], [false, true])
    func `a first connect kicks the other device, whatever the strategy`(_ strategy: String, silent: Bool) async throws
    {
        try await Scenario.run { scenario in
            scenario.with { broker, _ in broker.takesOverSilently = silent }
            let a = try await scenario.host("A", Self.device(strategy), user: "u").connected()
            await scenario.sleep(.seconds(60))
            let b = try await scenario.host("B", Self.device(strategy), user: "u").connected()
            let kicked = try await a.until(.failed)
            #expect(kicked.reason?.code == "displaced")
            await scenario.sleep(.seconds(7200))
            #expect(try await a.status().state == .failed)
            #expect(try await b.status().state == .connected)
            #expect(try await b.status().counters.outages <= 1)
        }
    }

    /// A was connected and loses its network, B connects as the same user; then A's network is back.
    private static func story(
        _ strategy: String, silent: Bool,
        _ body: @Sendable (isolated Scenario, _ a: Host, _ b: Host) async throws -> Void
    ) async throws {
        try await Scenario.run { scenario in
            scenario.with { broker, _ in broker.takesOverSilently = silent }
            let a = try await scenario.host("A", device(strategy), user: "u").connected()
            await scenario.sleep(.seconds(60))
            scenario.cut(a)
            try await a.until(.reconnecting)
            let b = try await scenario.host("B", device(strategy), user: "u").connected()
            await scenario.sleep(.seconds(60))
            scenario.mend(a)
            try await body(scenario, a, b)
        }
    }

    /// A cannot connect, B logs in, A's network heals: the story in Nexconn's documentation.
    private static func ownStory(
        _ strategy: String, silent: Bool, hasPath: Bool,
        _ body: @Sendable (isolated Scenario, _ a: Host, _ b: Host) async throws -> Void
    ) async throws {
        try await Scenario.run { scenario in
            scenario.with { broker, _ in broker.takesOverSilently = silent }
            let a = try await scenario.host("A", device(strategy) + "\n[presence]\ntimeout = \"20s\"", user: "u")
            // Before any packet of it arrives.
            if hasPath { scenario.silence(a) } else { scenario.cut(a) }
            await scenario.sleep(.seconds(60))
            #expect(try await a.status().state == .connecting)
            let b = try await scenario.host("B", device(strategy), user: "u").connected()
            await scenario.sleep(.seconds(60))
            if hasPath { scenario.unsilence(a) } else { scenario.mend(a) }
            try await body(scenario, a, b)
        }
    }

    @Test(arguments: [false, true])
    func `reconnectKickEnable false: A reconnects and kicks B, who does not fight back`(silent: Bool) async throws {
        try await Self.story("take-over", silent: silent) { scenario, a, b in
            try await a.until(.connected)
            let kicked = try await b.until(.failed)
            #expect(kicked.reason?.code == "displaced")
            #expect(await b.told(.displaced).count == 1)
            await scenario.sleep(.seconds(7200))
            #expect(try await a.status().state == .connected)
            #expect(try await b.status().state == .failed)
            #expect(try await a.status().counters.outages == 1)
        }
    }

    /// As a proxy does, or a load balancer whose server is down.
    @Test(arguments: [false, true])
    func `reconnectKickEnable false: A kicks B, although something on the way closed an attempt`(
        silent: Bool
    ) async throws {
        try await Scenario.run { scenario in
            scenario.with { broker, _ in broker.takesOverSilently = silent }
            let a = try await scenario.host("A", Self.device("take-over"), user: "u").connected()
            await scenario.sleep(.seconds(60))
            scenario.silence(a)
            try await a.until(.reconnecting)
            let b = try await scenario.host("B", Self.device("take-over"), user: "u").connected()
            await scenario.sleep(.seconds(60))
            scenario.withUplink(a) { $0.dialFault = .reset }
            try await a.until("an attempt that was closed") { $0.reason?.code == "reset" }
            scenario.unsilence(a)
            try await a.until(.connected)
            #expect(try await b.until(.failed).reason?.code == "displaced")
            await scenario.sleep(.seconds(7200))
            #expect(try await a.status().state == .connected)
        }
    }

    @Test(arguments: [false, true], [false, true])
    func `reconnectKickEnable false: A that could never connect kicks B when its network heals`(
        silent: Bool, hasPath: Bool
    ) async throws {
        try await Self.ownStory("take-over", silent: silent, hasPath: hasPath) { scenario, a, b in
            try await a.until(.connected)
            #expect(try await b.until(.failed).reason?.code == "displaced")
            await scenario.sleep(.seconds(7200))
            #expect(try await a.status().state == .connected)
            #expect(try await a.status().counters.outages == 0)
        }
    }

    /// The server closes B's connection as soon as it has A's CONNECT, and A takes a while to be seen in the room.
    @Test func `reconnectKickEnable false: A that took over is not kicked before B can see it`() async throws {
        try await Scenario.run { scenario in
            scenario.with { broker, _ in broker.takesOverSilently = true }
            let quick = Self.device("take-over") + "\ndelays = [\"50ms\"]\nspread = \"1ms\""
            let a = try await scenario.host("A", quick, user: "u")
            scenario.cut(a)
            let b = try await scenario.host("B", quick, user: "u").connected()
            await scenario.sleep(.seconds(60))
            scenario.uplinks[a.name]?.latency = .milliseconds(150)
            scenario.mend(a)
            try await a.until(.connected)
            #expect(try await b.until(.failed).reason?.code == "displaced")
            await scenario.sleep(.seconds(7200))
            #expect(try await a.status().counters.outages == 0)
        }
    }

    @Test(arguments: [false, true], [false, true])
    func `reconnectKickEnable true: A that could never connect stops when its network heals, and B is not disturbed`(
        silent: Bool, hasPath: Bool
    ) async throws {
        try await Self.ownStory("yield", silent: silent, hasPath: hasPath) { scenario, a, b in
            let yielded = try await a.until(.failed)
            #expect(yielded.reason?.code == "yielded")
            await scenario.sleep(.seconds(7200))
            #expect(try await a.status().counters.connects == 0)
            #expect(try await b.status().state == .connected)
            #expect(try await b.status().counters.outages == 0)
        }
    }

    @Test func `reconnectKickEnable true: connect by hand while A tries takes over`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", Self.device("yield"), user: "u")
            scenario.cut(a)
            try await scenario.host("B", Self.device("yield"), user: "u").connected()
            scenario.stop()
            scenario.mend(a)
            await scenario.sleep(.seconds(1))
            scenario.start()
            try await a.connect()
            try await a.until(.connected)
        }
    }

    @Test(arguments: [false, true])
    func `reconnectKickEnable true: A finds B online and yields (31023), B is not disturbed`(silent: Bool) async throws
    {
        try await Self.story("yield", silent: silent) { scenario, a, b in
            let yielded = try await a.until(.failed)
            #expect(yielded.reason?.code == "yielded")
            #expect(yielded.reason?.terminal == true)
            await scenario.sleep(.seconds(7200))
            #expect(try await a.status().state == .failed)
            #expect(try await b.status().state == .connected)
            #expect(try await b.status().counters.outages == 0)
            // Connect by hand at A may still take over: it counts as a first connect.
            try await a.connect()
            try await a.until(.connected)
            try await b.until(.failed)
        }
    }

    @Test(arguments: [false, true])
    func `clocks that are years apart change nothing`(aIsAhead: Bool) async throws {
        try await Scenario.run { scenario in
            scenario.with { broker, _ in broker.takesOverSilently = true }
            let years = Duration.seconds(3 * 365 * 24 * 3600)
            let a = try await scenario.host("A", Self.device("take-over"), user: "u")
            await a.setClock(by: aIsAhead ? years : .zero - years)
            try await a.until(.connected)
            await scenario.sleep(.seconds(60))
            scenario.cut(a)
            let b = try await scenario.host("B", Self.device("take-over"), user: "u").connected()
            await scenario.sleep(.seconds(60))
            scenario.mend(a)
            #expect(try await b.until(.failed).reason?.code == "displaced")
            await scenario.sleep(.seconds(7200))
            #expect(try await a.status().state == .connected)
        }
    }

    @Test func `two devices with a client-id each do not take each other for rivals when the server restarts`()
        async throws
    {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", "client-id = \"u-a\"\n" + Self.device("take-over"), user: "u")
            let b = try await scenario.host("B", "client-id = \"u-b\"\n" + Self.device("take-over"), user: "u")
            try await a.until(.connected)
            try await b.until(.connected)
            for _ in 1...5 {
                await scenario.sleep(.seconds(60))
                scenario.reset(a)
                await scenario.sleep(.seconds(60))
                scenario.stop()
                scenario.start()
            }
            await scenario.sleep(.seconds(600))
            #expect(try await a.status().state == .connected)
            #expect(try await b.status().state == .connected)
        }
    }

    @Test func `yield without another device online: A just reconnects`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", Self.device("yield"), user: "u").connected()
            for _ in 1...5 {
                await scenario.sleep(.seconds(60))
                scenario.cut(a)
                try await a.until(.reconnecting)
                await scenario.sleep(.seconds(30))
                scenario.mend(a)
                #expect(try await a.until(.connected).resumed == true)
            }
        }
    }

    @Test(arguments: [("boot", false), ("boot", true), ("next", false)])
    func `reconnectKickEnable true: a start of A's daemon does not disturb B, but a reboot of its host does`(
        bootID: String, isInOutage: Bool
    ) async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", Self.device("yield"), user: "u").connected()
            await scenario.sleep(.seconds(60))
            if isInOutage {
                scenario.cut(a)
                try await a.until(.reconnecting)
            }
            await a.kill()
            let b = try await scenario.host("B", Self.device("yield"), user: "u").connected()
            await scenario.sleep(.seconds(10))
            if isInOutage { scenario.mend(a) }
            try await a.start(bootID: bootID)
            if bootID == "boot" {
                #expect(try await a.until(.failed).reason?.code == "yielded")
                await scenario.sleep(.seconds(3600))
                #expect(try await b.status().state == .connected)
                // Somebody who asks takes over, as ever.
                try await a.connect()
            }
            try await a.until(.connected)
            try await b.until(.failed)
        }
    }

    @Test func `reconnectKickEnable true: a start of A's daemon alone just connects`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", Self.device("yield"), user: "u").connected()
            for _ in 1...3 {
                await scenario.sleep(.seconds(10))
                await a.kill()
                await scenario.sleep(.seconds(1))
                try await a.start()
                #expect(try await a.until(.connected).resumed == true)
            }
        }
    }

    @Test func `being kicked outlives the daemon, but not a reboot`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", Self.device("take-over"), user: "u").connected()
            let b = try await scenario.host("B", Self.device("take-over"), user: "u").connected()
            try await a.until(.failed)
            await a.kill()
            try await a.start()
            await scenario.sleep(.seconds(600))
            #expect(try await a.status().state == .failed)
            #expect(try await a.status().reason?.code == "displaced")
            #expect(try await b.status().state == .connected)
            await a.kill()
            try await a.start(bootID: "next")
            try await a.until(.connected)
            try await b.until(.failed)
        }
    }
}
