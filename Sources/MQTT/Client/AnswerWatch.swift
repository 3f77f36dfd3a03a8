import NIOCore

/// The packets of one connection that wait for their answers, and since when, to detect a server that leaves one
/// unanswered and answers the rest.
struct AnswerWatch: Sendable {
    struct Awaited: Sendable {
        let id: PacketID
        let number: UInt64
        var sentAt: Timestamp
        /// When it was found that the server's host has it; `nil` if that is not known.
        var arrivedAt: Timestamp?
    }

    private var awaited = CircularBuffer<Awaited>(initialCapacity: 1)
    /// How many of them, from the first, are known to have arrived.
    private var arrivedCount = 0
    /// The number of the last unanswered packet with each identifier.
    private var numbers: [PacketID: UInt64] = [:]
    private(set) var lastNumber: UInt64 = 0

    /// What has waited longest.
    var oldest: Awaited? { awaited.first }
    /// How many packets it keeps, answered ones included.
    var keptCount: Int { awaited.count }
    var count: Int { numbers.count }

    mutating func sent(_ id: PacketID, at now: Timestamp) {
        lastNumber += 1
        numbers[id] = lastNumber
        awaited.append(Awaited(id: id, number: lastNumber, sentAt: now))
        dropAnswered()
        if awaited.count > 2 * numbers.count + 64 { dropAnsweredInBetween() }
    }

    /// Whether a packet with this identifier waits for its answer.
    func awaits(_ id: PacketID) -> Bool { numbers[id] != nil }

    mutating func answered(_ id: PacketID) {
        guard numbers.removeValue(forKey: id) != nil else { return }
        dropAnswered()
    }

    private mutating func dropAnswered() {
        while let first = awaited.first, numbers[first.id] != first.number {
            awaited.removeFirst()
            arrivedCount = max(0, arrivedCount - 1)
        }
    }

    /// Otherwise, all that is sent and answered while one packet stays unanswered would be kept.
    private mutating func dropAnsweredInBetween() {
        func isAwaited(_ entry: Awaited) -> Bool { numbers[entry.id] == entry.number }
        arrivedCount = awaited.prefix(arrivedCount).count(where: isAwaited)
        awaited = CircularBuffer(awaited.filter(isAwaited))
    }

    /// Notes that the server's host has everything that was sent before this time.
    mutating func arrived(_ sentBefore: Timestamp, at now: Timestamp) {
        while arrivedCount < awaited.count, awaited[offset: arrivedCount].sentAt < sentBefore {
            awaited[offset: arrivedCount].arrivedAt = now
            arrivedCount += 1
        }
    }

    mutating func connectionClosed() {
        awaited.removeAll()
        arrivedCount = 0
        numbers.removeAll()
    }

    /// Shifts the times, because the wall clock was set forward by this many milliseconds.
    mutating func shiftTimes(by milliseconds: Int64) {
        for index in awaited.indices {
            awaited[index].sentAt = awaited[index].sentAt.advanced(by: milliseconds)
            awaited[index].arrivedAt = awaited[index].arrivedAt?.advanced(by: milliseconds)
        }
    }
}

/// What is known about a server that does not answer.
struct Patience: Sendable {
    /// PUBLISH and PUBREL.
    var exchanges = AnswerWatch()
    /// SUBSCRIBE and UNSUBSCRIBE.
    var requests = AnswerWatch()
    /// How far what was sent has come.
    var arrival = Arrival()
    /// When a PINGREQ was sent after something had become overdue, and what had been sent by then.
    var probe: (sentAt: Timestamp, exchanges: UInt64, requests: UInt64)?
    /// Before this time, the server could not be heard, or not everything had been sent to it.
    var notBefore = Timestamp(rawValue: .min)
    /// How many packets of each kind were set aside for being unanswered since a message was last answered. If a server
    /// answers nothing at all, none of them is to blame. If it answers only what has no place in the window, they all are.
    /// So each further one of its kind takes twice as many connections to be set aside. A message that was left out does
    /// not delay this for one that silences the server: nothing behind that one would ever be answered.
    var blamed: [Isolation.Symptom: [MQTTClientMachine.Suspects: Int]] = [:]
    var silences = Suspicions()

    mutating func connectionClosed() {
        exchanges.connectionClosed()
        requests.connectionClosed()
        probe = nil
        arrival = Arrival()
        notBefore = Timestamp(rawValue: .min)
    }

    mutating func measured(acknowledged: Int, pending: Int, at now: Timestamp) {
        arrival.measured(acknowledged: acknowledged, pending: pending, at: now)
        guard let through = arrival.through else { return }
        exchanges.arrived(through, at: now)
        requests.arrived(through, at: now)
    }

    mutating func shiftTimes(by milliseconds: Int64) {
        exchanges.shiftTimes(by: milliseconds)
        requests.shiftTimes(by: milliseconds)
        arrival.shiftTimes(by: milliseconds)
        if let sentAt = probe?.sentAt { probe?.sentAt = sentAt.advanced(by: milliseconds) }
        if notBefore.rawValue != .min { notBefore = notBefore.advanced(by: milliseconds) }
    }
}

/// How much of what was sent has reached the server's host, as far as the transport can say.
struct Arrival: Sendable {
    /// How many bytes have arrived when all that was sent before the time has.
    private var mark: (end: Int, sentBefore: Timestamp)?
    /// Everything sent before this time has arrived; `nil` before the first measurement.
    private(set) var through: Timestamp?
    private(set) var measuredAt: Timestamp?

    /// Whether what was sent at this time is known not to have arrived, or may not have.
    func isOnItsWay(_ sentAt: Timestamp) -> Bool { through.map { $0 < sentAt } ?? false }

    /// Whether what was sent at this time is known to have arrived.
    func isCertain(_ sentAt: Timestamp) -> Bool { through.map { $0 > sentAt } ?? false }

    mutating func measured(acknowledged: Int, pending: Int, at now: Timestamp) {
        measuredAt = now
        if pending == 0 {
            through = now
        } else if let mark, acknowledged >= mark.end {
            through = mark.sentBefore
        } else if mark != nil {
            return
        }
        through = through ?? Timestamp(rawValue: .min)
        mark = (acknowledged + pending, now)
    }

    mutating func shiftTimes(by milliseconds: Int64) {
        if let mark { self.mark = (mark.end, mark.sentBefore.advanced(by: milliseconds)) }
        if let through, through.rawValue != .min { self.through = through.advanced(by: milliseconds) }
        measuredAt = measuredAt?.advanced(by: milliseconds)
    }
}

extension MQTTClientMachine {
    /// Notes how many bytes the server's host has acknowledged on this connection, and how many it has not. Call it
    /// before `timePassed`, where the transport can tell.
    public mutating func measured(acknowledged: Int, pending: Int, at now: Timestamp) {
        guard isConnected else { return }
        patience.measured(acknowledged: acknowledged, pending: pending, at: now)
    }

    /// When `timePassed` is due because an answer should have come; `nil` if there is nothing to wait for.
    public var nextDeadline: Timestamp? {
        guard isConnected else { return nil }
        return [answerDue, proofDue].compactMap(\.self).min()
    }

    /// When the answer to a PINGREQ is overdue on which what is sent next depends. Nothing else would notice that it
    /// does not come, since other packets may.
    private var proofDue: Timestamp? { proofAskedAt.map(pingDue) }

    private var proofAskedAt: Timestamp? { link.pings.first { $0.purpose.isAwaited }?.sentAt }

    private func pingDue(_ sentAt: Timestamp) -> Timestamp {
        max(sentAt, patience.notBefore).advanced(by: configuration.acknowledgeTimeout)
    }

    private var answerDue: Timestamp? {
        if let probe = patience.probe { return pingDue(probe.sentAt) }
        return [exchangesDue, requestsDue, looksDue].compactMap(\.self).min()
    }

    private var exchangesDue: Timestamp? { due(patience.exchanges, configuration.acknowledgeTimeout) }
    private var requestsDue: Timestamp? { due(patience.requests, configuration.requestTimeout) }

    /// When the oldest packet becomes overdue; `nil` if there is none, or if it may not have arrived yet. A server that is
    /// known to have the packet still gets at least half of the time limit for its answer.
    private func due(_ watch: AnswerWatch, _ timeout: Int64) -> Timestamp? {
        guard let oldest = watch.oldest else { return nil }
        let due = max(oldest.sentAt, patience.notBefore).advanced(by: timeout)
        guard patience.arrival.measuredAt != nil else { return due }
        return oldest.arrivedAt.map { max(due, $0.advanced(by: timeout / 2)) }
    }

    private var looksDue: Timestamp? {
        [
            lookDue(patience.exchanges, configuration.acknowledgeTimeout),
            lookDue(patience.requests, configuration.requestTimeout),
        ].compactMap(\.self).min()
    }

    /// When to find out whether the oldest packet has arrived. While more is sent all the time, the second look finds it.
    private func lookDue(_ watch: AnswerWatch, _ timeout: Int64) -> Timestamp? {
        guard let oldest = watch.oldest, oldest.arrivedAt == nil, let measuredAt = patience.arrival.measuredAt else {
            return nil
        }
        return max(oldest.sentAt, patience.notBefore, measuredAt).advanced(by: max(1, timeout / 4))
    }

    /// Whether an answer is overdue; returns what it is for, as the beginning of a sentence.
    private func overdue(at now: Timestamp) -> String? {
        if let due = exchangesDue, due <= now { return "a message" }
        if let due = requestsDue, due <= now {
            let request = patience.requests.oldest.flatMap { subscriptions.requests[$0.id] }
            return request?.isSubscribe == false ? "an UNSUBSCRIBE" : "a subscription"
        }
        return nil
    }

    /// Sends a PINGREQ to a server that is late. Gives up the connection if no PINGRESP comes, or if it comes without
    /// the overdue answer: the server reads in order.
    mutating func checkAnswers(_ step: inout Step) {
        guard isConnected else { return }
        // The transport was asked before this, and can no longer tell.
        if let due = looksDue, due <= step.now { patience.arrival = Arrival() }
        guard wantsToRead, patience.arrival.measuredAt != nil || outbox.backlog.bytes == 0 else {
            // The delay is ours, not the server's.
            patience.notBefore = step.now
            patience.probe = nil
            return
        }
        // The server cannot answer a PINGREQ that is still behind a large message on a slow link. If nothing arrives at
        // all any more, the session ends the connection.
        if let sentAt = [proofAskedAt, patience.probe?.sentAt].compactMap(\.self).min(),
            pingDue(sentAt) <= step.now, patience.arrival.isOnItsWay(sentAt)
        {
            patience.notBefore = step.now
            return
        }
        if let due = proofDue, due <= step.now {
            return giveUp("the server does not answer a PINGREQ", judgeSilence(&step), &step)
        }
        guard let what = overdue(at: step.now) else {
            // The answers came in the meantime, though not the one to the PINGREQ.
            patience.probe = nil
            return
        }
        if let probe = patience.probe {
            guard pingDue(probe.sentAt) <= step.now else { return }
            giveUp("the server answers neither \(what) nor a PINGREQ", judgeSilence(&step), &step)
        } else {
            patience.probe = (step.now, patience.exchanges.lastNumber, patience.requests.lastNumber)
            ping(.answer, &step)
        }
    }

    /// Handles PINGRESP: what was sent before the PINGREQ and is still unanswered will never be answered.
    mutating func probeAnswered(_ step: inout Step) {
        guard let probe = patience.probe else { return }
        patience.probe = nil
        guard let what = overdue(at: step.now) else { return }
        let isLeftOut =
            patience.exchanges.oldest.map { $0.number <= probe.exchanges } ?? false
            || patience.requests.oldest.map { $0.number <= probe.requests } ?? false
        guard isLeftOut else { return }
        let sentence = "the server leaves \(what) unanswered, although it answers a PINGREQ sent after it"
        giveUp(sentence, judgeUnanswered(&step), &step)
    }

    private mutating func giveUp(_ sentence: String, _ finding: EndFinding?, _ step: inout Step) {
        step.emit(.unanswered(sentence, finding))
        disconnectToReturn(&step)
    }

    mutating func judgeUnanswered(_ step: inout Step) -> EndFinding? {
        // While messages still have time, the connection ends because of a request.
        let isLate = exchangesDue.map { $0 <= step.now } ?? false
        if isLate { identifiers.mayEnd() }
        let suspects: Suspects = isLate ? .everything : [.announcements, .filters]
        return blame(suspects, "the server does not answer this message", after: .end, &step)
    }

    /// Judges what was not answered when the connection ends.
    mutating func blame(
        _ suspects: Suspects, _ words: String, after symptom: Isolation.Symptom, _ step: inout Step
    ) -> EndFinding? {
        let blamed = outbox.outstandingCount == 0 ? [:] : patience.blamed[symptom, default: [:]]
        guard let judged = judge(nil, words, of: suspects, after: symptom, blamed: blamed, &step) else { return nil }
        guard let kind = judged.setAside else { return judged.finding }
        patience.blamed[symptom, default: [:]][kind, default: 0] += 1
        // The messages behind it go out as usual again: if the next one is not answered either, other answers show
        // whether the server answers at all.
        isolation = Isolation()
        return judged.finding
    }
}
