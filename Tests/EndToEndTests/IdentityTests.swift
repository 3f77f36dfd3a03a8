import ControlAPI
import HoldfastClient
import Support
import Testing

/// Three questions: who wins when two devices have one identity and one of them loses its network (Nexconn's stories),
/// when the others learn that a participant is gone, and how one user is in several rooms (ZEGO's). One server only
/// closes the connection that is taken over (mosquitto 2.0.11), the other one says why (ejabberd).
///
/// One side is behind the router, which can swallow everything; the other one is beside the server.
extension EndToEnd {
    @Suite struct Identity {}
}

/// What a device that was cut off does when it is back after the other one has logged in.
enum KickStory: String, CaseIterable, CustomTestStringConvertible {
    case takeOver = "take-over"
    case yield

    var testDescription: String { rawValue }
}

/// How a device gets lost.
enum Loss: String, CaseIterable, CustomTestStringConvertible {
    /// Its network swallows everything; the server notices by its keep-alive.
    case silent
    /// It is killed, and its kernel closes the connection.
    case noticed

    var testDescription: String { rawValue }
}

extension EndToEnd.Identity {
    /// A session looks into its room for at most half of the time for a dial or a login; then it takes over without having
    /// looked. A server on a busy machine must answer within that time.
    private func write(
        _ daemon: DaemonProcess, _ session: String = "main", user: String, room: String = "plant",
        presence: String = "1min", more: String = "", tables: String = ""
    ) throws {
        let password = try daemon.lab.write("password", "secret\n")
        try daemon.writeSession(
            session,
            """
            endpoints = ["mqtt://\(Lab.serverAddress):1883"]
            user = "\(user)"
            room = "\(room)"
            password = "file:\(password)"
            insecure = true
            \(more)
            [timeouts]
            dial = "12s"
            authenticate = "12s"
            [presence]
            timeout = "\(presence)"
            \(tables)
            """)
    }

    /// Runs a test with two devices of one user and a running server: A is behind the router, B is beside the server. Only A
    /// has to notice a silence soon; B must not take a busy machine for one.
    private func withTwins(
        _ story: KickStory, at server: ServerCase,
        _ body: (Lab, _ a: DaemonProcess, _ b: DaemonProcess) async throws -> Void
    ) async throws {
        try await withLab { lab, a in
            try await server.make.broker(in: lab).start()
            let b = DaemonProcess(lab, name: "b", in: lab.server, record: a.record)
            for daemon in [a, b] {
                try write(
                    daemon, user: "twin", more: "client-id = \"twin\"\ndevice = \"\(daemon === a ? "a" : "b")\"",
                    tables: """
                        \(daemon === a ? "[heartbeat]\ninterval = \"1s\"\ntimeout = \"1s\"" : "")
                        [reconnect]
                        delays = ["50ms", "250ms", "500ms"]
                        spread = "100ms"
                        kick = "\(story.rawValue)"
                        """)
            }
            try await body(lab, a, b)
        }
    }

    /// Heals A's network while B is connected.
    private func meet(_ story: KickStory, _ lab: Lab, _ a: EventFeed, _ b: EventFeed) async throws {
        _ = await b.rest()
        try await lab.healNetwork()
        switch story {
        case .takeOver:
            try await a.until(.connected)
            #expect(try await b.until(.failed).reason?.code == "displaced")
        case .yield:
            #expect(try await a.until(.failed).reason?.code == "yielded")
            let told = await b.rest()
            #expect(told.allSatisfy { $0.state == nil || $0.state == .connected }, "B is not disturbed")
        }
    }

    @Test(arguments: KickStory.allCases, ServerCase.here)
    func `A is cut off, B logs in, and A comes back`(_ story: KickStory, at server: ServerCase) async throws {
        try await withTwins(story, at: server) { lab, a, b in
            let events = try await a.startConnected()
            try await lab.breakNetwork()
            // On a busy machine it may have been reconnecting before; from now on, no server answers.
            try await until("A has noticed") { try await a.status().state == .reconnecting }
            _ = await events.rest()
            let others = try await b.startConnected()
            try await meet(story, lab, events, others)
            let winner = story == .takeOver ? a : b
            // The side that lost removes its presence only after it has reported that.
            try await until("who lost is not in the room") {
                let list = try await winner.call(RoomParticipantsMethod.self, .init(session: "main")).participants
                return list.map(\.device) == [story == .takeOver ? "a" : "b"]
            }
        }
    }

    @Test(arguments: KickStory.allCases, ServerCase.here)
    func `A could never connect, B logs in, and A's network heals`(
        _ story: KickStory, at server: ServerCase
    ) async throws {
        try await withTwins(story, at: server) { lab, a, b in
            try await lab.breakNetwork()
            try await a.start()
            let events = try await a.events()
            try await events.until("its first attempt has failed") { ($0.attempt ?? 0) >= 2 }
            let others = try await b.startConnected()
            try await meet(story, lab, events, others)
        }
    }

    /// The others must not be told before the will delay of 7 s is over, which the session asks for with a presence timeout
    /// of 10 s; the server may have begun it a second early. `PresenceTimingTests` has the sum of this and the keep-alive,
    /// and Documentation/Recovery.md what was measured.
    ///
    /// One loss at a time: mosquitto 2.0.11 holds a will back while a later one with the same delay waits.
    @Test(arguments: Loss.allCases, ServerCase.here)
    func `a loss is seen within the presence timeout, whether the server notices it at once or not`(
        _ loss: Loss, at server: ServerCase
    ) async throws {
        try await withLab { lab, daemon in
            try await server.make.broker(in: lab).start()
            let observer = DaemonProcess(lab, name: "observer", in: lab.server, record: daemon.record)
            for (daemon, user) in [(daemon, "lost"), (observer, "observer")] {
                try write(daemon, user: user, presence: "10s")
            }
            let seen = try await observer.startConnected()
            try await daemon.start()
            try await seen.until("told that it is there") { $0.event == .participantJoined }

            let lost = ContinuousClock.now
            switch loss {
            case .silent: try await lab.breakNetwork()
            case .noticed: try await daemon.kill()
            }
            let event = try await seen.until("told that it is lost") { $0.event == .participantLeft }
            let taken = lost.duration(to: .now)
            #expect(event.cause == .lost)
            #expect(taken >= .seconds(loss == .silent ? 7 : 6), "\(taken)")
            print("\(server), \(loss): told after \(taken)")
        }
    }

    @Test(arguments: ServerCase.here)
    func `one user is in several rooms at one server, and each has all of its messages`(
        at server: ServerCase
    ) async throws {
        try await withLab { lab, daemon in
            try await server.make.broker(in: lab).start()
            let far = DaemonProcess(lab, name: "far", in: lab.server, record: daemon.record)
            for room in ["one", "two"] {
                try write(daemon, room, user: "ann", room: room, more: "client-id = \"ann-\(room)\"")
                try write(far, room, user: "bob", room: room, more: "client-id = \"bob-\(room)\"")
            }
            for daemon in [daemon, far] { try await daemon.start() }
            for room in ["one", "two"] {
                try await daemon.events(of: room).until(.connected)
                try await far.events(of: room).until(.connected)
            }
            var inboxes: [String: Inbox] = [:]
            for room in ["one", "two"] {
                inboxes[room] = await Inbox(
                    try await daemon.client.subscribe(.init(session: room, filter: "~/line", qos: .exactlyOnce)))
            }
            // A filter takes effect at the server only some time after the call.
            for room in ["one", "two"] {
                try await until("the filter of \(room) is there") {
                    try await daemon.status(room).subscriptions.contains {
                        $0.filter.hasSuffix("/line") && $0.state == .granted
                    }
                }
            }
            for number in 1...50 {
                for room in ["one", "two"] {
                    try await far.publish("\(room) \(number)", to: "~/line", session: room, qos: .exactlyOnce)
                }
            }
            for room in ["one", "two"] {
                try await inboxes[room]?.until("\(room) 50")
                let payloads = await inboxes[room]?.messages.map { $0.payload.text }
                #expect(payloads == (1...50).map { "\(room) \($0)" })
                #expect(try await daemon.status(room).counters.outages == 0)
            }
        }
    }
}
