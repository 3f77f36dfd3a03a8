// A person can drop any message, also one that is on its way and that the server never answers.
//
//     quarantined, queued           it is gone
//     sent, not answered            it is not sent again; the server may have it, or still take it
//     past PUBREC                   the server owns it: it counts as delivered, and the rest of the exchange goes on
//
// What was sent on this connection has a place in the server's window until the server answers it or the connection ends,
// and its identifier means nothing else until then. One of QoS 2 is left alone until the session ends: the server would
// take the next message with it for the one that was dropped.

extension MQTTClientMachine {
    /// What became of a message that a person dropped.
    public enum Discarded: Hashable, Sendable {
        /// It is not sent, or not sent again: `dropped` is reported.
        case dropped
        /// The server already owned it: `delivered` is reported.
        case delivered
        /// A message of QoS 0 that is with the transport.
        case isWithTransport
        /// It was delivered, or rejected, just now.
        case isGone
    }

    /// Drops a message, and returns what became of it.
    ///
    /// The caller has read the message from the store after everything that was committed before, and `queueVersion` is
    /// its value before that read.
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
            if stored.sequence > outbox.loadedThrough {
                outbox.makeLoadStale()
            } else if !outbox.removeFromReadAhead(stored.sequence), !outbox.removeRefused(stored.sequence) {
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
            packetIDs.free(id)
        }
        if isKnownToServer { retire(id, &step) }
        guard entry.isReleased else {
            drop(entry.sequence, stored.topic, size: entry.size, because: .discarded, &step)
            return .dropped
        }
        unreleased.insert(id)
        outbox.counts.bytes -= entry.size
        remove(entry.sequence, .delivered(entry.answer), &step)
        step.emit(.delivered(entry.sequence, entry.answer))
        return .delivered
    }

    /// The last answer to a message that was dropped; returns whether it is one.
    mutating func answeredAbandoned(_ id: PacketID) -> Bool {
        unreleased.remove(id)
        guard let qos = outbox.abandoned.removeValue(forKey: id) else { return false }
        patience.exchanges.answered(id)
        if qos == .atLeastOnce { packetIDs.free(id) }
        return true
    }

    /// The connection is gone, and what was sent on it cannot be answered any more.
    mutating func forgetAbandoned() {
        for (id, qos) in outbox.abandoned where qos == .atLeastOnce { packetIDs.free(id) }
        outbox.abandoned = [:]
    }

    /// Goes on with the exchanges whose messages were dropped when the server owned them: it may give them to nobody before
    /// they are released. A new daemon does not know of them, and leaves their identifiers alone.
    mutating func releaseDropped(_ step: inout Step) {
        for id in unreleased.sorted(by: { $0.rawValue < $1.rawValue }) {
            outbox.abandoned[id] = .exactlyOnce
            enqueue(.pubrel(id, .success), step)
        }
    }
}
