import ControlAPI
import HoldfastClient
import Support

/// The streams of one session in a soak: QoS 1 and 2, from it and to it. Each round has streams of its own.
actor SoakStreams {
    /// The result of one round.
    struct Outcome {
        /// Messages that were accepted, by QoS: outward and inward.
        var outward = [0, 0, 0]
        var inward = [0, 0, 0]
        var lost = 0
        /// QoS 2 messages that came twice, and messages in the wrong order or place.
        var twice = 0
        /// Messages that cannot be told from others because the server forgot what it had sent.
        var confused = 0
        /// What must not happen, in words.
        var violations: [String] = []
    }

    nonisolated let member: SoakWorld.Member
    private let far: DaemonProcess
    private let worker = Worker()
    private var working: Task<Void, Never>?
    private var publisher: Publisher
    private var feeder: Publisher
    private var tasks: [Task<Void, Never>] = []
    private var round = 0
    private var outward = ServerLedger()
    private var inward = InboundLedger()
    private var faults = 0

    init(_ member: SoakWorld.Member, far: DaemonProcess) {
        self.member = member
        self.far = far
        publisher = Publisher(member.daemon, topics: "")
        feeder = publisher
    }

    /// Attaches the durable consumer, once.
    func consume() async throws {
        let subscription = try await member.daemon.client.consume(
            session: member.session, filter: "in/\(member.session)/#", qos: .exactlyOnce, consumer: "worker")
        working = Task { [worker] in await worker.run(subscription) }
    }

    func begin(round: Int) {
        self.round = round
        publisher = Publisher(
            member.daemon, session: member.session, topics: topics("out"), isNumberInTopic: true, batch: 1,
            pause: .milliseconds(150))
        feeder = Publisher(
            far, session: "far", topics: topics("in"), isNumberInTopic: true, batch: 1, pause: .milliseconds(150))
        tasks = [publisher, feeder].map { publisher in Task { await publisher.run() } }
    }

    func stop() async {
        await publisher.stop()
        await feeder.stop()
        for task in tasks { await task.value }
    }

    func take(_ lines: [ServerLog.Line]) {
        for line in lines {
            outward.take(line)
            inward.take(line)
        }
    }

    /// Waits until everything of the round is where it belongs. Both ends must be connected, and nothing may be
    /// published meanwhile.
    func settle() async throws {
        for daemon in [(member.daemon, member.session), (far, "far")] {
            try await until("the outbox of \(daemon.1) is empty", within: .seconds(300)) {
                let outbox = try await daemon.0.status(daemon.1).outbox
                return outbox.queued == 0 && outbox.inFlight == 0
            }
        }
        // The last message sent arrives last.
        for qos in [QoS.atLeastOnce, .exactlyOnce] {
            let last = "\(topics("in"))/\(qos.rawValue)/\(Self.last)"
            try await until("\(last) is published") {
                (try? await far.publish("\(Self.last)", to: last, session: "far", qos: qos, wait: .delivered)) != nil
            }
            try await until("\(last) is there", within: .seconds(300)) {
                await worker.done.contains { $0.topic == last }
            }
        }
        try await until("the inbox of \(member.session) is empty") {
            try await member.daemon.status(member.session).inbox.messages == 0
        }
    }

    /// Compares the accepted messages with those that arrived. The whole log has been read by then.
    ///
    /// - Parameter isForgetful: whether the server may have lost what it had acknowledged. If so, of the messages to
    ///   the session only those count that the session has acknowledged.
    func check(isForgetful: Bool) async throws -> Outcome {
        var outcome = Outcome()
        for (stream, numbers) in await publisher.accepted {
            outcome.outward[stream.hasSuffix("2") ? 2 : 1] += numbers.count
            let there = outward.acknowledged[stream] ?? []
            outcome.lose(numbers.filter { !there.contains($0) }.map { "\(stream)/\($0)" }, "accepted, not acknowledged")
        }
        let quarantined = try await member.daemon.status(member.session).outbox.quarantined
        if quarantined > 0 { outcome.violations.append("\(member.session): \(quarantined) in quarantine") }
        outcome.twice += outward.faults.count - faults
        outcome.violations += outward.faults.dropFirst(faults).prefix(10)
        faults = outward.faults.count

        outcome.confused = inward.confused.count { $0.stream.hasPrefix(topics("in") + "/") }
        let done = await worker.takeDone()
        for (stream, sent) in await feeder.accepted {
            let messages = done.filter { $0.topic.hasPrefix(stream + "/") }
            let qos = stream.hasSuffix("2") ? 2 : 1
            outcome.inward[qos] += sent.count
            let numbers = Set(messages.compactMap { Int($0.payload.text ?? "") })
            let taken = inward.acknowledged.subtracting(inward.confused).filter { $0.stream == stream }.map(\.number)
            let expected = isForgetful ? taken.sorted() : sent + [Self.last]
            outcome.lose(
                expected.filter { !numbers.contains($0) }.map { "\(stream)/\($0)" }, "not given to the consumer")
            if qos == 2 { compare(messages, stream, &outcome) }
            guard !isForgetful else { continue }
            var seen: Set<Int> = []
            let firsts = messages.compactMap { Int($0.payload.text ?? "") }.filter { seen.insert($0).inserted }
            if firsts != firsts.sorted() { outcome.violations.append("\(stream): not in order") }
        }
        let again = await worker.doneAfterAcknowledgement
        if !again.isEmpty { outcome.violations.append("\(member.session): given again after ack: \(again)") }
        if let failure = await worker.failure { outcome.violations.append("\(member.session): \(failure)") }
        return outcome
    }

    /// Checks that a message of QoS 2 was collected once for each time that the server began to send it.
    private func compare(_ messages: [ReceivedMessage], _ stream: String, _ outcome: inout Outcome) {
        let identifiers = Dictionary(grouping: messages) { Int($0.payload.text ?? "") ?? 0 }
            .mapValues { Set($0.map(\.id)).count }
        for (number, count) in identifiers.sorted(by: { $0.key < $1.key }) {
            let exchanges = inward.exchanges[.init(stream: stream, number: number)] ?? 0
            guard count > exchanges else { continue }
            outcome.twice += 1
            outcome.violations.append("\(stream)/\(number): collected \(count) times, sent \(exchanges) times")
        }
    }

    func end() async {
        await working?.value
    }

    /// The number of a round's last message.
    private static let last = 1_000_000

    private func topics(_ direction: String) -> String { "\(direction)/\(member.session)/\(round)" }
}

extension SoakStreams.Outcome {
    fileprivate mutating func lose(_ messages: [String], _ what: String) {
        lost += messages.count
        if !messages.isEmpty { violations.append("\(messages.count) \(what): \(messages.prefix(10))") }
    }

    mutating func add(_ other: Self) {
        for qos in 0...2 {
            outward[qos] += other.outward[qos]
            inward[qos] += other.inward[qos]
        }
        lost += other.lost
        twice += other.twice
        confused += other.confused
        violations += other.violations
    }
}
