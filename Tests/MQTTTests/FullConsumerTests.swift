import NIOCore
import Testing
import Vocabulary

@testable import MQTT

/// A consumer without a program fills up, which affects no other consumer.
@Suite struct `A consumer that is full` {
    private var harness: MQTTClientHarness
    private let abandoned: ConsumerName
    private let served: ConsumerName

    init() throws {
        abandoned = try #require(ConsumerName("abandoned"))
        served = try #require(ConsumerName("served"))
        harness = MQTTClientHarness { $0.inbox.messages = 3 }
        for name in [abandoned, served] {
            harness.handle(.consumer(name, .put(filter: "in", .exactlyOnce, matching: try TopicFilter("in"))))
        }
        harness.connect()
        harness.changes = []
    }

    @Test mutating func `loses its oldest messages, which are counted, while the server gets its acknowledgements`() {
        for number: UInt16 in 1...5 {
            #expect(harness.server(inbound("\(number)", qos: .atLeastOnce, number)).contains("PUBACK \(number)"))
            harness.handle(.consumer(served, .taken([taken(number)])))
        }
        #expect(harness.machine.backlog(of: abandoned).messages == 3)
        #expect(harness.machine.missed(by: abandoned) == 2)
        #expect(harness.machine.missed(by: served) == 0)
        #expect(harness.machine.inboxCounts.withheld == 0)
        let dropped = harness.changes.compactMap { change -> Int64? in
            if case .dropCollected(abandoned, let through, 1) = change { through.rawValue } else { nil }
        }
        #expect(dropped == [1, 2])
    }

    private func taken(_ sequence: UInt16) -> TakenMessage {
        TakenMessage(sequence: .init(rawValue: Int64(sequence)), size: 3)
    }

    @Test mutating func `is told once how many messages it lost`() {
        for number: UInt16 in 1...5 { harness.server(inbound("\(number)", qos: .atLeastOnce, number)) }
        harness.changes = []
        harness.handle(.consumer(abandoned, .toldMissed(2)))
        #expect(harness.machine.missed(by: abandoned) == 0)
        #expect(harness.changes == [.toldMissed(abandoned, 2)])
    }

    @Test mutating func `loses nothing of the commit under way`() {
        harness.holdsCommits = true
        harness.server(inbound("1", qos: .atLeastOnce, 1))
        // These wait for the first commit and are then committed together, at most as many as there is room for.
        for number: UInt16 in 2...9 { harness.server(inbound("\(number)", qos: .exactlyOnce, number)) }
        while !harness.heldCommits.isEmpty {
            harness.changes = []
            harness.commitAll()
            var collected: [Int64] = []
            var dropped: [Int64] = []
            for change in harness.changes {
                if case .collect(let message, _, _) = change { collected.append(message.sequence.rawValue) }
                if case .dropCollected(_, let through, _) = change { dropped.append(through.rawValue) }
            }
            #expect(collected.count <= 3)
            #expect(dropped.allSatisfy { $0 < collected.min() ?? .max })
        }
        #expect(harness.machine.backlog(of: abandoned).messages == 3)
        #expect(harness.machine.missed(by: abandoned) == 6)
    }

    @Test(arguments: [false, true])
    mutating func `loses nothing for a message that the disk refuses`(isTakenMeanwhile: Bool) throws {
        for number: UInt16 in 1...3 {
            harness.server(inbound("\(number)", qos: .atLeastOnce, number))
            harness.handle(.consumer(served, .taken([taken(number)])))
        }
        harness.holdsCommits = true
        harness.changes = []
        #expect(harness.server(inbound("4", qos: .atLeastOnce, 4)) == ["received 4", "commit"])
        #expect(harness.changes.contains(.dropCollected(abandoned, through: .init(rawValue: 1), count: 1)))
        if isTakenMeanwhile { harness.handle(.consumer(abandoned, .taken([taken(1)]))) }
        #expect(harness.machine.backlog(of: abandoned).messages == 3)
        let refused = try #require(harness.heldCommits.first)
        #expect(harness.handle(.committedWithoutInserts(refused)).contains("collecting paused"))
        #expect(harness.machine.backlog(of: abandoned).messages == (isTakenMeanwhile ? 2 : 3))
        #expect(harness.machine.missed(by: abandoned) == 0)
        harness.handle(.resumeCollecting)
        let words = harness.commitAll()
        #expect(words.contains("PUBACK 4"))
        #expect(words.contains("abandoned missed 1 to 1") == !isTakenMeanwhile)
        #expect(harness.machine.backlog(of: abandoned).messages == 3)
        #expect(harness.machine.missed(by: abandoned) == (isTakenMeanwhile ? 0 : 1))
    }

    @Test mutating func `loses nothing for a message that another consumer has no room for in this commit`() throws {
        harness.machine.configuration.inbox.messages = 1
        harness.server(inbound("1", qos: .atLeastOnce, 1))
        harness.handle(.consumer(served, .taken([taken(1)])))
        harness.holdsCommits = true
        harness.handle(.consumer(abandoned, .matching(nil)))
        // The first of these is in the commit under way, for which the others wait.
        for number: UInt16 in 2...3 { harness.server(inbound("\(number)", qos: .atLeastOnce, number)) }
        harness.handle(.consumer(abandoned, .matching(try TopicFilter("in"))))
        harness.server(inbound("4", qos: .atLeastOnce, 4))
        for dropped in [[served: 2], [abandoned: 1, served: 3]] as [[ConsumerName: Int64]] {
            harness.changes = []
            harness.commitAll()
            var found: [ConsumerName: Int64] = [:]
            for case .dropCollected(let name, let through, _) in harness.changes { found[name] = through.rawValue }
            #expect(found == dropped)
        }
    }

    @Test mutating func `counts a message that was dropped and acknowledged late only once`() {
        for number: UInt16 in 1...5 { harness.server(inbound("\(number)", qos: .atLeastOnce, number)) }
        harness.handle(.consumer(abandoned, .taken([taken(1), taken(3)])))
        #expect(harness.machine.backlog(of: abandoned).messages == 2)
    }

    @Test func `goes on after a restart with what is stored`() throws {
        let durable = DurableSession(
            established: true,
            consumers: [
                DurableConsumer(
                    name: abandoned, filter: "in", qos: .exactlyOnce,
                    runs: [
                        .init(through: .init(rawValue: 4), messages: 2, bytes: 20),
                        .init(through: .init(rawValue: 9), messages: 1, bytes: 10),
                    ], missed: 7)
            ], nextInboxSequence: .init(rawValue: 10))
        var harness = MQTTClientHarness(durable: durable) { $0.inbox.messages = 3 }
        harness.handle(.consumer(abandoned, .matching(try TopicFilter("in"))))
        harness.connect(resumed: true)
        #expect(harness.server(inbound("x", qos: .atLeastOnce, 1)).contains("abandoned missed 2 to 4"))
        #expect(harness.machine.missed(by: abandoned) == 9)
        #expect(harness.machine.backlog(of: abandoned).messages == 2)
    }

    @Test(arguments: UInt64(0)..<20)
    func `counts its messages correctly, however they come and go`(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        var backlog = ConsumerBacklog()
        var model: [(InboxSequence, Int)] = []
        var dropped: [(InboxSequence, Int)] = []
        let limits = MQTTClientMachine.InboxLimits(
            messages: 1 + Int(random.next() % 300), bytes: 1 + Int(random.next() % 4000))
        var sequence = InboxSequence.zero
        for _ in 0..<2000 {
            if random.next() % 3 > 0 {
                let size = 1 + Int(random.next() % 40)
                while !backlog.hasRoom(for: size, limits), let run = backlog.dropOldest() {
                    let gone = model.filter { $0.0 <= run.through }
                    #expect(gone.count == run.messages)
                    #expect(gone.reduce(0) { $0 + $1.1 } == run.bytes)
                    dropped += gone
                    model.removeFirst(gone.count)
                }
                sequence = InboxSequence(rawValue: sequence.rawValue + 1 + Int64(random.next() % 3))
                backlog.add(sequence, size, limits)
                model.append((sequence, size))
                #expect(backlog.messages <= limits.messages)
            } else if random.next() % 4 == 0 {
                if random.next() % 2 == 0 {
                    backlog.confirmDrops()
                } else {
                    backlog.undoDrops()
                    model = dropped + model
                }
                dropped = []
            } else if !dropped.isEmpty, random.next() % 4 == 0 {
                let (taken, size) = dropped.remove(at: Int(random.next() % UInt64(dropped.count)))
                backlog.remove(taken, size)
            } else if !model.isEmpty {
                let (taken, size) = model.remove(at: Int(random.next() % UInt64(model.count)))
                backlog.remove(taken, size)
            }
            #expect(backlog.messages == model.count)
            #expect(backlog.bytes == model.reduce(0) { $0 + $1.1 })
        }
    }
}
