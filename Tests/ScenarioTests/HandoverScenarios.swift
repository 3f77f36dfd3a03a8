import ControlAPI
import MQTT
import NIOCore
import SessionCore
import Support
import Testing

@testable import Agent
@testable import SimulationSupport

/// Make before break: the default route moves to another uplink and the old address stays, while messages stream in both
/// directions with QoS 1 and 2.
///
/// A packet takes 5 ms one way. From the move on, the second connection is there after 10 ms; the old one has finished
/// after 30, for QoS 2 takes two round trips; and the new one is connected after 40.
@Suite("Hand-over", .timeLimit(.minutes(10)))
struct HandoverScenarios {
    /// Milliseconds after the move, at which something else happens.
    static let moments = [0, 8, 11, 18, 23, 28, 33, 40]

    @Test func `no message is lost or doubled wherever in a stream the path moves, and the outage is a round trip`()
        async throws
    {
        try await Scenario.run { scenario in
            var stream = try await Stream(scenario)
            for moment in 0..<20 {
                await stream.host.forget()
                try await stream.run(scenario, 10)
                await scenario.sleep(.microseconds(Int64(moment * 500)))
                let dials = scenario.dials["A"]?.count ?? 0
                scenario.shift(stream.host)
                try await stream.run(scenario, 40)
                #expect(scenario.dials["A"]?.count == dials + 1)
                let outages = await stream.host.told(.reconnectCompleted)
                #expect(outages.count == 1)
                #expect((outages.first?.outage ?? 1) <= 0.0101, "the outage of move \(moment)")
                #expect(outages.first?.mode == .quick)
                let states = await stream.host.told(.stateChanged).filter { $0.from != $0.state }.compactMap(\.state)
                #expect(states == [.reconnecting, .connected])
                let reason = await stream.host.told(.stateChanged).first?.reason
                #expect(reason?.code == "path-moved")
                let status = try await stream.host.status()
                #expect(status.path?.source == scenario.path(of: "A")?.source)
                // The path must stay where it is for a while before the next move is followed at once.
                await scenario.sleep(.seconds(40))
            }
            try await stream.checkOnceAndInOrder(scenario)
            #expect(try await stream.host.status().counters.outages == 20)
        }
    }

    @Test(arguments: [(5, 50), (50, 5), (50, 50), (200, 5)] as [(Int64, Int64)])
    func `no message is lost or doubled whichever path is faster`(old: Int64, new: Int64) async throws {
        try await Scenario.run { scenario in
            var stream = try await Stream(scenario)
            scenario.shift(stream.host, latency: .milliseconds(old))
            await scenario.sleep(.seconds(40))
            for moment in [0, 3] {
                try await stream.run(scenario, 40)
                await scenario.sleep(.milliseconds(moment))
                scenario.shift(stream.host, latency: .milliseconds(new))
                // For most of the hand-over.
                try await stream.run(scenario, 60, pace: .milliseconds(5))
                scenario.shift(stream.host, latency: .milliseconds(old))
                await scenario.sleep(.seconds(40))
            }
            try await stream.checkOnceAndInOrder(scenario)
        }
    }

    @Test(arguments: [Scenario.Dialing.refused, .hangs])
    func `a path that leads nowhere changes nothing while the old connection works`(
        _ dialing: Scenario.Dialing
    ) async throws {
        try await Scenario.run { scenario in
            var stream = try await Stream(scenario)
            await stream.host.forget()
            let dials = scenario.dials["A"]?.count ?? 0
            scenario.shift(stream.host, dialing)
            try await stream.run(scenario, 40)
            await scenario.sleep(.seconds(60))
            try await stream.run(scenario, 40)
            await scenario.sleep(.seconds(1))
            let tries = (scenario.dials["A"]?.count ?? 0) - dials
            #expect((3...4).contains(tries), "the new path is tried less and less often")
            #expect(await stream.host.told(.stateChanged, .reconnectStarted).isEmpty)
            let status = try await stream.host.status()
            #expect(status.counters.outages == 0 && status.doubt == nil)
            try await stream.checkOnceAndInOrder(scenario)
        }
    }

    @Test(arguments: [Scenario.Dialing.refused, .hangs])
    func `a path that leads nowhere is used when it works, although it does not move`(
        _ dialing: Scenario.Dialing
    ) async throws {
        try await Scenario.run { scenario in
            var stream = try await Stream(scenario)
            await stream.host.forget()
            let dials = scenario.dials["A"]?.count ?? 0
            scenario.shift(stream.host, dialing)
            try await stream.run(scenario, 40)
            await scenario.sleep(.seconds(60))
            scenario.withUplink(stream.host) { $0.dialing = .works }
            await scenario.sleep(.seconds(45))
            try await stream.run(scenario, 40)
            let completed = await stream.host.told(.reconnectCompleted)
            #expect(completed.map(\.mode) == [.quick])
            let status = try await stream.host.status()
            #expect(status.path?.source == scenario.path(of: "A")?.source)
            await scenario.sleep(.seconds(600))
            #expect((scenario.dials["A"]?.count ?? 0) <= dials + 6, "the session is where it should be")
            try await stream.checkOnceAndInOrder(scenario)
        }
    }

    @Test func `a path that leads nowhere and strands the old connection causes an ordinary reconnect`() async throws {
        try await Scenario.run { scenario in
            var stream = try await Stream(scenario)
            scenario.shift(stream.host, strands: true, .hangs)
            try await stream.run(scenario, 20)
            let lost = try await stream.host.until(.reconnecting, within: .seconds(4))
            #expect(lost.reason?.code == "probe-timeout")
            scenario.shift(stream.host)
            try await stream.host.until(.connected, within: .seconds(2))
            await scenario.sleep(.seconds(5))
            try await stream.checkNothingLost(scenario)
        }
    }

    @Test func `an old connection that is stranded is left within seconds`() async throws {
        try await Scenario.run { scenario in
            var stream = try await Stream(scenario)
            let start = scenario.now
            scenario.shift(stream.host, strands: true)
            try await stream.run(scenario, 20)
            try await stream.host.until(.connected, within: .seconds(2))
            #expect(start.duration(to: scenario.now) < .milliseconds(1100))
            await scenario.sleep(.seconds(5))
            try await stream.checkNothingLost(scenario)
        }
    }

    @Test func `a connection that was silent before the path moved is not waited for`() async throws {
        try await Scenario.run { scenario in
            var stream = try await Stream(scenario)
            await stream.host.forget()
            let dials = scenario.dials["A"]?.count ?? 0
            scenario.strand(stream.host)
            try await stream.run(scenario, 100)
            #expect(try await stream.host.status().state == .connected)
            let start = scenario.now
            scenario.shift(stream.host, strands: true)
            try await stream.host.until(.connected, within: .seconds(1))
            #expect(start.duration(to: scenario.now) <= .microseconds(20_500), "TCP and CONNECT, two round trips")
            #expect(scenario.dials["A"]?.count == dials + 1)
            let outage = await stream.host.told(.reconnectCompleted).first?.outage
            #expect((outage ?? 1) <= 0.0105, "CONNECT")
            await scenario.sleep(.seconds(5))
            try await stream.checkNothingLost(scenario)
        }
    }

    @Test(arguments: moments)
    func `an old connection that breaks during a hand-over is replaced at once`(moment: Int) async throws {
        try await Scenario.run { scenario in
            var stream = try await Stream(scenario)
            await stream.host.forget()
            let dials = scenario.dials["A"]?.count ?? 0
            scenario.shift(stream.host)
            try await stream.run(scenario, moment, pace: .milliseconds(1))
            let wasLeft = moment >= 30
            scenario.resetOldest(stream.host)
            try await stream.run(scenario, 40)
            await scenario.sleep(.seconds(3))
            if !wasLeft {
                #expect(scenario.dials["A"]?.count == dials + 1, "the connection being set up is used")
                let outage = await stream.host.told(.reconnectCompleted).first?.outage
                #expect((outage ?? 1) <= 0.0205, "the rest of the dial, and CONNECT")
            }
            #expect(try await stream.host.status().state == .connected)
            try await stream.checkNothingLost(scenario)
        }
    }

    @Test(arguments: [ReasonCode.serverUnavailable, .unspecifiedError])
    func `a new connection that is refused is retried by the table, and no message is lost`(_ code: ReasonCode)
        async throws
    {
        try await Scenario.run { scenario in
            var stream = try await Stream(scenario)
            scenario.with { broker, _ in broker.refusals["a"] = code }
            scenario.shift(stream.host)
            try await stream.run(scenario, 40)
            #expect(try await stream.host.status().state == .reconnecting)
            scenario.with { broker, _ in broker.refusals = [:] }
            try await stream.host.until(.connected, within: .seconds(15))
            try await stream.run(scenario, 20)
            await scenario.sleep(.seconds(5))
            try await stream.checkOnceAndInOrder(scenario)
        }
    }

    @Test(arguments: moments)
    func `a take-over during a hand-over displaces the session unless the old connection was left`(moment: Int)
        async throws
    {
        try await Scenario.run { scenario in
            var stream = try await Stream(scenario)
            await stream.host.forget()
            scenario.shift(stream.host)
            try await stream.run(scenario, moment, pace: .milliseconds(1))
            // As the server does when another connection has the client identifier.
            scenario.with { broker, now in broker.disconnect("a", .sessionTakenOver, at: now) }
            await scenario.sleep(.seconds(300))
            let status = try await stream.host.status()
            let connects = scenario.broker().connects.count
            // In between, DISCONNECT arrives on a connection that was left already, and the newest one wins.
            if !(24...34).contains(moment) {
                #expect(status.state == .failed)
                #expect(status.reason?.code == "displaced")
                #expect(scenario.broker().isConnected("a") == false)
            } else {
                #expect(status.state == .connected)
            }
            scenario.shift(stream.host)
            await scenario.sleep(.seconds(60))
            if status.state == .failed { #expect(scenario.broker().connects.count == connects) }
            #expect(scenario.broker().violations.isEmpty)
        }
    }

    @Test func `a take-over by our own new connection does not displace the session`() async throws {
        try await Scenario.run { scenario in
            var stream = try await Stream(scenario)
            // The old path is so slow that the new connection is up before DISCONNECT arrives on the old one.
            scenario.shift(stream.host, latency: .milliseconds(400))
            await scenario.sleep(.seconds(40))
            for _ in 1...4 {
                try await stream.run(scenario, 30)
                scenario.shift(stream.host, latency: .milliseconds(1))
                try await stream.run(scenario, 30)
                await scenario.sleep(.seconds(40))
                #expect(try await stream.host.status().state == .connected)
                scenario.shift(stream.host, latency: .milliseconds(400))
                await scenario.sleep(.seconds(40))
            }
            try await stream.checkOnceAndInOrder(scenario)
        }
    }

    @Test(arguments: moments)
    func `disconnect wins at every point, and accepted messages are sent after the next connect`(moment: Int)
        async throws
    {
        try await Scenario.run { scenario in
            var stream = try await Stream(scenario)
            scenario.shift(stream.host)
            try await stream.run(scenario, moment, pace: .milliseconds(1))
            try await stream.host.disconnect()
            try await stream.run(scenario, 20)
            await scenario.sleep(.seconds(60))
            #expect(try await stream.host.status().state == .disconnected)
            #expect(!scenario.broker().isConnected("a"))
            try await stream.host.connect()
            await scenario.sleep(.seconds(5))
            #expect(try await stream.host.status().state == .connected)
            try await stream.checkNothingLost(scenario)
        }
    }

    @Test(arguments: moments)
    func `a second move during a hand-over is followed, and no message is lost`(moment: Int) async throws {
        try await Scenario.run { scenario in
            var stream = try await Stream(scenario)
            scenario.shift(stream.host)
            try await stream.run(scenario, moment, pace: .milliseconds(1))
            scenario.shift(stream.host, to: "wwan0")
            try await stream.run(scenario, 40)
            await scenario.sleep(.seconds(30))
            let status = try await stream.host.status()
            #expect(status.state == .connected)
            #expect(status.path?.interface == "wwan0")
            let isMidway = (26...40).contains(moment)
            if isMidway {
                // The attempt had no connection to fall back on.
                try await stream.checkNothingLost(scenario)
            } else {
                try await stream.checkOnceAndInOrder(scenario)
            }
        }
    }

    @Test(arguments: moments)
    func `a path that moves back during a hand-over loses no message`(moment: Int) async throws {
        try await Scenario.run { scenario in
            var stream = try await Stream(scenario)
            scenario.shift(stream.host)
            try await stream.run(scenario, moment, pace: .milliseconds(1))
            scenario.shift(stream.host)
            try await stream.run(scenario, 40)
            await scenario.sleep(.seconds(30))
            #expect(try await stream.host.status().state == .connected)
            #expect(try await stream.host.status().outbox.queued == 0, "held back messages are sent")
            if (26...40).contains(moment) {
                try await stream.checkNothingLost(scenario)
            } else {
                try await stream.checkOnceAndInOrder(scenario)
            }
        }
    }

    @Test(arguments: moments, [true, false])
    func `a daemon that ends during a hand-over loses no message`(moment: Int, isKilled: Bool) async throws {
        try await Scenario.run { scenario in
            var stream = try await Stream(scenario)
            scenario.shift(stream.host)
            try await stream.run(scenario, moment, pace: .milliseconds(1))
            if isKilled { await stream.host.kill() } else { await stream.host.stop() }
            try await stream.host.start()
            try await stream.host.until(.connected)
            await scenario.sleep(.seconds(5))
            try await stream.checkNothingLost(scenario, inbound: false)
        }
    }

    @Test(arguments: moments)
    func `an old address that leaves during a hand-over costs at most the rest of the dial`(moment: Int) async throws {
        try await Scenario.run { scenario in
            var stream = try await Stream(scenario)
            await stream.host.forget()
            let dials = scenario.dials["A"]?.count ?? 0
            scenario.shift(stream.host)
            try await stream.run(scenario, moment, pace: .milliseconds(1))
            scenario.dropOldAddress(of: stream.host)
            try await stream.run(scenario, 40)
            await scenario.sleep(.seconds(3))
            #expect(scenario.dials["A"]?.count == dials + 1, "the connection being set up is used")
            let outages = await stream.host.told(.reconnectCompleted)
            #expect(outages.count == 1)
            #expect((outages.first?.outage ?? 1) <= 0.0205, "the rest of the dial, and CONNECT")
            let told = await stream.host.told(.pathChanged).map(\.change)
            #expect(told == ["moved-source-kept", "moved-source-gone"].dropLast(moment < 30 ? 0 : 1))
            try await stream.checkNothingLost(scenario)
        }
    }

    @Test func `an old address that leaves while the hand-over waits costs four round trips`() async throws {
        try await Scenario.run { scenario in
            var stream = try await Stream(scenario)
            scenario.shift(stream.host)
            try await stream.run(scenario, 40)
            scenario.shift(stream.host)
            // The second hand-over is made five seconds after the first.
            try await stream.run(scenario, 500)
            #expect(try await stream.host.status().counters.outages == 1)
            await stream.host.forget()
            let dials = scenario.dials["A"]?.count ?? 0
            scenario.dropOldAddress(of: stream.host)
            try await stream.run(scenario, 40)
            await scenario.sleep(.seconds(20))
            #expect(scenario.dials["A"]?.count == dials + 1)
            let states = await stream.host.told(.stateChanged).filter { $0.from != $0.state }
            #expect(states.compactMap(\.state) == [.reconnecting, .connected])
            #expect(states.first?.reason?.code == "path-moved")
            let outage = await stream.host.told(.reconnectCompleted).first?.outage
            #expect((outage ?? 1) <= 0.0405, "TCP and CONNECT, and no delay")
            try await stream.checkNothingLost(scenario)
        }
    }

    @Test func `an old address that leaves after the hand-over does not affect the session`() async throws {
        try await Scenario.run { scenario in
            var stream = try await Stream(scenario)
            scenario.shift(stream.host)
            try await stream.run(scenario, 40)
            scenario.shift(stream.host, to: "wwan0")
            await scenario.sleep(.seconds(40))
            await stream.host.forget()
            for _ in 1...2 { scenario.dropOldAddress(of: stream.host) }
            try await stream.run(scenario, 40)
            await scenario.sleep(.seconds(60))
            #expect(await stream.host.told().isEmpty)
            try await stream.checkOnceAndInOrder(scenario)
        }
    }

    @Test func `uplinks that alternate every second lose no message, and cause few hand-overs`()
        async throws
    {
        try await Scenario.run { scenario in
            var stream = try await Stream(scenario)
            for _ in 0..<300 {
                scenario.shift(stream.host)
                try await stream.run(scenario, 1)
                await scenario.sleep(.milliseconds(990))
            }
            let counters = try await stream.host.status().counters
            #expect((4...8).contains(counters.outages), "\(counters.outages) in five minutes")
            try await stream.checkOnceAndInOrder(scenario)
        }
    }

    @Test func `other participants do not notice a hand-over`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", "room = \"r\"")
            let b = try await scenario.host("B", "room = \"r\"")
            try await a.until(.connected)
            try await b.until(.participantJoined)
            await scenario.sleep(.seconds(60))
            await b.forget()
            scenario.shift(a)
            await scenario.sleep(.seconds(600))
            #expect(try await a.status().counters.outages == 1)
            #expect(await b.told(.participantLeft, .participantJoined).isEmpty)
            #expect(try await b.participants() == ["a", "b"])
        }
    }
}

/// Messages in both directions, one of each kind after the other, and a count of those that arrived.
struct Stream {
    let host: Host
    private var sent = 0

    /// A host with a connected session, and a consumer of everything below `in`.
    init(_ scenario: isolated Scenario) async throws {
        // The model server does not respect our Receive Maximum.
        host = try await scenario.host("A", "mqtt.receive-maximum = 65535")
        try await host.until(.connected)
        try await host.subscribe("in/#", qos: .exactlyOnce)
        await scenario.sleep(.seconds(40))
    }

    /// Sends this many more of each kind.
    mutating func run(_ scenario: isolated Scenario, _ count: Int, pace: Duration = .milliseconds(2)) async throws {
        for _ in 0..<count {
            sent += 1
            for qos in [QoS.atLeastOnce, .exactlyOnce] {
                try await host.publish("out/\(qos.rawValue)", "\(sent)", qos: qos)
            }
            for qos in [QoS.atLeastOnce, .exactlyOnce] {
                scenario.with { broker, _ in broker.publish("in/\(qos.rawValue)", "\(qos.rawValue):\(sent)", qos: qos) }
            }
            await scenario.sleep(pace)
        }
    }

    func checkOnceAndInOrder(_ scenario: isolated Scenario) async throws {
        await scenario.sleep(.seconds(2))
        let all = Array(1...sent)
        for qos in 1...2 {
            #expect(Self.text(arrivedAtServer(scenario, qos)) == Self.text(all), "out, QoS \(qos)")
            #expect(Self.text(await arrivedAtHost(qos)) == Self.text(all), "in, QoS \(qos)")
        }
        #expect(scenario.broker().violations.isEmpty)
    }

    /// With QoS 1 a message may arrive twice.
    func checkNothingLost(_ scenario: isolated Scenario, inbound: Bool = true) async throws {
        await scenario.sleep(.seconds(2))
        let all = Array(1...max(1, sent)).prefix(sent)
        func first(_ numbers: [Int]) -> [Int] {
            var seen: Set<Int> = []
            return numbers.filter { seen.insert($0).inserted }
        }
        #expect(Self.text(first(arrivedAtServer(scenario, 1))) == Self.text(all), "out, QoS 1")
        #expect(Self.text(arrivedAtServer(scenario, 2)) == Self.text(all), "out, QoS 2")
        if inbound {
            #expect(Self.text(first(await arrivedAtHost(1))) == Self.text(all), "in, QoS 1")
            #expect(Self.text(await arrivedAtHost(2)) == Self.text(all), "in, QoS 2")
        }
        #expect(scenario.broker().violations.isEmpty)
    }

    private func arrivedAtServer(_ scenario: isolated Scenario, _ qos: Int) -> [Int] {
        scenario.broker().published.filter { $0.topic == "out/\(qos)" }.compactMap { Int(String(buffer: $0.payload)) }
    }

    private func arrivedAtHost(_ qos: Int) async -> [Int] {
        await host.received.filter { $0.hasPrefix("\(qos):") }.compactMap { Int($0.dropFirst(2)) }
    }

    /// Short, for a failing test: runs of numbers.
    private static func text(_ numbers: some Sequence<Int>) -> String {
        var runs: [ClosedRange<Int>] = []
        for number in numbers {
            if let last = runs.last, number == last.upperBound + 1 {
                runs[runs.count - 1] = last.lowerBound...number
            } else {
                runs.append(number...number)
            }
        }
        return runs.map { "\($0.lowerBound)-\($0.upperBound)" }.joined(separator: " ")
    }
}
