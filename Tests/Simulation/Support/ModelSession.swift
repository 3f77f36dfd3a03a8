import MQTT
import Session
import Support

/// The durable state of one session, in memory: the protocol's part, and the rest.
struct ModelSession {
    private(set) var mqtt = ModelStore()
    /// Everything but the protocol's part.
    private var rest = StoredSession()

    /// What a daemon is given when it starts now.
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
