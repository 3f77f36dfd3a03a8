import ControlAPI
import Support
import Testing

/// A path that is lost and comes back while the session holds its connection, which it does for five seconds.
struct BriefLoss {
    /// How many events there were before.
    private let told: Int
    private let outages: Int64

    /// Takes the path away and gives it back. If the machine stalls in between, the session rightly gives its connection up;
    /// that proves nothing, and everything begins again.
    init(
        _ daemon: DaemonProcess, _ events: EventFeed, lose: () async throws -> Void, giveBack: () async throws -> Void
    ) async throws {
        for _ in 1...20 {
            let (told, outages) = (await events.all.count, try await daemon.status().counters.outages)
            try await lose()
            let lost = try await events.until("told that the path is lost") { $0.change == "lost" }
            let state = try await daemon.status().state
            try await giveBack()
            let back = try await events.until("told that the path is back") {
                $0.change == "returned" || $0.change == "gained"
            }
            if Self.isShort(lost, back) {
                #expect(state == .connected, "the connection is held")
                #expect(back.change == "returned")
                (self.told, self.outages) = (told, outages)
                return
            }
            try await until("it is connected again") { try await daemon.status().state == .connected }
            _ = await events.rest()
        }
        throw Lab.Failure("the machine was too slow every time")
    }

    /// Whether the daemon's own time between two events is well within the five seconds.
    static func isShort(_ lost: SessionEvent, _ back: SessionEvent) -> Bool {
        back.time.rawValue - lost.time.rawValue < 4000
    }

    /// Checks that it cost nothing: there was no outage, and a message goes through.
    func expectNoOutage(_ daemon: DaemonProcess, _ events: EventFeed) async throws {
        try await daemon.publish("still here", to: "path", wait: .delivered)
        #expect(try await daemon.status().counters.outages == outages)
        let told = await events.all.dropFirst(told)
        #expect(!told.contains { $0.state == .reconnecting })
    }
}
