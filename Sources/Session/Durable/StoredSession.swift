package import MQTT

/// A session's durable state, as the store returns it when the daemon starts.
package struct StoredSession: Hashable, Sendable {
    /// The protocol's part of it.
    package var mqtt: DurableSession
    /// What the session publishes as retained messages, in the order in which it was put.
    package var publications: [Publication] = []
    /// The topics on which the server may hold a retained message of the session.
    package var retainedTopics: Set<String> = []
    /// The server that has the session, then those that may have an older copy.
    package var homes: [SessionHome] = []
    /// When the session joined its room, according to the presences that it has published.
    package var presences: Set<Timestamp> = []
    /// The topics on which a server may hold a presence of the session.
    package var presenceTopics: Set<String> = []
    /// What was decided about the session, in this boot or an earlier one.
    package var verdict: Verdict?
    /// The room that the session was told to switch to, in this boot or an earlier one.
    package var chosenRoom: ChosenRoom?
    /// Whether it is what a session left that was removed. It may have had other servers.
    package var wasAbsent = false
}

extension StoredSession {
    /// The state of a session that has never existed.
    package init() { self.init(mqtt: DurableSession()) }

    /// Applies a change as the store does, except for the protocol's part.
    ///
    /// - Returns: the change of the protocol's part, if it is one.
    package mutating func apply(_ change: SessionChange) -> DurableChange? {
        switch change {
        case .mqtt(let change): return change
        case .setHomes(let homes): self.homes = homes
        case .setPresences(let times): presences = times
        case .setPresenceTopics(let topics): presenceTopics = topics
        case .putPublication(let publication):
            publications.removeAll { $0.topic == publication.topic }
            publications.append(publication)
        case .removePublication(let topic): publications.removeAll { $0.topic == topic }
        case .rememberRetained(let topic): retainedTopics.insert(topic)
        case .forgetRetained(let topic): retainedTopics.remove(topic)
        case .setVerdict(let verdict): self.verdict = verdict
        case .setChosenRoom(let chosen): chosenRoom = chosen
        }
        return nil
    }
}
