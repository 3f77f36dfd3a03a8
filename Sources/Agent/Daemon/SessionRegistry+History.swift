import Configuration
import ControlAPI
import DurableStore
import Session
import SessionCore

// What the history of the sessions records, and the answer to `session.history`.

extension SessionRegistry {
    func record(_ change: (isolated HistoryQueue) -> Void) {
        noteClockStep()
        historyQueue?.assumeIsolated(change)
    }

    func noteClockStep() {
        let (now, wallClock) = (clock.now(), clock.wallClock())
        historyQueue?.assumeIsolated { $0.lookAtClocks(now: now, wallClock: wallClock) }
    }

    /// Records the end of a daemon that was killed, or lost its power, and could not do so itself.
    func recordEndBefore(
        of names: [SessionName], _ store: any SessionStore
    ) async throws(StoreError) {
        let newest = try await store.newestHistory()
        for last in names.compactMap({ newest[$0] }) {
            let entry = HistoryRecorder.unrecordedEnd(
                after: last, lastAlive: store.openReport.lastAlive, now: clock.wallClock())
            record { $0.record(entry) }
        }
    }

    /// How many entries are read at once: commits should not have to wait for more.
    private static let historyPage = 256

    /// Returns the answer to `session.history`. It is read and written in pages; only the encoded answer is kept.
    func history(
        _ wanted: SessionHistoryMethod.Parameters, for id: RequestID
    ) async throws(RPCError) -> [UInt8] {
        guard let surroundings else { throw .shuttingDown }
        let name = wanted.session.flatMap { SessionName(listed: $0) }
        // A session that is no longer configured still has a history.
        if let session = wanted.session, name.flatMap({ entries[$0] }) == nil {
            guard let name, try await !page(surroundings, name, limit: 1).entries.isEmpty else {
                throw .unknownSession(session, among: entries.keys.lazy.map(\.description))
            }
        }
        let configurations = Dictionary(uniqueKeysWithValues: drivers.map { ($0.name, $0.configuration) })
        var pages: [[UInt8]] = []
        var (left, before) = (wanted.limit, Int64?.none)
        repeat {
            let page = try await page(
                surroundings, name, since: wanted.since, until: wanted.until, before: before,
                limit: min(left, Self.historyPage))
            if !page.entries.isEmpty { pages.append(await Self.elements(page.entries, configurations)) }
            left -= page.entries.count
            before = page.next
            // The caller does not wait for the remaining pages.
            if Task.isCancelled { throw .shuttingDown }
        } while before != nil && left > 0
        return OutgoingLine.answer(id, list: "entries", pages: pages.reversed())
    }

    /// Encodes entries as JSON, off the event loop, because that takes a while.
    @concurrent private static func elements(
        _ entries: [HistoryEntry], _ configurations: [SessionName: SessionConfiguration]
    ) async -> [UInt8] {
        OutgoingLine.elements(entries.compactMap { SessionHistoryEntry($0, configurations[$0.session]) })
    }

    private func page(
        _ surroundings: SessionDriver.Surroundings, _ session: SessionName?, since: Timestamp? = nil,
        until: Timestamp? = nil, before: Int64? = nil, limit: Int
    ) async throws(RPCError) -> HistoryPage {
        let (store, queue) = (surroundings.store, historyQueue)
        do throws(StoreError) {
            return try await surroundings.commits.watch.answer { () throws(StoreError) in
                if before == nil { await queue?.everythingRecorded() }
                return try await store.history(
                    session: session, since: since, until: until, before: before, limit: limit)
            }
        } catch {
            throw .internalError("the history cannot be read: \(error)")
        }
    }
}
