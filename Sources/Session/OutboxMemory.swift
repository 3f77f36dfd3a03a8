package import MQTT

/// How much memory the outgoing messages of one session may take, so that those of all sessions together fit into what
/// the service may have (`MemoryMax=`). Each session may exceed this by one message.
package struct OutboxMemory: Hashable, Sendable {
    /// Bytes of messages that were sent and are not acknowledged.
    package var inFlight: Int
    /// Bytes of messages that are read ahead from the store.
    package var readAhead: Int
    /// Bytes that are on their way to the kernel.
    package var unflushed: Int

    /// What is good for one session, and what all of them share.
    package init(sessions: Int) {
        let sessions = max(1, sessions)
        inFlight = min(16 << 20, (256 << 20) / sessions)
        readAhead = min(4 << 20, (64 << 20) / sessions)
        unflushed = min(2 << 20, (128 << 20) / sessions)
    }
}

extension MQTTClientMachine.Configuration {
    package mutating func limit(to memory: OutboxMemory) {
        maximumInFlightBytes = memory.inFlight
        readAheadBytes = memory.readAhead
        maximumUnflushedBytes = memory.unflushed
    }
}

extension Session {
    /// Applies to what is sent from now on.
    package mutating func limit(to memory: OutboxMemory) { mqtt.configuration.limit(to: memory) }
}
