// A person can drop any message, even one that is on its way and that the server never answers.
//
//     quarantined, queued           it is gone
//     sent, not answered            it is not sent again; the server may have it, or still take it
//     past PUBREC                   the server owns it: it counts as delivered, and its exchange is finished
//
// What was sent on this connection has a place in the server's window until the server answers it or the connection
// ends, and its identifier is not used for anything else until then. That of a QoS 2 message is not used again until
// the session ends: the server would take the next message with it for the one that was dropped.

extension MQTTClientMachine {
    /// What became of a message that a person dropped.
    public enum Discarded: Hashable, Sendable {
        /// It is not sent, or not sent again: `dropped` is reported.
        case dropped
        /// The server already owned it: `delivered` is reported.
        case delivered
        /// It is a QoS 0 message that the transport already has.
        case isWithTransport
        /// It was delivered, or rejected, just now.
        case isGone
    }

    /// Drops a message, and returns what became of it.
    ///
    /// The caller must have read the message from the store after every earlier commit, and `queueVersion` must be what
    /// it was before that read.
    public mutating func discard(
        _ stored: StoredMessageSummary, at now: Timestamp, into actions: inout [Action]
    ) -> Discarded {
        step(at: now, into: &actions) { $0.discard(stored, &$1) }
    }

    private mutating func discard(_ stored: StoredMessageSummary, _ step: inout Step) -> Discarded {
        if let id = outbox.packetID(of: stored.sequence) { return discardInFlight(id, stored, &step) }
        switch stored.state {
        case .inFlight, .released: return .isGone
        case .quarantined: outbox.counts.quarantined -= 1
        case .queued:
            if stored.sequence > outbox.readAhead.loadedThrough {
                outbox.readAhead.makeLoadStale()
            } else if !outbox.readAhead.remove(stored.sequence), !outbox.removeRefused(stored.sequence) {
                return stored.qos == .atMostOnce ? .isWithTransport : .isGone
            }
            outbox.leaveQueue(size: stored.size)
        }
        drop(stored.sequence, stored.topic, size: stored.size, because: .discarded, &step)
        return .dropped
    }

    private mutating func discardInFlight(
        _ id: PacketID, _ stored: StoredMessageSummary, _ step: inout Step
    ) -> Discarded {
        guard let entry = outbox.inFlight[id] else { return .isGone }
        let isKnownToServer = entry.wasAttempted && (entry.isReleased || entry.message?.qos == .exactlyOnce)
        outbox.remove(id)
        outbox.counts.inFlight -= 1
        if entry.progress == .onWire {
            // `patience` keeps waiting for the answer.
            outbox.abandoned[id] = isKnownToServer ? .exactlyOnce : .atLeastOnce
        } else {
            identifiers.free(id)
        }
        if isKnownToServer { retire(id, &step) }
        guard entry.isReleased else {
            drop(entry.sequence, stored.topic, size: entry.size, because: .discarded, &step)
            return .dropped
        }
        identifiers.unreleased.insert(id)
        delivered(entry.sequence, size: entry.size, entry.answer, &step)
        return .delivered
    }

    /// Handles the last answer to a message that was dropped; returns whether it is one.
    mutating func answeredAbandoned(_ id: PacketID) -> Bool {
        identifiers.unreleased.remove(id)
        guard let qos = outbox.abandoned.removeValue(forKey: id) else { return false }
        patience.exchanges.answered(id)
        if qos == .atLeastOnce { identifiers.free(id) }
        return true
    }

    /// Forgets what was dropped after it was sent: the connection is gone, and no answer can come any more.
    mutating func forgetAbandoned() {
        for (id, qos) in outbox.abandoned where qos == .atLeastOnce { identifiers.free(id) }
        outbox.abandoned = [:]
    }

    /// Continues the exchanges whose messages were dropped when the server already owned them: it may hold them back
    /// until they are released. A restarted daemon does not know of them, and leaves their identifiers alone.
    mutating func releaseDropped(_ step: inout Step) {
        for id in identifiers.unreleased.sorted(by: { $0.rawValue < $1.rawValue }) {
            outbox.abandoned[id] = .exactlyOnce
            enqueue(.pubrel(id, .success), step)
        }
    }
}
