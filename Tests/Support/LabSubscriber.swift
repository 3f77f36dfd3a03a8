import Foundation

/// The far end: a client near the server that writes down everything it gets.
public struct LabSubscriber: Sendable {
    /// A message that arrived.
    public struct Message: Hashable, Sendable {
        public var topic: String
        public var qos: Int
        public var payload: String
    }

    private let process: LabProcess

    /// Subscribes with QoS 2, and returns when the server has acknowledged it.
    public init(_ lab: Lab, port: Int = 1883, filter: String) async throws {
        let process = try await lab.start(
            "mosquitto_sub",
            [
                "stdbuf", "-oL", "mosquitto_sub", "-d", "-V", "5", "-p", "\(port)", "-q", "2", "-t", filter,
                "-F", "@ %t %q %p",
            ], in: lab.server)
        self.process = process
        try await until("mosquitto_sub has subscribed") {
            guard await process.isRunning else { throw Lab.Failure("mosquitto_sub ended: \(process.errors)") }
            return process.output.contains("Subscribed (mid")
        }
    }

    /// Everything until now, in the order of arrival.
    public var messages: [Message] {
        process.output.split(separator: "\n").compactMap { line in
            let words = line.split(separator: " ", maxSplits: 3, omittingEmptySubsequences: false)
            guard words.count == 4, words[0] == "@", let qos = Int(words[2]) else { return nil }
            return Message(topic: String(words[1]), qos: qos, payload: String(words[3]))
        }
    }

    /// Waits until what has arrived is enough.
    @discardableResult
    public func until(_ what: String, _ isEnough: ([Message]) -> Bool) async throws -> [Message] {
        var seen: [Message] = []
        do {
            try await Support.until(what) {
                seen = messages
                return isEnough(seen)
            }
        } catch {
            throw Lab.Failure("\(error); \(seen.count) messages arrived, the last: \(seen.suffix(5))")
        }
        return seen
    }
}
