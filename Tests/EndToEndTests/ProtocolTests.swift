import ControlAPI
import HoldfastClient
import Support
import Testing

extension EndToEnd {
    @Test func `a session with MQTT 3.1.1 carries every QoS both ways and outlives daemon and server`() async throws {
        try await withServer { lab, server, daemon in
            try daemon.session(tables: "[mqtt]\nversion = \"3.1.1\"")
            try await daemon.start()
            let events = try await daemon.events()
            #expect(try await events.until(.connected).resumed == false)
            #expect(try await daemon.status().protocol == "3.1.1")
            let far = try await LabSubscriber(lab, filter: "far/#")
            let consumer = try await daemon.client.subscribe(
                .init(session: "main", filter: "near/#", qos: .exactlyOnce))
            for qos in [QoS.atMostOnce, .atLeastOnce, .exactlyOnce] {
                try await daemon.publish("\(qos.rawValue)", to: "far/away", qos: qos, wait: .delivered)
                try await server.publish("\(qos.rawValue)", to: "near", qos: Int(qos.rawValue))
            }
            try await daemon.publish("kept", to: "far/kept", qos: .atLeastOnce, retain: true, wait: .delivered)
            try await far.received("everything is there") { $0.map(\.payload) == ["0", "1", "2", "kept"] }
            let late = try await LabSubscriber(lab, filter: "far/#")
            try await late.received("what is retained is there") { $0.map(\.payload) == ["kept"] }
            // The subscription ends with its reader, but the session at the server does not.
            try await server.hasPersisted("near/#")
            var near: [String] = []
            for try await element in consumer {
                guard case .message(let message) = element else { continue }
                near.append(message.payload.text ?? "")
                if near.count == 3 { break }
            }
            #expect(near == ["0", "1", "2"])
            try await server.kill()
            try await events.until(.reconnecting)
            try await daemon.publish("meanwhile", to: "far/away", qos: .exactlyOnce)
            try await server.start()
            #expect(try await events.until(.connected).resumed == true)
            try await daemon.kill()
            try await daemon.start()
            #expect(try await daemon.events().until(.connected).resumed == true)
            try await until("the outbox is empty") {
                let outbox = try await daemon.status().outbox
                return outbox.queued == 0 && outbox.inFlight == 0
            }
        }
    }
}
