import ControlAPI

/// Collects the answers to the calls of JSON-RPC batches until all calls of a batch are answered.
struct CallBatches {
    private struct Batch {
        /// The number of calls that are not answered yet.
        var missing: Int
        /// The answers, with the numbers of their calls.
        var answers: [(call: Int, line: [UInt8])] = []
        var bytes = 0
        /// Replies that begin a watch or a subscription.
        var feeds: [CallReply] = []
    }

    /// A batch whose calls are all answered.
    struct Answered {
        /// `nil` for a batch of notifications, which has no answer at all (JSON-RPC 2.0, section 6).
        var line: [UInt8]?
        /// How many bytes of answers were collected.
        var bytes: Int
        var feeds: [CallReply]
    }

    private var batches: [Int: Batch] = [:]
    private var last = 0

    /// - Returns: the number of the batch.
    mutating func begin(_ calls: Int) -> Int {
        last += 1
        batches[last] = Batch(missing: calls)
        return last
    }

    /// Whether the answers to a batch are together longer than a line may be.
    func isTooLong(_ batch: Int) -> Bool {
        batches[batch].map { $0.bytes > RequestLine.maximumLineLength } ?? false
    }

    /// Adds the reply to a call of a batch.
    ///
    /// - Parameter line: `nil` for a notification.
    /// - Returns: the batch, if this was its last call.
    mutating func add(_ reply: CallReply, _ line: [UInt8]?, of call: RunningCall, to number: Int) -> Answered? {
        guard var batch = batches.removeValue(forKey: number) else { return nil }
        batch.missing -= 1
        if let line {
            batch.answers.append((call.number, line))
            batch.bytes += line.count
        }
        if reply.feed != nil { batch.feeds.append(reply) }
        guard batch.missing == 0 else {
            batches[number] = batch
            return nil
        }
        let answers = batch.answers.sorted { $0.call < $1.call }.map(\.line)
        return Answered(
            line: answers.isEmpty ? nil : OutgoingLine.batch(answers), bytes: batch.bytes, feeds: batch.feeds)
    }
}
