import NIOCore
import NIOPosix
import Support
import SupportLogind
import Testing

@testable import Systemd

/// Against a real dbus-daemon, and as much of logind as is needed.
@Suite(.enabled(if: MessageBus.isAvailable, "there is no dbus-daemon"), .serialized, .timeLimit(.minutes(10)))
struct LogindTests {
    private static let lock = FakeLogind.Event.inhibited(what: "sleep", who: "Holdfast", mode: "delay")

    /// - Parameter patience: longer than any answer takes, on any machine, unless the test is about that.
    private static func withBus(
        running: Bool = true, patience: Duration = .seconds(600),
        _ body: (MessageBus, Logind, Heard<Logind.Event>) async throws -> Void
    ) async throws {
        let bus = try MessageBus()
        defer { bus.remove() }
        if running { try await bus.start() }
        let heard = Heard<Logind.Event>()
        let logind = Logind(
            executor: MultiThreadedEventLoopGroup.singleton.next().executor, address: bus.address,
            patience: patience, sleep: { _ in await Task.yield() }, deliver: { heard.append($0) })
        try await body(bus, logind, heard)
        await logind.stop()
    }

    @Test func `a sleep is reported, and so is its end`() async throws {
        try await Self.withBus { bus, logind, heard in
            let fake = try await FakeLogind(bus.address)
            await logind.start()
            #expect(await heard.next() == .found)
            fake.prepareForSleep(true)
            #expect(await heard.next() == .preparesForSleep)
            fake.prepareForSleep(false)
            #expect(await heard.next() == .woke)
            fake.stop()
            #expect(await heard.next() == .lost("logind has ended"))
        }
    }

    @Test func `a bus that answers too late is asked again`() async throws {
        try await Self.withBus(patience: .milliseconds(200)) { bus, logind, heard in
            let fake = try await FakeLogind(bus.address)
            await logind.start()
            // On a busy machine it may be late without being paused.
            func answered() async -> Logind.Event? {
                var next = await heard.next()
                while next == .unanswered { next = await heard.next() }
                return next
            }
            #expect(await answered() == .found)
            bus.pause(true)
            await logind.inhibit(true)
            #expect(await heard.next() == .unanswered)
            bus.pause(false)
            #expect(await answered() == .inhibitorTaken)
            fake.stop()
        }
    }

    @Test func `sleep is delayed until it is allowed`() async throws {
        try await Self.withBus { bus, logind, heard in
            let fake = try await FakeLogind(bus.address)
            await logind.inhibit(true)
            await logind.start()
            #expect(await heard.next() == .found)
            for _ in 1...3 {
                #expect(await fake.seen.next() == Self.lock)
                #expect(await heard.next() == .inhibitorTaken)
                // One is enough.
                await logind.inhibit(true)
                await logind.inhibit(false)
                #expect(await fake.seen.next() == .released)
                await logind.inhibit(true)
            }
            fake.stop()
        }
    }

    @Test func `a lock that comes too late is released`() async throws {
        try await Self.withBus { bus, logind, heard in
            let fake = try await FakeLogind(bus.address)
            await logind.start()
            #expect(await heard.next() == .found)
            await logind.inhibit(true)
            await logind.inhibit(false)
            #expect(await fake.seen.next() == Self.lock)
            #expect(await fake.seen.next() == .released)
            fake.stop()
        }
    }

    @Test func `a logind that refuses the lock is listened to, and asked again`() async throws {
        try await Self.withBus { bus, logind, heard in
            let fake = try await FakeLogind(bus.address)
            fake.refuse()
            await logind.inhibit(true)
            await logind.start()
            #expect(await heard.next() == .found)
            #expect(await fake.seen.next() == .refused)
            guard case .inhibitorRefused? = await heard.next() else {
                Issue.record("the refusal was not told")
                return
            }
            fake.refuse(false)
            fake.prepareForSleep(true)
            #expect(await heard.next() == .preparesForSleep)
            await logind.inhibit(true)
            #expect(await fake.seen.next() == Self.lock)
            #expect(await heard.next() == .inhibitorTaken)
            fake.stop()
        }
    }

    @Test func `a logind that is restarted is found again, and delays again`() async throws {
        try await Self.withBus { bus, logind, heard in
            await logind.inhibit(true)
            await logind.start()
            for _ in 1...2 {
                let fake = try await FakeLogind(bus.address)
                #expect(await heard.next() == .found)
                #expect(await fake.seen.next() == Self.lock)
                #expect(await heard.next() == .inhibitorTaken)
                fake.stop()
                #expect(await heard.next() == .lost("logind has ended"))
            }
        }
    }

    @Test func `a bus that starts later or is restarted is found`() async throws {
        try await Self.withBus(running: false) { bus, logind, heard in
            await logind.start()
            for _ in 1...2 {
                try await bus.start()
                let fake = try await FakeLogind(bus.address)
                #expect(await heard.next() == .found)
                fake.prepareForSleep(true)
                #expect(await heard.next() == .preparesForSleep)
                bus.stop()
                guard case .lost? = await heard.next() else {
                    Issue.record("the end of the bus was not told")
                    return
                }
            }
        }
    }

    @Test func `a signal from another sender is ignored`() async throws {
        try await Self.withBus { bus, logind, heard in
            let fake = try await FakeLogind(bus.address)
            let impostor = try await FakeLogind(bus.address, name: nil)
            await logind.start()
            #expect(await heard.next() == .found)
            impostor.prepareForSleep(true)
            // Heard for as long as the impostor was there.
            impostor.stop()
            #expect(await impostor.seen.next() == .ended)
            fake.prepareForSleep(false)
            let next = await heard.next()
            #expect(next == .woke)
            fake.stop()
        }
    }

    @Test func `an invalid bus address is reported, and given up after a few tries`() async {
        let heard = Heard<Logind.Event>()
        let slept = Heard<Duration>()
        let logind = Logind(
            executor: MultiThreadedEventLoopGroup.singleton.next().executor, address: "nonsense",
            sleep: {
                slept.append($0)
                await Task.yield()
            }, deliver: { heard.append($0) })
        await logind.start()
        // After the first try and five more; then it is left alone.
        guard case .lost? = await heard.next() else {
            Issue.record("a bus was found")
            return
        }
        for pause in [1, 4, 16, 64, 256] { #expect(await slept.next() == .seconds(pause)) }
        await logind.stop()
    }
}
