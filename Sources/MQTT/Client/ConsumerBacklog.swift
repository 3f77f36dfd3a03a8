/// What waits in the inbox for one durable consumer: how much, and how much is dropped with the oldest messages.
///
/// A consumer may have a million messages, so they are not tracked one by one: they are counted in runs, and a whole
/// run is dropped at a time.
struct ConsumerBacklog: Hashable, Sendable {
    /// No run is larger than this fraction of the limits.
    private static let runsToLimit = 64

    private(set) var messages = 0
    private(set) var bytes = 0
    /// Oldest first.
    private var runs: [InboxRun] = []
    /// The first run that counts: those before it are gone, and are removed from time to time.
    private var first = 0
    /// Everything up to here was dropped.
    private var droppedThrough = InboxSequence.zero

    init(_ runs: [InboxRun] = []) {
        self.runs = runs
        for run in runs {
            messages += run.messages
            bytes += run.bytes
        }
    }

    /// Whether another message fits. If nothing waits, a message of any size does.
    func hasRoom(for size: Int, _ limits: MQTTClientMachine.InboxLimits) -> Bool {
        messages == 0 || (messages < limits.messages && bytes + size <= limits.bytes)
    }

    mutating func add(_ sequence: InboxSequence, _ size: Int, _ limits: MQTTClientMachine.InboxLimits) {
        messages += 1
        bytes += size
        if first < runs.count, let last = runs.last, last.messages < limits.messages / Self.runsToLimit,
            last.bytes + size <= limits.bytes / Self.runsToLimit
        {
            runs[runs.count - 1] = InboxRun(
                through: sequence, messages: last.messages + 1, bytes: last.bytes + size)
        } else {
            runs.append(InboxRun(through: sequence, messages: 1, bytes: size))
        }
    }

    /// Removes a message. Does nothing if it was dropped before.
    mutating func remove(_ sequence: InboxSequence, _ size: Int) {
        guard sequence > droppedThrough else { return }
        var (low, high) = (first, runs.count)
        while low < high {
            let middle = (low + high) / 2
            if runs[middle].through < sequence { low = middle + 1 } else { high = middle }
        }
        guard low < runs.count, runs[low].messages > 0 else { return }
        runs[low].messages -= 1
        runs[low].bytes -= size
        messages -= 1
        bytes -= size
        skipEmpty()
    }

    /// Drops the oldest run.
    ///
    /// - Returns: the last message in it, and how many there were; `nil` if nothing waits.
    mutating func dropOldest() -> InboxRun? {
        guard first < runs.count else { return nil }
        let run = runs[first]
        droppedThrough = run.through
        messages -= run.messages
        bytes -= run.bytes
        first += 1
        skipEmpty()
        return run
    }

    /// The last message of the oldest run; `nil` if nothing waits.
    var oldestRunEnd: InboxSequence? { first < runs.count ? runs[first].through : nil }

    private mutating func skipEmpty() {
        while first < runs.count, runs[first].messages == 0 { first += 1 }
        if first > 32, first > runs.count / 2 {
            runs.removeFirst(first)
            first = 0
        }
    }
}
