import SessionCore
import Testing

@testable import Configuration

private func session(_ more: String = "") throws(ConfigurationErrors) -> SessionConfiguration {
    let text = "endpoints = [\"mqtts://broker.example\"]\nuser = \"edge-42\"\n" + more
    return try SessionConfiguration(ConfigurationFile(path: "main.toml", text: text))
}

/// The section PRESETS of holdfast-session(5).
@Suite struct `A preset` {
    @Test func `default is the same as no preset`() throws {
        #expect(try session("preset = \"default\"") == session())
    }

    @Test func `livekit tries ten times, at its own pace`() throws {
        var expected = try session()
        expected.preset = .livekit
        expected.reconnect.delays = [
            .zero, .milliseconds(300), .milliseconds(1200), .milliseconds(2700), .milliseconds(4800), .seconds(7),
            .seconds(7), .seconds(7), .seconds(7), .seconds(7),
        ]
        expected.reconnect.spread = .zero
        expected.reconnect.jitter = .seconds(1)
        expected.reconnect.giveUpAttempts = 10
        expected.reconnect.lostAfter = nil
        expected.reconnect.watch = nil
        expected.heartbeat.interval = .seconds(5)
        expected.heartbeat.timeout = .seconds(15)
        expected.presenceTimeout = .seconds(20)
        expected.onSuspend = .keep
        #expect(try session("preset = \"livekit\"") == expected)
    }

    @Test func `nexconn keeps its table exactly, and is up on demand`() throws {
        var expected = try session()
        expected.preset = .nexconn
        expected.reconnect.spread = .zero
        expected.reconnect.lostAfter = nil
        expected.reconnect.watch = nil
        expected.onDemand = true
        expected.idleTimeout = .seconds(120)
        expected.onSuspend = .disconnect
        #expect(try session("preset = \"nexconn\"") == expected)
    }

    @Test func `agora gives up after 20 minutes`() throws {
        var expected = try session()
        expected.preset = .agora
        expected.reconnect.lostAfter = .seconds(10)
        expected.reconnect.giveUpAfter = .seconds(1200)
        expected.presenceTimeout = .seconds(20)
        expected.onSuspend = .keep
        #expect(try session("preset = \"agora\"") == expected)
    }

    @Test func `zego gives up after 20 minutes and has a slower heartbeat`() throws {
        var expected = try session()
        expected.preset = .zego
        expected.reconnect.lostAfter = nil
        expected.reconnect.giveUpAfter = .seconds(1200)
        expected.heartbeat.interval = .seconds(30)
        expected.heartbeat.timeout = .seconds(10)
        expected.presenceTimeout = .seconds(90)
        expected.onSuspend = .keep
        #expect(try session("preset = \"zego\"") == expected)
    }

    @Test func `is overridden by a key wherever it stands`() throws {
        let main = try session("reconnect.give-up-after = \"5min\"\nheartbeat.interval = \"1s\"\npreset = \"zego\"")
        #expect(main.reconnect.giveUpAfter == .seconds(300))
        #expect(main.heartbeat.interval == .seconds(1))
        #expect(main.heartbeat.timeout == .seconds(10))
    }

    @Test func `can be overridden in every value`() throws {
        let main = try session(
            """
            preset = "livekit"
            on-suspend = "disconnect"
            [reconnect]
            give-up-attempts = "never"
            jitter = "0s"
            spread = "2s"
            lost-after = "10s"
            watch = "1s"
            """)
        #expect(main.reconnect.giveUpAttempts == nil)
        #expect(main.reconnect.jitter == .zero)
        #expect(main.reconnect.spread == .seconds(2))
        #expect(main.reconnect.lostAfter == .seconds(10))
        #expect(main.reconnect.watch == .seconds(1))
        #expect(main.onSuspend == .disconnect)
        #expect(try session("preset = \"nexconn\"\non-demand = false").rest.idleTimeout == nil)
    }

    // MARK: The waits between attempts

    static let table: [Duration] = [
        .milliseconds(50), .milliseconds(250), .milliseconds(500), .seconds(1), .seconds(2), .seconds(4), .seconds(8),
        .seconds(16), .seconds(32), .seconds(64), .seconds(64), .seconds(64),
    ]
    static let livekit: [Duration] = [0, 300, 1200, 2700, 4800, 7000, 7000, 7000, 7000, 7000].map { .milliseconds($0) }

    /// Twelve attempts fail for the same reason.
    ///
    /// - Returns: the waits before them, as far as it comes.
    private func waits(_ preset: Preset, after code: Reason.Code, seed: UInt64) throws -> [Duration] {
        let configuration = try session("preset = \"\(preset.rawValue)\"")
        var now = Instant(nanoseconds: 0)
        let path = Path(
            interface: "eth0", interfaceIndex: 2, type: .ethernet, source: "192.0.2.2", gateway: nil, table: 254)
        var machine = SessionMachine(
            policy: configuration.reconnect, timeouts: configuration.timeouts, heartbeat: configuration.heartbeat,
            rest: configuration.rest, paths: [path], seed: seed, at: now)
        var waits: [Duration] = []
        var generation = Generation(rawValue: 1)
        var actions: [SessionMachine.Action] = []
        machine.handle(.useBegan(.subscriptions), at: now, into: &actions)
        machine.handle(.connect(Reason(.userConnect)), at: now, into: &actions)
        machine.handle(.established(generation, resumed: false, serverKeepAlive: nil), at: now, into: &actions)
        machine.handle(.restored(generation), at: now, into: &actions)
        for _ in 0..<12 {
            machine.handle(.ended(generation, .init(Reason(code))), at: now, into: &actions)
            guard let retryAt = machine.status.retryAt else { break }
            waits.append(now.duration(to: retryAt))
            while machine.status.retryAt != nil, let deadline = machine.nextDeadline {
                now = max(now, deadline)
                machine.handle(.timeReached, at: now, into: &actions)
            }
            generation.rawValue += 1
        }
        return waits
    }

    @Test(arguments: [Preset.default, .agora, .zego, .nexconn])
    func `has exactly the table's waits without an answer`(preset: Preset) throws {
        #expect(try waits(preset, after: .unreachable, seed: 1) == Self.table)
    }

    @Test(arguments: [Reason.Code.unreachable, .serverClosed, .refused, .serverError], UInt64(1)...5)
    func `nexconn has the table's waits whatever the cause`(code: Reason.Code, seed: UInt64) throws {
        #expect(try waits(.nexconn, after: code, seed: seed) == Self.table)
    }

    @Test(arguments: [Preset.default, .agora, .zego], UInt64(1)...5)
    func `of default, agora or zego has random waits after a remote cause`(preset: Preset, seed: UInt64) throws {
        let waits = try waits(preset, after: .serverError, seed: seed)
        #expect(waits.count == 12)
        #expect(waits[0] <= .seconds(1))
        for (wait, entry) in zip(waits, Self.table).dropFirst() { #expect(wait <= entry) }
        #expect(waits != Self.table)
        #expect(Set(waits).count > 6)
    }

    @Test(arguments: [Reason.Code.unreachable, .serverError], UInt64(1)...20)
    func `livekit has its table's waits plus up to a second, ten times`(code: Reason.Code, seed: UInt64) throws {
        let waits = try waits(.livekit, after: code, seed: seed)
        #expect(waits.count == 10)
        for (wait, entry) in zip(waits, Self.livekit) { #expect((entry...entry + .seconds(1)).contains(wait)) }
        #expect(waits != Self.livekit)
    }
}
