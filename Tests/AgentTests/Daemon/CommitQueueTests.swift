import MQTT
import NIOCore
import NIOPosix
import Session
import SessionCore
import Support
import Testing

@testable import Agent
@testable import DurableStore

struct CommitQueueTests {
    /// What the queue reports to a test.
    private enum Event: Hashable, Sendable {
        case done(Int, CommitQueue.Outcome)
        case failing(StoreError?)
        case stalled(Bool)
        case leftOut
        case unfit
    }

    private struct Bench: Sendable {
        var store: DurableStore
        /// The event loop of the store.
        var disk: any EventLoop
        var queue: CommitQueue
        var events: Arrivals<Event>
        var main: SessionName

        /// Commits several batches in one turn of the loop, and waits for the last one.
        func commit(_ batches: [[SessionChange]], areCumulative: Bool = false) async throws {
            try await enqueue(batches, areCumulative)
            _ = try await events.first { event -> Bool? in
                if case .done(batches.count - 1, _) = event { true } else { nil }
            }
        }

        /// To be called on the loop.
        func note(_ number: Int, _ outcome: CommitQueue.Outcome) {
            events.assumeIsolated { $0.append(.done(number, outcome)) }
        }

        private func enqueue(_ batches: [[SessionChange]], _ areCumulative: Bool) async throws {
            try await queue.eventLoop.submit {
                queue.assumeIsolated { queue in
                    for (number, changes) in batches.enumerated() {
                        queue.commit(changes, of: main, isCumulative: areCumulative) { outcome in
                            events.assumeIsolated { $0.append(.done(number, outcome)) }
                        }
                    }
                }
            }.get()
        }

        var outcomes: [Event] {
            get async { await events.all.filter { if case .done = $0 { true } else { false } } }
        }
    }

    private static func run(
        patience: TimeAmount = .hours(1), _ body: (Bench) async throws -> Void
    ) async throws {
        let directory = try TemporaryDirectory()
        defer { directory.remove() }
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let loop = group.next()
        let disk = group.next()
        let store = try DurableStore(directory: directory.path, durability: .normal, executor: disk.executor)
        let events = Arrivals<Event>(eventLoop: loop)
        let queue = CommitQueue(store: store, eventLoop: loop, patience: patience) { failure in
            events.assumeIsolated { $0.append(.failing(failure)) }
        } stallChanged: { stall in
            events.assumeIsolated { $0.append(.stalled(stall != nil)) }
        } leftOut: { _, _ in
            events.assumeIsolated { $0.append(.leftOut) }
        } unfitMessage: { _, _ in
            events.assumeIsolated { $0.append(.unfit) }
        }
        try await body(
            Bench(
                store: store, disk: disk, queue: queue, events: events, main: try #require(SessionName("main"))))
        try await store.close()
        try await group.shutdownGracefully()
    }

    private static func insert(_ sequence: Int64) -> SessionChange {
        .mqtt(
            .insert(
                StoredMessage(
                    sequence: MessageSequence(rawValue: sequence),
                    message: OutboundMessage(topic: "t", payload: ByteBuffer(string: "\(sequence)")))))
    }

    @Test func `completions come in the order of the calls, after the changes are durable`() async throws {
        try await Self.run { bench in
            try await bench.commit((1...200).map { [Self.insert($0)] })
            #expect(await bench.outcomes == (0..<200).map { .done($0, .committed) })
            #expect(try await bench.store.session(bench.main).mqtt.queuedCount == 200)
        }
    }

    @Test func `changes that arrive during a transaction share the next one`() async throws {
        try await Self.run { bench in
            let before = await bench.store.statistics().commits.count
            try await bench.commit((1...1000).map { [Self.insert($0)] })
            #expect(await bench.store.statistics().commits.count - before <= 2)
        }
    }

    @Test func `a disk that takes nothing is told before there is a message`() async throws {
        try await Self.run { bench in
            await bench.queue.lookForRoom()
            #expect(await bench.queue.hindrance == nil)
            try await bench.store.setWritable(false)
            await bench.queue.lookForRoom()
            #expect(await bench.queue.hindrance != nil)
            #expect(await bench.events.all.count == 1)
            try await bench.store.setWritable(true)
            _ = try await bench.events.first { event -> Bool? in event == .failing(nil) ? true : nil }
            #expect(await bench.queue.hindrance == nil)
        }
    }

    @Test func `a call without changes completes after everything before it`() async throws {
        try await Self.run { bench in
            try await bench.commit([[Self.insert(1)], [], [Self.insert(2)], []])
            #expect(await bench.outcomes == (0..<4).map { .done($0, .committed) })
        }
    }

    @Test func `only the last cumulative call of a transaction completes`() async throws {
        try await Self.run { bench in
            try await bench.commit((1...200).map { [Self.insert($0)] }, areCumulative: true)
            #expect(await bench.outcomes == [.done(199, .committed)])
            #expect(try await bench.store.session(bench.main).mqtt.queuedCount == 200)
        }
    }

    @Test func `each refused message completes, even among cumulative calls`() async throws {
        try await Self.run { bench in
            try await bench.commit([[Self.insert(5)]])
            let changes: [[SessionChange]] = [
                [.mqtt(.setEstablished(true))], [.mqtt(.setEstablished(false))], [Self.insert(5)], [Self.insert(4)],
                [.mqtt(.setEstablished(true))], [],
            ]
            try await bench.commit(changes, areCumulative: true)
            #expect(
                await bench.outcomes.filter { $0 != .done(0, .committed) && $0 != .done(4, .committed) } == [
                    .done(1, .committed), .done(2, .committedWithoutInserts), .done(3, .committedWithoutInserts),
                    .done(5, .committed),
                ])
        }
    }

    @Test func `a call that is not cumulative is not overtaken by cumulative ones`() async throws {
        try await Self.run { bench in
            let loop = bench.queue.eventLoop
            let done = Arrivals<Int>(eventLoop: loop)
            try await loop.submit {
                bench.queue.assumeIsolated { queue in
                    queue.commit([Self.insert(1)], of: bench.main, isCumulative: true) { _ in done.note(1) }
                    queue.commit([Self.insert(2)], of: bench.main, isCumulative: true) { _ in done.note(2) }
                    queue.barrier(bench.main) { _ in done.note(3) }
                    queue.commit([Self.insert(3)], of: bench.main, isCumulative: true) { _ in done.note(4) }
                }
            }.get()
            try await bench.commit([[]])
            #expect(await done.all == [2, 3, 4])
        }
    }

    @Test func `a refused message is reported, and everything else is durable`() async throws {
        try await Self.run { bench in
            try await bench.commit([[Self.insert(5)]])
            // A sequence number that is not above the last one makes a message that the store cannot take.
            try await bench.commit([
                [.mqtt(.setEstablished(true))], [Self.insert(5), .mqtt(.setAssignedClientID("x"))], [],
            ])
            #expect(
                await bench.outcomes.suffix(3) == [
                    .done(0, .committed), .done(1, .committedWithoutInserts), .done(2, .committed),
                ])
            let session = try await bench.store.session(bench.main).mqtt
            #expect(session.established)
            #expect(session.assignedClientID == "x")
            #expect(session.queuedCount == 1)
            #expect(await bench.queue.failure == nil)
            #expect(await bench.queue.hindrance == nil, "the disk is well")
        }
    }

    @Test func `one session's row that does not fit is refused alone`() async throws {
        try await Self.run { bench in
            try await bench.commit([[Self.insert(5)]])
            let other = try #require(SessionName("other"))
            let done = Arrivals<CommitQueue.Outcome>(eventLoop: bench.queue.eventLoop)
            try await bench.queue.eventLoop.submit {
                bench.queue.assumeIsolated { queue in
                    queue.commit([Self.insert(1)], of: other) { done.note($0) }
                    queue.commit([Self.insert(5)], of: bench.main) { done.note($0) }
                    queue.commit([Self.insert(2)], of: other) { done.note($0) }
                }
            }.get()
            try await bench.commit([[]])
            #expect(await done.all == [.committed, .committedWithoutInserts, .committed])
            #expect(try await bench.store.session(other).mqtt.queuedCount == 2)
        }
    }

    @Test func `a change that can never be stored is left out, and the queue continues`() async throws {
        try await Self.run { bench in
            try await bench.store.execute(
                """
                CREATE TRIGGER mischief BEFORE INSERT ON inbound WHEN new.packet_id = 7
                BEGIN SELECT raise(ABORT, 'not this one'); END
                """)
            let id = try #require(PacketID(rawValue: 7))
            try await bench.commit([
                [Self.insert(1), .mqtt(.insertInbound(id)), .mqtt(.setEstablished(true))], [Self.insert(2)],
            ])
            let session = try await bench.store.session(bench.main).mqtt
            #expect(session.established)
            #expect(session.inboundIDs.isEmpty)
            #expect(await bench.outcomes == [.done(0, .committedWithoutInserts), .done(1, .committed)])
            let leftOut = await bench.events.all.contains { if case .leftOut = $0 { true } else { false } }
            #expect(leftOut)
        }
    }

    @Test func `a database that cannot be written refuses messages, and accepts them again afterwards`()
        async throws
    {
        try await Self.run { bench in
            try await bench.store.setWritable(false)
            let answers = Arrivals<String>(eventLoop: bench.queue.eventLoop)
            try await bench.queue.eventLoop.submit {
                bench.queue.assumeIsolated { queue in
                    queue.commit([Self.insert(1), .mqtt(.setEstablished(true))], of: bench.main) { error in
                        answers.note("refused \(error.code)")
                    } completion: {
                        answers.note("\($0)")
                    }
                    queue.barrier(bench.main) { error in answers.note("barrier \(error?.code ?? "")") }
                }
            }.get()
            _ = try await answers.first { $0.hasPrefix("barrier") ? true : nil }
            #expect(await answers.all == ["refused store-unwritable", "barrier store-unwritable"])
            #expect(await bench.queue.failure?.code == "store-unwritable")
            #expect(await bench.queue.refusal?.code == "store-unwritable")
            try await bench.store.setWritable(true)
            _ = try await answers.first { $0 == "committedWithoutInserts" ? true : nil }
            #expect(await bench.queue.failure == nil)
            #expect(await bench.queue.refusal == nil, "what hindered all transactions is over")
            try await bench.commit([[Self.insert(2)]])
            #expect(try await bench.store.session(bench.main).mqtt.queuedCount == 1)
            #expect(try await bench.store.session(bench.main).mqtt.established)
        }
    }

    /// Each failure is told, and each end, although no message is stored in between.
    @Test func `a failure without messages ends with the next transaction that succeeds`() async throws {
        try await Self.run { bench in
            for number in 1...2 {
                try await bench.store.setWritable(false)
                try await bench.queue.eventLoop.submit {
                    bench.queue.assumeIsolated { queue in
                        queue.commit([.mqtt(.setEstablished(true))], of: bench.main) { _ in }
                    }
                }.get()
                try await until("the failure is told") { await bench.events.all.count >= 2 * number - 1 }
                try await bench.store.setWritable(true)
                try await until("its end is told") { await bench.events.all.count >= 2 * number }
            }
            let told = await bench.events.all.map { $0 == .failing(nil) }
            #expect(told == [false, true, false, true])
        }
    }

    @Test func `while the disk does not answer, a commit waits and a person does not`() async throws {
        try await Self.run(patience: .milliseconds(20)) { bench in
            let standstill = Standstill(of: bench.disk)
            let stalled = StoreError.stalled(seconds: 0)
            try await bench.queue.eventLoop.submit {
                bench.queue.assumeIsolated { queue in
                    queue.commit([Self.insert(1)], of: bench.main) { outcome in
                        bench.events.assumeIsolated { $0.append(.done(1, outcome)) }
                    }
                }
            }.get()
            for _ in 1...2 {
                await #expect(throws: stalled) {
                    try await bench.queue.watch.answer { () throws(StoreError) in await bench.store.statistics() }
                }
            }
            #expect(await bench.queue.hindrance == stalled)
            #expect(await bench.events.all == [.stalled(true)])
            standstill.end()
            try await until("the disk has answered") { await bench.events.all.count >= 3 }
            #expect(Set(await bench.events.all.dropFirst()) == [.done(1, .committed), .stalled(false)], "in any order")
            #expect(await bench.queue.hindrance == nil)
            // On a busy machine the disk may be late once more.
            try await until("a person is answered again") {
                let answer = try? await bench.queue.watch.answer { () throws(StoreError) in
                    await bench.store.statistics()
                }
                return answer != nil
            }
        }
    }

    /// A publish that was refused may let another one with the same key go on, which commits something.
    @Test func `what is refused while it waits may be followed by a commit at once`() async throws {
        try await Self.run(patience: .milliseconds(20)) { bench in
            try await bench.store.setWritable(false)
            let standstill = Standstill(of: bench.disk)
            try await bench.queue.eventLoop.submit {
                bench.queue.assumeIsolated { $0.commit([Self.insert(1)], of: bench.main) { bench.note(1, $0) } }
            }.get()
            _ = try await bench.events.first { $0 == .stalled(true) ? true : nil }
            try await bench.queue.eventLoop.submit {
                bench.queue.assumeIsolated { queue in
                    let refused: @Sendable (StoreError) -> Void = { _ in
                        bench.queue.assumeIsolated { $0.commit([Self.insert(3)], of: bench.main) { bench.note(3, $0) } }
                    }
                    queue.commit([Self.insert(2)], of: bench.main, refused: refused) { bench.note(2, $0) }
                }
            }.get()
            standstill.end()
            _ = try await bench.events.first { if case .failing(.some) = $0 { true } else { nil } }
            try await bench.store.setWritable(true)
            _ = try await bench.events.first { $0 == .done(3, .committedWithoutInserts) ? true : nil }
            #expect(await bench.outcomes == (1...3).map { .done($0, .committedWithoutInserts) })
        }
    }

    @Test func `what is given up while it waits may be followed by a commit at once`() async throws {
        try await Self.run(patience: .milliseconds(20)) { bench in
            let guest = try #require(SessionName("guest"))
            let standstill = Standstill(of: bench.disk)
            try await bench.queue.eventLoop.submit {
                bench.queue.assumeIsolated { $0.commit([Self.insert(1)], of: guest) { bench.note(1, $0) } }
            }.get()
            _ = try await bench.events.first { $0 == .stalled(true) ? true : nil }
            try await bench.queue.eventLoop.submit {
                bench.queue.assumeIsolated { queue in
                    let refused: @Sendable (StoreError) -> Void = { _ in
                        bench.queue.assumeIsolated { $0.commit([Self.insert(2)], of: guest) { bench.note(2, $0) } }
                    }
                    queue.commit([Self.insert(1)], of: bench.main, refused: refused) { bench.note(3, $0) }
                }
            }.get()
            try await bench.queue.eventLoop.submit {
                bench.queue.assumeIsolated { queue in _ = Task { await queue.giveUp(bench.main) } }
            }.get()
            // The task has run when this has, because both run on the loop.
            try await bench.queue.eventLoop.submit {}.get()
            standstill.end()
            _ = try await bench.events.first { $0 == .done(2, .committed) ? true : nil }
            #expect(await bench.outcomes == [.done(1, .committed), .done(2, .committed)])
        }
    }

    @Test func `a failure ends with its cause, not with the refused messages`() async throws {
        try await Self.run { bench in
            try await bench.store.setWritable(false)
            let answers = Arrivals<String>(eventLoop: bench.queue.eventLoop)
            try await bench.queue.eventLoop.submit {
                bench.queue.assumeIsolated { queue in
                    queue.commit([Self.insert(1)], of: bench.main) { error in
                        answers.note("refused \(error.code)")
                    } completion: {
                        answers.note("\($0)")
                    }
                }
            }.get()
            _ = try await answers.first { $0 == "refused store-unwritable" ? true : nil }
            let before = await bench.store.statistics().commits.failed
            try await until("it was tried twice again, or there is an answer") {
                if await answers.all.count > 1 { return true }
                return await bench.store.statistics().commits.failed >= before + 2
            }
            #expect(await answers.all == ["refused store-unwritable"])
            #expect(await bench.queue.failure?.code == "store-unwritable")
            try await bench.store.setWritable(true)
            _ = try await answers.first { $0 == "committedWithoutInserts" ? true : nil }
            #expect(await bench.queue.failure == nil)
        }
    }

    @Test func `a message given up is not written later, and the others keep waiting`() async throws {
        try await Self.run { bench in
            let guest = try #require(SessionName("guest"))
            try await bench.store.setWritable(false)
            let answers = Arrivals<String>(eventLoop: bench.queue.eventLoop)
            try await bench.queue.eventLoop.submit {
                bench.queue.assumeIsolated { queue in
                    for (name, sequence) in [(bench.main, Int64(1)), (guest, 1)] {
                        queue.commit([.mqtt(.setEstablished(true))], of: name) { error in
                            answers.note("\(name) refused \(error.code)")
                        } completion: {
                            answers.note("\(name) \($0)")
                        }
                        queue.commit([Self.insert(sequence)], of: name) { _ in }
                    }
                    queue.barrier(bench.main) { error in answers.note("barrier \(error?.code ?? "")") }
                }
            }.get()
            _ = try await answers.first { $0.hasPrefix("barrier") ? true : nil }
            #expect(await bench.queue.giveUp(bench.main) == [.mqtt(.setEstablished(true))])
            #expect(await answers.all == ["barrier store-unwritable", "main refused store-unwritable"])
            // Commits like the driver that takes the place of the one that gave up.
            try await bench.queue.eventLoop.submit {
                bench.queue.assumeIsolated { queue in
                    queue.commit([.mqtt(.setEstablished(false))], of: bench.main) { answers.note("successor \($0)") }
                }
            }.get()
            try await bench.store.setWritable(true)
            _ = try await answers.first { $0 == "successor committed" ? true : nil }
            #expect(
                await answers.all == [
                    "barrier store-unwritable", "main refused store-unwritable", "guest committed",
                    "successor committed",
                ])
            #expect(try await !bench.store.session(bench.main).mqtt.established)
            #expect(try await bench.store.session(guest).mqtt.established)
        }
    }

    /// The batch is divided because of another session's message, and all of it that is not durable is given up.
    @Test func `what is given up is complete, also of a batch that is divided`() async throws {
        try await Self.run(patience: .milliseconds(20)) { bench in
            let guest = try #require(SessionName("guest"))
            try await bench.commit([[Self.insert(5)]])
            let standstill = Standstill(of: bench.disk)
            let answers = Arrivals<String>(eventLoop: bench.queue.eventLoop)
            let changes: [SessionChange] = [
                .mqtt(.setEstablished(true)), .removePublication("t"), .setPresenceTopics(["a"]),
            ]
            try await bench.queue.eventLoop.submit {
                bench.queue.assumeIsolated { queue in
                    queue.commit([Self.insert(5)], of: bench.main) { answers.note("main \($0)") }
                    for change in changes { queue.commit([change], of: guest) { answers.note("guest \($0)") } }
                }
            }.get()
            _ = try await bench.events.first { $0 == .stalled(true) ? true : nil }
            try await bench.queue.eventLoop.submit {
                bench.queue.assumeIsolated { queue in
                    _ = Task {
                        let given = await queue.giveUp(guest)
                        answers.note(given == changes ? "all" : "\(given)")
                    }
                }
            }.get()
            // The task has run when this has, because both run on the loop.
            try await bench.queue.eventLoop.submit {}.get()
            standstill.end()
            _ = try await answers.first { $0.hasPrefix("main") ? true : nil }
            #expect(await answers.all.sorted() == ["all", "main committedWithoutInserts"])
            #expect(try await bench.store.session(guest).presenceTopics.isEmpty)
        }
    }

    @Test(.timeLimit(.minutes(10)))
    func `a failure whose only changes were given up ends with its cause`() async throws {
        try await Self.run { bench in
            try await bench.store.setWritable(false)
            let answers = Arrivals<String>(eventLoop: bench.queue.eventLoop)
            try await bench.queue.eventLoop.submit {
                bench.queue.assumeIsolated { queue in
                    queue.commit([.mqtt(.setEstablished(true))], of: bench.main) { _ in }
                    queue.barrier(bench.main) { error in answers.note("barrier \(error?.code ?? "")") }
                }
            }.get()
            _ = try await answers.first { $0 == "barrier store-unwritable" ? true : nil }
            await bench.queue.giveUp(bench.main)
            try await bench.store.setWritable(true)
            try await until("the failure has ended") { await bench.queue.failure == nil }
            #expect(await bench.queue.refusal == nil)
        }
    }

    @Test func `messages that do not fit are told once, and say nothing about the disk`() async throws {
        try await Self.run { bench in
            try await bench.commit([[Self.insert(5)]])
            for _ in 1...3 { try await bench.commit([[Self.insert(5)]]) }
            try await bench.commit([[Self.insert(6)]])
            try await bench.commit([[Self.insert(6)]])
            #expect(await bench.events.all.filter { if case .done = $0 { false } else { true } } == [.unfit, .unfit])
            // The next failure of the disk is told.
            try await bench.store.setWritable(false)
            try await bench.queue.eventLoop.submit {
                bench.queue.assumeIsolated { $0.commit([Self.insert(7)], of: bench.main) { bench.note(7, $0) } }
            }.get()
            _ = try await bench.events.first { if case .failing(.some) = $0 { true } else { nil } }
            try await bench.store.setWritable(true)
            _ = try await bench.events.first { $0 == .failing(nil) ? true : nil }
        }
    }

    @Test func `while not even an acknowledgement can be stored, the status says so`() async throws {
        try await Self.run { bench in
            try await bench.store.setWritable(false)
            try await bench.queue.eventLoop.submit {
                bench.queue.assumeIsolated { queue in
                    queue.commit([.mqtt(.setEstablished(true))], of: bench.main) { bench.note(1, $0) }
                }
            }.get()
            _ = try await bench.events.first { if case .failing(.some) = $0 { true } else { nil } }
            #expect(await bench.queue.hindrance?.code == "store-unwritable")
            try await bench.store.setWritable(true)
            _ = try await bench.events.first { $0 == .done(1, .committed) ? true : nil }
            #expect(await bench.queue.hindrance == nil)
        }
    }

    @Test func `what a person waits for is answered when the disk does not answer`() async throws {
        try await Self.run(patience: .milliseconds(20)) { bench in
            let standstill = Standstill(of: bench.disk)
            let answers = Arrivals<String>(eventLoop: bench.queue.eventLoop)
            try await bench.queue.eventLoop.submit {
                bench.queue.assumeIsolated { queue in
                    queue.commit([.mqtt(.setEstablished(true))], of: bench.main) { bench.note(1, $0) }
                    queue.barrier(bench.main) { answers.note("patient \($0?.code ?? "durable")") }
                    queue.barrier(bench.main, isPatient: false) { answers.note("person \($0?.code ?? "durable")") }
                }
            }.get()
            _ = try await answers.first { $0 == "person store-stalled" ? true : nil }
            try await bench.queue.eventLoop.submit {
                bench.queue.assumeIsolated { queue in
                    queue.barrier(bench.main, isPatient: false) { answers.note("later \($0?.code ?? "durable")") }
                }
            }.get()
            #expect(await answers.all == ["person store-stalled", "later store-stalled"])
            standstill.end()
            _ = try await answers.first { $0 == "patient durable" ? true : nil }
            #expect(await answers.all.count == 3)
        }
    }

    @Test func `the last work does not wait for a disk that does not answer`() async throws {
        try await Self.run(patience: .milliseconds(20)) { bench in
            let isFirstDone = await bench.queue.watch.finish(bench.store, orStalledFor: .hours(1)) {
                _ = await bench.store.epoch
            }
            #expect(isFirstDone)
            let standstill = Standstill(of: bench.disk)
            let isDone = await bench.queue.watch.finish(bench.store, orStalledFor: .milliseconds(20)) {
                _ = await bench.store.epoch
            }
            #expect(!isDone)
            standstill.end()
        }
    }
}

extension Arrivals {
    /// Appends from the loop that they belong to.
    fileprivate nonisolated func note(_ element: Element) { assumeIsolated { $0.append(element) } }
}
