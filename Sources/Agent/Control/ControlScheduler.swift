import NIOCore
import SessionCore

/// Decides for the whole control socket whose line is taken next, which call begins, and which peer is read.
///
/// These are the rules; each connection's shell only carries out their outcome:
///
/// - Lines are taken in turns (``FairTurns``), a few in each. Calls are weighed by what they hold in memory, which is
///   about what they cost in time, so the connection that has asked for least is next. When the first call of a
///   connection may not begin, those behind it wait as well, and the connection is not read.
/// - Each user's connections, watches and subscriptions are limited, so that some are left for the others (``Admission``).
/// - Empty lines weigh as much as they are long, so that skipping them takes turns as well.
/// - Turns are given in passes. Between two passes the event loop polls for what has arrived (``LoopPoll``).
/// - No call begins for a peer that does not read its answers. Only a few calls of each kind run at once. Calls that wait
///   for something that may never happen, as a delivery, are answered at once when there are too many of them, so that
///   none of the peer's other calls waits for that as well.
/// - What a connection holds in memory (unfinished lines, calls, answers) is bounded for all connections together
///   (``MemoryShares``). A line that does not fit into the allowance gets room for an ordinary line at once, and one that
///   outgrows that gets room for the longest. One that fits waits for no other connection.
/// - When all connections of a user that hold more than their allowance wait for memory, they may wait for each other.
///   What is held for a delivery, an outcome or unread notifications does not count here: it may be held for ever.
///   Then one of them may exceed the shares until its line has been read, has run, and has given its memory back. So each
///   of them gets its turn in the end. What it holds is counted apart, and takes nothing from other users. There is one
///   such connection at a time for all users. It is closed if it takes longer than ``Limits/standstill`` while others wait,
///   and if its line is not complete after ``Limits/unfinishedLine`` while another user waits.
/// - Two reads of the disk run at a time, in turns, so that commits are not delayed.
/// - While any connection waits for memory, one that holds more than its allowance and is slower than
///   ``Limits/standstill`` is closed: a byte a second is no progress. An unfinished line has much less time, since only
///   its program delays it.
///
/// It does no I/O and reads no clock.
struct ControlScheduler {
    /// What a connection waits for.
    private enum Wait: Hashable {
        /// One of its own calls has to end, or its peer has to read.
        case itself
        /// Memory has to become free.
        case memory
        /// Messages have to be committed.
        case commits
    }

    private struct Connection {
        var user: UInt32
        /// Bytes counted for what the peer has sent and no call has taken.
        var input = 0
        var output = 0
        /// Bytes that the peer cannot read yet, because they follow an answer that is not complete.
        var heldBack = 0
        var notifications = UnreadNotifications()
        var running = [Int](repeating: 0, count: CallKind.allCases.count)
        /// Bytes of messages that are not committed yet.
        var uncommitted = 0
        /// Bytes held by calls that wait for a delivery or an outcome, for ever perhaps.
        var waiting = 0 { didSet { precondition(waiting >= 0, "more waiting calls ended than began") } }
        var wait: Wait?
        /// The greatest lengths of the answers of reads that wait for their turn.
        var reads = CircularBuffer<Int>()
        /// What the next of these reads waits for besides its turn.
        var readWait: Wait?
        var standstill = Standstill()
        /// Its watches and subscriptions.
        var feeds: [Admission.Kind: Int] = [:]

        var waitsForMemory: Bool { wait == .memory || readWait == .memory }

        /// Whether the connection's own calls and answers allow a call of the kind to begin.
        func mayBegin(_ kind: CallKind, _ limits: Limits) -> Bool {
            output - notifications.bytes
                <= (notifications.bytes == 0 ? limits.unread : limits.unreadAmongNotifications)
                && running[kind.rawValue] < kind.limit
        }
    }

    let limits: Limits
    private var connections: [ConnectionID: Connection] = [:]
    private(set) var admission: Admission
    private var turns = FairTurns<ConnectionID, UInt32>()
    private var readTurns = FairTurns<ConnectionID, UInt32>()
    /// Whose turn it is, and the weight of the calls that have begun in it.
    private var turn: (id: ConnectionID, weight: Int)?
    /// The weight of the finished turns of this pass.
    private var passed = 0
    private(set) var memory: MemoryShares<ConnectionID, UInt32>
    private(set) var uncommitted = 0
    private(set) var runningReads = 0
    /// The connections that wait for memory or commits, in the order in which they began to wait.
    private var waiters: [ConnectionID] = []
    private var isSomethingFree = false
    /// The connection that may exceed the shares, and since when. When its line is complete, nothing more is read from it.
    private var exempt: (id: ConnectionID, since: Instant?, hasLine: Bool)? {
        didSet { if exempt?.id != memory.exempt { memory.setExempt(exempt?.id) } }
    }
    /// The connections whose durable consumers wait for memory, and those of them that may have it now.
    private var givers: [ConnectionID] = []
    private var woken: [ConnectionID] = []

    init(limits: Limits = Limits()) {
        self.limits = limits
        admission = Admission(limits: limits.admission)
        memory = MemoryShares(allowance: limits.allowance, pool: limits.pool)
    }

    // MARK: Connections

    /// - Returns: why the connection is refused; `nil` if it is served.
    mutating func connect(_ id: ConnectionID, of user: UInt32) -> Admission.Refusal? {
        if let refusal = admission.add(.connection, of: user) { return refusal }
        connections[id] = Connection(user: user)
        memory.open(id, of: user)
        return nil
    }

    mutating func disconnect(_ id: ConnectionID) {
        guard let connection = connections.removeValue(forKey: id) else { return }
        for (kind, count) in connection.feeds { admission.remove(kind, count: count, of: connection.user) }
        admission.remove(.connection, of: connection.user)
        turns.remove(id)
        readTurns.remove(id)
        waiters.removeAll { $0 == id }
        givers.removeAll { $0 == id }
        uncommitted -= connection.uncommitted
        memory.close(id)
        if exempt?.id == id { exempt = nil }
        isSomethingFree = true
    }

    // MARK: Watches and subscriptions

    mutating func addFeed(_ kind: Admission.Kind, of id: ConnectionID) -> Admission.Refusal? {
        guard let user = connections[id]?.user else { return nil }
        if let refusal = admission.add(kind, of: user) { return refusal }
        connections[id]?.feeds[kind, default: 0] += 1
        return nil
    }

    mutating func removeFeed(_ kind: Admission.Kind, of id: ConnectionID) {
        guard let connection = connections[id], let count = connection.feeds[kind], count > 0 else { return }
        connections[id]?.feeds[kind] = count - 1
        admission.remove(kind, of: connection.user)
    }

    // MARK: Reading

    /// Counts what the peer has sent. Call it whenever that has changed.
    ///
    /// - Parameters:
    ///   - bytes: the bytes that no call has taken, without the line that is being parsed.
    ///   - parsed: the bytes of the line that is parsed elsewhere. Parsing needs no turn, and ends on its own.
    ///   - hasLine: whether there is a complete line besides that one.
    ///   - tookLine: whether a line was completed or taken since the last call.
    /// - Returns: whether to read from the peer.
    mutating func buffered(
        _ bytes: Int, parsed: Int = 0, hasLine: Bool, tookLine: Bool = false, of id: ConnectionID, at now: Instant
    ) -> Bool {
        guard let connection = connections[id] else { return false }
        var needed = bytes
        if !hasLine, bytes > limits.allowance { needed = bytes <= limits.line ? limits.line : limits.longestLine }
        let more = parsed + max(needed, bytes) - connection.input
        var isRoom = true
        if more <= 0 {
            give(-more, by: id)
            connections[id]?.input += more
        } else if take(more, for: id) {
            connections[id]?.input += more
        } else {
            isRoom = false
            let unavoidable = max(0, parsed + bytes - connection.input)
            memory.takeAnyway(unavoidable, for: id)
            connections[id]?.input += unavoidable
            if parsed == 0 { wait(id, for: .memory) }
        }
        if let (_, since, hadLine) = exempt, exempt?.id == id {
            let hasHadLine = hadLine || hasLine || parsed > 0
            exempt = (id, since ?? now, hasHadLine)
            if hasHadLine {
                isRoom = false
                // What it holds now is that of its calls, and of little that came behind its line.
                if !hasLine, parsed == 0 { wait(id, for: .itself) }
            }
        }
        noteMovement(of: id, by: tookLine ? limits.standstill.progress : 0, at: now)
        noteArrival(of: id, hasLine ? 0 : bytes, at: now)
        if hasLine, parsed == 0 { ready(id) }
        return isRoom && connections[id]?.wait == nil && (!hasLine || bytes < limits.readAhead)
    }

    // MARK: Turns

    /// There is work for the connection. It gets a turn, unless it waits for something else.
    mutating func ready(_ id: ConnectionID) {
        guard let connection = connections[id], connection.wait == nil else { return }
        turns.add(id, of: connection.user)
    }

    /// Whether there may be something to do now.
    var hasTurns: Bool {
        !turns.isEmpty || (isSomethingFree && !(waiters.isEmpty && givers.isEmpty)) || !woken.isEmpty
            || (runningReads < limits.reads && !readTurns.isEmpty)
    }

    /// The event loop has polled for what has arrived, and a new pass begins.
    mutating func beginPass() {
        endTurn()
        passed = 0
    }

    /// Returns the connection that may take some lines next; `nil` when the pass is over.
    mutating func nextTurn() -> ConnectionID? {
        endTurn()
        guard passed < limits.pass else { return nil }
        wakeWaiters()
        turn = turns.next().map { ($0, 0) }
        return turn?.id
    }

    /// Whether the connection whose turn it is must take no more lines.
    var isTurnOver: Bool { turn.map { $0.weight >= limits.turn } ?? true }

    /// Empty lines have been skipped in a connection's turn.
    mutating func skipped(_ bytes: Int, of id: ConnectionID) {
        if turn?.id == id { turn?.weight += bytes }
    }

    private mutating func endTurn() {
        guard let turn else { return }
        turns.charge(turn.weight, to: turn.id)
        passed += turn.weight + FairTurns<ConnectionID, UInt32>.turnCost
        self.turn = nil
    }

    /// Returns whether a call may begin. If not, the connection waits, and gets its turn again when it may.
    ///
    /// - Parameters:
    ///   - bytes: the length of its line.
    ///   - answer: the greatest length of its answer.
    mutating func begin(
        _ kind: CallKind, bytes: Int, answer: Int = 0, of id: ConnectionID
    ) -> Bool {
        guard let place = connections.index(forKey: id), connections.values[place].wait == nil else { return false }
        guard connections.values[place].mayBegin(kind, limits) else {
            wait(id, for: .itself)
            return false
        }
        if kind == .message, connections.values[place].uncommitted > 0, uncommitted + bytes > limits.uncommitted {
            wait(id, for: .commits)
            return false
        }
        // From now on the line counts for the call.
        let taken = min(bytes, connections.values[place].input)
        memory.give(taken, by: id)
        let cost = self.cost(of: kind, bytes: bytes, answer: answer)
        guard take(cost, for: id) else {
            memory.takeAnyway(taken, for: id)
            wait(id, for: .memory)
            return false
        }
        connections.values[place].input -= taken
        connections.values[place].running[kind.rawValue] += 1
        if turn?.id == id { turn?.weight += min(cost, limits.heaviest) }
        switch kind {
        case .message:
            uncommitted += bytes
            connections.values[place].uncommitted += bytes
        case .read:
            connections.values[place].reads.append(answer)
            readTurns.add(id, of: connections.values[place].user)
        case .outcome:
            connections.values[place].waiting += cost
            give(0, by: id)
        case .delivery, .query, .command:
            break
        }
        return true
    }

    /// Calls of one kind have ended. The numbers are the sums of those that they began with.
    mutating func end(_ kind: CallKind, count: Int = 1, bytes: Int, answer: Int = 0, of id: ConnectionID) {
        guard connections[id] != nil else { return }
        if kind == .message { committed(bytes, of: id) }
        connections[id]?.running[kind.rawValue] -= count
        let held = cost(of: kind, count: count, bytes: bytes, answer: answer)
        if kind == .delivery || kind == .outcome { connections[id]?.waiting -= held }
        give(held, by: id)
        wakeItself(id)
    }

    /// A message is accepted, and its publisher wants to wait for the delivery.
    ///
    /// The numbers are those that the call began with.
    ///
    /// - Returns: whether it may. If not, or in any case later, the call ends as a `delivery`.
    mutating func accepted(bytes: Int, answer: Int = 0, of id: ConnectionID) -> Bool {
        guard connections[id] != nil else { return false }
        committed(bytes, of: id)
        connections[id]?.running[CallKind.message.rawValue] -= 1
        connections[id]?.running[CallKind.delivery.rawValue] += 1
        let held = cost(of: .delivery, bytes: bytes, answer: answer)
        connections[id]?.waiting += held
        give(bytes, by: id)
        wakeItself(id)
        return connections[id].map { $0.running[CallKind.delivery.rawValue] <= CallKind.delivery.limit } ?? false
    }

    /// What calls of a kind hold. The line of a message is held until it is accepted, and room for the answer of a read is
    /// taken when the read begins.
    private func cost(of kind: CallKind, count: Int = 1, bytes: Int, answer: Int) -> Int {
        (kind == .delivery ? 0 : bytes) + count * limits.call + (kind == .read ? 0 : answer)
    }

    /// What the connection's calls hold that wait for a delivery or an outcome.
    func heldByWaitingCalls(of id: ConnectionID) -> Int { connections[id]?.waiting ?? 0 }

    /// Whether as many calls of the kind run as may run at once on one connection.
    func isFull(_ kind: CallKind, of id: ConnectionID) -> Bool {
        connections[id].map { $0.running[kind.rawValue] >= kind.limit } ?? false
    }

    private mutating func committed(_ bytes: Int, of id: ConnectionID) {
        uncommitted -= bytes
        connections[id]?.uncommitted -= bytes
        isSomethingFree = true
    }

    // MARK: Reads

    /// Returns whose read begins now, and the length of the answer that room was reserved for.
    mutating func nextRead() -> (id: ConnectionID, answer: Int)? {
        wakeWaiters()
        while runningReads < limits.reads, let id = readTurns.next() {
            guard let connection = connections[id], let answer = connection.reads.first else { continue }
            guard connection.output <= limits.unread else {
                connections[id]?.readWait = .itself
                continue
            }
            guard take(answer, for: id) else {
                connections[id]?.readWait = .memory
                if !waiters.contains(id) { waiters.append(id) }
                exemptOne(of: connection.user)
                continue
            }
            connections[id]?.reads.removeFirst()
            readTurns.charge(min(answer, limits.heaviest), to: id)
            if connection.reads.count > 1 { readTurns.add(id, of: connection.user) }
            runningReads += 1
            return (id, answer)
        }
        return nil
    }

    /// A read has ended, even if its connection is gone.
    mutating func readEnded(answer: Int, of id: ConnectionID) {
        runningReads -= 1
        give(answer, by: id)
    }

    // MARK: Writing

    /// Counts bytes that wait for the peer to read them.
    mutating func wrote(_ bytes: Int, isNotification: Bool = false, to id: ConnectionID, at now: Instant) {
        guard connections[id] != nil else { return }
        memory.takeAnyway(bytes, for: id)
        connections[id]?.output += bytes
        connections[id]?.notifications.wrote(bytes, isNotification: isNotification)
        noteMovement(of: id, by: 0, at: now)
    }

    /// Counts what waits for an answer that is not complete: the other answers of its batch, and the notifications of a
    /// watch or subscription that begins with it. The peer cannot read it yet, so more calls may begin; the rest of the
    /// batch must.
    mutating func heldBack(_ bytes: Int, of id: ConnectionID, at now: Instant) {
        guard connections[id] != nil else { return }
        memory.takeAnyway(bytes, for: id)
        connections[id]?.heldBack += bytes
        noteMovement(of: id, by: 0, at: now)
    }

    /// What was held back is about to be written, or is dropped.
    mutating func released(_ bytes: Int, of id: ConnectionID, at now: Instant) {
        guard connections[id] != nil, bytes > 0 else { return }
        connections[id]?.heldBack -= bytes
        give(bytes, by: id)
        noteMovement(of: id, by: bytes, at: now)
    }

    /// The peer has read, as far as the kernel knows.
    mutating func read(_ bytes: Int, by id: ConnectionID, at now: Instant) {
        guard let unread = connections[id]?.output else { return }
        connections[id]?.output = unread - bytes
        connections[id]?.notifications.read(unread: unread - bytes)
        give(bytes, by: id)
        noteMovement(of: id, by: bytes, at: now)
        wakeItself(id)
    }

    /// Whether the peer has read enough to be told what it missed, and to be sent more.
    func hasRead(_ id: ConnectionID) -> Bool { connections[id].map { $0.output <= limits.unread } ?? false }

    /// How many bytes wait for the peer to read them.
    func unread(by id: ConnectionID) -> Int { connections[id]?.output ?? 0 }

    /// Whether a notification of this many bytes is written rather than dropped.
    func mayNotify(_ bytes: Int, to id: ConnectionID) -> Bool {
        guard let connection = connections[id], memory.hasRoom(bytes, for: id) else { return false }
        // What arrives in one turn of the loop counts as unread, however fast the peer reads.
        let unread = connection.output + connection.heldBack
        let room = memory.room(for: id)
        return unread == 0
            || unread + bytes <= max(limits.unreadNotifications, min(room / 2, room - limits.longestLine))
    }

    /// Whether to read more from the store for the peer. If not, the peer still has something to read, or it gets its
    /// turn from ``takeWoken()``.
    mutating func mayGive(_ bytes: Int, to id: ConnectionID) -> Bool {
        guard let connection = connections[id], connection.output <= limits.unread else { return false }
        // While no memory is borrowed, one message of any size may be given.
        if memory.hasRoom(bytes, for: id) || (connection.output == 0 && memory.borrowed == 0) { return true }
        if !givers.contains(id) { givers.append(id) }
        return false
    }

    /// Returns the connections whose durable consumers waited for memory, now that some is free.
    mutating func takeWoken() -> [ConnectionID] {
        wakeWaiters()
        defer { woken = [] }
        return woken
    }

    // MARK: Standing still

    /// When to close a connection that stands still while others wait for the memory it holds.
    var nextDeadline: Instant? {
        guard isMemoryWanted else { return nil }
        return connections.compactMap { deadline(of: $0.key, $0.value) }.min()
    }

    private func deadline(of id: ConnectionID, _ connection: Connection) -> Instant? {
        // The disk may take as long as it likes.
        let exempt = exempt?.id == id && connection.uncommitted == 0 ? exempt : nil
        let isWanted = exempt?.hasLine == false && isMemoryWanted(byOthersThan: connection.user)
        return [
            exempt?.since?.advanced(by: isWanted ? limits.unfinishedLine.patience : limits.standstill.patience),
            connection.standstill.deadline(limits),
        ].compactMap { $0 }.min()
    }

    /// The connection to close now, if any.
    func stalled(at now: Instant) -> ConnectionID? {
        guard let deadline = nextDeadline, deadline <= now else { return nil }
        return connections.filter { self.deadline(of: $0.key, $0.value) == deadline }.keys.min()
    }

    /// Whether a connection waits for memory.
    var isMemoryWanted: Bool {
        !givers.isEmpty || waiters.contains { connections[$0]?.waitsForMemory == true }
    }

    private func isMemoryWanted(byOthersThan user: UInt32) -> Bool {
        waiters.contains { connections[$0].map { $0.waitsForMemory && $0.user != user } ?? false }
    }

    private mutating func noteMovement(of id: ConnectionID, by bytes: Int, at now: Instant) {
        guard let place = connections.index(forKey: id) else { return }
        let connection = connections.values[place]
        // A peer that is not read because memory is short is not to blame.
        let isUnfinished = connection.input > limits.allowance && connection.wait != .memory
        let holdsTooMuch = isUnfinished || connection.output + connection.heldBack > limits.unread
        connections.values[place].standstill.moved(bytes, holdsTooMuch: holdsTooMuch, limits, at: now)
    }

    /// - Parameter bytes: how much of an unfinished line has arrived.
    private mutating func noteArrival(of id: ConnectionID, _ bytes: Int, at now: Instant) {
        guard let place = connections.index(forKey: id) else { return }
        // As above, a peer that is not read is not to blame.
        let holdsTooMuch = bytes > limits.allowance && connections.values[place].wait != .memory
        connections.values[place].standstill.arrived(bytes, holdsTooMuch: holdsTooMuch, limits, at: now)
    }

    // MARK: Waiting

    private mutating func wait(_ id: ConnectionID, for what: Wait) {
        connections[id]?.wait = what
        if what != .itself, !waiters.contains(id) { waiters.append(id) }
        if what == .memory, let user = connections[id]?.user { exemptOne(of: user) }
    }

    /// Takes memory within the shares, or apart from them for the one connection that may exceed them.
    private mutating func take(_ bytes: Int, for id: ConnectionID) -> Bool {
        guard exempt?.id == id else { return memory.take(bytes, for: id) }
        guard work(of: id) + bytes <= limits.exempt else { return false }
        memory.takeAnyway(bytes, for: id)
        return true
    }

    private mutating func give(_ bytes: Int, by id: ConnectionID) {
        let before = memory.borrowed
        memory.give(bytes, by: id)
        if memory.borrowed < before || exempt?.id == id && bytes > 0 { isSomethingFree = true }
        // A little may have arrived behind its line, and commands may run long, or wait.
        if exempt?.id == id, work(of: id) <= 4 * limits.allowance {
            exempt = nil
            isSomethingFree = true
        }
    }

    /// What the connection holds for its lines and for calls that end without its peer or a server.
    private func work(of id: ConnectionID) -> Int {
        guard let connection = connections[id] else { return 0 }
        return memory.held(by: id) - connection.output - connection.heldBack - connection.waiting
    }

    /// Lets one connection of a user exceed the shares if its connections may wait for each other.
    private mutating func exemptOne(of user: UInt32) {
        guard exempt == nil else { return }
        for (id, connection) in connections where connection.user == user && !connection.waitsForMemory {
            // Calls that wait, and notifications that a program does not read, may hold their memory for ever.
            let lasting = connection.waiting + connection.notifications.bytes
            guard memory.held(by: id) - lasting <= limits.allowance else { return }
        }
        let first = waiters.first { connections[$0]?.user == user && connections[$0]?.waitsForMemory == true }
        guard let id = first else { return }
        exempt = (id, nil, false)
        // What it held in the pool.
        isSomethingFree = true
        waiters.removeAll { $0 == id }
        wake(id)
    }

    /// One of the connection's own calls has ended, or its peer has read.
    private mutating func wakeItself(_ id: ConnectionID) {
        guard let place = connections.index(forKey: id) else { return }
        let user = connections.values[place].user
        if connections.values[place].wait == .itself {
            connections.values[place].wait = nil
            turns.add(id, of: user)
        }
        if connections.values[place].readWait == .itself {
            connections.values[place].readWait = nil
            readTurns.add(id, of: user)
        }
    }

    private mutating func wakeWaiters() {
        guard isSomethingFree else { return }
        isSomethingFree = false
        woken += givers
        givers = []
        let waiters = waiters
        self.waiters = []
        for id in waiters { wake(id) }
    }

    /// Memory or commits may be there for a connection.
    private mutating func wake(_ id: ConnectionID) {
        guard let connection = connections[id] else { return }
        if connection.wait == .memory || connection.wait == .commits {
            connections[id]?.wait = nil
            turns.add(id, of: connection.user)
        }
        if connection.readWait == .memory {
            connections[id]?.readWait = nil
            readTurns.add(id, of: connection.user)
        }
    }
}
