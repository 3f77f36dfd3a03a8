import ControlAPI
import SessionCore
import Support
import Testing

@testable import Agent
@testable import SimulationSupport

/// The host's resolver configuration changes: whether that matters to a session is not known.
@Suite("Resolver", .timeLimit(.minutes(10)))
struct ResolverScenarios {
    @Test func `a session that waits tries once when the resolver changes, and then goes on waiting`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A", "reconnect.watch = \"never\"\nreconnect.spread = \"0s\"").connected()
            scenario.stop()
            try await a.until(.reconnecting)
            await scenario.sleep(.seconds(600))
            while try await a.status().phase != .waiting { await scenario.sleep(.milliseconds(100)) }
            let before = try await a.status()
            await a.resolverChanged()
            await scenario.sleep(.seconds(1))
            let after = try await a.status()
            #expect(after.counters.attempts == before.counters.attempts + 1)
            #expect(after.phase == .waiting)
            #expect((after.retryIn ?? 0) > 30, "the table does not restart")
        }
    }

    /// The route that a router had advertised expires, which the kernel does not announce.
    @Test func `a connection that the kernel refuses shows that there is no path any more`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
            scenario.losePathUnnoticed(a)
            try await a.until(.reconnecting)
            var status = try await a.status()
            while status.phase != .waitingForNetwork, status.counters.attempts < 5 {
                await scenario.sleep(.milliseconds(10))
                status = try await a.status()
            }
            #expect(status.counters.attempts == 2, "one attempt was enough")
        }
    }

    @Test func `a connected session is probed when the resolver changes, and stays`() async throws {
        try await Scenario.run { scenario in
            let a = try await scenario.host("A").connected()
            await scenario.sleep(.seconds(10))
            await a.resolverChanged()
            #expect(try await a.status().doubt == .probing)
            await scenario.sleep(.seconds(1))
            let status = try await a.status()
            #expect(status.doubt == nil)
            #expect((status.lastHeard ?? .infinity) < 1.5)
            #expect(status.counters.connects == 1)
        }
    }
}
