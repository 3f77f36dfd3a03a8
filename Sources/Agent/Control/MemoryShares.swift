/// Divides a bounded amount of memory among the members of several users.
///
/// Every member has its own allowance. Beyond it, it borrows from one pool: a user may borrow as much as is still free
/// (the dynamic threshold of Choudhury and Hahne, IEEE/ACM Transactions on Networking 6, 1998). One user alone gets
/// half of the pool, two get a third each, and some is always left for the next one. It does no I/O and reads no clock.
struct MemoryShares<Member: Hashable & Sendable, User: Hashable & Sendable>: Sendable {
    let allowance: Int
    let pool: Int

    private struct Account: Sendable {
        var user: User
        var held = 0
    }

    private var accounts: [Member: Account] = [:]
    private var borrowedByUser: [User: Int] = [:]
    /// What all members together have borrowed.
    private(set) var borrowed = 0
    /// The member that may exceed the shares. What it holds counts for no share, and takes nothing from the other users.
    private(set) var exempt: Member?

    init(allowance: Int, pool: Int) {
        self.allowance = allowance
        self.pool = pool
    }

    mutating func open(_ member: Member, of user: User) {
        accounts[member] = Account(user: user)
    }

    /// Gives back everything that the member holds.
    mutating func close(_ member: Member) {
        give(accounts[member]?.held ?? 0, by: member)
        accounts[member] = nil
    }

    /// Exempts another member, or none. What the last one still holds counts for its user again.
    mutating func setExempt(_ member: Member?) {
        if let last = exempt { borrow(excess(held(by: last)), as: last) }
        if let member { borrow(-excess(held(by: member)), as: member) }
        exempt = member
    }

    func held(by member: Member) -> Int { accounts[member]?.held ?? 0 }
    func borrowed(by user: User) -> Int { borrowedByUser[user] ?? 0 }

    /// Whether the member may hold this many more bytes.
    func hasRoom(_ bytes: Int, for member: Member) -> Bool {
        guard let account = accounts[member] else { return false }
        let more = excess(account.held + bytes) - excess(account.held)
        return more == 0 || borrowed(by: account.user) + more <= pool - borrowed
    }

    /// How many more bytes the members of the member's user may borrow.
    func room(for member: Member) -> Int {
        guard let user = accounts[member]?.user else { return 0 }
        return max(0, pool - borrowed - borrowed(by: user))
    }

    /// Takes this many bytes if there is room for them.
    /// - Returns: whether there was room.
    mutating func take(_ bytes: Int, for member: Member) -> Bool {
        guard hasRoom(bytes, for: member) else { return false }
        takeAnyway(bytes, for: member)
        return true
    }

    /// Takes what can no longer be refused, so there is less for what comes later.
    mutating func takeAnyway(_ bytes: Int, for member: Member) {
        change(by: bytes, of: member)
    }

    mutating func give(_ bytes: Int, by member: Member) {
        change(by: -bytes, of: member)
    }

    private mutating func change(by bytes: Int, of member: Member) {
        guard let place = accounts.index(forKey: member) else { return }
        let before = accounts.values[place].held
        let held = before + bytes
        precondition(held >= 0, "more is given back than was taken")
        accounts.values[place].held = held
        if member != exempt { borrow(excess(held) - excess(before), as: member) }
    }

    private mutating func borrow(_ more: Int, as member: Member) {
        guard more != 0, let user = accounts[member]?.user else { return }
        borrowed += more
        let byUser = borrowed(by: user) + more
        borrowedByUser[user] = byUser == 0 ? nil : byUser
    }

    private func excess(_ bytes: Int) -> Int { max(0, bytes - allowance) }
}
