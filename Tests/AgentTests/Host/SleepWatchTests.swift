import ControlAPI
import MQTT
import NetworkPath
import SessionCore
import Support
import SupportLogind
import Synchronization
import Systemd
import Testing

@testable import Agent

/// The host's sleep and its clock, with a whole daemon: dbus-daemon is real, logind and the clocks are not.
@Suite(.enabled(if: MessageBus.isAvailable, "there is no dbus-daemon"), .serialized, .timeLimit(.minutes(10)))
struct SleepWatchTests {
    /// Clocks that a test moves.
    private final class Clocks: Sendable {
        private let reading = Mutex(ClockReading.now())

        var now: ClockReading { reading.withLock { $0 } }

        func sleep(_ duration: Duration) {
            reading.withLock {
                $0.boot = $0.boot.advanced(by: duration)
                $0.wall += duration
            }
        }

        func step(_ duration: Duration) { reading.withLock { $0.wall += duration } }
    }

    private static func run(
        _ extra: String = "",
        _ body: (DaemonUnderTest, SleepWatch, FakeLogind, Clocks) async throws -> Void
    ) async throws {
        let bus = try MessageBus()
        defer { bus.remove() }
        try await bus.start()
        let (logind, clocks) = (try await FakeLogind(bus.address), Clocks())
        try await DaemonUnderTest.run(extra) { daemon in
            let watch = SleepWatch(
                registry: daemon.registry, logger: daemon.log.logger, eventLoop: daemon.eventLoop,
                busAddress: bus.address, read: { clocks.now })
            await watch.start()
            try await body(daemon, watch, logind, clocks)
            await watch.stop()
        }
        logind.stop()
    }

    private static func isLock(_ event: FakeLogind.Event?) -> Bool {
        if case .inhibited? = event { true } else { false }
    }

    @Test func `a session leaves before the host may sleep, and is back afterwards`() async throws {
        try await Self.run { daemon, watch, logind, clocks in
            let peer = try await daemon.watcher()
            #expect(Self.isLock(await logind.seen.next()))
            logind.prepareForSleep(true)
            #expect(await logind.seen.next() == .released)
            let status = try await peer.call("session.status", #"{"session":"main"}"#)
            #expect(status["state"] == "disconnected")
            #expect(status["reason"]?["code"] == "suspend")
            clocks.sleep(.seconds(100))
            await watch.clockJumped()
            #expect(try await peer.state("connecting")["reason"]?["code"] == "wake")
            try await peer.state("connected")
            logind.prepareForSleep(false)
            #expect(Self.isLock(await logind.seen.next()))
            let lines = daemon.log.lines.filter { $0.fields["MESSAGE_ID"] == "\(MessageID.resumedFromSleep)" }
            #expect(lines.map(\.message) == ["the host slept for 100 s"])
            #expect(try await peer.call("session.status", #"{"session":"main"}"#)["state"] == "connected")
        }
    }

    @Test func `a cancelled sleep brings the session back`() async throws {
        try await Self.run { daemon, _, logind, _ in
            let peer = try await daemon.watcher()
            #expect(Self.isLock(await logind.seen.next()))
            logind.prepareForSleep(true)
            #expect(await logind.seen.next() == .released)
            logind.prepareForSleep(false)
            #expect(try await peer.state("connecting")["reason"]?["code"] == "wake")
            try await peer.state("connected")
        }
    }

    @Test func `sleep is delayed while a session leaves before it, even after a reload`() async throws {
        try await Self.run { daemon, _, logind, _ in
            _ = try await daemon.watcher()
            #expect(Self.isLock(await logind.seen.next()))
            try await daemon.writeSession("on-suspend = \"keep\"")
            _ = try await daemon.daemon.reload()
            #expect(await logind.seen.next() == .released)
            try await daemon.writeSession()
            _ = try await daemon.daemon.reload()
            #expect(Self.isLock(await logind.seen.next()))
        }
    }

    @Test func `a session probes its connection after a sleep without logind`() async throws {
        // No heartbeat is due in the time of the test.
        try await Self.run("on-suspend = \"keep\"\n[heartbeat]\ninterval = \"1h\"") { daemon, watch, logind, clocks in
            let peer = try await daemon.watcher()
            logind.stop()
            #expect(await logind.seen.next() == .ended)
            clocks.sleep(.seconds(100))
            await watch.clockJumped()
            _ = try await daemon.server.events.first { event -> Bool? in
                if case .packet(.pingreq) = event { true } else { nil }
            }
            #expect(try await peer.call("session.status", #"{"session":"main"}"#)["state"] == "connected")
        }
    }

    @Test func `a clock that is set again and again is reported once, and disturbs no session`() async throws {
        try await Self.run { daemon, watch, _, clocks in
            let peer = try await daemon.watcher()
            for _ in 1...100 {
                clocks.step(.seconds(-2))
                await watch.clockJumped()
            }
            let lines = daemon.log.lines.filter { $0.fields["MESSAGE_ID"] == "\(MessageID.clockStepped)" }
            #expect(lines.map(\.message) == ["the clock was set back by 2.0 s"])
            #expect(try await peer.call("session.status", #"{"session":"main"}"#)["state"] == "connected")
        }
    }
}
