// A connection that is about to be left for another one, while both work. What is in flight when a connection ends is
// sent again on the next one, and a receiver of QoS 1 then has it twice. So the old connection first finishes what it
// has begun, in both directions: no new messages are sent on it, and messages of the server that arrive now are neither
// delivered nor acknowledged, because the server will send them on the new connection.
//
// The acknowledgements of what was delivered before must have reached the server when the new connection begins, and they
// travel on the old one. A PINGREQ behind them proves it: the server works on what it reads in order.

extension MQTTClientMachine {
    struct Settling: Sendable {
        /// Whether the server has read all acknowledgements; needed while there are some that have not been sent yet.
        var proof = PingProof.needed
        /// Messages that arrived meanwhile: taken after all if the connection stays.
        private(set) var withheld: [Publish] = []
        private var withheldIDs: Set<PacketID> = []
        private(set) var withheldBytes = 0
        var isReported = false

        mutating func withhold(_ publish: Publish) {
            guard let id = publish.packetID, withheldIDs.insert(id).inserted else { return }
            withheld.append(publish.detached())
            withheldBytes += publish.contentSize
        }
    }

    /// Whether nothing new is begun on the connection.
    public var isSettling: Bool { link.settling != nil }

    mutating func settle() {
        guard case .connected = connection, link.settling == nil else { return }
        link.settling = Settling()
    }

    /// Keeps the connection after all.
    mutating func stopSettling(_ step: inout Step) {
        guard let withheld = link.settling?.withheld else { return }
        link.settling = nil
        for publish in withheld {
            guard case .connected = connection, let id = publish.packetID else { return }
            take(publish, id, &step)
        }
    }

    /// Returns whether the message must not be taken now. Withheld messages still count towards our Receive Maximum, so
    /// there are never more of them than that; the connection is not read while they are many bytes.
    mutating func withhold(_ publish: Publish) -> Bool {
        guard isSettling else { return false }
        link.settling?.withhold(publish)
        return true
    }

    /// Asks for the proof once everything else has been sent, and reports once that nothing is in flight.
    mutating func noteSettled(_ step: inout Step) {
        guard let settling = link.settling, !settling.isReported, case .connected = connection else { return }
        switch settling.proof {
        case .needed:
            guard commits.work.isEmpty, intake.isIdle else { return }
            ping(.settling, &step)
            link.settling?.proof = .awaited
        case .awaited:
            return
        case .given:
            guard outbox.counts.inFlight == 0, !isAnnouncing else { return }
            link.settling?.isReported = true
            step.emit(.settled)
        }
    }
}
