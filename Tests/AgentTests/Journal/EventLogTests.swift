import ControlAPI
import Testing

@testable import Agent

struct EventLogTests {
    private static func event(_ session: String = "main") -> SessionEvent {
        SessionEvent(time: .init(rawValue: 0), session: session, event: .stateChanged)
    }

    private static func log(_ count: Int) -> EventLog {
        var log = EventLog()
        for _ in 0..<count { _ = log.append(event()) }
        return log
    }

    @Test func `events are numbered from one`() {
        var log = EventLog()
        #expect(log.sequence == 0)
        #expect(log.append(Self.event()).sequence == 1)
        #expect(log.append(Self.event()).sequence == 2)
        #expect(log.sequence == 2)
    }

    @Test(arguments: [
        (0, 0, 0, 0), (3, 0, 3, 0), (3, 1, 2, 0), (3, 3, 0, 0), (3, 4, 0, 0), (3, -1, 3, 0),
        (EventLog.capacity, 0, EventLog.capacity, 0), (EventLog.capacity + 1, 0, EventLog.capacity, 1),
        (EventLog.capacity + 1, 1, EventLog.capacity, 0), (2 * EventLog.capacity + 7, 0, EventLog.capacity, 4103),
        (3, .max, 0, 0), (3, .min, 3, 0),
    ])
    func `replay returns the kept events and counts the others`(appended: Int, since: Int, kept: Int, forgotten: Int) {
        let (events, missing) = Self.log(appended).events(since: Int64(since))
        #expect(events.count == kept)
        #expect(missing == Int64(forgotten))
        #expect(events.map(\.sequence) == Array(Int64(appended - kept + 1)..<Int64(appended + 1)))
    }
}
