import Foundation

/// The log of a mosquitto that is restarted again and again, read piece by piece, each time from where the last read
/// ended.
///
/// It shows what reached the server even if the server is killed: each line is written at once, and kill -9 loses none.
/// Every message of a stream has a topic of its own, PREFIX/QOS/NUMBER, so each line says which message it is about.
struct ServerLog {
    /// A packet of one client.
    struct Line {
        var text: Substring
        /// "1795244263:", "Received", "PUBLISH", "from", the client, and the parts in brackets.
        var words: [Substring]
        var client: Substring { words[4] }
    }

    struct Message: Hashable {
        /// All levels except the last.
        var stream: String
        var number: Int
    }

    private var offsets: [String: UInt64] = [:]
    /// The part of a line that was incomplete when it was read.
    private var rest: [String: String] = [:]

    /// Passes on every packet that was written since the last read.
    mutating func read(_ files: [String], _ take: (Line) -> Void) throws {
        for file in files {
            guard let handle = FileHandle(forReadingAtPath: file) else { continue }
            defer { try? handle.close() }
            let offset = offsets[file] ?? 0
            try handle.seek(toOffset: offset)
            let bytes = try handle.readToEnd() ?? Data()
            offsets[file] = offset + UInt64(bytes.count)
            let text = (rest[file] ?? "") + String(decoding: bytes, as: UTF8.self)
            var lines = text.split(separator: "\n", omittingEmptySubsequences: false)
            rest[file] = String(lines.popLast() ?? "")
            for line in lines {
                let words = line.split(separator: " ")
                guard words.count >= 6, ["Received", "Sending"].contains(words[1]) else { continue }
                take(Line(text: line, words: words))
            }
        }
    }

    /// Returns the digits of a word as a number.
    static func number(_ word: Substring) -> Int? {
        Int(word.filter(\.isNumber))
    }

    /// Returns the message that a topic in quotes belongs to.
    static func message(_ word: Substring) -> Message? {
        let levels = word.drop { $0 == "'" }.split(separator: "/")
        guard levels.count >= 3, let last = levels.last, let number = number(last) else { return nil }
        return Message(stream: levels.dropLast().joined(separator: "/"), number: number)
    }
}
