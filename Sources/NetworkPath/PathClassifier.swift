import SessionCore

/// Says what the difference between two looks means for one target.
///
/// It remembers a lost path, so that a flap within the hold time is recognised as one: pure, the time is given.
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

    /// How long a lost path is remembered.
    static let hold: Duration = .seconds(5)

    /// The path that was lost last, and when; `nil` while there is a path.
    private var lost: Loss?
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

    /// Takes what a look found and says what it means.
    /// - Parameters:
    ///   - observation: what the look found.
    ///   - oldSourceRemains: whether the source address of an old path is still on the host. It is asked only when that
    ///     matters, because it costs a lookup.
    ///   - now: the time of the look.
    mutating func handle(_ observation: Observation, oldSourceRemains: (Path) -> Bool, at now: Instant) -> PathClass {
        let before = current
        current = observation
        switch (before.path, observation.path) {
        case (nil, nil):
            // It is why there is no path, for people.
            return before.excluded?.interfaceIndex == observation.excluded?.interfaceIndex ? .none : .maybe
        case (nil, let new?):
            let loss = lost
            lost = nil
            guard let loss, loss.at.duration(to: now) <= Self.hold else { return .gained }
            if loss.path.leadsLike(new) {
                return .returned
            }
            // The connection is still held. When an uplink is set down, the kernel says so before it takes the routes
            // away: for a moment there is no path, then that of the other uplink. It is a move all the same, and a
            // probe from an address that is gone would only cost its deadline.
            return isUnresolved || oldSourceRemains(loss.path) ? .gained : .movedSourceGone
        case (let old?, nil):
            lost = Loss(path: old, at: now)
            return .lost
        case (let old?, let new?):
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
            return sourceRemains ? .movedSourceKept : .movedSourceGone
        }
    }
}

extension Path {
    fileprivate var family: IPAddress.Family? { IPAddress(source)?.family }
}
