import SessionCore
import Vocabulary

/// Says what the difference between two looks means for one target.
///
/// It remembers a lost path, so that a flap within ``PathClass/hold`` is recognised as one, and those that were left while
/// their source address stayed, for that may leave later: pure, the time is given.
struct PathClassifier: Hashable {
    /// What a look found.
    struct Observation: Hashable {
        /// The path of the first address that has one.
        var path: Path?
        /// The families of all the target's addresses that have one.
        var families: Set<IPAddress.Family> = []
        /// Without a path: the one that the kernel has, and the session must not use.
        var excluded: Path?
    }

    /// How many left-behind paths are remembered. A connection is on one of them, hardly ever on the oldest.
    static let mostLeftBehind = 4

    /// The path that was lost last, and when; `nil` while there is a path.
    private var lost: Loss?
    /// The paths that were left while their source address stayed, the oldest first. A connection that was made on one of
    /// them may be bound to it still, wherever the path has gone since.
    private(set) var leftBehind: [Path] = []
    private(set) var current: Observation
    /// The target's name does not resolve yet: its path is that of the default routes, and a move of it says little.
    var isUnresolved: Bool

    private struct Loss: Hashable {
        var path: Path
        var at: Instant
    }

    init(_ first: Observation, isUnresolved: Bool) {
        current = first
        self.isUnresolved = isUnresolved
    }

    /// The present path; while there is none, the one that was lost last.
    var lastPath: Path? { current.path ?? lost?.path }

    /// Takes what a look found and says what it means.
    /// - Parameters:
    ///   - observation: what the look found.
    ///   - oldSourceRemains: whether the source address of an old path is still on the host. It is asked only when that
    ///     matters, because it costs a lookup.
    ///   - now: the time of the look.
    mutating func handle(_ observation: Observation, oldSourceRemains: (Path) -> Bool, at now: Instant) -> PathClass {
        let before = current
        current = observation
        defer { limitLeftBehind() }
        switch (before.path, observation.path) {
        case (nil, nil):
            // It is why there is no path, for people.
            return before.excluded?.interfaceIndex == observation.excluded?.interfaceIndex ? .none : .maybe
        case (nil, let new?):
            let loss = lost
            lost = nil
            guard let loss, loss.at.duration(to: now) <= PathClass.hold else {
                leftBehind = []
                return .gained
            }
            if loss.path.leadsLike(new) {
                return .returned
            }
            // The connection is still held. When an uplink is set down, the kernel says so before it takes the routes
            // away: for a moment there is no path, then that of the other uplink. It is a move all the same, and a
            // probe from an address that is gone would only cost its deadline.
            if isUnresolved { return .gained }
            guard oldSourceRemains(loss.path) else { return .movedSourceGone }
            leftBehind.append(loss.path)
            return .gained
        case (let old?, nil):
            lost = Loss(path: old, at: now)
            return .lost
        case (let old?, let new?):
            // It leads further now, or nowhere but to the networks that the host is in.
            if old.isToNeighbours != new.isToNeighbours { return new.isToNeighbours ? .maybe : .gained }
            if old.leadsLike(new) {
                return observation.families.isSubset(of: before.families) ? .none : .maybe
            }
            if isUnresolved {
                return .maybe
            }
            let sourceRemains = oldSourceRemains(old)
            // Another family took the lead and the one in use is as good as before: only new attempts would differ.
            if sourceRemains, old.family != new.family, let family = old.family, observation.families.contains(family) {
                return .maybe
            }
            guard sourceRemains else { return .movedSourceGone }
            leftBehind.append(old)
            return .movedSourceKept
        }
    }

    private mutating func limitLeftBehind() {
        // Whatever becomes of the address that the present path has, the path moves with it.
        if let path = current.path { leftBehind.removeAll { $0.sharesSource(with: path) } }
        leftBehind.removeFirst(max(0, leftBehind.count - Self.mostLeftBehind))
    }

    /// One of the paths that were left behind, if its source address has left the host since; each is reported once.
    /// Ask after each look until there is none.
    ///
    /// While there is no path, nobody is asked: there is nowhere to go from a connection that is held.
    /// - Parameter oldSourceRemains: whether the source address of an old path is still on the host.
    mutating func departure(oldSourceRemains: (Path) -> Bool) -> Path? {
        guard current.path != nil, let index = leftBehind.firstIndex(where: { !oldSourceRemains($0) }) else {
            return nil
        }
        return leftBehind.remove(at: index)
    }

    /// Nothing is connected by any of the paths that were left behind.
    mutating func forgetLeftBehind() {
        leftBehind = []
    }
}

extension Path {
    fileprivate var family: IPAddress.Family? { IPAddress(source)?.family }
}
