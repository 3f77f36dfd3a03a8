/// Decides whose turn it is. The next turn goes to the user who will have used least after it and, among this user's
/// members, to the one who will have used least.
///
/// The cost of a turn is charged to the member and to its user, and the next turn is expected to cost as much as the
/// last (weighted fair queueing; Demers, Keshav and Shenker, SIGCOMM 1989). So a program with few and small requests
/// does not wait for others with many large ones, however many they are. Waiting does not accumulate turns, and a new
/// member begins a little behind the others, so connecting again and again gains nothing. It does no I/O and reads no
/// clock.
struct FairTurns<Member: Hashable, User: Hashable> {
    /// What a turn costs in addition to what is charged for it.
    static var turnCost: Int { 512 }

    private var users = LeastUsed<User>()
    private var members: [User: LeastUsed<Member>] = [:]
    private var userOf: [Member: User] = [:]

    var isEmpty: Bool { users.waiting == 0 }

    /// Adds a member that has something to do. Does nothing if it is waiting already.
    mutating func add(_ member: Member, of user: User) {
        userOf[member] = user
        members[user, default: LeastUsed()].add(member)
        users.add(user)
    }

    /// Returns the member whose turn it is. It no longer waits; add it again if it has more to do.
    mutating func next() -> Member? {
        guard let user = users.next(), let member = members[user]?.next() else { return nil }
        if members[user]?.waiting != 0 { users.add(user) }
        charge(Self.turnCost, to: member)
        return member
    }

    /// Charges a member for its last turn.
    mutating func charge(_ cost: Int, to member: Member) {
        guard let user = userOf[member] else { return }
        members[user]?.charge(cost, to: member)
        users.charge(cost, to: user)
    }

    /// Removes a member for good.
    mutating func remove(_ member: Member) {
        guard let user = userOf.removeValue(forKey: member) else { return }
        members[user]?.remove(member)
        if members[user]?.waiting == 0 { users.rest(user) }
        guard members[user]?.isEmpty == true else { return }
        members[user] = nil
        users.remove(user)
    }
}

/// The accounts of those that share turns, at one of the two levels.
private struct LeastUsed<Key: Hashable> {
    private struct Account {
        var used: Int
        /// What its last turn cost.
        var last = 0
        /// Its place among those that have used as much; `nil` while it is not waiting.
        var place: Int?
    }

    /// How far behind the level a new account begins.
    private static var arrival: Int { 4096 }

    private var accounts: [Key: Account] = [:]
    /// The highest use among members that have had a turn. New members begin no lower.
    private var level = 0
    private var lastPlace = 0
    private(set) var waiting = 0

    var isEmpty: Bool { accounts.isEmpty }

    mutating func add(_ key: Key) {
        var account = accounts[key] ?? Account(used: level + Self.arrival)
        guard account.place == nil else { return }
        lastPlace += 1
        waiting += 1
        account.used = max(account.used, level)
        account.place = lastPlace
        accounts[key] = account
    }

    mutating func next() -> Key? {
        var first: (key: Key, end: Int, place: Int)?
        for (key, account) in accounts {
            guard let place = account.place else { continue }
            let end = account.used + account.last
            if let first, (first.end, first.place) < (end, place) { continue }
            first = (key, end, place)
        }
        guard let first, var account = accounts[first.key] else { return nil }
        level = max(level, account.used)
        account.last = 0
        account.place = nil
        accounts[first.key] = account
        waiting -= 1
        return first.key
    }

    mutating func charge(_ cost: Int, to key: Key) {
        accounts[key]?.used += cost
        accounts[key]?.last += cost
    }

    /// Stops waiting.
    mutating func rest(_ key: Key) {
        guard accounts[key]?.place != nil else { return }
        accounts[key]?.place = nil
        waiting -= 1
    }

    mutating func remove(_ key: Key) {
        rest(key)
        accounts[key] = nil
    }
}
