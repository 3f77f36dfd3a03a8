// A server may end every connection for one packet and not say which: by a plain close, a reset, a reason that could
// mean anything, or by never answering the packet. Then nothing behind that packet would ever arrive.
//
//     the same packet was the oldest unanswered one at three ends in a row
//       ─▶ what was unanswered goes out one by one, each on a connection that has proven to work
//       ─▶ what was alone when two such connections ended is set aside, with the reason
//
// One end while a packet is alone proves nothing: a cable is pulled, or a server restarted, at any moment. That this
// happens twice in the short time between the same packet and its answer is unlikely; and a server that crashes for a
// packet looks the same as one that is restarted, so no more can be asked for.
//
// An answer to that packet ends the suspicion, because another packet is then the oldest. Where a server leaves packets
// unanswered, and answers nothing else in between, the second one takes six ends, the third one twelve, and so on.
//
// A server may also say nothing any more once it has such a packet, and keep the connection open. A dead network, a
// stalled host and a stopped program look much the same, so this counts only with more proof, and for itself:
//
//     the server's host acknowledged the packet and a later PINGREQ, the server had answered on this connection, and
//     then nothing came: the same packet was the oldest unanswered one three times
//       ─▶ one by one, as above
//       ─▶ what was the only unanswered packet at three more such silences is set aside

/// The packet that was the oldest unanswered one when the last connections ended.
struct Suspicion: Sendable {
    enum Suspect: Hashable, Sendable {
        case message(MessageSequence)
        /// Each connection has announcements of its own, but their topics stay the same.
        case announcement(String)
        case filter(TopicFilter)

        var kind: MQTTClientMachine.Suspects {
            switch self {
            case .message: .messages
            case .announcement: .announcements
            case .filter: .filters
            }
        }
    }

    /// This many ends in a row are not a coincidence.
    static let patience = 3

    /// Nor are this many, if nothing else was unanswered and the connection had proven to work.
    static let patienceAlone = 2

    /// How many are not one, if this many packets of that kind were set aside without proof that the server answers any.
    static func patience(afterBlaming count: Int) -> Int { patience << min(count, 4) }

    private var suspect: Suspect?
    private var ends = 0

    /// How many ends in a row there would be with one more.
    func count(with suspect: Suspect) -> Int { suspect == self.suspect ? ends + 1 : 1 }

    mutating func ended(with suspect: Suspect) {
        ends = count(with: suspect)
        self.suspect = suspect
    }

    mutating func cleared() { self = Suspicion() }

    /// Whether at least so many connections in a row have ended with it.
    func isOf(_ suspect: Suspect, ends: Int) -> Bool { suspect == self.suspect && self.ends >= ends }

    /// The server has answered this. A message that was answered never comes again, but an announcement and a filter
    /// do, and a server that takes them does not end connections for them.
    mutating func answered(_ answered: Suspect) {
        if suspect == answered { cleared() }
    }
}

/// The packets that were unanswered when the last connections ended in one way.
struct Suspicions: Sendable {
    /// The oldest of them.
    var oldest = Suspicion()
    /// The only one, on a connection that had proven to work.
    var alone = Suspicion()

    func include(_ suspect: Suspicion.Suspect, ends: Int) -> Bool {
        oldest.isOf(suspect, ends: ends) || alone.isOf(suspect, ends: ends)
    }

    mutating func answered(_ suspect: Suspicion.Suspect) {
        oldest.answered(suspect)
        alone.answered(suspect)
    }
}

/// How far the server has proven, by its answer to a PINGREQ, that it has read what was sent before.
enum PingProof: Hashable, Sendable {
    case needed
    /// The answer is awaited.
    case awaited
    case given
}

/// How messages are sent one by one, to find the one that the server ends the connection for.
struct Isolation: Sendable {
    /// What a server does to a connection because of a packet.
    enum Symptom: Sendable {
        /// It ends the connection, or answers everything but the packet.
        case end
        /// It says nothing any more.
        case silence
    }

    /// What led to it. After silences alone, one end of a connection proves nothing yet.
    var symptom = Symptom.end
    /// While messages up to this one are unanswered each goes out alone.
    var through: MessageSequence?
    /// Whether announcements go out alone, until all are answered.
    var includesAnnouncements = false
    /// Whether the connection must answer a PINGREQ first: the server gave no reason, and the cause may not be a
    /// packet.
    var needsProof = false
    var proof = PingProof.needed

    var isUnderWay: Bool { through != nil || includesAnnouncements }
    var isUnproven: Bool { needsProof && proof != .given }

    mutating func begin(because symptom: Symptom, through last: MessageSequence?) {
        if !isUnderWay || symptom == .end { self.symptom = symptom }
        if let last { through = max(through ?? last, last) }
    }
}

extension MQTTClientMachine {
    /// How a connection ended, as far as it says something about what was sent on it.
    public enum EndCause: Hashable, Sendable {
        /// The server closed or reset it.
        case byServer
        /// We gave it up because the server did not answer in time.
        case unanswered
        /// We gave it up because nothing came from the server any more, not even the answer to a PINGREQ.
        case silent
    }

    /// What the end of a connection means for what was unanswered.
    public enum EndFinding: Hashable, Sendable {
        /// It may be about the oldest unanswered packet, which was the oldest at this many ends in a row.
        case suspected(ends: Int)
        /// From now on what was unanswered goes out one by one.
        case isolated
        /// It was about this: the beginning of a sentence that says what it is.
        case setAside(String)
    }

    /// What it would mean if the server ended the connection now; `nil` if nothing that was sent can be the reason.
    public var findingIfEnded: EndFinding? { reasonIfEnded == nil ? judgement(of: .everything)?.finding : nil }

    /// What the end of a connection may be about.
    struct Suspects: OptionSet, Hashable {
        let rawValue: Int

        static let messages = Suspects(rawValue: 1)
        static let announcements = Suspects(rawValue: 2)
        static let filters = Suspects(rawValue: 4)
        static let everything: Suspects = [.messages, .announcements, .filters]

        init(rawValue: Int) { self.rawValue = rawValue }

        /// What the server may have answered with this.
        init(at error: MalformedPacket) {
            switch error.kind {
            case .suback, .unsuback: self = .filters
            // These are no answers.
            case .publish, .pubrel: self = []
            default: self = .everything
            }
        }
    }

    private enum Culprit {
        case message(PacketID)
        /// The server owns these messages, and ends the connection for the rest of their exchanges.
        case releases([PacketID])
        case announcement(PacketID)
        case filter(TopicFilter)

        var kind: Suspects {
            switch self {
            case .message, .releases: .messages
            case .announcement: .announcements
            case .filter: .filters
            }
        }
    }

    private struct Judgement {
        var finding: EndFinding
        var suspect: Suspicion.Suspect?
        /// Where it is noted that the connection ended with this suspect.
        var record = \MQTTClientMachine.suspicions.oldest
        /// Whether the suspect, alone, is the reason.
        var isCertain = false
        var culprit: Culprit?
        /// The last of the messages that are under suspicion.
        var last: MessageSequence?
    }

    private func judgement(
        of suspects: Suspects, after symptom: Isolation.Symptom = .end, blamed: [Suspects: Int] = [:]
    ) -> Judgement? {
        guard case .connected = connection else { return nil }
        let onWire = outbox.inFlight.filter { $0.value.progress == .onWire }
        let messages = suspects.contains(.messages) ? onWire : [:]
        let announced = suspects.contains(.announcements) ? announcements.outstanding : [:]
        let last = messages.values.map(\.sequence).max()
        guard let suspect = oldest(messages, announced) else {
            // What was dropped is not sent again.
            if suspects.contains(.messages), !outbox.abandoned.isEmpty {
                return Judgement(finding: .suspected(ends: 1))
            }
            return suspects.contains(.filters) ? judgeRequests(after: symptom, blamed) : nil
        }
        let isAlone = isAlone(onWire.count + announcements.outstanding.count, after: symptom)
        var judgement = judgement(of: suspect, after: symptom, isAlone: isAlone, blamed)
        judgement.last = last
        if judgement.isCertain, let culprit = culprit(messages, announced) {
            judgement.culprit = culprit.0
            judgement.finding = .setAside(culprit.1)
        }
        return judgement
    }

    /// - Returns: a judgement without a culprit.
    private func judgement(
        of suspect: Suspicion.Suspect, after symptom: Isolation.Symptom, isAlone: Bool, _ blamed: [Suspects: Int]
    ) -> Judgement {
        var judgement = Judgement(finding: .suspected(ends: 1), suspect: suspect)
        switch symptom {
        case .end: judgement.record = isAlone ? \.suspicions.alone : \.suspicions.oldest
        case .silence: judgement.record = isAlone ? \.patience.silences.alone : \.patience.silences.oldest
        }
        let ends = self[keyPath: judgement.record].count(with: suspect)
        let needed =
            isAlone && symptom == .end
            ? Suspicion.patienceAlone : Suspicion.patience(afterBlaming: blamed[suspect.kind] ?? 0)
        judgement.isCertain = isAlone && ends >= needed
        judgement.finding = !isAlone && ends >= needed ? .isolated : .suspected(ends: ends)
        return judgement
    }

    /// Whether what is unanswered was sent alone, on a connection that had proven to work.
    private func isAlone(_ count: Int, after symptom: Isolation.Symptom) -> Bool {
        guard isolation.isUnderWay, symptom == .silence || isolation.symptom == .end else { return false }
        guard symptom == .end || patience.exchanges.count == count && patience.requests.count == 0 else { return false }
        // PUBREL does not wait for the proof.
        let areReleases = outbox.inFlight.allSatisfy { $0.value.progress != .onWire || $0.value.isReleased }
        return isolation.needsProof && (areReleases || count == 1 && isolation.proof == .given)
            && !link.reading.isInDoubt && outbox.abandoned.isEmpty
    }

    private func oldest(
        _ messages: [PacketID: Outbox.InFlight], _ announced: [PacketID: Announcement]
    ) -> Suspicion.Suspect? {
        let message = messages.values.min { ($0.place, $0.sequence) < ($1.place, $1.sequence) }
        let announcement = announced.min {
            (announcements.places[$0.key] ?? .max) < (announcements.places[$1.key] ?? .max)
        }
        guard let announcement, let place = announcements.places[announcement.key] else {
            return message.map { .message($0.sequence) }
        }
        if let message, message.place < place { return .message(message.sequence) }
        return .announcement(announcement.value.topic)
    }

    private func culprit(
        _ messages: [PacketID: Outbox.InFlight], _ announced: [PacketID: Announcement]
    ) -> (Culprit, String)? {
        if let (id, announcement) = announced.first, messages.isEmpty {
            return (.announcement(id), "the retained message on \(announcement.topic)")
        }
        guard announced.isEmpty, let (id, entry) = messages.min(by: { $0.value.sequence < $1.value.sequence }) else {
            return nil
        }
        if entry.isReleased {
            return (.releases(Array(messages.keys)), "the rest of an exchange whose message the server already has")
        }
        return (.message(id), "message \(entry.sequence)")
    }

    /// The same for requests that were not answered, if no message can be the reason.
    private func judgeRequests(after symptom: Isolation.Symptom, _ blamed: [Suspects: Int]) -> Judgement? {
        let suspects = subscriptions.suspects
        guard let suspect = suspects.min(by: Subscriptions.isBefore) else { return nil }
        let isAlone: Bool
        switch symptom {
        case .end:
            isAlone = subscriptions.isolation == .end && suspects.count == 1 && link.isProven
            guard isAlone else {
                let ends = subscriptions.endsUnanswered + 1
                let isEnough = ends >= Suspicion.patience(afterBlaming: blamed[.filters] ?? 0)
                return Judgement(finding: isEnough ? .isolated : .suspected(ends: ends))
            }
        case .silence:
            isAlone =
                subscriptions.isolates && suspects.count == 1 && patience.requests.count == 1
                && patience.exchanges.count == 0 && link.isProven
        }
        var judgement = self.judgement(of: .filter(suspect), after: symptom, isAlone: isAlone, blamed)
        if judgement.isCertain {
            let what = subscriptions.wanted[suspect] == nil ? "the UNSUBSCRIBE from" : "the subscription to"
            judgement.finding = .setAside("\(what) \(suspect)")
            judgement.culprit = .filter(suspect)
        }
        return judgement
    }

    /// Does what `findingIfEnded` says, because the connection ends and what was sent on it may be the reason.
    ///
    /// - Parameters:
    ///   - code: what the server said, if anything.
    ///   - words: why, as a sentence about the culprit.
    @discardableResult
    mutating func judgeEnd(
        _ code: ReasonCode?, _ words: String, of suspects: Suspects = .everything,
        after symptom: Isolation.Symptom = .end, _ step: inout Step
    ) -> EndFinding? {
        judge(code, words, of: suspects, after: symptom, &step)?.finding
    }

    /// - Returns: also what kind of packet was set aside, if any.
    mutating func judge(
        _ code: ReasonCode?, _ words: String, of suspects: Suspects, after symptom: Isolation.Symptom,
        blamed: [Suspects: Int] = [:], _ step: inout Step
    ) -> (finding: EndFinding, setAside: Suspects?)? {
        // Right after refusals for lack of room, a close without a code is explained by them.
        guard code != nil || reasonIfEnded == nil,
            let judgement = judgement(of: suspects, after: symptom, blamed: blamed)
        else {
            return nil
        }
        if let suspect = judgement.suspect {
            self[keyPath: judgement.record].ended(with: suspect)
        } else if outbox.abandoned.isEmpty || !suspects.contains(.messages) {
            subscriptions.endsUnanswered += 1
        }
        if judgement.finding == .isolated { isolate(judgement, after: symptom) }
        guard let culprit = judgement.culprit else { return (judgement.finding, nil) }
        self[keyPath: judgement.record].cleared()
        let said = code.flatMap { $0.isError ? $0 : nil }
        switch culprit {
        case .message(let id): setAside(id, said, words, &step)
        case .releases(let ids): for id in ids.sorted() { finishWithoutServer(id, &step) }
        case .announcement(let id):
            guard let announcement = announcements.outstanding.removeValue(forKey: id) else { break }
            identifiers.allocator.free(id)
            announcements.refuse(announcement.topic, said, at: step.now)
            step.emit(.announced(announcement, ServerAnswer(endedWith: said)))
        case .filter(let filter): refuse(filter, said, nil, &step)
        }
        return (judgement.finding, culprit.kind)
    }

    private mutating func isolate(_ judgement: Judgement, after symptom: Isolation.Symptom) {
        isolation.begin(because: symptom, through: judgement.last)
        isolation.needsProof = true
        // A silence says nothing about which of them it was.
        if symptom == .silence { patience.silences.oldest.cleared() }
        switch judgement.suspect {
        case .filter?, nil: subscriptions.isolate(because: symptom)
        case .announcement?: isolation.includesAnnouncements = true
        case .message?: break
        }
        if symptom == .silence, patience.requests.count > 0 { subscriptions.isolate(because: symptom) }
    }

    /// Has announcements go out alone, because one of them ended connections before.
    mutating func isolateAnnouncements() {
        isolation.begin(because: .end, through: nil)
        isolation.needsProof = true
        isolation.includesAnnouncements = true
    }

    /// Judges the end of a connection on which nothing came from the server any more.
    ///
    /// Only what its host has acknowledged can be the reason. That host acknowledged a PINGREQ that was sent later too,
    /// so the path was alive, and only the server's program was silent.
    mutating func judgeSilence(_ step: inout Step) -> EndFinding? {
        let sentAt = [patience.exchanges.oldest, patience.requests.oldest].compactMap { $0?.sentAt }.min()
        // A PINGREQ of the same moment was sent behind it: it goes out last.
        guard let sentAt, let first = link.pings.first, let last = link.pings.last, sentAt <= first.sentAt,
            patience.arrival.isCertain(last.sentAt)
        else { return nil }
        identifiers.mayEnd()
        return blame(
            .everything, "the server says nothing any more whenever it is sent this message", after: .silence, &step)
    }

    /// Ends the connection, because the server acknowledged a message with a packet that does not fit it. A server that
    /// did this on three connections will do it again and block what follows, so the message is set aside.
    mutating func answeredWrongly(_ id: PacketID, _ sentence: String, _ step: inout Step) {
        defer { violate(.protocolError, sentence, &step) }
        guard let entry = outbox.inFlight[id] else { return }
        let suspect = Suspicion.Suspect.message(entry.sequence)
        let isEnough = suspicions.oldest.count(with: suspect) >= Suspicion.patience
        suspicions.oldest.ended(with: suspect)
        guard isEnough else { return }
        suspicions.oldest.cleared()
        if entry.isReleased {
            finishWithoutServer(id, &step)
        } else {
            setAside(id, nil, sentence, &step)
        }
    }

    /// Finishes a message that the server owns, without asking the server to release it again.
    mutating func finishWithoutServer(_ id: PacketID, _ step: inout Step) {
        guard let entry = outbox.inFlight[id], entry.isReleased else { return }
        finish(id)
        retire(id, &step)
        delivered(entry.sequence, size: entry.size, entry.answer, &step)
    }

    /// Asks for proof that the connection works, once nothing waits to be sent and all requests were answered.
    mutating func proveIsolated(_ step: inout Step) {
        guard isolation.isUnproven, isolation.proof == .needed, isConnected, commits.work.isEmpty,
            isolation.through != nil || isolation.includesAnnouncements, subscriptions.requests.isEmpty,
            subscriptions.restoring == nil
        else { return }
        isolation.proof = .awaited
        ping(.isolation, &step)
    }
}
