package import MQTT

/// How much memory the messages of one session may take, so that those of all sessions together fit into what the
/// service may have (`MemoryMax=`). A session may exceed this by one message while it is connected, and until that message
/// is acknowledged.
package struct MessageMemory: Hashable, Sendable {
    /// Bytes of messages that were sent and are not acknowledged.
    package var inFlight: Int
    /// Bytes of messages that are read ahead from the store.
    package var readAhead: Int
    /// Bytes that are on their way to the kernel.
    package var unflushed: Int
    /// Bytes of messages that are held for the programs of durable consumers, so that they need not be read.
    package var ahead: Int

    /// What is good for one session, and what all of them share.
    package init(sessions: Int) {
        let sessions = max(1, sessions)
        inFlight = min(16 << 20, (256 << 20) / sessions)
        readAhead = min(4 << 20, (64 << 20) / sessions)
        unflushed = min(2 << 20, (128 << 20) / sessions)
        ahead = min(2 << 20, (64 << 20) / sessions)
    }
}

extension MQTTClientMachine.Configuration {
    package mutating func limit(to memory: MessageMemory) {
        inFlight.bytes = memory.inFlight
        readAhead.bytes = memory.readAhead
        unflushed.bytes = memory.unflushed
    }
}

extension Session {
    /// Applies to what is sent and held from now on.
    package mutating func limit(to memory: MessageMemory) {
        mqtt.configuration.limit(to: memory)
        durableConsumers.memory = memory.ahead
    }
}
