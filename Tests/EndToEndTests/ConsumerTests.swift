import ControlAPI
import Foundation
import HoldfastClient
import Support
import Testing

/// Publishes numbered messages of QoS 1 and 2 from another host's daemon, which is never killed. It stays close to what
/// the consumer has taken: on a slow machine, the backlog would otherwise grow without bound.
private actor Source {
    let daemon: DaemonProcess
    private(set) var count = 0
    private(set) var failure: (any Error)?
    private var taken = 0
    private var isStopped = false

    init(_ daemon: DaemonProcess) {
        self.daemon = daemon
    }

    /// Notes how many numbers have been taken.
    func taken(_ count: Int) { taken = count }

    func run() async {
        do {
            try await publish()
        } catch {
            failure = error
        }
    }

    private func publish() async throws {
        while !isStopped {
            guard count < taken + 400 else {
                try await Task.sleep(for: .milliseconds(10))
                continue
            }
            let numbers = count..<(count + 10)
            let requests = numbers.flatMap { number in
                [QoS.atLeastOnce, .exactlyOnce].map { qos in
                    MessagePublishMethod.Parameters(
                        session: "source", topic: "stream/\(qos.rawValue)", payload: .init(text: "\(number)"), qos: qos)
                }
            }
            for answer in try await daemon.client.callInOrder(MessagePublishMethod.self, requests) {
                _ = try answer.get()
            }
            count = numbers.upperBound
        }
    }

    func stop() { isStopped = true }
}

extension EndToEnd {
    /// Runs a test with a consumer of `stream/#` and a source that publishes there from another daemon.
    private func withStream(
        _ body: (Lab, DaemonProcess, Source) async throws -> Void
    ) async throws {
        try await withServer { lab, _, daemon in
            try daemon.session(heartbeat: "5s")
            try await daemon.startConnected()
            let far = DaemonProcess(lab, name: "source", record: EventRecord())
            try far.session("source", heartbeat: "5s")
            try await far.start()
            let source = Source(far)
            try await body(lab, daemon, source)
        }
    }

    @Test func `a stream reaches a durable consumer whole even if daemon and program are killed`() async throws {
        try await withStream { lab, daemon, source in
            let worker = Worker()
            var client = DaemonProcess.client(at: daemon.socket)
            func work(_ client: HoldfastClient) -> Task<Void, Never> {
                Task {
                    await worker.run {
                        try await client.consume(session: "main", filter: "stream/#", qos: .exactlyOnce, consumer: "w")
                    }
                }
            }
            var working = work(client)
            try await until("the consumer is there") { try await daemon.status().inbox.consumers.count == 1 }
            let publishing = Task { await source.run() }
            func untilMore(_ what: String) async throws {
                let count = await worker.done.count
                do {
                    try await until(what) {
                        if let failure = await source.failure { throw failure }
                        if let failure = await worker.failure { throw failure }
                        let done = await worker.done.count
                        await source.taken(done / 2)
                        return done >= count + 200
                    }
                } catch {
                    let (published, done) = (await source.count, await worker.done.count)
                    let inbox = try await daemon.status().inbox
                    throw Lab.Failure("\(error); \(published) published twice, \(done) done, \(count) before; \(inbox)")
                }
            }
            var moments = Moments(seed: 1)
            for kill in 1...6 {
                try await untilMore("\(kill): more is done")
                try await moments.wait(upTo: 100)
                if kill % 2 == 0 {
                    // The program ends without notice; the messages that it held come again to the next one.
                    await client.close()
                    await working.value
                    client = DaemonProcess.client(at: daemon.socket)
                    working = work(client)
                } else {
                    try await daemon.kill()
                    try await daemon.start()
                }
            }
            try await untilMore("more is done")
            await source.stop()
            await publishing.value
            let last = await source.count
            #expect(await source.failure == nil)
            try await until("everything is done") {
                let (once, twice) = (await worker.numbers("stream/2"), await worker.numbers("stream/1"))
                return Set(once).count == last && Set(twice).count == last
            }
            try await until("the inbox is empty") { try await daemon.status().inbox.messages == 0 }
            #expect(await worker.doneAfterAcknowledgement.isEmpty, "an acknowledged message was given again")
            // One id for each number: each message got into the inbox exactly once.
            let messages = await worker.done.filter { $0.topic == "stream/2" }
            let identifiers = Dictionary(grouping: messages, by: { $0.payload.text }).mapValues { Set($0.map(\.id)) }
            #expect(identifiers.values.allSatisfy { $0.count == 1 }, "a QoS 2 message was collected twice")
            for message in Dictionary(grouping: messages, by: \.id).values {
                let first = message.dropFirst().first { !$0.duplicate }
                #expect(first == nil, "a repetition was not called one")
            }
            var seen: Set<Int> = []
            let first = await worker.numbers("stream/2").filter { seen.insert($0).inserted }
            #expect(first == first.sorted())
            #expect(await worker.failure == nil)
            await client.close()
            await working.value
        }
    }

    /// mosquitto does not keep a session that began with Clean Start 1.
    @Test func `what a server has queued for a session survives its restart, also before the first reconnect`()
        async throws
    {
        try await withServer { lab, server, daemon in
            try daemon.session()
            try await daemon.startConnected()
            let worker = Worker()
            let messages = try await daemon.client.consume(
                session: "main", filter: "stream/1", qos: .atLeastOnce, consumer: "w")
            let task = Task { await worker.run(messages) }
            try await server.publish("1", to: "stream/1")
            try await until("it is subscribed, and takes messages") { await worker.numbers("stream/1") == [1] }
            #expect(try await daemon.stop() == .exited(0))
            try await server.publish("7700123", to: "stream/1")
            try await server.hasPersisted("7700123")
            try await server.kill()
            try await server.start()
            try await daemon.start()
            try await until("what was queued arrives") { await worker.numbers("stream/1") == [1, 7_700_123] }
            await daemon.client.close()
            await task.value
        }
    }

    /// mosquitto sends a message once per subscription.
    @Test func `overlapping filters do not duplicate a message`() async throws {
        try await withStream { lab, daemon, _ in
            var workers: [(worker: Worker, task: Task<Void, any Error>)] = []
            for filter in ["stream/#", "stream/+", "stream/2"] {
                let worker = Worker()
                let name = "w\(workers.count)"
                let messages = try await daemon.client.consume(
                    session: "main", filter: filter, qos: .exactlyOnce, consumer: name)
                workers.append((worker, Task { await worker.run(messages) }))
            }
            let live = await Inbox(
                try await daemon.client.subscribe(.init(session: "main", filter: "stream/2", qos: .exactlyOnce)))
            for number in 1...20 { try await LabClient(lab).publish("\(number)", to: "stream/2", qos: 2) }
            for (worker, _) in workers {
                try await until("everything is done") { await worker.numbers("stream/2").last == 20 }
                #expect(await worker.numbers("stream/2") == Array(1...20))
            }
            try await live.until("20")
            #expect(await live.messages.count == 20)
            await daemon.client.close()
            for (_, task) in workers { try await task.value }
        }
    }

    @Test func `holdfastctl prints every message of a consumer, even if it or the daemon is killed`() async throws {
        try await withStream { lab, daemon, source in
            let words = [
                "\(DaemonProcess.programs)/holdfastctl", "subscribe", "main", "stream/2", "--qos", "2", "--consumer",
                "ctl",
                "--socket", daemon.socket,
            ]
            var printer = try await lab.start("holdfastctl", words, in: nil)
            try await until("the consumer is there") { try await daemon.status().inbox.consumers.count == 1 }
            let publishing = Task { await source.run() }
            var printed: [String] = []
            // A printer may be killed in the middle of a line.
            func lines() -> [String] {
                printer.output.split(separator: "\n", omittingEmptySubsequences: false).dropLast().map(String.init)
            }
            func untilPrinted(_ count: Int) async throws {
                try await until("more is printed") {
                    if let failure = await source.failure { throw failure }
                    let lines = lines().count
                    await source.taken(printed.count + lines)
                    return lines >= count
                }
            }
            for _ in 1...3 {
                try await untilPrinted(100)
                try await printer.killed()
                printed += lines()
                printer = try await lab.start("holdfastctl", words, in: nil)
                try await untilPrinted(50)
                try await daemon.kill()
                try await daemon.start()
            }
            await source.stop()
            await publishing.value
            let expected = Set((0..<(await source.count)).map { "stream/2 \($0)" })
            try await until("everything is printed") { Set(printed + lines()).isSuperset(of: expected) }
            printed += lines()
            // Every kill makes what was printed and not yet acknowledged come again, in order and without gaps.
            let numbers = printed.compactMap { Int($0.dropFirst("stream/2 ".count)) }
            #expect(numbers.count == printed.count && numbers.first == 0)
            let jumps = zip(numbers, numbers.dropFirst()).filter { $1 != $0 + 1 }
            #expect(jumps.count <= 6 && jumps.allSatisfy { $1 <= $0 }, "\(jumps)")
            let ending = try await daemon.ctl("unsubscribe", "main", "ctl")
            #expect(ending.ending == .exited(0), "\(ending.errors)")
            #expect(ending.output == "ctl is removed, with all messages waiting for it.\n")
            #expect(try await daemon.status().inbox.consumers.isEmpty)
            let failed = try await printer.ended(within: .seconds(180))
            #expect(failed == .exited(1))
        }
    }
}
