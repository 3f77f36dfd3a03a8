/// The messages that mosquitto has sent to one session, and the acknowledgements that it got, read from its own log.
struct InboundLedger {
    /// The messages that the session has acknowledged (PUBACK, PUBREC).
    private(set) var acknowledged: Set<ServerLog.Message> = []
    /// How often each message was sent as a new one: under a new packet identifier, or after the exchange had ended.
    ///
    /// A server that was killed may repeat what it had done, and what was published to it may be published again. A
    /// message that was sent again within its exchange counts once.
    private(set) var exchanges: [ServerLog.Message: Int] = [:]

    /// QoS 2 messages that were sent under an identifier whose exchange had not ended. A server that was killed and has
    /// restored an older state believes that the identifier is free. A receiver that has the older message must treat
    /// the new one as the same message (MQTT 5, section 4.3.3), so it is the server that loses the new one.
    private(set) var confused: Set<ServerLog.Message> = []

    /// The message of each exchange that has not ended.
    private var open: [Int: ServerLog.Message] = [:]

    mutating func take(_ line: ServerLog.Line) {
        let words = line.words
        switch (words[1], words[2]) {
        case ("Sending", "CONNACK"):
            if words[5] != "(1," { open = [:] }
        case ("Sending", "PUBLISH") where words.count >= 10:
            // "Sending PUBLISH to main (d0, q2, r0, m5, 'in/main/1/2/18', ... (2 bytes))"
            guard let packetID = ServerLog.number(words[8]), let message = ServerLog.message(words[9]) else { return }
            let earlier = open.updateValue(message, forKey: packetID)
            guard earlier != message else { return }
            exchanges[message, default: 0] += 1
            if earlier != nil, words[6] == "q2," { confused.insert(message) }
        case ("Received", "PUBACK") where words.count >= 7:
            // "(Mid: 5, RC:0)"
            guard let message = ServerLog.number(words[6]).flatMap({ open.removeValue(forKey: $0) }) else { return }
            acknowledged.insert(message)
        case ("Received", "PUBREC") where words.count >= 7:
            guard let message = ServerLog.number(words[6]).flatMap({ open[$0] }) else { return }
            acknowledged.insert(message)
        case ("Sending", "PUBREL"):
            // "(m5)": from now on, what is sent under this identifier may be taken for another message.
            if let packetID = ServerLog.number(words[5]) { open[packetID] = nil }
        default:
            break
        }
    }
}
