// What the machine changes when the server ends a connection, so that it does not end the next one for the same reason:
// the measures of `Consequence.rows`.

extension MQTTClientMachine {
    /// What the machine has learned about the server. It is forgotten at another server, and after a day the next connection
    /// tries a little more again: a server may be configured differently by then.
    struct Lessons: Sendable {
        /// Set by 0x93 and 0x96: half of the window that was too large.
        var windowCap = Int.max
        /// Cleared by 0x94.
        var usesAliases = true
        /// Whether the server has answered a QoS 2 PUBLISH with PUBACK, as some servers without QoS 2 do. In MQTT 3.1.1
        /// they cannot say so beforehand: there is no Maximum QoS.
        var lowersQoS = false
        /// How often the server has ended a connection with 0x8D; from the second time on the keep-alive is capped.
        private var keepAliveTimeouts = 0
        private var keepAliveCap: UInt16?
        /// When the last of it was learned, or tried again.
        private var since: Timestamp?

        /// In seconds.
        private static let shortestKeepAlive: UInt16 = 5
        /// In milliseconds.
        private static let memory: Int64 = 86_400_000

        mutating func learned(at now: Timestamp) { since = now }

        /// Goes back by one step where the last lesson is old. If the server still objects, that costs one connection a day.
        mutating func relax(at now: Timestamp) {
            guard let since, now >= since.advanced(by: Self.memory) else { return }
            usesAliases = true
            windowCap = windowCap > Int(UInt16.max) / 2 ? .max : 2 * windowCap
            keepAliveCap = keepAliveCap.flatMap { $0 > UInt16.max / 2 ? nil : 2 * $0 }
            self.since = windowCap == .max && keepAliveCap == nil ? nil : now
        }

        /// Shifts the time, because the wall clock was set forward by this many milliseconds.
        mutating func clockStepped(by milliseconds: Int64) { since = since?.advanced(by: milliseconds) }

        /// The server's keep-alive or ours, capped at what was found to be short enough.
        func capped(_ keepAlive: UInt16) -> UInt16 {
            guard let keepAliveCap else { return keepAlive }
            return keepAlive == 0 ? keepAliveCap : min(keepAlive, keepAliveCap)
        }

        /// Caps the keep-alive from the second time on. Once may be chance: a host that was suspended, or a lost ping.
        mutating func shortenKeepAlive(from keepAlive: UInt16) -> UInt16? {
            keepAliveTimeouts += 1
            guard keepAliveTimeouts > 1 else { return nil }
            let present = keepAlive == 0 ? 60 : keepAlive
            let shorter = max(min(present, Self.shortestKeepAlive), present / 2)
            keepAliveCap = shorter
            return shorter
        }
    }

    /// Does what the reason code asks for, and returns what has changed.
    mutating func remedies(
        for disconnect: Disconnect, _ session: Connected, _ step: inout Step
    ) -> [Remedy] {
        let code = disconnect.reasonCode
        var remedies: [Remedy] = []
        let measures = Consequence.measures(for: code, in: .disconnect)
        if measures.contains(.halveWindow) {
            lessons.windowCap = max(1, window(session.limits) / 2)
            remedies.append(.window(lessons.windowCap))
        }
        if measures.contains(.noAliases) {
            lessons.usesAliases = false
            remedies.append(.noAliases)
        }
        if measures.contains(.shortenKeepAlive), let seconds = lessons.shortenKeepAlive(from: keepAlive) {
            remedies.append(.keepAlive(seconds))
        }
        if !remedies.isEmpty { lessons.learned(at: step.now) }
        if measures.contains(.quarantine) {
            let isAboutFilters = code == .topicFilterInvalid || code.isAboutSubscriptions
            let found =
                isAboutFilters
                ? blameFilter(code, disconnect.properties.reasonString, &step)
                : blameMessage(code, disconnect.properties.reasonString, &step)
            if let found { remedies.append(found) }
        }
        if measures.contains(.cleanStart), link.isFreshlyResumed, !remedies.contains(.isolation) {
            remedies.append(.cleanStart)
        }
        return remedies
    }

    /// Whether messages go out one by one, to find the one that the server ended the connection for. Anything announced
    /// meanwhile would be under suspicion as well.
    public var isIsolating: Bool {
        guard let last = isolation.through else { return false }
        return outbox.inFlight.contains { $0.value.sequence <= last }
            || outbox.first.map { $0.sequence <= last } ?? false
    }

    /// How far the server has read, as its answers show: it reads in order. A packet that gets no answer may be why a
    /// connection ended, as long as nothing behind it was answered.
    struct Reading: Sendable {
        /// PUBLISH packets of this connection.
        private var sent = 0
        private var lastUnanswerable = 0
        private var provenThrough = 0

        /// Whether a packet that gets no answer may be the reason.
        var isInDoubt: Bool { lastUnanswerable > provenThrough }

        /// Returns its place.
        mutating func send() -> Int {
            sent += 1
            return sent
        }

        mutating func sendUnanswerable() { lastUnanswerable = send() }

        mutating func answered(_ place: Int) { provenThrough = max(provenThrough, place) }
    }

    /// Finds the message that the server ended the connection for: the only one that is unanswered. If there are more,
    /// they go out one by one on the next connection, so that no innocent message is quarantined.
    private mutating func blameMessage(_ code: ReasonCode, _ sentence: String?, _ step: inout Step) -> Remedy? {
        let suspects = outbox.inFlight.filter { $0.value.progress == .onWire && !$0.value.isReleased }
        guard let last = suspects.map(\.value.sequence).max() else { return nil }
        // 0x81 and 0x82 may mean anything, unless the message was the first thing after a resume or went out alone.
        let isCertain =
            !Consequence.measures(for: code, in: .disconnect).contains(.failIfRepeated) || isolation.through != nil
            || link.isFreshlyResumed
        // It may have been an announcement, which is not a program's message, or a message of QoS 0, which is gone.
        // Both have to wait next time.
        guard suspects.count == 1, isCertain, announcements.outstanding.isEmpty, !link.reading.isInDoubt,
            outbox.abandoned.isEmpty,
            let suspect = suspects.first
        else {
            isolation.begin(because: .end, through: last)
            // Presence is announced on each connection: the message waits until that is answered.
            if !announcements.outstanding.isEmpty { isolation.needsProof = true }
            return .isolation
        }
        setAside(suspect.key, code, sentence ?? "the server ended the connection for this message", &step)
        return .quarantine
    }

    /// The same for a filter in a SUBSCRIBE. It stays wanted, and is asked for again after a long time, or when a
    /// program subscribes to it again.
    private mutating func blameFilter(_ code: ReasonCode, _ sentence: String?, _ step: inout Step) -> Remedy? {
        let suspects = subscriptions.suspects
        guard let suspect = suspects.first else { return nil }
        guard suspects.count == 1 else {
            subscriptions.isolate(because: .end)
            return .isolation
        }
        refuse(suspect, code, sentence, &step)
        return .quarantine
    }

    /// Notes that the server ends connections when it is asked for this filter, or asked to remove it: the next one does
    /// not ask again. The server may have granted the filter before, so it is still remembered.
    mutating func refuse(_ filter: TopicFilter, _ code: ReasonCode?, _ sentence: String?, _ step: inout Step) {
        guard subscriptions.wanted[filter] != nil else { return subscriptions.leave(filter, at: step.now) }
        let answer = ServerAnswer(endedWith: code, sentence?.plain())
        let isNews = subscriptions.note(answer, of: filter, endedConnections: true, at: step.now)
        step.emit(.subscribed(filter, answer))
        if isNews { step.emit(.subscriptionChanged(filter)) }
    }

    // MARK: Packet identifiers

    /// Makes sure that nothing is sent with this identifier in this session any more.
    mutating func retire(_ id: PacketID, _ step: inout Step) {
        identifiers.retire(id)
        step.changes.append(.retireIdentifier(id))
    }

    /// The server holds on to an identifier that we think is free. The first time, the identifier is retired; if that
    /// happens again in the same session, something else is wrong, and a new session is begun. Returns whether the
    /// connection continues.
    mutating func identifierIsTaken(_ id: PacketID, _ step: inout Step) -> Bool {
        retire(id, &step)
        identifiers.clashes += 1
        guard identifiers.clashes > 1 else { return true }
        step.emit(.stateMismatch("the server has \(identifiers.clashes) packet identifiers in use that are free here"))
        disconnectToReturn(&step)
        return false
    }
}

extension ReasonCode {
    /// Whether it names something that the server does not offer to any subscription.
    fileprivate var isAboutSubscriptions: Bool {
        self == .sharedSubscriptionsNotSupported || self == .subscriptionIdentifiersNotSupported
            || self == .wildcardSubscriptionsNotSupported
    }
}
