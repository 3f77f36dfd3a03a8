import SessionCore

/// Targets that are yet to be looked at, a few in a turn: with thousands of them, everything else on the event loop would
/// wait for a look at all.
struct LookRound {
    /// About a millisecond's work.
    static let targetsPerTurn = 64

    private var waiting: [Target] = []
    private var next = 0
    /// When the oldest hint arrived that has led to this.
    private(set) var receivedAt: Instant?

    var isOver: Bool { next == waiting.count }

    /// Adds targets. Those that wait already come first, so that none is put off by hints that keep coming.
    mutating func add(_ targets: [Target], receivedAt: Instant) {
        if isOver { self.receivedAt = receivedAt }
        let left = waiting[next...]
        let known = Set(left)
        waiting = left + targets.filter { !known.contains($0) }
        next = 0
    }

    /// Returns the targets of one turn.
    mutating func turn() -> ArraySlice<Target> {
        let end = min(next + Self.targetsPerTurn, waiting.count)
        defer { next = end }
        return waiting[next..<end]
    }
}
