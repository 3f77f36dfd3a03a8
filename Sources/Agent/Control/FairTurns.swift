import NIOCore

/// Whose turn it is among members of several users: fair between users first, and between the members of a user then.
///
/// Users take turns, one after the other. Among the members of a user the rule is that of fq_codel (RFC 8290, section 4.1):
/// one that had nothing to do before goes first, once; then it stands behind those that wait already, and it is new again
/// only after its place there has come up. So who asks now and then does not wait for those who ask all the time, and
/// pretending to be new gains nothing. It does no I/O and reads no clock.
struct FairTurns<Member: Hashable, User: Hashable> {
    private struct Line {
        var new = CircularBuffer<Member>()
        var old = CircularBuffer<Member>()
        var isEmpty: Bool { new.isEmpty && old.isEmpty }
    }

    /// Where a member is in the lines of its user.
    private struct Place {
        var user: User
        /// It has something to do. Without, it only waits for its place to come up and be given up.
        var isWaiting: Bool
    }

    private var places: [Member: Place] = [:]
    private var lines: [User: Line] = [:]
    private var users = CircularBuffer<User>()
    /// How many have something to do.
    private(set) var waiting = 0

    var isEmpty: Bool { waiting == 0 }

    /// Whether the member has something to do and waits for its turn.
    func contains(_ member: Member) -> Bool { places[member]?.isWaiting == true }

    /// The member has something to do. Nothing changes for one that is waiting already.
    mutating func add(_ member: Member, of user: User) {
        if let place = places[member] {
            guard !place.isWaiting else { return }
            places[member]?.isWaiting = true
        } else {
            places[member] = Place(user: user, isWaiting: true)
            line(of: user) { $0.new.append(member) }
        }
        waiting += 1
    }

    /// The member whose turn it is. It is no longer waiting; one that has more to do is added again.
    mutating func next() -> Member? {
        while waiting > 0, let user = users.popFirst() {
            defer { if lines[user] != nil { users.append(user) } }
            if let member = next(of: user) { return member }
        }
        return nil
    }

    private mutating func next(of user: User) -> Member? {
        while let member = lines[user]?.new.popFirst() ?? lines[user]?.old.popFirst() {
            if places[member]?.isWaiting == true {
                places[member]?.isWaiting = false
                lines[user]?.old.append(member)
                waiting -= 1
                return member
            }
            places[member] = nil
            if lines[user]?.isEmpty == true { lines[user] = nil }
        }
        return nil
    }

    /// The member is gone.
    mutating func remove(_ member: Member) {
        guard let place = places.removeValue(forKey: member) else { return }
        if place.isWaiting { waiting -= 1 }
        guard var line = lines[place.user] else { return }
        line.new.removeAll { $0 == member }
        line.old.removeAll { $0 == member }
        lines[place.user] = line.isEmpty ? nil : line
        if line.isEmpty { users.removeAll { $0 == place.user } }
    }

    private mutating func line(of user: User, _ change: (inout Line) -> Void) {
        if lines[user] == nil { users.append(user) }
        change(&lines[user, default: Line()])
    }
}
