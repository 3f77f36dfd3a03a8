// Servers that do not share their sessions: each keeps the session as it was when it was last there, and goes on queueing
// messages for it. What such a server has queued exists nowhere else, so its old copy is resumed, not discarded:
//
//     at A                  A is lost; B has no session    back at A: Session Present 1
//     ─── exchanges, filters ─── leftBehind ─▶ kept by the caller ─▶ ExpectedSession ─▶ returned(to:)
//
// To everybody else it is a new session: what was in flight at the last server is sent again with new identifiers, and
// everything is subscribed to again. Three things are continued, because the server remembers them too: exchanges of
// both directions, and subscriptions that are no longer wanted, which it is told to end. A message that the server owns
// is released, as it may hold it back until then. Under which identifiers it holds others is not known, so each is
// cleared before it is used (see `Identifiers`).
//
// Several servers behind one address look like one server that loses its session now and then. What is resumed may then
// be either copy: the present one is continued as usual, but everything is subscribed to again, and what only the older
// one may hold is ended there as well.

extension MQTTClientMachine {
    /// Whether a server has the session as it was when the last connection ended. One that was restarted may have it in
    /// an older state: mosquitto writes it to its disk every half an hour unless it is told otherwise.
    public enum Continuity: Sendable {
        /// The server was not restarted in between: the transport of this connection was there before the last one was
        /// left.
        case proven
        /// The last connection ended because of this host's network, and nothing is known about the server.
        case likely
        /// The server may have been restarted.
        case doubtful
    }

    /// What a server may have of the session when it is connected to.
    public struct ExpectedSession: Sendable {
        /// Whether it was the last one that accepted the session. What another one resumes may be older than what is
        /// known here, so it is set up again.
        var isPresent: Bool
        /// What was left at this address; `nil` if nothing was. It may be there beside the present session, if there
        /// are several servers behind the address.
        var older: LeftSession?
        /// Unless it is proven, everything that is wanted is asked for again, in MQTT 3.1.1 only if there is a doubt.
        var continuity: Continuity

        /// Whether what the server may have is older than the present session, which is at another server.
        var isOlderCopy: Bool { older != nil && !isPresent }

        public init(isPresent: Bool = true, older: LeftSession? = nil, continuity: Continuity = .doubtful) {
            self.isPresent = isPresent
            self.older = older
            self.continuity = continuity
        }
    }

    /// What the server that had the session before still holds, when another session has just begun. It can be taken
    /// once.
    public mutating func takeLeftBehind() -> LeftSession {
        defer { claim.leftBehind = LeftSession() }
        return claim.leftBehind
    }

    /// What the server would still hold if the session continued elsewhere.
    var leavable: LeftSession {
        let released = outbox.inFlight.filter(\.value.isReleased).keys
        return LeftSession(
            unreleased: identifiers.suspects.union(identifiers.unreleased).union(released),
            inbound: inbox.identifiers, filters: subscriptions.remembered)
    }

    /// Continues what the server has of the session, which is a new one to everybody else.
    mutating func returned(to left: LeftSession, _ step: inout Step) {
        inbox.returned(to: left.inbound)
        for id in left.inbound.sorted() { step.changes.append(.insertInbound(id)) }
        endLeft(left, &step)
    }

    /// Has the server end what it holds and is not needed any more.
    mutating func endLeft(_ left: LeftSession, _ step: inout Step) {
        for id in identifiers.suspect(left.unreleased.subtracting(outbox.inFlight.keys)) {
            step.changes.append(.suspectIdentifier(id))
        }
        askAboutSuspects(&step)
        // Also what is wanted: it may be held back as a suspect, or the connection may end before it is asked for.
        for filter in left.filters.sorted(by: Subscriptions.isBefore)
        where subscriptions.remembered.insert(filter).inserted {
            step.changes.append(.rememberSubscription(filter))
        }
    }
}
