import ControlAPI
import HoldfastClient
import Support
import Testing

/// Retained state that a session owns, with a real server.
extension EndToEnd {
    private func put(_ daemon: DaemonProcess, _ topic: String, _ payload: String) async throws {
        _ = try await daemon.call(
            PublicationPutMethod.self, .init(session: "main", topic: topic, payload: MessagePayload(text: payload)))
    }

    private func states(_ daemon: DaemonProcess) async throws -> [String] {
        try await daemon.call(PublicationListMethod.self, .init(session: "main")).publications
            .map { "\($0.topic) \($0.state.rawValue)" }
    }

    @Test func `publications survive a quick reconnect, are restored after a full one, and are cleared by a removal`()
        async throws
    {
        try await withServer { lab, server, daemon in
            try daemon.session()
            let events = try await daemon.startConnected()
            let before = try await LabSubscriber(lab, filter: "lamp/#")
            try await put(daemon, "lamp/1", "on")
            try await put(daemon, "lamp/2", "off")
            try await before.received("both are published") { $0.count == 2 }
            // The server passes a message on before it acknowledges it.
            try await until("both are known to be there") {
                try await states(daemon) == ["lamp/1 published", "lamp/2 published"]
            }
            let listed = try await daemon.ctl("publications", "main")
            #expect(listed.ending == .exited(0))
            #expect(listed.output.contains("lamp/1  published"), "\(listed.output)")

            // After a quick reconnect the server has them once more, as it may have been restarted in an older state.
            _ = try await daemon.call(SessionReconnectMethod.self, .init(session: "main", mode: .quick))
            try await events.until(.reconnecting)
            #expect(try await events.until(.connected).resumed == true)
            try await daemon.publish("here", to: "lamp/end", wait: .delivered)
            let seen = try await before.received("what was published after the reconnect") {
                $0.last?.payload == "here"
            }
            #expect(seen.map(\.topic) == ["lamp/1", "lamp/2", "lamp/1", "lamp/2", "lamp/end"])

            // The server loses everything. A publication that is removed meanwhile does not come back, even if the
            // daemon is killed then.
            try await server.kill()
            await server.forget()
            try await events.until(.reconnecting)
            _ = try await daemon.call(PublicationRemoveMethod.self, .init(session: "main", topic: "lamp/2"))
            #expect(try await states(daemon) == ["lamp/1 published", "lamp/2 removing"])
            try await daemon.kill()
            try await server.start()
            try await daemon.startConnected()
            let after = try await LabSubscriber(lab, filter: "lamp/#")
            // The removal may arrive, too.
            let kept = try await after.received("the server has it again") { $0.contains { !$0.payload.isEmpty } }
            #expect(kept.filter { !$0.payload.isEmpty }.map { "\($0.topic) \($0.payload)" } == ["lamp/1 on"])
            try await until("the removal is carried out") { try await states(daemon) == ["lamp/1 published"] }

            // Stopping the daemon is not leaving; an explicit disconnect is.
            #expect(try await daemon.stop() == .exited(0))
            let stopped = try await LabSubscriber(lab, filter: "lamp/1")
            try await stopped.received("the server keeps it") { $0.map(\.payload) == ["on"] }
            let last = try await daemon.startConnected()
            try await daemon.disconnect()
            try await last.until(.disconnected)
            try await stopped.received("the server has nothing") { $0.last?.payload == "" }
            #expect(try await states(daemon) == ["lamp/1 pending"])
        }
    }

    @Test func `a server that is restarted in an older state is asked for everything again`() async throws {
        try await withLab { lab, daemon in
            var options = LabServer.Options()
            options.savesSeldom = true
            let server = try await LabServer.started(lab, options)
            try daemon.session()
            let events = try await daemon.startConnected()
            try await daemon.publish("early", to: "marker", retain: true, wait: .delivered)
            await server.save()
            try await server.hasPersisted("marker")
            let inbox = await Inbox(try await daemon.client.subscribe(.init(session: "main", filter: "in/#")))
            try await server.publish("before", to: "in/1")
            try await inbox.until("before")
            try await put(daemon, "lamp", "on")
            try await until("it is published") { try await states(daemon) == ["lamp published"] }

            try await server.kill()
            try await events.until(.reconnecting)
            try await server.start()
            #expect(try await events.until(.connected).resumed == true, "the server has the session, as it was")
            // What is published comes after what is subscribed to.
            let far = try await LabSubscriber(lab, filter: "lamp")
            try await far.received("the server has it again") { $0.last?.payload == "on" }
            try await server.publish("after", to: "in/1")
            try await inbox.until("after")
        }
    }
}
