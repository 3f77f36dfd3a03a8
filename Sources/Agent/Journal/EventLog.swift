import ControlAPI

/// The daemon's events in one numbered sequence. The last ones are kept, so that a watcher can be told what it missed.
///
/// A value; `Watches` owns the only one.
struct EventLog: Sendable {
    /// How many events are kept for replay.
    static let capacity = 4096
    /// How many bytes the texts of the kept events may have: those from outside, such as topics, can be long.
    static let maximumBytes = 2 << 20

    /// Each event is at the place of its number, modulo the capacity.
    private var kept: [SessionEvent?] = []
    /// The number of the oldest event that is kept.
    private var oldest: Int64 = 1
    private var bytes = 0
    /// The last event of each session that is no longer kept, for the sessions in which that was last.
    private var lastForgotten: [String: Int64] = [:]
    /// At least the last such event of all other sessions: there is no end to the names that sessions may have had.
    private var lastForgottenOfOthers: Int64 = 0
    /// From how many sessions on the half in which it is longest ago count as others.
    static let mostDistinguished = 8192
    /// The number of the last event; 0 before the first.
    private(set) var sequence: Int64 = 0
    /// Distinguishes this numbering from those of other runs of the daemon.
    let epoch = String(UInt64.random(in: .min ... .max), radix: 16)

    /// Numbers the event and keeps it.
    mutating func append(_ event: SessionEvent) -> SessionEvent {
        sequence += 1
        var event = event
        event.sequence = sequence
        bytes += event.textBytes
        if kept.count < Self.capacity { kept.append(nil) }
        while oldest < sequence, sequence - oldest >= Int64(Self.capacity) || bytes > Self.maximumBytes {
            let place = Self.place(of: oldest)
            bytes -= kept[place]?.textBytes ?? 0
            if let session = kept[place]?.session { noteForgotten(of: session) }
            kept[place] = nil
            oldest += 1
        }
        kept[Self.place(of: sequence)] = event
        return event
    }

    /// Returns the kept events after a number, and how many events after it are no longer kept.
    func events(since: Int64) -> (events: [SessionEvent], forgotten: Int64) {
        let first = min(max(0, since), sequence) + 1
        let start = max(first, oldest)
        return ((start..<sequence + 1).compactMap { kept[Self.place(of: $0)] }, start - first)
    }

    /// Whether events of a session after a number are no longer kept, or may not be.
    func hasForgotten(of session: String, since: Int64) -> Bool {
        lastForgotten[session] ?? lastForgottenOfOthers > max(0, since)
    }

    /// How many sessions are told apart from all others.
    var distinguished: Int { lastForgotten.count }

    private mutating func noteForgotten(of session: String) {
        lastForgotten[session] = oldest
        guard lastForgotten.count >= Self.mostDistinguished else { return }
        let numbers = lastForgotten.values.sorted()
        lastForgottenOfOthers = numbers[numbers.count / 2]
        lastForgotten = lastForgotten.filter { $0.value > lastForgottenOfOthers }
    }

    private static func place(of number: Int64) -> Int { Int((number - 1) % Int64(capacity)) }
}

extension SessionEvent {
    /// How many bytes its texts have that someone outside can make long.
    fileprivate var textBytes: Int {
        [
            session, room, reason?.message, endpoint, user, device, previousRoom, topic, subscription?.filter,
        ].reduce(0) { $0 + ($1?.utf8.count ?? 0) }
    }
}
