/// What mosquitto has received from one session and acknowledged, read from its own log, line by line.
struct ServerLedger {
    /// What must not happen, in words that quote the line.
    private(set) var faults: [String] = []
    /// The numbers that were acknowledged (PUBACK, PUBREC), by the topic of the stream.
    private(set) var acknowledged: [String: Set<Int>] = [:]
    /// How many PUBLISH packets of each QoS there were, including repeated ones.
    private(set) var publishes = [0, 0, 0]
    /// Messages that the server had no room for.
    private(set) var refused = 0
    /// How many connections found the session at the server, and how many did not.
    private(set) var resumed = 0
    private(set) var fresh = 0
    /// QoS 2 messages that were sent again because the server had lost the session, whether or not a PUBREC was on its
    /// way.
    private(set) var sentAgain = 0

    /// The message that each packet identifier stands for in the present session.
    private var messages: [Int: ServerLog.Message] = [:]
    /// The identifier of each QoS 2 message in the present session that was received and not released yet.
    private var open: [ServerLog.Message: Int] = [:]
    private var seen: Set<ServerLog.Message> = []
    private var released: Set<ServerLog.Message> = []
    private var newest: [String: Int] = [:]

    mutating func take(_ line: ServerLog.Line) {
        // "1795244263: Received PUBLISH from main (d0, q2, r0, m1, 'out/2/17', ... (2 bytes))"
        let words = line.words
        switch (words[1], words[2]) {
        case ("Sending", "CONNACK"):
            if words[5] == "(1," {
                resumed += 1
            } else {
                fresh += 1
                messages = [:]
                open = [:]
            }
        case ("Received", "PUBLISH") where words.count >= 10:
            guard let packetID = ServerLog.number(words[8]), let message = ServerLog.message(words[9]) else { return }
            publish(
                message, packetID: packetID, isDuplicate: words[5] == "(d1,", qos: words[6] == "q2," ? 2 : 1, line.text)
        case ("Sending", "PUBACK"), ("Sending", "PUBREC"):
            // "1795250629: Sending PUBREC to main (m21, rc151)"
            guard let packetID = ServerLog.number(words[5]), let message = messages[packetID] else { return }
            if words.count >= 7, let code = ServerLog.number(words[6]), code >= 0x80 {
                // The exchange is over, and the message may come again as a new one.
                refused += 1
                messages[packetID] = nil
                open[message] = nil
                return
            }
            acknowledged[message.stream, default: []].insert(message.number)
        case ("Received", "PUBREL"):
            // "(Mid: 1)"
            guard words.count >= 7, let packetID = ServerLog.number(words[6]), let message = messages[packetID] else {
                return
            }
            released.insert(message)
            open[message] = nil
        default:
            break
        }
    }

    private mutating func publish(
        _ message: ServerLog.Message, packetID: Int, isDuplicate: Bool, qos: Int, _ line: Substring
    ) {
        publishes[qos] += 1
        if seen.insert(message).inserted {
            if message.number <= newest[message.stream] ?? 0 { faults.append("not in order: \(line)") }
            newest[message.stream] = max(message.number, newest[message.stream] ?? 0)
            // DUP 1 is correct even if no earlier copy arrived: that one was lost on its way.
        } else if qos == 2 {
            if released.contains(message) {
                faults.append("sent again after its PUBREL: \(line)")
            } else if let known = open[message] {
                if known != packetID { faults.append("sent again as another message (\(known)): \(line)") }
                if !isDuplicate { faults.append("sent again without DUP: \(line)") }
            } else {
                sentAgain += 1
            }
        }
        if qos == 2 { open[message] = packetID }
        messages[packetID] = message
    }
}
