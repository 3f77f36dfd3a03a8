/// Decides how many connections, watches and subscriptions a user may have, so that some are left for the others.
struct Admission {
    enum Kind: Hashable { case connection, watch, subscription }

    struct Limits {
        /// How many connections there may be at once.
        var connections = 512
        /// How many of them one user other than root may have: at most as many as are still free, so fewer when many
        /// are open.
        var connectionsPerUser = 128
        /// How many connections are reserved for root.
        var connectionsForRoot = 16
        /// How many watches and subscriptions one user may have.
        var watchesPerUser = 256
        var subscriptionsPerUser = 512
    }

    enum Refusal: Hashable {
        case tooManyConnections(Int)
        case tooManyOfUser(Int)
    }

    let limits: Limits
    private var counts: [UInt32: [Kind: Int]] = [:]
    /// The connections of all users together.
    private(set) var connections = 0

    init(limits: Limits) {
        self.limits = limits
    }

    /// Counts one more.
    ///
    /// - Returns: why it is refused; `nil` if it is admitted.
    mutating func add(_ kind: Kind, of user: UInt32) -> Refusal? {
        let own = counts[user]?[kind] ?? 0
        let limit: Int
        switch kind {
        case .connection:
            let left = limits.connections - connections - (user == 0 ? 0 : limits.connectionsForRoot)
            guard left > 0 else { return .tooManyConnections(connections) }
            limit = user == 0 ? .max : min(limits.connectionsPerUser, left)
        case .watch: limit = limits.watchesPerUser
        case .subscription: limit = limits.subscriptionsPerUser
        }
        guard own < limit else { return .tooManyOfUser(own) }
        counts[user, default: [:]][kind] = own + 1
        if kind == .connection { connections += 1 }
        return nil
    }

    mutating func remove(_ kind: Kind, count: Int = 1, of user: UInt32) {
        counts[user]?[kind, default: 0] -= count
        if kind == .connection { connections -= count }
        if counts[user]?.values.allSatisfy({ $0 == 0 }) == true { counts[user] = nil }
    }
}
