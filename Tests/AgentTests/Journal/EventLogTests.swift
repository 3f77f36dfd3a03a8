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

    @Test func `a watch of one session is told of its own missing events only`() throws {
        var watches = Watches()
        let (main, other) = (try #require(SessionName("main")), try #require(SessionName("other")))
        _ = watches.take(Self.event("main"), of: main)
        for _ in 0...EventLog.capacity { _ = watches.take(Self.event("other"), of: other) }
        func missed(_ session: SessionName?, since: Int64) -> [SessionEvent] {
            watches.add(
                .init(session: session, deliver: { _, _ in }), since: since, epoch: nil,
                snapshot: SessionSnapshot(sessions: []), at: .init(rawValue: 0)
            ).missed
        }
        #expect(missed(main, since: 1).isEmpty)
        let first = missed(main, since: 0)
        #expect(first.map(\.event) == [.dropped] && first.first?.count == nil)
        #expect(missed(other, since: 2).allSatisfy { $0.event != .dropped })
        #expect(missed(nil, since: 1).first?.count == 1)
        #expect(missed(nil, since: 0).first?.count == 2)
    }

    @Test func `the names of sessions that are long gone are forgotten, and their events may be missing`() {
        var log = EventLog()
        let names = 2 * EventLog.mostDistinguished
        for number in 1...names { _ = log.append(Self.event("s\(number)")) }
        for _ in 1...EventLog.capacity { _ = log.append(Self.event("main")) }
        let (first, last) = (log.hasForgotten(of:since:), Int64(names))
        #expect(first("s1", 0) && first("s\(names)", last - 1), "what is gone is told")
        #expect(!first("s\(names)", last), "and nothing else of a session that was seen lately")
        #expect(!first("main", last) && !first("never", last))
        #expect(log.distinguished < EventLog.mostDistinguished)
    }

    @Test func `events with long texts take the place of more than one`() {
        var log = Self.log(1000)
        var long = Self.event()
        long.topic = String(repeating: "t", count: 65_535)
        for _ in 1...1000 { _ = log.append(long) }
        let (events, missing) = log.events(since: 0)
        let bytes = events.map { $0.topic?.utf8.count ?? 0 }.reduce(0, +)
        #expect((1 << 20...2 << 20).contains(bytes))
        #expect(missing == Int64(2000 - events.count))
        #expect(events.map(\.sequence) == Array(missing + 1...2000))
        for _ in 1...EventLog.capacity { _ = log.append(Self.event()) }
        #expect(log.events(since: 0).events.count == EventLog.capacity)
    }
}
