import ControlAPI
import SessionCore

/// Who watches the daemon's events, and the events that they may have missed.
struct Watches {
    struct Watcher {
        /// `nil` for all sessions.
        var session: SessionName?
        var deliver: @Sendable (SessionEvent, EventLine) -> Void
    }

    private var events = EventLog()
    private var watchers: [WatchID: Watcher] = [:]
    private var last = 0

    var count: Int { watchers.count }

    /// Numbers an event and keeps it.
    ///
    /// - Returns: the watchers of the session, each with the event as it is delivered to that watcher.
    mutating func take(_ event: SessionEvent, of session: SessionName) -> [(watcher: Watcher, event: SessionEvent)] {
        var event = events.append(event)
        return watchers.filter { $0.value.session == nil || $0.value.session == session }.map { id, watcher in
            event.watch = id
            return (watcher, event)
        }
    }

    /// Adds a watcher. The answer has the snapshot, and the events after `since` that are still kept; these begin with
    /// `dropped` if some are no longer kept.
    mutating func add(
        _ watcher: Watcher, since: Int64?, epoch: String?, snapshot: SessionSnapshot, at now: Timestamp
    ) -> (SessionWatchMethod.Result, missed: [SessionEvent]) {
        last += 1
        let id = WatchID(rawValue: "w\(last)")
        watchers[id] = watcher
        // Numbers start again with each daemon: one from another epoch says nothing about this daemon's events.
        let isForeign = since.map { $0 > events.sequence || (epoch ?? events.epoch) != events.epoch } ?? false
        let result = SessionWatchMethod.Result(
            watch: id, snapshot: snapshot, sequence: events.sequence, epoch: events.epoch, restarted: isForeign)
        let after = isForeign ? 0 : since
        return (result, missed: after.map { missed(after: $0, session: watcher.session, by: id, at: now) } ?? [])
    }

    private func missed(
        after sequence: Int64, session: SessionName?, by id: WatchID, at now: Timestamp
    ) -> [SessionEvent] {
        let (kept, forgotten) = events.events(since: sequence)
        var missed = kept.filter { session == nil || $0.session == session?.description }
        let isMissing = session.map { events.hasForgotten(of: $0.description, since: sequence) } ?? true
        if forgotten > 0, isMissing {
            var event = SessionEvent(
                watch: id, sequence: max(0, sequence) + forgotten, time: now, session: nil, event: .dropped)
            // How many of them were this session's is not known.
            if session == nil { event.count = Int(forgotten) }
            missed.insert(event, at: 0)
        }
        for index in missed.indices { missed[index].watch = id }
        return missed
    }

    mutating func remove(_ id: WatchID) { watchers[id] = nil }
}
