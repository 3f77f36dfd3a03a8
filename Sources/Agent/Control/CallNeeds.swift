import ControlAPI
import Session
import SessionCore

/// What kind of call a call is, and how long its answer may be, as far as that can be told before it runs.
enum CallNeeds: Hashable, Sendable {
    /// - Parameter answer: the greatest expected length of the answer.
    case known(CallKind, answer: Int)
    /// The answer lists what there is when the call begins.
    case list(List)

    enum List: Hashable, Sendable {
        case sessions
        case participants(session: String)
        case paths
    }

    /// The answer to most queries is no longer than this.
    static let shortAnswer = 16 << 10
    /// The most that is reserved for an answer, since one that never fits would wait forever.
    static let longestAnswer = 5 << 20

    /// - Parameter length: returns the expected length of the answer to a call that lists things.
    func resolved(_ length: (List) -> Int) -> (CallKind, answer: Int) {
        switch self {
        case .known(let kind, let answer):
            return (kind, answer)
        case .list(let list):
            let length = length(list)
            // A long list is encoded elsewhere, and few at once.
            return length <= Self.shortAnswer
                ? (.query, Self.shortAnswer) : (.read, min(length, Self.longestAnswer))
        }
    }
}

extension SessionRegistry {
    /// The length of the answer that lists all sessions, about.
    var listLength: Int {
        let session = 1200
        return drivers.reduce(entries.count * session) { $0 + $1.assumeIsolated { $0.filterCount } * 120 }
    }

    /// The length of the answer that lists the participants of a session's room, about.
    func participantsLength(_ session: String) -> Int {
        guard let driver = try? driverNow(session) else { return 0 }
        return driver.assumeIsolated { $0.session.rooms.membership?.participants.listLength ?? 0 }
    }
}

extension SessionDriver {
    /// How many filters the session's status names, about.
    fileprivate var filterCount: Int {
        // Those of durable consumers are named twice.
        programs.subscribers.count + 2 * session.durableConsumers.consumers.count
    }
}
