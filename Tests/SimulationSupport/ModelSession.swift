import MQTT
import Session
import Support

/// All that is durable of one session, in memory: the protocol's part of it, and the rest.
struct ModelSession {
    private(set) var mqtt = ModelStore()
    /// Without the protocol's part.
    private var rest = StoredSession()

    /// What a daemon that starts now is given.
    var stored: StoredSession {
        var stored = rest
        stored.mqtt = mqtt.session
        return stored
    }

    mutating func apply(_ change: SessionChange) {
        switch change {
        case .mqtt(let change): mqtt.commit([change])
        case .setHomes(let addresses): rest.homes = addresses
        case .setPresences(let times): rest.presences = times
        case .putPublication(let publication):
            rest.publications.removeAll { $0.topic == publication.topic }
            rest.publications.append(publication)
        case .removePublication(let topic): rest.publications.removeAll { $0.topic == topic }
        case .rememberRetained(let topic): rest.retainedTopics.insert(topic)
        case .forgetRetained(let topic): rest.retainedTopics.remove(topic)
        case .setVerdict(let verdict): rest.verdict = verdict
        case .setChosenRoom(let chosen): rest.chosenRoom = chosen
        }
    }

    mutating func flushed() { mqtt.flushed() }

    mutating func loseRows() { mqtt.loseRows() }

    mutating func takeUp() { mqtt.takeUp() }
}
