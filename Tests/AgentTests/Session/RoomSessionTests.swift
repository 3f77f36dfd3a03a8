import ControlAPI
import DurableStore
import MQTT
import NIOCore
import SessionCore
import Support
import Testing

@testable import Agent
@testable import Session

/// A session of a whole daemon in a room, with a server in the same process.
@Suite("A session in a room", .timeLimit(.minutes(10)))
struct RoomSessionTests {
    static let own = "holdfast/rooms/plant/presence/edge-42/device"
    static let main = #"{"session":"main"}"#
    private static let someone = Participant.Identity(user: "edge-42", device: "device")

    static func presence(
        _ user: String, _ device: String, _ state: PresenceMessage.State = .online, since: Timestamp = .now,
        connection: ConnectionMark? = nil
    ) -> String {
        let identity = Participant.Identity(user: user, device: device)
        let message = PresenceMessage(
            identity: identity, state: state, since: since, session: "other", connection: connection)
        return String(decoding: message.bytes, as: UTF8.self)
    }

    /// Runs a session in the room `plant`, connected and with its own presence echoed, as a server would.
    private func inRoom(
        _ extra: String = "", prepare: (LoopbackServer) async throws -> Void = { _ in },
        _ body: (DaemonUnderTest, ControlPeer) async throws -> Void
    ) async throws {
        try await DaemonUnderTest.run("room = \"plant\"\n\(extra)", prepare: prepare) { daemon in
            let peer = try await daemon.watcher()
            let presence = try await daemon.server.message()
            #expect(presence.topic == Self.own)
            await daemon.server.publish(presence.topic, String(buffer: presence.payload))
            try await body(daemon, peer)
        }
    }

    @Test func `is connected only once the server has its presence`() async throws {
        let prepare: (LoopbackServer) async throws -> Void = { await $0.set { $0.answersMessages = false } }
        try await DaemonUnderTest.run("room = \"plant\"\npresence.timeout = \"20s\"", prepare: prepare) { daemon in
            let peer = try await daemon.peer()
            try await peer.call("session.watch")
            let connect = try await daemon.server.connect()
            #expect(connect.will?.topic == Self.own)
            #expect(connect.will?.retain == true)
            #expect(connect.keepAlive == 5)
            #expect(connect.will?.properties.willDelay == 12)
            let filter = try await daemon.server.packet { packet in
                if case .subscribe(let subscribe) = packet { subscribe.subscriptions.first?.filter } else { nil }
            }
            #expect(filter == "holdfast/rooms/plant/presence/+/+")
            let presence = try await daemon.server.message()
            #expect(presence.retain && presence.qos == .atLeastOnce)
            #expect(PresenceMessage(presence.payload.readableBytesView, of: Self.someone)?.state == .online)
            #expect(try await peer.call("session.status", Self.main)["phase"] == "restoring")
            let id = try #require(presence.packetID)
            await daemon.server.send(.puback(Acknowledgement(packetID: id)))
            try await peer.state("connected")
            #expect(try await peer.call("session.status", Self.main)["room"] == "plant")
        }
    }

    @Test func `announces every connection with its own mark, and nothing else after a short outage`()
        async throws
    {
        try await inRoom { daemon, peer in
            await daemon.server.disconnect(.serverBusy)
            try await peer.state("connected")
            await daemon.server.loseSession()
            await daemon.server.disconnect(.serverBusy)
            try await peer.state("connected")
            let messages = await daemon.server.events.all.filter { event in
                if case .packet(.publish) = event { true } else { false }
            }
            let own = messages.compactMap { event -> PresenceMessage? in
                guard case .packet(.publish(let publish)) = event else { return nil }
                return PresenceMessage(publish.payload.readableBytesView, of: Self.someone)
            }
            #expect(own.count == messages.count)
            #expect(Set(own.map(\.connection)).count == 3)
            for (before, next) in zip(own, own.dropFirst()) where before.connection == next.connection {
                #expect(before.quality != next.quality, "on one connection, only a new quality is announced")
            }
            #expect(Set(own.map(\.since)).count == 1)
        }
    }

    @Test func `makes one correction of its presence at a time`() async throws {
        try await inRoom { daemon, peer in
            await daemon.server.set { $0.answersMessages = false }
            for _ in 1...5 { await daemon.server.publish(Self.own, Self.presence("edge-42", "device", .offline)) }
            let correction = try await daemon.server.message()
            #expect(correction.topic == Self.own)
            try await peer.call("session.status", Self.main)
            let corrections = await daemon.server.events.all.count { event in
                if case .packet(.publish) = event { true } else { false }
            }
            #expect(corrections == 2, "the first presence, and one more")
            await daemon.server.send(.puback(Acknowledgement(packetID: try #require(correction.packetID))))
            await daemon.server.publish(Self.own, Self.presence("edge-42", "device", .offline))
            #expect(try await daemon.server.message().topic == Self.own)
        }
    }

    @Test func `lists participants, and reports when they join and leave`() async throws {
        let prepare: (LoopbackServer) async throws -> Void = { await $0.set { $0.answersSubscribe = false } }
        try await DaemonUnderTest.run("room = \"plant\"", prepare: prepare) { daemon in
            let subscribe = try await daemon.server.packet { packet in
                if case .subscribe(let subscribe) = packet { subscribe } else { nil }
            }
            await daemon.server.send(.suback(Suback(packetID: subscribe.packetID, reasonCodes: [.grantedQoS1])))
            await daemon.server.send(
                .publish(
                    Publish(
                        topic: "holdfast/rooms/plant/presence/ann/phone",
                        payload: ByteBuffer(string: Self.presence("ann", "phone")), retain: true)))
            let peer = try await daemon.watcher()
            await #expect(throws: ControlPeer.CallFailure(code: "wrong-state")) {
                try await peer.call("room.participants", Self.main)
            }
            let presence = try await daemon.server.message()
            await daemon.server.publish(presence.topic, String(buffer: presence.payload))
            await daemon.server.publish(
                "holdfast/rooms/plant/presence/bob/desk", Self.presence("bob", "desk"))
            let joined = try await peer.notification("session.event", ["event": "participant-joined"])
            #expect(joined["user"] == "bob", "who was there at first is no news")
            #expect(joined["device"] == "desk")
            let list = try await peer.call("room.participants", Self.main)
            #expect(list["room"] == "plant")
            guard case .array(let participants)? = list["participants"] else {
                throw ControlPeer.CallFailure(code: "shape")
            }
            #expect(participants.map { $0["user"] } == ["ann", "bob", "edge-42"])
            #expect(participants.allSatisfy { $0["state"] == "online" })
            await daemon.server.publish("holdfast/rooms/plant/presence/ann/phone", "")
            let left = try await peer.notification("session.event", ["event": "participant-left"])
            #expect(left["user"] == "ann")
        }
    }

    @Test func `leaves the old room after the daemon was killed and the file names another`() async throws {
        let filter = try TopicFilter("holdfast/rooms/old/presence/+/+")
        let own = Participant.Identity(user: "edge-42", device: "device")
        let topics = Room.presenceTopics(of: own, in: [filter, try TopicFilter("holdfast/rooms/old/#")])
        #expect(topics == ["holdfast/rooms/old/presence/edge-42/device"])
        let main = try #require(SessionName("main"))
        try await inRoom { daemon, peer in
            // As if the daemon was killed: the store knows the subscription to the old room, and the file names another
            // room.
            try await daemon.store.commit([(session: main, changes: [.mqtt(.rememberSubscription(filter))])])
            try await daemon.writeSession("room = \"new\"")
            try await peer.call("daemon.reload")
            let cleared = try await daemon.server.packet { packet in
                if case .publish(let publish) = packet, publish.topic == topics[0] { publish } else { nil }
            }
            #expect(cleared.retain && cleared.payload.readableBytes == 0)
        }
    }

    @Test func `resolves a relative topic in the room`() async throws {
        try await inRoom { daemon, peer in
            try await peer.call("message.subscribe", #"{"session":"main","filter":"~/chat"}"#)
            await daemon.server.publish("holdfast/rooms/plant/chat", "hello")
            let message = try await peer.notification("message.received")
            #expect(message["topic"] == "holdfast/rooms/plant/chat", "as the server has it")
            try await peer.call("message.publish", #"{"session":"main","topic":"~/chat","payload":"hi"}"#)
            #expect(try await daemon.server.message().topic == "holdfast/rooms/plant/chat")
        }
    }

    @Test(arguments: ["", #","consumer":"meter""#])
    func `tells how the server answers a relative filter, also if the room has changed before`(
        consumer: String
    ) async throws {
        try await DaemonUnderTest.run("room = \"plant\"", autoconnect: false) { daemon, peer in
            let made = try await peer.call(
                "message.subscribe", #"{"session":"main","filter":"~/chat"\#(consumer)}"#)
            #expect(made["grantedQoS"] == .null)
            try await daemon.writeSession("room = \"lab\"", autoconnect: false)
            try await peer.call("daemon.reload")
            try await peer.call("session.connect", Self.main)
            let event = try await peer.notification("session.event", ["watch": made["subscription"] ?? .null])
            #expect(event["event"] == "subscription-changed")
            #expect(event["subscription"]?["filter"] == "holdfast/rooms/lab/chat")
            #expect(event["subscription"]?["state"] == "granted")
        }
    }

    @Test func `refuses a relative topic without a room`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            for (method, member) in [
                ("message.publish", #""topic":"~/a","payload":"""#), ("message.subscribe", #""filter":"~/a""#),
            ] {
                await #expect(throws: ControlPeer.CallFailure(code: "invalid-topic")) {
                    try await peer.call(method, #"{"session":"main",\#(member)}"#)
                }
            }
            await #expect(throws: ControlPeer.CallFailure(code: "wrong-state")) {
                try await peer.call("room.participants", Self.main)
            }
        }
    }

    @Test func `joins another room, leaves the old one, and moves relative filters`() async throws {
        try await inRoom { daemon, peer in
            try await peer.call("message.subscribe", #"{"session":"main","filter":"~/chat"}"#)
            let switched = try await peer.call("session.switchRoom", #"{"session":"main","room":"lab"}"#)
            #expect(switched["room"] == "lab")
            let joined = try await daemon.server.message()
            #expect(joined.topic == "holdfast/rooms/lab/presence/edge-42/device")
            // A will can be changed only by CONNECT.
            #expect(try await daemon.server.connect().will?.topic == joined.topic)
            let cleared = try await daemon.server.message()
            #expect(cleared.topic == Self.own)
            #expect(cleared.payload.readableBytes == 0)
            let back = try await peer.state("connected")
            #expect(back["reason"]?["code"] == "switch-room")
            await daemon.server.publish("holdfast/rooms/lab/chat", "hello")
            #expect(try await peer.notification("message.received")["topic"] == "holdfast/rooms/lab/chat")
            #expect(try await peer.call("session.status", Self.main)["room"] == "lab")
        }
    }

    @Test(arguments: [true, false])
    func `stays where it is when a room refuses`(refusesSubscription: Bool) async throws {
        let prepare: (LoopbackServer) async throws -> Void = { server in
            await server.set { behaviour in
                if refusesSubscription {
                    behaviour.refusedFilters["holdfast/rooms/lab/presence/+/+"] = .notAuthorized
                } else {
                    behaviour.refusedTopics["holdfast/rooms/lab/presence/edge-42/device"] = .notAuthorized
                }
            }
        }
        try await inRoom(prepare: prepare) { daemon, peer in
            await #expect(throws: ControlPeer.CallFailure(code: "message-rejected")) {
                try await peer.call("session.switchRoom", #"{"session":"main","room":"lab"}"#)
            }
            let status = try await peer.call("session.status", Self.main)
            #expect(status["room"] == "plant")
            #expect(status["state"] == "connected")
            guard !refusesSubscription else { return }
            let filters = try await daemon.server.packet { packet in
                if case .unsubscribe(let unsubscribe) = packet { unsubscribe.filters } else { nil }
            }
            #expect(filters == ["holdfast/rooms/lab/presence/+/+"], "only what was tried is undone")
        }
    }

    @Test func `the choice of a room that the disk has not taken outlives a reload`() async throws {
        try await inRoom { daemon, peer in
            let main = try #require(SessionName("main"))
            let driver = try await daemon.registry.runningDriver("main")
            try await daemon.store.setWritable(false)
            let chosen = ChosenRoom(room: "lab", configured: "plant", bootID: await driver.session.settings.bootID)
            await driver.commitDecisions([.setChosenRoom(chosen)])
            try await daemon.writeSession("room = \"plant\"\noutbox.max-messages = 12")
            try await peer.call("daemon.reload")
            #expect(try await peer.call("session.status", Self.main)["room"] == "lab")
            #expect(try await daemon.store.session(main).chosenRoom == nil)
            try await daemon.store.setWritable(true)
            try await until("the choice is durable") { try await daemon.store.session(main).chosenRoom == chosen }
        }
    }

    @Test func `changes rooms only while connected`() async throws {
        try await DaemonUnderTest.run("room = \"plant\"", autoconnect: false) { daemon, peer in
            await #expect(throws: ControlPeer.CallFailure(code: "not-connected")) {
                try await peer.call("session.switchRoom", #"{"session":"main","room":"lab"}"#)
            }
            await #expect(throws: ControlPeer.CallFailure(code: "invalid-parameters")) {
                try await peer.call("session.switchRoom", #"{"session":"main","room":"a/+"}"#)
            }
        }
    }
}
