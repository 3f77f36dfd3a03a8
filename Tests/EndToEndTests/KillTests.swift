import ControlAPI
import Foundation
import HoldfastClient
import Support
import Testing

/// How often what is killed, and the seed of the moments. `HOLDFAST_KILLS="DAEMON SERVER SEED"` says otherwise; `make
/// soak-kills` sets it.
private struct KillPlan {
    var daemon = 6
    var server = 4
    var seed = UInt64(1)

    init() {
        guard let words = getenv("HOLDFAST_KILLS").map({ String(cString: $0).split(separator: " ") }) else { return }
        let numbers = words.compactMap { UInt64($0) }
        precondition(numbers.count == 3, "HOLDFAST_KILLS must be three numbers: of the daemon, of the server, a seed")
        daemon = Int(numbers[0])
        server = Int(numbers[1])
        seed = numbers[2]
    }
}

/// SplitMix64. Same seed, same moments; what they hit is up to the machine.
private struct Moments: RandomNumberGenerator {
    var state: UInt64

    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var value = state
        value = (value ^ (value >> 30)) &* 0xbf58_476d_1ce4_e5b9
        value = (value ^ (value >> 27)) &* 0x94d0_49bb_1331_11eb
        return value ^ (value >> 31)
    }

    mutating func wait(upTo milliseconds: Int) async throws {
        try await Task.sleep(for: .milliseconds(Int.random(in: 0...milliseconds, using: &self)))
    }
}

extension EndToEnd {
    @Suite struct Kills {}
}

extension EndToEnd.Kills {
    /// Streams of QoS 1 and 2 in both directions, while daemon and server are killed with kill -9.
    ///
    /// Outbound, everything that was accepted must have been acknowledged by the server in the end, in order, and no
    /// message of QoS 2 may come again once the server's receipt for it was used. The server itself may lose what it has
    /// acknowledged when it is killed, and this one does (it writes its state after it has answered): what counts is what
    /// it has received, and that is in its log.
    ///
    /// Inbound, a durable consumer gets every number, in order, and each of QoS 2 under one id: while only the daemon is
    /// killed none is missing and none was collected twice. This server, when it is killed, forgets what it was told, so
    /// of what comes after that only the consumer's own promises are checked.
    @Test func `streams in both directions lose nothing and repeat nothing when daemon and server are killed`()
        async throws
    {
        let plan = KillPlan()
        var moments = Moments(state: plan.seed)
        try await withLab { lab, daemon in
            // mosquitto 2.0.11 restores exchanges that were finished in the moment before it was killed, and counts them for
            // ever. When there are as many as it allows, it refuses everything with 0x97 and closes.
            var options = LabServer.Options()
            options.inFlight = 10_000
            let server = try await LabServer(lab, options)
            try await server.start()
            try daemon.session(heartbeat: "5s")
            try await daemon.start()
            let events = try await daemon.events()
            try await events.until(.connected)
            // mosquitto 2.0.11 writes no session to disk that began with Clean Start 1, as every first one does.
            _ = try await daemon.call(SessionReconnectMethod.self, .init(session: "main", mode: .quick))
            try await events.until("resumed") { $0.state == .connected && $0.resumed == true }
            let worker = Worker()
            let subscription = try await daemon.client.consume(
                session: "main", filter: "in/#", qos: .exactlyOnce, consumer: "worker")
            let working = Task { await worker.run(subscription) }
            defer { working.cancel() }

            let publisher = Publisher(
                daemon, topics: "out", isNumberInTopic: true, batch: 5, pause: .milliseconds(10))
            let publishing = Task { await publisher.run() }
            var feeders = try await Feeder.both(lab, from: 1)
            var reader = LogReader()
            var ledger = ServerLedger()
            let clock = ContinuousClock()
            let begun = clock.now

            for kill in 0..<plan.daemon {
                let count = await publisher.count
                try await until("\(kill): more is accepted") { await publisher.count >= count + 30 }
                try await moments.wait(upTo: 300)
                try await daemon.kill()
                try await daemon.start()
                if kill % 20 == 0 { try reader.read(await server.logs, into: &ledger) }
            }
            try await connected(daemon)
            for feeder in feeders { try await feeder.stop() }
            try await caughtUp(lab, worker)
            let inbound = await worker.done
            if plan.daemon > 0 { check(inbound) }

            // This mosquitto writes all its state for every message, and after a kill sends again what it has restored: a
            // faster stream would only grow its backlog.
            await publisher.slow(to: .milliseconds(100))
            for kill in 0..<plan.server {
                let count = await publisher.count
                feeders = try await Feeder.both(lab, from: 1_000_000 * (kill + 1), interval: 0.05)
                try await until("\(kill): more is accepted") { await publisher.count >= count + 30 }
                try await until("\(kill): the server has caught up", within: .seconds(300)) {
                    let status = try await daemon.status()
                    return status.state == .connected && status.outbox.queued < 50
                }
                try await moments.wait(upTo: 300)
                try await server.kill()
                for feeder in feeders { try await feeder.stop() }
                try await moments.wait(upTo: 200)
                try await server.start()
                try reader.read(await server.logs, into: &ledger)
            }

            await publisher.stop()
            await publishing.value
            try await until("the outbox is empty", within: .seconds(300)) {
                let outbox = try await daemon.status().outbox
                return outbox.queued == 0 && outbox.inFlight == 0
            }
            try reader.read(await server.logs, into: &ledger)
            let accepted = await publisher.accepted
            var lost: [String] = []
            for (stream, numbers) in accepted {
                let there = ledger.acknowledged[stream] ?? []
                lost += numbers.filter { !there.contains($0) }.map { "\(stream)/\($0)" }
            }
            #expect(lost.isEmpty, "\(lost.count) accepted and never acknowledged: \(lost.prefix(20))")
            #expect(ledger.faults.isEmpty, "\(ledger.faults.prefix(20).joined(separator: "\n"))")
            #expect(accepted.count == 2)
            print(
                """
                Kills: \(plan.daemon) of the daemon, \(plan.server) of the server, seed \(plan.seed), \
                \(clock.now - begun). Accepted: \(accepted.mapValues(\.count).sorted { $0.key < $1.key }). \
                Lost: \(lost.count). Faults: \(ledger.faults.count). PUBLISH of QoS 1: \(ledger.publishes[1]), \
                of QoS 2: \(ledger.publishes[2]), of which again after the server lost the session: \
                \(ledger.sentAgain). Connections resumed: \(ledger.resumed), anew: \(ledger.anew). Inbound while the \
                daemon was killed: \(inbound.count), with the server: \(await worker.done.count - inbound.count).
                """)
            #expect(await worker.doneAfterAcknowledgement.isEmpty, "an acknowledged message was given again")
            #expect(await worker.failure == nil)
            await daemon.client.close()
            await working.value
        }
    }

    private func connected(_ daemon: Daemon) async throws {
        try await until("the session is connected") { try await daemon.status().state == .connected }
    }

    /// Returns when everything that the server took from the feeders has been done.
    private func caughtUp(_ lab: Lab, _ worker: Worker) async throws {
        for qos in [1, 2] { try await LabClient(lab).publish("end", to: "in/\(qos)", qos: qos) }
        try await until("everything inbound is done", within: .seconds(300)) {
            Set(await worker.done.filter { $0.payload.text == "end" }.map(\.topic)).count == 2
        }
    }

    private func check(_ messages: [ReceivedMessage]) {
        for qos in [MessageQoS.atLeastOnce, .exactlyOnce] {
            let stream = messages.filter { $0.topic == "in/\(qos.rawValue)" && $0.payload.text != "end" }
            let identifiers = Dictionary(grouping: stream) { Int($0.payload.text ?? "") ?? 0 }
                .mapValues { Set($0.map(\.id)) }
            let missing = Set(1...max(1, identifiers.keys.max() ?? 1)).subtracting(identifiers.keys)
            #expect(missing.isEmpty, "inbound QoS \(qos.rawValue): missing \(missing.sorted().prefix(20))")
            let twice = identifiers.filter { $0.value.count > 1 }.keys
            #expect(twice.isEmpty || qos != .exactlyOnce, "collected twice with QoS 2: \(twice.sorted().prefix(20))")
            var seen: Set<Int64> = []
            let firsts = stream.filter { seen.insert($0.id).inserted }.compactMap { Int($0.payload.text ?? "") }
            // With QoS 1 the server may send again what it had sent, and all that followed it.
            #expect(firsts == firsts.sorted() || qos != .exactlyOnce, "inbound QoS 2 is not in order")
            print("Inbound QoS \(qos.rawValue): \(identifiers.count) numbers, collected twice \(twice.count)")
        }
    }
}

/// A client near the server that publishes a number at every interval, in seconds.
private struct Feeder {
    private let process: LabProcess

    static func both(_ lab: Lab, from first: Int, interval: Double = 0.01) async throws -> [Feeder] {
        [
            try await Feeder(lab, qos: 1, from: first, interval: interval),
            try await Feeder(lab, qos: 2, from: first, interval: interval),
        ]
    }

    private init(_ lab: Lab, qos: Int, from first: Int, interval: Double) async throws {
        // What counts dies of the broken pipe when the client is gone.
        process = try await lab.start(
            "feeder",
            [
                "bash", "-c",
                """
                exec mosquitto_pub -V 5 -l -q \(qos) -t in/\(qos) \
                < <(i=\(first); while echo $i; do i=$((i + 1)); sleep \(interval); done)
                """,
            ], in: lab.server)
    }

    func stop() async throws {
        try await process.killed()
    }
}
