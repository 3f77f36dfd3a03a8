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

    @Test func `the previous server has a stale copy until it starts a new session`() throws {
        var homes = SessionHomes()
        homes.connected(to: a, resumed: false)
        #expect(homes.isHome(a) && !homes.isStale(a))
        let isDifferent = homes.connected(to: a, resumed: true)
        #expect(!isDifferent)
        homes.connected(to: b, resumed: false)
        #expect(homes.isHome(b) && homes.isStale(a))
        homes.connected(to: a, resumed: false)
        #expect(homes.isHome(a) && homes.isStale(b) && !homes.isStale(a))
    }

    @Test func `servers that share the session have no stale copies`() throws {
        var homes = SessionHomes([a.description])
        let isDifferent = homes.connected(to: b, resumed: true)
        #expect(isDifferent && homes.addresses == [b.description])
    }

    @Test func `the stored addresses are restored, the home first`() throws {
        var homes = SessionHomes()
        for address in [a, b, c] { homes.connected(to: address, resumed: false) }
        #expect(homes.addresses == [c, a, b].map(\.description))
        #expect(SessionHomes(homes.addresses) == homes)
    }

    @Test func `the oldest stale copies are forgotten`() throws {
        var homes = SessionHomes()
        for port in 1...SessionHomes.maximumStale + 2 {
            homes.connected(to: try self.port(port), resumed: false)
        }
        #expect(homes.addresses.count == SessionHomes.maximumStale + 1)
        let (oldest, next) = (try port(1), try port(2))
        #expect(!homes.isStale(oldest) && homes.isStale(next))
    }
}
