import ControlAPI
import Foundation
import HoldfastClient
import Support
import Testing

/// How often the daemon and the server are killed, and the seed of the moments. `HOLDFAST_KILLS="DAEMON SERVER SEED"`
/// overrides it; `make soak-kills` sets that.
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

extension EndToEnd {
    @Suite struct Kills {}
}

extension EndToEnd.Kills {
    /// Streams of QoS 1 and 2 in both directions, while daemon and server are killed with kill -9.
    ///
    /// Outbound: in the end the server must have acknowledged everything that was accepted, in order, and no message of
    /// QoS 2 may come again once the server's receipt for it was used. When the server is killed, it may lose what it
    /// has acknowledged, and this one does, because it writes its state after it has answered. So what counts is what
    /// it has received, which its log says.
    ///
    /// Inbound: a durable consumer gets every number, in order, and each of QoS 2 under one id. While only the daemon
    /// is killed, none is missing and none is collected twice. When this server is killed, it forgets what it was told,
    /// so for everything after that only the consumer's own promises are checked.
    @Test func `streams in both directions lose and repeat nothing when daemon and server are killed`()
        async throws
    {
        let plan = KillPlan()
        var moments = Moments(seed: plan.seed)
        try await withLab { lab, daemon in
            // The server has its default window of 20. mosquitto 2.0.11 restores exchanges that ended just before it
            // was killed, and counts them forever. When there are as many of them as it allows, it refuses everything
            // with 0x97 and closes the connection, until the session is started again.
            let server = try await LabServer.started(lab)
            try daemon.session(heartbeat: "5s")
            let events = try await daemon.startConnected()
            // mosquitto 2.0.11 does not write a session to disk that began with Clean Start 1, as every first one does.
            _ = try await daemon.call(SessionReconnectMethod.self, .init(session: "main", mode: .quick))
            try await events.until("resumed") { $0.state == .connected && $0.resumed == true }
            let worker = Worker()
            let subscription = try await daemon.client.consume(
                session: "main", filter: "in/#", qos: .exactlyOnce, consumer: "worker")
            let working = Task { await worker.run(subscription) }
            defer { working.cancel() }

            let far = DaemonProcess(lab, name: "far", record: EventRecord())
            try far.session("far", heartbeat: "5s")
            try await far.start()
            let publisher = Publisher(
                daemon, topics: "out", isNumberInTopic: true, batch: 5, pause: .milliseconds(10))
            let publishing = Task { await publisher.run() }
            var feeder = Publisher(
                far, session: "far", topics: "in", isNumberInTopic: true, batch: 2, pause: .milliseconds(20))
            var feeding = Task { [feeder] in await feeder.run() }
            var log = ServerLog()
            var ledger = ServerLedger()
            let clock = ContinuousClock()
            let begun = clock.now

            for kill in 0..<plan.daemon {
                let count = await publisher.count
                try await until("\(kill): more is accepted") { await publisher.count >= count + 30 }
                try await caughtUp("\(kill)", daemon, publisher)
                try await moments.wait(upTo: 300)
                try await daemon.kill()
                try await daemon.start()
                if kill % 20 == 0 { try log.read(await server.logs) { if $0.client == "main" { ledger.take($0) } } }
            }
            await feeder.stop()
            await feeding.value
            let sent = await feeder.accepted
            if plan.daemon > 0 { try await check(worker, sent, await server.logs) }
            let inbound = await worker.done.count

            // This mosquitto writes its whole state for every message, and after a kill it sends again what it has
            // restored: a faster stream would only make its backlog grow.
            await publisher.slow(to: .milliseconds(100))
            feeder = Publisher(
                far, session: "far", topics: "in/again", isNumberInTopic: true, batch: 1, pause: .milliseconds(50))
            feeding = Task { [feeder] in await feeder.run() }
            for kill in 0..<plan.server {
                let count = await publisher.count
                try await until("\(kill): more is accepted") { await publisher.count >= count + 30 }
                try await caughtUp("\(kill)", daemon, publisher)
                try await moments.wait(upTo: 300)
                try await server.kill()
                try await moments.wait(upTo: 200)
                try await server.start()
                try log.read(await server.logs) { if $0.client == "main" { ledger.take($0) } }
            }

            await feeder.stop()
            await feeding.value
            await publisher.stop()
            await publishing.value
            try await until("the outbox is empty", within: .seconds(300)) {
                let outbox = try await daemon.status().outbox
                return outbox.queued == 0 && outbox.inFlight == 0
            }
            #expect(try await daemon.status().outbox.quarantined == 0)
            try log.read(await server.logs) { if $0.client == "main" { ledger.take($0) } }
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
                \(ledger.sentAgain). Refused for want of room: \(ledger.refused). Connections resumed: \
                \(ledger.resumed), new: \(ledger.fresh). Inbound while the daemon was killed: \(inbound), with the \
                server: \(await worker.done.count - inbound).
                """)
            #expect(await worker.doneAfterAcknowledgement.isEmpty, "an acknowledged message was given again")
            #expect(await worker.failure == nil)
            await daemon.client.close()
            await working.value
        }
    }

    /// Lets the server catch up: it writes its whole state for every message, and is slower than the daemon.
    private func caughtUp(_ kill: String, _ daemon: DaemonProcess, _ publisher: Publisher) async throws {
        await publisher.hold(true)
        try await until("\(kill): the server has caught up", within: .seconds(300)) {
            let status = try? await daemon.status()
            return status?.state == .connected && (status?.outbox.queued ?? .max) < 50
        }
        await publisher.hold(false)
    }

    /// Checks that everything that was sent to a durable consumer while its daemon was killed is there, each of QoS 2
    /// once.
    private func check(_ worker: Worker, _ sent: [String: [Int]], _ logs: [String]) async throws {
        #expect(sent.count == 2)
        for (stream, numbers) in sent.sorted(by: { $0.key < $1.key }) {
            try await until("all of \(stream) is done", within: .seconds(300)) {
                Set(await worker.numbers(of: stream)).isSuperset(of: numbers)
            }
            let messages = await worker.done.filter { $0.topic.hasPrefix(stream + "/") }
            let identifiers = Dictionary(grouping: messages) { Int($0.payload.text ?? "") ?? 0 }
                .mapValues { Set($0.map(\.id)) }
            let twice = identifiers.filter { $0.value.count > 1 }.keys.sorted()
            print("\(stream): sent \(numbers.count), collected twice \(twice.count)")
            // With QoS 1 the server may repeat what it had sent, with everything after it.
            guard stream.hasSuffix("2") else { continue }
            #expect(twice.isEmpty, "collected twice with QoS 2: \(twice.prefix(20))")
            for number in twice.prefix(3) { print(lines(of: "'\(stream)/\(number)'", in: logs)) }
            var seen: Set<Int64> = []
            let firsts = messages.filter { seen.insert($0.id).inserted }.compactMap { Int($0.payload.text ?? "") }
            #expect(firsts == firsts.sorted(), "\(stream) is not in order")
        }
    }

    /// Returns what the server has logged about a topic, and about the packets with the same identifiers.
    private func lines(of topic: String, in logs: [String]) -> String {
        logs.compactMap { try? String(contentsOfFile: $0, encoding: .utf8) }
            .flatMap { $0.split(separator: "\n") }
            .filter { $0.contains(topic) }
            .joined(separator: "\n")
    }
}
