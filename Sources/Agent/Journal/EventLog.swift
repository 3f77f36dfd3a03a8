import ControlAPI

/// The daemon's events in one numbered sequence. The last ones are kept, so that a watcher can be told what it missed.
///
/// A value; `Watches` owns the only one.
struct EventLog: Sendable {
    /// How many events are kept for replay.
    static let capacity = 4096

    private var events: [SessionEvent] = []
    /// The position of the oldest event in `events`, once that is full.
    private var oldest = 0
    /// The number of the last event; 0 before the first.
    private(set) var sequence: Int64 = 0
    /// Distinguishes this numbering from those of other runs of the daemon.
    let epoch = String(UInt64.random(in: .min ... .max), radix: 16)

    /// Numbers the event and keeps it.
    mutating func append(_ event: SessionEvent) -> SessionEvent {
        sequence += 1
        var event = event
        event.sequence = sequence
        if events.count < Self.capacity {
            events.append(event)
        } else {
            events[oldest] = event
            oldest = (oldest + 1) % Self.capacity
        }
        return event
    }

    /// Returns the kept events after a number, and how many events after it are no longer kept.
    func events(since: Int64) -> (events: [SessionEvent], forgotten: Int64) {
        let missed = sequence - min(max(0, since), sequence)
        let kept = min(missed, Int64(events.count))
        let ordered = events[oldest...] + events[..<oldest]
        return (Array(ordered.suffix(Int(kept))), missed - kept)
    }
}
