import SessionCore

/// Decides what the difference between two looks means for one target.
///
/// It remembers a lost path, so that a flap within ``PathClass/hold`` is recognized as one, and the paths that were
/// left while their source address stayed, because that may leave later. It is pure: the time is passed in.
struct PathClassifier: Hashable {
    /// What a look found.
    struct Observation: Hashable {
        /// The path of the first address that has one.
        var path: Path?
        /// The families of all the target's addresses that have one.
        var families: Set<IPAddress.Family> = []
        /// If there is no path: the kernel's own, which the session must not use.
        var excluded: Path?
        /// Whether there is no path only because the interface that the kernel names has no carrier, and another one has
        /// a route too. The kernel may take that one once packets have got nowhere, and says nothing when it does.
        var hasDetour = false
    }

    /// How many left-behind paths are remembered. A connection is on one of them, hardly ever on the oldest.
    static let mostLeftBehind = 4

    /// The path that was lost last, and when; `nil` while there is a path.
    private var lost: Loss?
    /// The paths that were left while their source address stayed, oldest first. A connection that was made on one of
    /// them may still be bound to it, wherever the path leads now.
    private(set) var leftBehind: [Path] = []
    private(set) var current: Observation
    /// Whether the target's name does not resolve yet. Its path is then that of the default routes, and a move of that
    /// path says little about the target.
    var isUnresolved: Bool

    private struct Loss: Hashable {
        var path: Path
        var at: Instant
    }

    init(_ first: Observation, isUnresolved: Bool) {
        current = first
        self.isUnresolved = isUnresolved
    }

    /// Whether the path was lost within the hold, and the kernel may find another one without a message.
    func mayReturnSilently(at now: Instant) -> Bool {
        guard current.hasDetour, let lost else { return false }
        return lost.at.duration(to: now) <= PathClass.hold
    }

    /// The present path; if there is none, the one that was lost last.
    var lastPath: Path? { current.path ?? lost?.path }

    /// Takes what a look found and returns what it means.
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
            // Only the reason for having no path can have changed; people are shown that reason. Or an attempt has become
            // worthwhile, or no longer is.
            let isSame =
                before.excluded?.interfaceIndex == observation.excluded?.interfaceIndex
                && before.hasDetour == observation.hasDetour
            return isSame ? .none : .maybe
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
            // The connection is still held. When an uplink is set down, the kernel says so before it removes the
            // routes: for a moment there is no path, then the path of the other uplink. That is a move too, and a probe
            // from an address that is gone would only wait for its deadline.
            if isUnresolved { return .gained }
            guard oldSourceRemains(loss.path) else { return .movedSourceGone }
            leftBehind.append(loss.path)
            return .gained
        case (let old?, nil):
            lost = Loss(path: old, at: now)
            return .lost
        case (let old?, let new?):
            // The path now leads further than the host's own networks, or no longer does.
            if old.isToNeighbours != new.isToNeighbours { return new.isToNeighbours ? .maybe : .gained }
            if old.leadsLike(new) {
                return observation.families.isSubset(of: before.families) ? .none : .maybe
            }
            if isUnresolved {
                return .maybe
            }
            let sourceRemains = oldSourceRemains(old)
            // Another family is preferred now, but the one in use is as good as before: only new attempts would differ.
            if sourceRemains, old.family != new.family, let family = old.family, observation.families.contains(family) {
                return .maybe
            }
            guard sourceRemains else { return .movedSourceGone }
            leftBehind.append(old)
            return .movedSourceKept
        }
    }

    private mutating func limitLeftBehind() {
        // If the source address of the present path goes away, the path itself moves: no need to remember it here.
        if let path = current.path { leftBehind.removeAll { $0.sharesSource(with: path) } }
        leftBehind.removeFirst(max(0, leftBehind.count - Self.mostLeftBehind))
    }

    /// Returns one of the paths that were left behind if its source address has left the host since. Each is reported
    /// once: ask after each look until there are no more.
    ///
    /// Returns `nil` while there is no path: a connection that is held has nowhere to go.
    /// - Parameter oldSourceRemains: whether the source address of an old path is still on the host.
    mutating func departure(oldSourceRemains: (Path) -> Bool) -> Path? {
        guard current.path != nil, let index = leftBehind.firstIndex(where: { !oldSourceRemains($0) }) else {
            return nil
        }
        return leftBehind.remove(at: index)
    }

    /// Forgets the paths that were left behind, because no connection uses them any more.
    mutating func forgetLeftBehind() {
        leftBehind = []
    }
}

extension Path {
    fileprivate var family: IPAddress.Family? { IPAddress(source)?.family }
}
