import Foundation

/// The far end: a client beside the server that records everything it receives.
public struct LabSubscriber: Sendable {
    /// A message that arrived.
    public struct Message: Hashable, Sendable {
        public var topic: String
        /// Empty if the message has none.
        public var contentType: String
        public var payload: String
    }

    private let process: LabProcess

    /// Subscribes, and returns when the server has acknowledged it.
    ///
    /// It uses QoS 0: over the loopback nothing is lost, the order is the server's, and what arrives twice reached the
    /// server twice. With QoS 2, a stream of thousands ends after a while with a protocol error between this mosquitto
    /// and its own mosquitto_sub (2.0.11).
    public init(_ lab: Lab, port: Int = 1883, filter: String) async throws {
        try await self.init(LabClient(lab, port: port), filter: filter)
    }

    public init(_ client: LabClient, filter: String...) async throws {
        let filters = filter.flatMap { ["-t", $0] }
        let words = client.words("mosquitto_sub") + ["-d", "-q", "0"] + filters + ["-F", "message %t %C %p"]
        let process = try await client.lab.start("mosquitto_sub", ["stdbuf", "-oL"] + words, in: client.namespace)
        self.process = process
        try await Support.until("mosquitto_sub has subscribed") {
            guard await process.isRunning else { throw Lab.Failure("mosquitto_sub ended: \(process.errors)") }
            return process.output.contains("Subscribed (mid")
        }
    }

    /// Everything so far, in the order of arrival.
    public var messages: [Message] {
        // A long line, or one across the boundary of a page, is written in parts.
        process.output.split(separator: "\n", omittingEmptySubsequences: false).dropLast().compactMap { line in
            let words = line.split(separator: " ", maxSplits: 3, omittingEmptySubsequences: false)
            guard words.count == 4, words[0] == "message" else { return nil }
            return Message(topic: String(words[1]), contentType: String(words[2]), payload: String(words[3]))
        }
    }

    /// Waits until enough messages have arrived.
    @discardableResult
    public func received(_ what: String, _ isEnough: ([Message]) -> Bool) async throws -> [Message] {
        var seen: [Message] = []
        do {
            try await Support.until(what) {
                guard await process.isRunning else { throw Lab.Failure("mosquitto_sub ended: \(process.errors)") }
                seen = messages
                return isEnough(seen)
            }
        } catch {
            throw Lab.Failure("\(error); \(seen.count) messages arrived, the last: \(seen.suffix(5))")
        }
        return seen
    }
}
