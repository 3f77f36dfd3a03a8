import NIOCore

/// What a session needs from a store when nothing has to survive the process: the messages and identifiers in memory.
/// It carries out the machine's `commit` and `load` actions at once, so each can be answered immediately. With a store
/// on disk in its place the session survives the process, and the host; the changes are the same.
public struct MemoryStore: Sendable {
    private var messages: [MessageSequence: StoredMessage] = [:]

    public init() {}

    /// Carries out all changes of one `commit`; answer `committed` then.
    public mutating func commit(_ changes: [DurableChange]) {
        for change in changes { apply(change) }
    }

    /// Returns what a `load` asks for, to be answered with `loaded`.
    public func load(after: MessageSequence, messages limit: Int, bytes: Int) -> [StoredMessage] {
        var found: [StoredMessage] = []
        var size = 0
        for sequence in messages.keys.sorted() where sequence > after {
            guard let stored = messages[sequence], stored.state == .queued else { continue }
            size += stored.message.size
            // At least one message is returned, whatever its size.
            guard found.isEmpty || (found.count < limit && size <= bytes) else { break }
            found.append(stored)
        }
        return found
    }

    /// All messages, in order of acceptance: queued, in flight or quarantined.
    public var outbox: [StoredMessage] { messages.values.sorted { $0.sequence < $1.sequence } }

    private mutating func apply(_ change: DurableChange) {
        switch change {
        case .insert(let stored): messages[stored.sequence] = stored
        case .assign(let sequence, let id): messages[sequence]?.state = .inFlight(id)
        case .unassign(let sequence): messages[sequence]?.state = .queued
        case .release(let sequence):
            guard case .inFlight(let id)? = messages[sequence]?.state else { return }
            messages[sequence]?.state = .released(id)
            messages[sequence]?.message.payload.clear()
        case .remove(let sequence), .acknowledge(let sequence): messages[sequence] = nil
        case .quarantine(let sequence, let code, let sentence):
            messages[sequence]?.state = .quarantined(code, sentence)
        case .requeue(let old, as: let new, at: let time):
            guard var stored = messages.removeValue(forKey: old) else { return }
            stored.message.acceptedAt = time
            messages[new] = StoredMessage(sequence: new, message: stored.message)
        case .shiftTimes(by: let milliseconds, acceptedWithin: let range):
            for (sequence, stored) in messages where range.contains(stored.message.acceptedAt) {
                messages[sequence]?.message.acceptedAt = stored.message.acceptedAt.advanced(by: milliseconds)
                messages[sequence]?.message.expiresAt = stored.message.expiresAt?.advanced(by: milliseconds)
            }
        default:
            // Needed only by a machine that starts from the store: identifiers, subscriptions, whether there was a session.
            break
        }
    }
}
