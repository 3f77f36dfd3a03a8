package import MQTT
package import Session

extension StoredSession {
    /// Applies a change as the store should, except for the protocol's part, which has its own model.
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
