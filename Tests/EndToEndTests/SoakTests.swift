import ControlAPI
import Foundation
import HoldfastClient
import Support
import Testing

extension EndToEnd {
    @Suite struct Soak {}
}

extension EndToEnd.Soak {
    /// Four sessions with streams in both directions, and everything that can happen to a network, a server and a
    /// daemon, at random. See `SoakWorld` for the participants, `SoakFault` for the faults, `SoakStreams` for what is
    /// counted.
    ///
    /// In every second round the server may forget what it was told. In every round, the server must have acknowledged
    /// everything that was accepted of a session's messages, which its log shows.
    @Test func `no message is lost, doubled or out of order, whatever happens`() async throws {
        let plan = SoakPlan()
        try await withLab { lab, daemon in
            var soak = Soak(plan, try await SoakWorld(lab, daemon))
            try await soak.run()
        }
    }
}

private struct Soak {
    private let plan: SoakPlan
    private var world: SoakWorld
    private var moments: Moments
    private let streams: [SoakStreams]
    private var log = ServerLog()
    private var total = SoakStreams.Outcome()
    /// How often each fault happened, and how long it took at most after its end until a message of each session was
    /// through.
    private var faults: [SoakFault: (count: Int, longest: Duration)] = [:]
    private let sampler: MemorySampler

    init(_ plan: SoakPlan, _ world: SoakWorld) {
        self.plan = plan
        self.world = world
        moments = Moments(seed: plan.seed)
        sampler = MemorySampler(world.steady)
        streams = world.members.map { [far = world.far] in SoakStreams($0, far: far) }
    }

    mutating func run() async throws {
        print("Soak: \(plan.minutes.map { "\($0) minutes" } ?? "two rounds"), seed \(plan.seed)")
        try await world.start()
        for stream in streams { try await stream.consume() }
        let sampling = Task { [sampler] in await sampler.run() }
        defer { sampling.cancel() }
        var round = 0
        while await isGoingOn(after: round) {
            round += 1
            try await run(round: round)
        }
        let memory = await sampler.summary
        print(try await report(rounds: round, memory))
        #expect(total.violations.isEmpty, "\(total.violations.joined(separator: "\n"))")
        for qos in 1...2 { #expect(total.outward[qos] > 0 && total.inward[qos] > 0) }
        if plan.minutes != nil, let memory {
            #expect(Double(memory.last) <= Double(memory.first) * 1.1, "the memory of the steady daemon has grown")
        }
        for daemon in [world.killed, world.steady] { await daemon.client.close() }
        for stream in streams { await stream.end() }
    }

    private func isGoingOn(after rounds: Int) async -> Bool {
        guard let minutes = plan.minutes else { return rounds < 2 }
        return await sampler.time < .seconds(60 * minutes)
    }

    private mutating func run(round: Int) async throws {
        let isForgetful = round % 2 == 0
        for stream in streams { await stream.begin(round: round) }
        for fault in plan.faults(round: round, &moments) {
            try await moments.wait(upTo: plan.minutes == nil ? 300 : 3000)
            try await happen(fault, mayBeForgetful: isForgetful)
            let clock = ContinuousClock()
            let healed = clock.now
            // Now and then the next fault comes before everything has recovered.
            if plan.minutes == nil || Int.random(in: 0..<4, using: &moments) > 0 {
                try await world.connected()
                let time = healed.duration(to: clock.now)
                let longest = faults[fault]?.longest ?? .zero
                faults[fault]?.longest = max(time, longest)
            }
            try await read()
        }
        for stream in streams { await stream.stop() }
        try await world.connected()
        for stream in streams { try await stream.settle() }
        try await read()
        var outcome = SoakStreams.Outcome()
        for stream in streams { outcome.add(try await stream.check(isForgetful: isForgetful)) }
        total.add(outcome)
        let minutes = await sampler.time / .seconds(60)
        print(
            "round \(round), \(String(format: "%.1f", minutes)) min: out \(outcome.outward[1...]), in "
                + "\(outcome.inward[1...]), lost \(outcome.lost), twice \(outcome.twice), daemons "
                + "\(await world.steady.residentMemory ?? 0) and \(await world.killed.residentMemory ?? 0) KiB")
        for violation in outcome.violations { print("  \(violation)") }
    }

    /// Makes a fault happen and, one time out of four, another one elsewhere in the middle of it.
    private mutating func happen(_ fault: SoakFault, mayBeForgetful: Bool, isSecond: Bool = false) async throws {
        faults[fault, default: (0, .zero)].count += 1
        let length = plan.length(&moments)
        try await world.begin(fault, &moments)
        try await Task.sleep(for: length / 2)
        if !isSecond, plan.minutes != nil, Int.random(in: 0..<4, using: &moments) == 0 {
            let others = SoakFault.allCases.filter {
                $0.place != fault.place && (mayBeForgetful || !$0.isForgetful)
            }
            try await happen(
                others[Int.random(in: others.indices, using: &moments)], mayBeForgetful: mayBeForgetful, isSecond: true)
        }
        try await Task.sleep(for: length / 2)
        try await world.end(fault)
    }

    private mutating func read() async throws {
        var lines: [String: [ServerLog.Line]] = [:]
        try log.read(await world.server.logs) { lines[String($0.client), default: []].append($0) }
        for stream in streams { await stream.take(lines[stream.member.session] ?? []) }
    }

    private func report(rounds: Int, _ memory: (first: Int, last: Int)?) async throws -> String {
        // The daemon that was killed has restarted its counters each time.
        var (outages, resumed) = (Int64(0), Int64(0))
        for member in world.members where member.daemon === world.steady {
            let counters = try await world.steady.status(member.session).counters
            outages += counters.outages
            resumed += counters.resumes
        }
        let rows = faults.sorted { $0.key < $1.key }.map { fault, seen in
            let longest = seen.longest == .zero ? "-" : String(format: "%.1f s", seen.longest / .seconds(1))
            return "  \(fault.rawValue.padding(toLength: 32, withPad: " ", startingAt: 0)) \(seen.count)  \(longest)"
        }
        let memories = memory.map { ", \($0.first) KiB after five minutes, \($0.last) KiB at the end" }
        return """
            Soak: \(rounds) rounds, seed \(plan.seed), \(await sampler.time), \(streams.count) sessions
              fault, times, longest until a message of every session was acknowledged
            \(rows.joined(separator: "\n"))
              outward accepted: QoS 1 \(total.outward[1]), QoS 2 \(total.outward[2]); inward accepted: QoS 1 \
            \(total.inward[1]), QoS 2 \(total.inward[2])
              lost \(total.lost), QoS 2 twice or out of order \(total.twice), other violations \
            \(total.violations.count); identifiers that the server gave twice after a kill: \(total.confused)
              steady daemon: \(outages) outages, \(resumed) connections resumed\(memories ?? "")
            """
    }
}

/// Samples the memory of a daemon every five seconds. It is the clock of a soak too: time in which the machine was
/// stopped does not count.
private actor MemorySampler {
    private static let interval = Duration.seconds(5)
    private let daemon: DaemonProcess
    private var samples: [Int] = []
    private var count = 0

    init(_ daemon: DaemonProcess) {
        self.daemon = daemon
    }

    func run() async {
        while !Task.isCancelled {
            if let memory = await daemon.residentMemory { samples.append(memory) }
            count += 1
            try? await Task.sleep(for: Self.interval)
        }
    }

    var time: Duration { Self.interval * count }

    /// The medians of the minute after the first five minutes, and of the last minute, in KiB.
    var summary: (first: Int, last: Int)? {
        guard samples.count >= 72 else { return nil }
        return (median(samples[60..<72]), median(samples.suffix(12)))
    }

    private func median(_ numbers: ArraySlice<Int>) -> Int { numbers.sorted()[numbers.count / 2] }
}
