import ControlAPI
import HoldfastClient

/// A program with a durable consumer: it processes each message and then acknowledges it. What it has done outlives it,
/// as in a database.
actor Worker {
    private(set) var done: [ReceivedMessage] = []
    /// Messages whose acknowledgement was committed, by id.
    private(set) var acknowledged: Set<Int64> = []
    private(set) var doneAfterAcknowledgement: [Int64] = []
    private(set) var failure: (any Error)?

    func run(_ messages: DurableSubscription) async {
        await run { messages }
    }

    func run(_ consume: @Sendable () async throws -> DurableSubscription) async {
        do {
            let messages = try await consume()
            for try await element in messages {
                let id = element.message.id
                if acknowledged.contains(id) { doneAfterAcknowledgement.append(id) }
                done.append(element.message)
                if try await element.ack() == .committed { acknowledged.insert(id) }
            }
        } catch ClientError.closed {
            // The client was closed in the middle of an acknowledgement.
        } catch {
            failure = error
        }
    }

    /// Returns what was done since the last call.
    func takeDone() -> [ReceivedMessage] {
        defer { done = [] }
        return done
    }

    func numbers(_ topic: String) -> [Int] {
        done.filter { $0.topic == topic }.compactMap { Int($0.payload.text ?? "") }
    }

    /// Returns the numbers of a stream whose messages have topics of their own.
    func numbers(of stream: String) -> [Int] {
        done.filter { $0.topic.hasPrefix(stream + "/") }.compactMap { Int($0.payload.text ?? "") }
    }
}
