import NIOCore

/// What the server refuses because a quota is used up (0x97), and what that has led to.
///
/// Such an acknowledgement says nothing about its message, only that there is no room for any. If the connection stays
/// open, the message still counts as refused, as the standard says: somebody sent too much. But a server may also close
/// the connection at once, and refuse the first message of the next one in the same way. mosquitto 2.0 does this after
/// restoring QoS 2 exchanges that both sides had finished: it counts them forever, and we no longer know them. Nothing
/// would get through any more, and each connection would set aside one more message.
///
/// So a refusal is in doubt until the server answers a PINGREQ that is sent at once. The exchange is over and its
/// identifier free (4.3.2, 4.3.3), and the message is queued again, durably; nothing follows it meanwhile. With the
/// PINGRESP the refusal counts, and the message is quarantined. If the connection ends first, the message goes out as a
/// new one on the next, and only half as many are sent ahead of their acknowledgements there.
///
///     connection after connection is refused and closed, and nothing is taken:
///     window 20, 10 ─▶ the session starts over ─▶ window 20, 10 ─▶ refusals count at once ─▶ 20, 10 ─▶ …
///                      (its exchanges are gone)                     (there is no more to try)
///
/// That ends as soon as the server takes any message.
struct Quota: Sendable {
    /// How many connections in a row on which nothing was taken lead to the next measure.
    static let patience = 3

    /// Announcements whose refusal is in doubt; messages are in the outbox.
    var announcements: [Announcement] = []
    /// How many messages may be unanswered on this connection.
    var windowCap = Int.max
    /// The same for the next one: half of the window, while a refusal is in doubt and after the connection has ended
    /// that way.
    var nextWindowCap: Int?
    /// Connections in a row that ended in doubt, and on which the server took nothing.
    var fruitlessConnections = 0
    /// Whether a new session was begun for this reason, and nothing was taken since.
    var hasBegunAnew = false
    /// Whether anything was taken on this connection.
    var hasTaken = false

    /// Whether the next measure is due if the server takes nothing on this connection, as it has until now.
    var endsPatience: Bool { !hasTaken && fruitlessConnections + 1 >= Self.patience }

    /// Whether there is nothing left to try, so that a refusal counts at once.
    var refusalsCount: Bool { endsPatience && hasBegunAnew }

    /// The server took a message, or finished an exchange.
    mutating func taken() {
        hasTaken = true
        hasBegunAnew = false
        fruitlessConnections = 0
    }

    /// The server has accepted a connection. A window that was too large before the last connection need not be too
    /// large now.
    mutating func connected() {
        windowCap = nextWindowCap ?? .max
        nextWindowCap = nil
    }

    /// - Parameter isInDoubt: whether there was a refusal in doubt.
    mutating func connectionClosed(isInDoubt: Bool) {
        if isInDoubt, !hasTaken { fruitlessConnections += 1 }
        announcements = []
        hasTaken = false
    }

    /// The server's session is a new one.
    mutating func sessionLost() {
        if fruitlessConnections >= Self.patience { hasBegunAnew = true }
        fruitlessConnections = 0
        windowCap = .max
    }
}

/// Why a PINGREQ was sent.
enum PingPurpose: Sendable {
    /// The driver asked for it.
    case heartbeat
    /// To see whether the connection survives refusals.
    case proof
    /// To see whether everything before it has reached the server.
    case settling
    /// The same, before another connection is made to get the messages that were left out.
    case fetching
    /// To see whether the connection works before what is under suspicion goes out alone.
    case isolation
    /// To see whether the connection works before the server is asked again for what it may have ended connections for:
    /// to release identifiers, or for a filter.
    case trial
    /// To see whether the server reads what it does not answer.
    case answer

    /// Whether something is held back until the answer comes, without a time limit of its own.
    var isAwaited: Bool {
        switch self {
        case .proof, .isolation, .trial, .fetching: true
        // The driver has time limits for the first two, and the last one belongs to a time limit.
        case .heartbeat, .settling, .answer: false
        }
    }
}

/// A PINGREQ that is not answered yet.
struct Ping: Sendable {
    var purpose: PingPurpose
    var sentAt: Timestamp
}

extension MQTTClientMachine {
    /// What the end of the connection would mean now, if the server has refused messages because its quota is used up,
    /// and has not yet shown that it keeps the connection. `nil` if it would mean nothing in particular. With
    /// `cleanStart` among the remedies, the next connection must begin a new session.
    public var reasonIfEnded: ServerReason? {
        guard isInDoubt, let window = quota.nextWindowCap else { return nil }
        var reason = ServerReason(code: .quotaExceeded)
        reason.remedies = [quota.endsPatience && !quota.hasBegunAnew ? .cleanStart : .window(window)]
        return reason
    }

    /// Whether a refusal is in doubt.
    var isInDoubt: Bool { outbox.hasRefused || !quota.announcements.isEmpty }

    /// Puts a refusal in doubt, unless it counts at once. Returns whether it is in doubt.
    mutating func doubt(_ id: PacketID, _ answer: Acknowledgement, _ step: inout Step) -> Bool {
        guard isDoubtful(answer), let entry = outbox.inFlight[id], let message = entry.message else { return false }
        finish(id)
        outbox.refuse(Outbox.Queued(sequence: entry.sequence, message: message), answer.properties.reasonString)
        step.changes.append(.unassign(entry.sequence))
        askForProof(&step)
        return true
    }

    /// The same for an announcement.
    mutating func doubt(_ announcement: Announcement, _ answer: Acknowledgement, _ step: inout Step) -> Bool {
        guard isDoubtful(answer) else { return false }
        quota.announcements.append(announcement)
        askForProof(&step)
        return true
    }

    private mutating func isDoubtful(_ answer: Acknowledgement) -> Bool {
        guard Consequence.measures(for: answer.reasonCode, in: .acknowledgement).contains(.unlessEnded) else {
            return false
        }
        guard !quota.refusalsCount else {
            // The next message gets a new chance.
            quota.fruitlessConnections = 0
            return false
        }
        return true
    }

    private mutating func askForProof(_ step: inout Step) {
        if case .connected(let session) = connection { quota.nextWindowCap = max(1, window(session.limits) / 2) }
        if !link.isAwaiting(.proof) { ping(.proof, &step) }
    }

    mutating func ping(_ purpose: PingPurpose, _ step: inout Step) {
        guard case .connected = connection else { return }
        link.pings.append(Ping(purpose: purpose, sentAt: step.now))
        step.write(.pingreq)
    }

    mutating func pingAnswered(_ step: inout Step) {
        // A PINGRESP that answers no PINGREQ proves only that the server is alive.
        guard let purpose = link.pings.popFirst()?.purpose else { return }
        switch purpose {
        case .heartbeat:
            step.emit(.pingAnswered)
        case .settling:
            // Any PINGRESP but the last for settling belongs to a settling that was given up.
            if link.settling?.proof == .awaited, !link.isAwaiting(.settling) { link.settling?.proof = .given }
        case .fetching:
            intake.fetching = .ready
        case .isolation:
            isolation.proof = .given
        case .trial:
            link.isProven = true
        case .answer:
            // Any but the last belongs to a probe that was no longer needed.
            if !link.isAwaiting(.answer) { probeAnswered(&step) }
        case .proof:
            for refused in outbox.takeRefused() {
                outbox.leaveQueue(size: refused.queued.message.size)
                let (sequence, topic) = (refused.queued.sequence, refused.queued.message.topic)
                reject(sequence, topic, .quotaExceeded, refused.sentence, &step)
            }
            for announcement in quota.announcements { step.emit(.announced(announcement, .said(.quotaExceeded))) }
            quota.announcements = []
            quota.nextWindowCap = nil
        }
    }

    /// Notes that the server took a message, or finished an exchange.
    mutating func messageTaken() {
        patience.blamed = [:]
        quota.taken()
    }
}
