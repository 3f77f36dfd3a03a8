// Servers that do not share their sessions: each keeps the session as it was when it was last there, and goes on queueing
// messages for it. What such a server has queued exists nowhere else, so its old copy is resumed, not discarded:
//
//     at A                  A is lost; B has no session    back at A: Session Present 1
//     ─── exchanges, filters ─── leftBehind ──▶ kept by the caller ──▶ expectOlder ──▶ returned(to:)
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
    /// An older copy of the session that the next server may have.
    struct OlderCopy: Sendable {
        var left: LeftSession
        /// Whether the server may have the present copy as well.
        var isBesidePresent: Bool
    }

    /// Notes that the next connection leads to a server where this was left behind.
    ///
    /// - Parameter isBesidePresent: whether the session is at this address, and others there may have the older copy.
    public mutating func expectOlder(_ left: LeftSession, isBesidePresent: Bool) {
        claim.older = OlderCopy(left: left, isBesidePresent: isBesidePresent)
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
        // What is wanted is remembered when it is asked for.
        for filter in left.filters.sorted(by: Subscriptions.isBefore)
        where subscriptions.wanted[filter] == nil && subscriptions.remembered.insert(filter).inserted {
            step.changes.append(.rememberSubscription(filter))
        }
    }
}
