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
        if let change = rest.apply(change) { mqtt.commit([change]) }
    }

    mutating func flushed() { mqtt.flushed() }

    mutating func loseRows() { mqtt.loseRows() }

    mutating func takeUp() { mqtt.takeUp() }
}
