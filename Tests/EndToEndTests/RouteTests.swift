import ControlAPI
import Foundation
import Support
import Testing

extension EndToEnd {
    @Test func `a default route that moves with its address is followed at once`() async throws {
        try await withServer { lab, _, daemon in
            try daemon.session(heartbeat: "20s", dial: "1min", authenticate: "1min")
            let events = try await daemon.startConnected()
            let before = try await daemon.status()
            try await lab.host.ip("addr del 10.77.0.1/24 dev up0", "route replace default via 10.77.1.254")
            let lost = try await events.until(.reconnecting)
            let connected = try await events.until(.connected)
            #expect(lost.reason?.group == "network")
            #expect(connected.path?.source == "10.77.1.1")
            #expect(connected.resumed == true)
            let told = await events.all
            #expect(told.contains { $0.change == "moved-source-gone" })
            // At once: it neither waits for the heartbeat nor holds the connection as on a lost path.
            #expect(!told.contains { $0.phase == .waitingForNetwork })
            #expect(try await daemon.status().counters.attempts == before.counters.attempts + 1)
        }
    }

    @Test func `an uplink that goes down is replaced by another`() async throws {
        try await withServer { lab, _, daemon in
            try daemon.session(heartbeat: "20s")
            try await lab.host.ip("route add default via 10.77.1.254 metric 100")
            let events = try await daemon.startConnected()
            try await lab.uplinkDown()
            let connected = try await events.until("connected by the other uplink") {
                $0.state == .connected && $0.path?.source == "10.77.1.1"
            }
            #expect(connected.resumed == true)
            let told = await events.all
            #expect(told.contains { $0.change == "moved-source-gone" })
        }
    }

    @Test func `no SYN precedes the route when a link comes back`() async throws {
        try await withServer { lab, _, daemon in
            try daemon.session()
            try await daemon.start()
            let capture = try await LabCapture(lab)
            let events = try await daemon.events()
            try await events.until(.connected)
            // A session is hurried at most six times per minute.
            for _ in 1...3 {
                try await lab.uplinkDown()
                try await events.until(.waitingForNetwork)
                // The capture may tell later of what happened before.
                let waiting = Date.now.timeIntervalSince1970
                // The route comes once the link is up, as from a DHCP client, and it is the route that matters.
                try await lab.host.ip("link set up0 up")
                try await lab.uplinkIsUp()
                let told = try await lab.host.addDefaultRoute(via: (10, 77, 0, 254))
                try await events.until(.connected)
                try await until("the SYN is captured") { capture.connects.contains { $0 > told } }
                #expect(!capture.connects.contains { $0 > waiting && $0 <= told })
            }
        }
    }
}
