import NIOCore

/// What the server refuses because a quota is used up (0x97), and what that has led to.
///
/// Such an acknowledgement says nothing about the message in it, but that there is no room for any. If the connection
/// goes on, it is the end of that message all the same, as the standard has it: somebody sent too much. But a server may
/// close the connection with the same breath, and refuse whatever comes first on the next one. mosquitto 2.0 does so when
/// it has restored QoS 2 exchanges that both sides had finished: it counts them for ever, and we, who have forgotten them,
/// cannot release them. Nothing would get through any more, and one message on each connection would be set aside for it.
///
/// So a refusal is in doubt until the server answers a PINGREQ that is sent at once. The exchange is over and its
/// identifier free (4.3.2, 4.3.3), and the message is queued again, durably; nothing follows it meanwhile. With the
/// PINGRESP the refusal counts, and the message is quarantined. If the connection ends first, the message goes out as a
/// new one on the next, and only half as many are sent ahead of their acknowledgements there.
///
///     connection after connection is refused and closed, and nothing is taken:
///     window 20, 10 ─▶ the session begins anew ─▶ window 20, 10 ─▶ refusals count at once ─▶ 20, 10 ─▶ …
///                      (its exchanges are gone)                     (there is no more to try)
///
/// Whatever message the server takes ends that.
struct Quota: Sendable {
    /// As many connections in a row without anything taken lead to the next measure.
    static let patience = 3

    /// Announcements whose refusal is in doubt; messages are in the outbox.
    var announcements: [Announcement] = []
    /// How many messages may be unanswered on this connection.
    var windowCap = Int.max
    /// The same for the next one, as long as a refusal is in doubt, and once this one has ended so: half of what it was.
    var nextWindowCap: Int?
    /// Connections in a row that ended in doubt, and on which the server took nothing.
    var fruitlessConnections = 0
    /// Whether the session was begun again for this reason, and nothing was taken since.
    var hasBegunAnew = false
    /// Whether anything was taken on this connection.
    var hasTaken = false
}

/// Why a PINGREQ was sent.
enum PingPurpose: Sendable {
    /// The driver wanted it.
    case heartbeat
    /// To see whether the connection survives refusals.
    case proof
    /// To see whether everything before it has reached the server.
    case settling
    /// The same, before a connection that is made for messages that were left out.
    case fetching
    /// To see whether the connection works before what is under suspicion goes out alone.
    case isolation
    /// To see whether the server reads what it does not answer.
    case answer
}

extension MQTTClientMachine {
    /// What it means if the connection ends now: the server has refused messages because its quota is used up, and has
    /// not shown since that it goes on. `nil` if it means nothing in particular.
    /// With `cleanStart` among the remedies, the next connection must begin a new session.
    public var reasonIfEnded: ServerReason? {
        guard isInDoubt, let window = quota.nextWindowCap else { return nil }
        var reason = ServerReason(code: .quotaExceeded)
        reason.remedies = [endsPatience && !quota.hasBegunAnew ? .cleanStart : .window(window)]
        return reason
    }

    private var isInDoubt: Bool { outbox.hasRefused || !quota.announcements.isEmpty }

    /// Whether one more fruitless connection is one too many, and this one has been fruitless up to now.
    private var endsPatience: Bool { !quota.hasTaken && quota.fruitlessConnections + 1 >= Quota.patience }

    /// Whether there is nothing left to try, so that a refusal is no matter of doubt.
    private var refusalsCount: Bool { endsPatience && quota.hasBegunAnew }

    /// Puts a refusal in doubt. Returns whether it is in doubt.
    mutating func doubt(_ id: PacketID, _ answer: Acknowledgement, _ step: inout Step) -> Bool {
        guard isDoubtful(answer), let entry = outbox.inFlight[id], let message = entry.message else { return false }
        finish(id, &step)
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
        guard Consequence(of: answer.reasonCode, in: .acknowledgement).measures.contains(.unlessEnded) else {
            return false
        }
        guard !refusalsCount else {
            // There is a new chance for the next message.
            quota.fruitlessConnections = 0
            return false
        }
        return true
    }

    private mutating func askForProof(_ step: inout Step) {
        if case .connected(let session) = connection { quota.nextWindowCap = max(1, window(session.limits) / 2) }
        if !pings.contains(.proof) { ping(.proof, &step) }
    }

    mutating func ping(_ purpose: PingPurpose, _ step: inout Step) {
        guard case .connected = connection else { return }
        pings.append(purpose)
        step.write(.pingreq)
    }

    mutating func pingAnswered(_ step: inout Step) {
        // What nobody asked for proves nothing but that the server lives.
        guard let purpose = pings.popFirst() else { return }
        switch purpose {
        case .heartbeat:
            step.emit(.pingAnswered)
        case .settling:
            // An earlier one is of a settling that was given up.
            if settling?.proof == .awaited, !pings.contains(.settling) { settling?.proof = .given }
        case .fetching:
            intake.fetching = .ready
        case .isolation:
            isolation.proof = .given
        case .answer:
            probeAnswered(&step)
        case .proof:
            for refused in outbox.takeRefused() {
                outbox.leaveQueue(size: refused.queued.message.size)
                let (sequence, topic) = (refused.queued.sequence, refused.queued.message.topic)
                reject(sequence, topic, .quotaExceeded, refused.sentence, &step)
            }
            for announcement in quota.announcements { step.emit(.announced(announcement, .quotaExceeded)) }
            quota.announcements = []
            quota.nextWindowCap = nil
        }
    }

    /// The server took a message, or finished an exchange.
    mutating func messageTaken() {
        patience.hasBlamed = false
        quota.hasTaken = true
        quota.hasBegunAnew = false
        quota.fruitlessConnections = 0
    }

    /// CONNACK with success.
    mutating func quotaConnected() {
        // What was too much before the last connection need not be so now.
        quota.windowCap = quota.nextWindowCap ?? .max
        quota.nextWindowCap = nil
    }

    /// To be called before the outbox knows of the end of the connection.
    mutating func quotaConnectionClosed() {
        if isInDoubt, !quota.hasTaken { quota.fruitlessConnections += 1 }
        pings.removeAll()
        quota.announcements = []
        quota.hasTaken = false
    }

    /// The server's session is a new one.
    mutating func quotaSessionLost() {
        if quota.fruitlessConnections >= Quota.patience { quota.hasBegunAnew = true }
        quota.fruitlessConnections = 0
        quota.windowCap = .max
    }
}
