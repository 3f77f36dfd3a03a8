import MQTT
import Session
import Testing
import Vocabulary

struct SessionHomesTests {
    private let a: Endpoint
    private let b: Endpoint
    private let c: Endpoint

    init() throws {
        (a, b, c) = (try Endpoint("mqtt://a"), try Endpoint("mqtt://b"), try Endpoint("mqtt://c"))
    }

    private func port(_ number: Int) throws -> Endpoint { try Endpoint("mqtt://a:\(number)") }

    private func left(_ filters: String...) throws -> LeftSession {
        LeftSession(filters: Set(try filters.map { try TopicFilter($0) }))
    }

    @Test func `the previous server has an older copy until the session returns`() throws {
        var homes = SessionHomes()
        homes.connected(to: a, resumed: false)
        #expect(homes.isHome(a) && homes.older(at: a) == nil)
        let isDifferent = homes.connected(to: a, resumed: true)
        #expect(!isDifferent)
        homes.connected(to: b, resumed: false, leaving: try left("x"))
        #expect(homes.isHome(b))
        let found = homes.older(at: a)
        #expect(try found == left("x"))
        homes.connected(to: a, resumed: false, leaving: try left("y"))
        #expect(homes.isHome(a) && homes.older(at: a) == nil)
        let foundAtB = homes.older(at: b)
        #expect(try foundAtB == left("y"))
    }

    @Test func `servers that share the session have no older copies`() throws {
        var homes = SessionHomes([SessionHome(a.description)])
        let isDifferent = homes.connected(to: b, resumed: true)
        #expect(isDifferent && homes.stored == [SessionHome(b.description)])
    }

    @Test func `after a loss another server behind the address may have the older copy, until that has expired`() throws
    {
        var homes = SessionHomes([SessionHome(a.description)])
        func connected(at second: Int64, resumed: Bool = true, leaving left: LeftSession = LeftSession()) -> Bool {
            homes.connected(
                to: a, resumed: resumed, isLost: !resumed, leaving: left, expiry: 60,
                at: Timestamp(rawValue: second * 1000))
        }
        #expect(connected(at: 0, resumed: false, leaving: try left("x")))
        #expect(homes.isHome(a))
        #expect(connected(at: 10, resumed: false, leaving: try left("y")))
        let found = homes.older(at: a)
        #expect(try found == left("x", "y"), "of any of them")
        let isDifferent = connected(at: 70)
        #expect(!isDifferent && homes.older(at: a) != nil)
        #expect(connected(at: 71))
        #expect(homes.older(at: a) == nil)
    }

    @Test func `what an address retains after a loss of the session is not left behind`() throws {
        var homes = SessionHomes([SessionHome(a.description)])
        let topics = RetainedTopics(publications: ["x"])
        homes.connected(to: a, resumed: false, isLost: true, leaving: try left("x"), retaining: topics)
        #expect(homes.older(at: a) != nil && homes.retained(at: a) == RetainedTopics() && homes.leftTopics == 0)
        homes.connected(to: b, resumed: false, retaining: topics)
        #expect(homes.retained(at: a) == topics)
    }

    @Test func `an older copy ends when the server that has it said, not the next one`() throws {
        var homes = SessionHomes()
        homes.connected(to: a, resumed: false, expiry: 3600)
        homes.connected(to: b, resumed: false, expiry: 60, at: Timestamp(rawValue: 1000))
        #expect(
            homes.stored == [
                SessionHome(b.description, expiry: 60),
                SessionHome(a.description, endsAt: Timestamp(rawValue: 3_601_000)),
            ])
        homes.connected(to: c, resumed: false, at: Timestamp(rawValue: 2000))
        #expect(homes.stored.last == SessionHome(b.description, endsAt: Timestamp(rawValue: 62_000)))
        #expect(SessionHomes(homes.stored) == homes)
    }

    @Test func `what a server may retain is remembered until the session returns`() throws {
        var homes = SessionHomes([SessionHome(a.description)])
        let topics = RetainedTopics(publications: ["x", "y"], presences: ["z"])
        homes.connected(to: b, resumed: false, retaining: topics)
        #expect(homes.retained(at: a) == topics && homes.leftTopics == 3)
        #expect(homes.retained(at: b) == RetainedTopics())
        homes.connected(to: a, resumed: false, retaining: RetainedTopics(publications: ["y"]))
        #expect(homes.retained(at: a) == RetainedTopics() && homes.leftTopics == 1)
    }

    @Test func `a session that was ended on purpose has left nothing at its server`() throws {
        var homes = SessionHomes([SessionHome(a.description)])
        let isDifferent = homes.connected(to: a, resumed: false)
        #expect(!isDifferent)
    }

    @Test func `the stored homes are restored`() throws {
        var homes = SessionHomes()
        for address in [a, b, c] { homes.connected(to: address, resumed: false, leaving: try left("x")) }
        #expect(homes.stored.map(\.address) == [c, a, b].map(\.description))
        #expect(SessionHomes(homes.stored) == homes)
    }

    @Test func `the oldest copies are forgotten`() throws {
        var homes = SessionHomes()
        for port in 1...SessionHomes.maximumOlder + 2 {
            homes.connected(to: try self.port(port), resumed: false)
        }
        #expect(homes.stored.count == SessionHomes.maximumOlder + 1)
        let (oldest, next) = (try port(1), try port(2))
        #expect(homes.older(at: oldest) == nil && homes.older(at: next) != nil)
    }

    @Test func `of very many filters only some are remembered`() throws {
        var homes = SessionHomes([SessionHome(a.description)])
        let long = String(repeating: "x", count: 60_000)
        let many = LeftSession(filters: Set(try (0..<50).map { try TopicFilter("\($0)/\(long)") }))
        homes.connected(to: b, resumed: false, leaving: many)
        #expect(homes.older(at: a)?.filters.count == 17)
    }
}
