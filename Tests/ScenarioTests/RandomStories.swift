import ControlAPI
import Glibc
import MQTT
import NIOCore
import Support
import Testing
import Vocabulary

@testable import Agent
@testable import SessionCore
@testable import SimulationSupport

/// Generated stories: everything that can happen to a host, its daemon and its server, in an order drawn from a
/// seed. When all faults have healed, the session is connected, and no accepted message is missing.
@Suite("Random stories", .timeLimit(.minutes(60)))
struct RandomStories {
    /// A few in the suite; HOLDFAST_STORIES sets how many, HOLDFAST_STORY the first one.
    static let seeds: Range<Int> = {
        func number(_ name: String) -> Int? { getenv(name).flatMap { Int(String(cString: $0)) } }
        let first = number("HOLDFAST_STORY") ?? 0
        return first..<(first + (number("HOLDFAST_STORIES") ?? 15))
    }()

    @Test(arguments: seeds)
    func `no accepted message is lost, and everything heals`(seed: Int) async throws {
        try await Scenario.run { scenario in
            var story = try await RandomStory(seed: UInt64(seed), in: scenario)
            for _ in 1...40 { try await story.step(scenario) }
            try await story.heal(scenario)
            try await story.check(scenario)
        }
    }
}

/// One story: what was done so far, and what must be true of it.
struct RandomStory {
    private struct Accepted {
        var text: String
        var qos: QoS
    }

    private let host: Host
    private var random: SplitMix64
    private var accepted: [Accepted] = []
    private var lastNumber = 0
    /// A server that loses its sessions forgets which messages of QoS 2 it has seen.
    private var serverForgot = false
    private var isCut = false
    private var isServerUp = true
    private(set) var trace: [String] = []

    init(seed: UInt64, in scenario: isolated Scenario) async throws {
        random = SplitMix64(seed: seed)
        let room = Bool.random(using: &random) ? "room = \"r\"\n" : ""
        let kind = ["", "preset = \"zego\"\n", "[heartbeat]\ninterval = \"2s\"\ntimeout = \"1s\"\n"]
        host = try await scenario.host("A", room + (kind.randomElement(using: &random) ?? ""))
    }

    /// One thing happens, and some time passes.
    mutating func step(_ scenario: isolated Scenario) async throws {
        let what = Int.random(in: 0..<100, using: &random)
        switch what {
        case 0..<35: try await publish()
        case 35..<42: await toggleNetwork(scenario)
        case 42..<47: await move(scenario)
        case 47..<54:
            trace.append("silence")
            scenario.silence(host)
        case 54..<60:
            trace.append("unsilence")
            scenario.unsilence(host)
        case 60..<68: toggleServer(scenario)
        case 68..<73: try await killDaemon()
        case 73..<76: try await restartDaemon()
        case 76..<82: try await command()
        case 82..<90: endByServer(scenario)
        case 90..<93:
            trace.append("the host sleeps")
            try await host.sleep(for: .seconds(Int64.random(in: 1...600, using: &random)))
        case 93..<96:
            trace.append("the server forgets the session")
            serverForgot = true
            scenario.with { broker, now in
                broker.disconnect("a", nil, at: now)
                broker.forget("a")
            }
        default: break
        }
        let pauses: [Duration] = [.zero, .milliseconds(3), .milliseconds(30), .seconds(1), .seconds(20), .seconds(200)]
        await scenario.sleep(pauses.randomElement(using: &random) ?? .zero)
        try await checkStatus(scenario)
    }

    private mutating func publish() async throws {
        for _ in 1...Int.random(in: 1...4, using: &random) {
            lastNumber += 1
            let qos: QoS = Bool.random(using: &random) ? .exactlyOnce : .atLeastOnce
            trace.append("publish \(lastNumber) \(qos)")
            do {
                try await host.publish("out", "\(lastNumber)", qos: qos)
                accepted.append(Accepted(text: "\(lastNumber)", qos: qos))
            } catch let error as RPCError {
                trace.append("refused: \(error.message)")
            }
        }
    }

    private mutating func toggleNetwork(_ scenario: isolated Scenario) async {
        isCut.toggle()
        trace.append(isCut ? "cut" : "mend")
        if isCut { scenario.cut(host) } else { scenario.mend(host) }
    }

    private mutating func move(_ scenario: isolated Scenario) async {
        guard !isCut else { return }
        guard Bool.random(using: &random) else {
            trace.append("move")
            return scenario.move(host)
        }
        let strands = Bool.random(using: &random)
        let ways: [Scenario.Dialing] = [.works, .works, .hangs, .refused]
        let dialing = ways.randomElement(using: &random) ?? .works
        trace.append("move, the old address stays\(strands ? " and is stranded" : ""); the new path \(dialing)")
        scenario.shift(host, strands: strands, dialing)
    }

    private mutating func toggleServer(_ scenario: isolated Scenario) {
        isServerUp.toggle()
        if isServerUp {
            trace.append("server up")
            scenario.start()
        } else {
            let keeps = Bool.random(using: &random)
            trace.append("server down, keeping \(keeps)")
            if !keeps { serverForgot = true }
            scenario.stop(remembering: keeps ? .everything : .nothing)
        }
    }

    private mutating func killDaemon() async throws {
        trace.append("kill -9")
        await host.kill()
        try await host.start()
    }

    private mutating func restartDaemon() async throws {
        trace.append("restart")
        await host.stop()
        try await host.start()
    }

    private mutating func command() async throws {
        switch Int.random(in: 0..<5, using: &random) {
        case 0:
            trace.append("disconnect")
            try await host.disconnect()
        case 1, 2:
            trace.append("connect")
            try await host.connect()
        default:
            let mode: ReconnectMode? = [.quick, .full, nil].randomElement(using: &random) ?? nil
            trace.append("reconnect \(mode.map(\.rawValue) ?? "auto")")
            if mode == .full { serverForgot = true }
            _ = try? await host.reconnect(mode)
        }
    }

    private mutating func endByServer(_ scenario: isolated Scenario) {
        let codes: [ReasonCode?] = [
            nil, .serverShuttingDown, .serverBusy, .keepAliveTimeout, .unspecifiedError, .administrativeAction,
            .sessionTakenOver, .maximumConnectTime, .connectionRateExceeded, .notAuthorized,
        ]
        let code = codes.randomElement(using: &random) ?? nil
        trace.append("the server says \(code?.name ?? "nothing and closes")")
        scenario.with { broker, now in broker.disconnect("a", code, at: now) }
    }

    /// Status never lies: a connected session has heard the server lately, or reports doubt.
    private func checkStatus(_ scenario: isolated Scenario) async throws {
        let status = try await host.status()
        guard status.state == .connected, status.doubt == nil, let heard = status.lastHeard else { return }
        #expect(heard <= 41, "the preset's interval and timeout: \(trace.suffix(10))")
    }

    // MARK: The end

    mutating func heal(_ scenario: isolated Scenario) async throws {
        trace.append("everything heals")
        if isCut { await toggleNetwork(scenario) }
        scenario.unsilence(host)
        if !isServerUp { toggleServer(scenario) }
        // The server's last packets are still on their way, and may end the connection.
        await scenario.sleep(.seconds(60))
        try await host.connect()
        // The longest delay of the table, the busy server's floor, and the silence of a heartbeat.
        await scenario.sleep(.seconds(64 + 64 + 64 + 40))
    }

    func check(_ scenario: isolated Scenario) async throws {
        let status = try await host.status()
        #expect(status.state == .connected, "\(status.reason?.code ?? ""): \(trace.suffix(20))")
        #expect(status.outbox.queued == 0 && status.outbox.inFlight == 0, "\(trace.suffix(20))")
        let broker = scenario.broker()
        #expect(broker.violations.isEmpty, "\(broker.violations)")
        let arrived = broker.published.filter { $0.topic == "out" }.map { String(buffer: $0.payload) }
        let counts = arrived.reduce(into: [:]) { $0[$1, default: 0] += 1 }
        let missing = accepted.filter { counts[$0.text] == nil }.map(\.text)
        #expect(missing.isEmpty, "missing \(missing): \(trace)")
        if !serverForgot {
            let twice = accepted.filter { $0.qos == .exactlyOnce && counts[$0.text, default: 0] > 1 }.map(\.text)
            #expect(twice.isEmpty, "twice \(twice): \(trace)")
        }
        var seen: Set<String> = []
        let first = arrived.filter { seen.insert($0).inserted }.compactMap { Int($0) }
        #expect(first == first.sorted(), "out of order \(first): \(trace)")
    }
}
