import Foundation

/// What mosquitto has received from the session `main` and acknowledged, read from its own log, line by line.
///
/// The log is the far end that outlives the server: it is written at once, and kill -9 takes nothing of it away. Every
/// message of the streams has a topic of its own, PREFIX/QOS/NUMBER, so that each line says which one is meant.
struct ServerLedger {
    /// What may not be, in words that name the line.
    private(set) var faults: [String] = []
    /// The numbers that were acknowledged (PUBACK, PUBREC), by the topic of the stream.
    private(set) var acknowledged: [String: Set<Int>] = [:]
    /// How many PUBLISH there were of each QoS, the second ones of a message too.
    private(set) var publishes = [0, 0, 0]
    /// Messages that the server had no room for.
    private(set) var refused = 0
    /// How many connections found the session, and how many did not.
    private(set) var resumed = 0
    private(set) var anew = 0
    /// QoS 2 messages that were sent again because the server had lost the session, with a PUBREC on its way or not.
    private(set) var sentAgain = 0

    /// The message that a packet identifier stands for, in the session as it is.
    private var messages: [Int: Message] = [:]
    /// The identifier of each QoS 2 message that was received and not released yet, in the session as it is.
    private var open: [Message: Int] = [:]
    private var seen: Set<Message> = []
    private var released: Set<Message> = []
    private var newest: [String: Int] = [:]
    /// The part of a line that was not finished when it was read.
    private var rest = ""

    private struct Message: Hashable {
        var stream: String
        var number: Int
    }

    /// Takes the next piece of the log. A new file begins with `isNewFile`: what the killed one left unfinished is no line.
    mutating func read(_ text: String, isNewFile: Bool = false) {
        if isNewFile { rest = "" }
        var lines = (rest + text).split(separator: "\n", omittingEmptySubsequences: false)
        rest = String(lines.popLast() ?? "")
        for line in lines { take(line) }
    }

    private mutating func take(_ line: Substring) {
        // "1795244263: Received PUBLISH from main (d0, q2, r0, m1, 'out/2/17', ... (2 bytes))"
        let words = line.split(separator: " ")
        guard words.count >= 5, words[4] == "main" else { return }
        switch (words[1], words[2]) {
        case ("Sending", "CONNACK"):
            if words[5] == "(1," {
                resumed += 1
            } else {
                anew += 1
                messages = [:]
                open = [:]
            }
        case ("Received", "PUBLISH") where words.count >= 10:
            guard let packetID = Self.number(words[8]), let message = Self.message(words[9]) else { return }
            publish(message, packetID: packetID, isDuplicate: words[5] == "(d1,", qos: words[6] == "q2," ? 2 : 1, line)
        case ("Sending", "PUBACK"), ("Sending", "PUBREC"):
            // "1795250629: Sending PUBREC to main (m21, rc151)"
            guard let packetID = Self.number(words[5]), let message = messages[packetID] else { return }
            if words.count >= 7, let code = Self.number(words[6]), code >= 0x80 {
                // The exchange is over, and the message may come again as another one.
                refused += 1
                messages[packetID] = nil
                open[message] = nil
                return
            }
            acknowledged[message.stream, default: []].insert(message.number)
        case ("Received", "PUBREL"):
            // "(Mid: 1)"
            guard words.count >= 7, let packetID = Self.number(words[6]), let message = messages[packetID] else {
                return
            }
            released.insert(message)
            open[message] = nil
        default:
            break
        }
    }

    private mutating func publish(
        _ message: Message, packetID: Int, isDuplicate: Bool, qos: Int, _ line: Substring
    ) {
        publishes[qos] += 1
        if seen.insert(message).inserted {
            if message.number <= newest[message.stream] ?? 0 { faults.append("not in order: \(line)") }
            newest[message.stream] = max(message.number, newest[message.stream] ?? 0)
            // DUP 1 without an earlier one that arrived is right: that one was lost on its way.
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

    private static func number(_ word: Substring) -> Int? {
        Int(word.filter(\.isNumber))
    }

    private static func message(_ word: Substring) -> Message? {
        let levels = word.split(separator: "/")
        guard levels.count == 3, let number = number(levels[2]) else { return nil }
        return Message(stream: "\(levels[0].dropFirst())/\(levels[1])", number: number)
    }
}

/// Reads the logs of a server that is started again and again, each where it stopped reading.
struct LogReader {
    private var offsets: [String: UInt64] = [:]

    /// What was written to the files since the last time.
    mutating func read(_ files: [String], into ledger: inout ServerLedger) throws {
        for file in files {
            guard let handle = FileHandle(forReadingAtPath: file) else { continue }
            defer { try? handle.close() }
            let offset = offsets[file] ?? 0
            try handle.seek(toOffset: offset)
            let bytes = try handle.readToEnd() ?? Data()
            ledger.read(String(decoding: bytes, as: UTF8.self), isNewFile: offset == 0)
            offsets[file] = offset + UInt64(bytes.count)
        }
    }
}
