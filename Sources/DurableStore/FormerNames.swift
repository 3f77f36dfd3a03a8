package import Vocabulary

// A session goes on with what the store has under a name that it had before, according to its file. That is decided when
// it is started with that name in its file for the first time. The name is noted in the session's row, in the transaction
// that moves what there is, and has no effect from then on, whatever happens to the files: it may be given to another
// session. What cannot be decided is not noted, and the session is not started.

/// What the store has to know of a session that is configured.
package struct PresentSession: Hashable, Sendable {
    /// Its servers; none if they are not known.
    package var endpoints: [Endpoint]
    /// The names that it had before, the latest last; none if they are not known.
    package var formerNames: [SessionName]
    /// The session that it was until now, which ran. It is renamed, even if it had that name before as well.
    package var successorOf: SessionName?

    package init(
        endpoints: [Endpoint] = [], formerNames: [SessionName] = [], successorOf: SessionName? = nil
    ) {
        self.endpoints = endpoints
        self.formerNames = formerNames
        self.successorOf = successorOf
    }
}

/// The wish of a session to go on with what is on disk under an earlier name.
package struct NameClaim: Hashable, Sendable {
    package var former: SessionName
    /// Why it cannot be granted.
    package var obstacle: Obstacle?

    package init(_ former: SessionName, _ obstacle: Obstacle? = nil) {
        self.former = former
        self.obstacle = obstacle
    }

    package enum Obstacle: Hashable, Sendable {
        /// A session of the earlier name is configured.
        case configured
        /// Something is on disk under that earlier name as well, which is not the same session's.
        case several(SessionName)
        /// The session has messages, consumers or publications of its own.
        case occupied
    }
}

/// What became of what the store had under an earlier name of a session.
package enum TakeOver: Hashable, Sendable {
    /// There is nothing.
    case nothing
    /// It belongs to the session now.
    case done(SessionName)
    /// It stays where it is, and the session must not be started.
    case refused(NameClaim)
}

extension DurableStore {
    /// The sessions that there are from now on. What the store has of others stays, until it needs the room for a name.
    package func setPresent(_ sessions: [SessionName: PresentSession]) { contents.present = sessions }

    /// Returns which of these sessions are to go on with what is on disk under another name.
    ///
    /// - Parameter present: all sessions that are configured.
    package func claims(
        of sessions: Set<SessionName>, among present: [SessionName: PresentSession]
    ) throws(StoreError) -> [SessionName: NameClaim] {
        var claims: [SessionName: NameClaim] = [:]
        for name in sessions { claims[name] = try claim(of: name, among: present) }
        return claims
    }

    private func claim(
        of name: SessionName, among present: [SessionName: PresentSession]
    ) throws(StoreError) -> NameClaim? {
        let database = try opened()
        let names = newNames(of: name, present[name])
        let successor = present[name]?.successorOf
        // A session that ran may have nothing on disk.
        let former = names.last { $0 == successor || contents.sessionIDs[$0] != nil }
        guard let former else { return nil }
        if present[former] != nil { return NameClaim(former, .configured) }
        for other in names where other != former && present[other] == nil {
            // That one has been decided before, under the later name.
            if contents.formerNames[former]?.contains(other) ?? false { continue }
            if try !contents.ownsNothing(other, in: database) { return NameClaim(former, .several(other)) }
        }
        if try contents.ownsNothing(name, in: database) { return NameClaim(former) }
        // There is nothing to decide about, unless the session ran under the earlier name.
        if former != successor {
            guard try !contents.ownsNothing(former, in: database) else { return nil }
        }
        return NameClaim(former, .occupied)
    }

    /// The earlier names of a session that have not been decided about.
    private func newNames(of name: SessionName, _ session: PresentSession?) -> [SessionName] {
        guard let session else { return [] }
        let noted = contents.formerNames[name] ?? []
        return session.formerNames.filter { $0 == session.successorOf || !noted.contains($0) }
    }

    /// Gives a session that is about to be started all that the store has of one that it was before, and the history of
    /// that, in one transaction. What was stored of the session itself, which has no messages, consumers or publications,
    /// is forgotten.
    ///
    /// - Parameter present: all sessions that are configured, as in ``setPresent(_:)``.
    package func takeOver(
        by name: SessionName, present: [SessionName: PresentSession]
    ) throws(StoreError) -> TakeOver {
        let database = try opened()
        contents.present = present
        let names = newNames(of: name, present[name])
        if names.isEmpty { return .nothing }
        let claim = try claim(of: name, among: present)
        if let claim, claim.obstacle != nil { return .refused(claim) }
        let noted = contents.formerNames[name] ?? []
        // No message is added: a full disk must not keep the session from starting.
        try withRoom(orSpare: true) { () throws(StoreError) in
            var changed = contents
            try transaction(in: database, isFlushed: true) { () throws(StoreError) in
                if let claim { try changed.rename(claim.former, to: name, in: database) }
                try changed.note(noted.union(names), asFormerNamesOf: name, in: database)
            }
            contents = changed
        }
        mustFlush = true
        return claim.map { .done($0.former) } ?? .nothing
    }
}
