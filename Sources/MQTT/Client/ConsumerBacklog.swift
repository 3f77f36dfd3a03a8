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
    /// The first run that counts.
    private var first = 0
    /// The first run that may count again, as long as a drop is not decided. Those before it are gone, and are removed
    /// from time to time.
    private var oldest = 0
    /// Everything up to here was dropped, in a commit that is durable or under way.
    private var droppedThrough = InboxSequence.zero
    /// Everything up to here was dropped in a commit that is durable.
    private var goneThrough = InboxSequence.zero

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
        guard sequence > goneThrough else { return }
        var (low, high) = (oldest, runs.count)
        while low < high {
            let middle = (low + high) / 2
            if runs[middle].through < sequence { low = middle + 1 } else { high = middle }
        }
        guard low < runs.count, runs[low].messages > 0 else { return }
        runs[low].messages -= 1
        runs[low].bytes -= size
        guard low >= first else { return }
        messages -= 1
        bytes -= size
        skipEmpty()
    }

    /// Whether another message fits after runs are dropped that end before this place.
    func canMakeRoom(for size: Int, _ limits: MQTTClientMachine.InboxLimits, before end: InboxSequence) -> Bool {
        var rest = ConsumerBacklog()
        (rest.messages, rest.bytes) = (messages, bytes)
        for run in runs[first...] {
            if rest.hasRoom(for: size, limits) { return true }
            guard run.through < end else { return false }
            rest.messages -= run.messages
            rest.bytes -= run.bytes
        }
        return true
    }

    /// Drops the oldest run, until that is decided by ``confirmDrops()`` or ``undoDrops()``.
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

    /// What was dropped is gone.
    mutating func confirmDrops() {
        goneThrough = droppedThrough
        skipEmpty()
    }

    /// What was dropped is still there, except for what was removed since.
    mutating func undoDrops() {
        droppedThrough = goneThrough
        for run in runs[oldest..<first] {
            messages += run.messages
            bytes += run.bytes
        }
        first = oldest
        skipEmpty()
    }

    private mutating func skipEmpty() {
        while first < runs.count, runs[first].messages == 0 { first += 1 }
        guard droppedThrough == goneThrough else { return }
        oldest = first
        if first > 32, first > runs.count / 2 {
            runs.removeFirst(first)
            (first, oldest) = (0, 0)
        }
    }
}
