package import MQTT

/// What is durable of a session, as the store gives it back when the daemon starts.
package struct StoredSession: Hashable, Sendable {
    /// The protocol's part of it.
    package var mqtt: DurableSession
    /// What the session publishes as retained messages, in the order in which it was put.
    package var publications: [Publication]
    /// The topics on which the server may hold a retained message of the session.
    package var retainedTopics: Set<String>
    /// The addresses of the server that has the session, and of those that may have an old copy.
    package var homes: [String]
    /// Since when the session said that it was in its room.
    package var presences: Set<Timestamp>
    /// What was decided about the session, in whatever boot.
    package var verdict: Verdict?
    /// The room that the session was told to switch to, in whatever boot.
    package var chosenRoom: ChosenRoom?

    /// Without anything else, a session that never was.
    package init(
        mqtt: DurableSession = DurableSession(), publications: [Publication] = [], retainedTopics: Set<String> = [],
        homes: [String] = [], presences: Set<Timestamp> = [], verdict: Verdict? = nil, chosenRoom: ChosenRoom? = nil
    ) {
        self.mqtt = mqtt
        self.publications = publications
        self.retainedTopics = retainedTopics
        self.homes = homes
        self.presences = presences
        self.verdict = verdict
        self.chosenRoom = chosenRoom
    }
}
