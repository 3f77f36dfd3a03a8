import ControlAPI
import Glibc
import Logging
import MQTT
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import Session
import SessionCore
import Support
import Testing
import Transport

@testable import Agent

@Suite(.timeLimit(.minutes(10)))
struct ControlMethodsTests {
    @Test func `hello returns version and roles`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            let hello = try await daemon.peer().call("rpc.hello", #"{"client":"test","protocol":1}"#)
            #expect(hello["version"] == .string(holdfastVersion))
            #expect(hello["roles"] == .array(["observe", "message", "control"]))
            await #expect(throws: ControlPeer.CallFailure(code: "version-mismatch")) {
                try await daemon.peer().call("rpc.hello", #"{"protocol":99}"#)
            }
        }
    }

    static let badLines: [(LongText, String)] = [
        ("nonsense", "parse-error"), ("[]", "invalid-request"), ("7", "invalid-request"),
        (#"{"jsonrpc":"2.0","id":99,"method":"session.lost"}"#, "unknown-method"),
        (#"{"jsonrpc":"2.0","id":99,"method":"session.status","params":{}}"#, "invalid-parameters"),
        (LongText("x", 2 << 20), "parse-error"),
        (LongText("x", 25 << 20), "invalid-request"),
    ]

    @Test(arguments: badLines)
    func `a bad line is answered, and the next one works`(line: LongText, code: String) async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            let peer = try await daemon.peer()
            try await peer.send(line.text)
            let answer = try await peer.lines.first { $0 }
            #expect(answer["error"]?["data"]?["code"] == .string(code))
            try await peer.call("session.list")
        }
    }

    @Test func `a batch is answered by one array, and a batch of notifications not at all`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            let peer = try await daemon.peer()
            try await peer.send(#"[{"jsonrpc":"2.0","method":"session.list"}]"#)
            try await peer.send(
                #"[{"jsonrpc":"2.0","id":1,"method":"session.list"},{"jsonrpc":"2.0","method":"session.list"},7,"#
                    + #"{"jsonrpc":"2.0","id":"b","method":"session.watch"}]"#)
            guard case .array(let answers) = try await peer.lines.first({ $0 }) else {
                Issue.record("a batch is not answered by an array")
                return
            }
            #expect(answers.map { $0["id"] } == [1, .null, "b"])
            try await peer.call("session.connect", #"{"session":"main"}"#)
            try await peer.state("connected")
        }
    }

    @Test func `a peer that closed its sending side gets its answers and then the end`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            let peer = try await daemon.peer()
            try await peer.sendRaw(#"{"jsonrpc":"2.0","id":1,"method":"session.list"}"#)
            try await peer.closeOutput()
            #expect(try await peer.answer(1)["result"]?["sessions"] != nil)
            try await peer.end()
        }
    }

    @Test func `a peer that closed its sending side can keep watching`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            let (peer, other) = (try await daemon.peer(), try await daemon.peer())
            try await peer.call("session.watch")
            try await peer.closeOutput()
            try await other.call("session.connect", #"{"session":"main"}"#)
            try await peer.state("connected")
        }
    }

    @Test(.timeLimit(.minutes(10))) func `a peer that disconnects leaves nothing behind`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            for number in 1...20 {
                let gone = try await daemon.peer()
                // Half of them certainly have their watch; the others may be gone before their call is made.
                if number.isMultiple(of: 2) { try await gone.call("session.watch") }
                try await gone.send(#"{"jsonrpc":"2.0","id":1,"method":"session.watch"}"#)
                try await gone.send(
                    #"{"jsonrpc":"2.0","id":2,"method":"message.subscribe","params":{"session":"main","filter":"a"}}"#)
                try await gone.close()
            }
            await daemon.server.publish("a", "anybody?")
            try await until("the others are gone") { await daemon.registry.watches.count == 1 }
            try await peer.call("session.list")
            #expect(await daemon.registry.watches.count == 1)
        }
    }

    @Test func `a watch replays missed events, and says how many are forgotten`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            try await peer.call("session.connect", #"{"session":"main"}"#)
            let last = try await peer.state("connected")
            let sequence = try #require(last["sequence"]?.wholeNumber)
            let name = try #require(SessionName("main"))
            let other = try await daemon.peer()
            let watched = try await other.call("session.watch", #"{"since":\#(sequence - 1)}"#)
            let replayed = try await other.notification("session.event")
            #expect(replayed["sequence"] == .integer(sequence))
            #expect(replayed["state"] == "connected")
            #expect(replayed["watch"] == watched["watch"])

            for _ in 0..<EventLog.capacity + 3 {
                await daemon.registry.report(
                    name,
                    .init(time: .now, session: "main", event: .pathChanged))
            }
            let late = try await daemon.peer()
            let since = sequence - 1
            let again = try await late.call("session.watch", #"{"since":\#(since)}"#)
            let total = try #require(again["sequence"]?.wholeNumber)
            let dropped = try await late.notification("session.event")
            #expect(dropped["event"] == "dropped")
            #expect(dropped["count"] == .integer(total - since - Int64(EventLog.capacity)))
            for number in (total - Int64(EventLog.capacity) + 1)...total {
                #expect(try await late.notification("session.event")["sequence"] == .integer(number))
            }
            await daemon.registry.report(
                name,
                .init(time: .now, session: "main", event: .connectionLost))
            _ = try await late.notification("session.event", ["event": "connection-lost"])
        }
    }

    @Test func `a change in the snapshot of a watch is not repeated as an event`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            let peer = try await daemon.peer()
            try await peer.sendRaw(
                #"{"jsonrpc":"2.0","id":1,"method":"session.connect","params":{"session":"main"}}"# + "\n"
                    + #"{"jsonrpc":"2.0","id":2,"method":"session.watch"}"# + "\n")
            let snapshot = try #require(try await peer.answer(2)["result"]?["snapshot"]?["sessions"])
            guard case .array(let sessions) = snapshot, let session = sessions.first else {
                Issue.record("there is no session in \(snapshot)")
                return
            }
            let event = try await peer.notification("session.event")
            let member = event["event"] == "phase-changed" ? "phase" : "state"
            #expect(event[member] != session[member])
            if event["event"] != "state-changed" || event["state"] != "connected" { try await peer.state("connected") }
        }
    }

    @Test(arguments: [Int64.min, -1, Int64.max])
    func `a watch since an impossible number is answered`(since: Int64) async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            try await daemon.peer().call("session.watch", #"{"since":\#(since)}"#)
        }
    }

    @Test func `a slow reader is told how much it missed, and then continues`() async throws {
        try await DaemonUnderTest.run { daemon in
            let (peer, slow) = (try await daemon.watcher(), try await daemon.peer(reads: false))
            try await slow.request("message.subscribe", #"{"session":"main","filter":"a"}"#)
            _ = try await daemon.server.packet { if case .subscribe = $0 { true } else { nil } }
            // More than such a program may leave unread.
            let payload = String(repeating: "x", count: 256 << 10)
            let count = 64
            for _ in 0..<count { await daemon.server.publish("a", payload, qos: .atLeastOnce) }
            for _ in 0..<count { _ = try await daemon.server.packet { if case .puback = $0 { true } else { nil } } }
            let behind = try await peer.call("daemon.clients")["clients"]
            guard case .array(let clients)? = behind else { throw ControlPeer.CallFailure(code: nil) }
            let dropped = try #require(clients.last?["dropped"]?.wholeNumber)
            #expect(clients.first?["dropped"] == 0 && clients.first?["unread"] == 0)
            #expect(dropped > 0)
            #expect(clients.last?["unread"]?.wholeNumber ?? 0 > 0)
            try await slow.startReading()
            let told = try await slow.lines.first { line -> Int64? in
                line?["params"]?["event"] == "message-dropped" && line?["params"]?["session"] == "main"
                    ? line?["params"]?["count"]?.wholeNumber : nil
            }
            let read = await slow.lines.all.filter { $0?["method"] == "message.received" }.count
            #expect(read + Int(told) == count)
            #expect(told == dropped)
            await daemon.server.publish("a", "after")
            _ = try await slow.notification("message.received", ["payload": "after"])
        }
    }

    @Test func `a name service that does not answer delays only users that must be looked up`() async throws {
        try await DaemonUnderTest.run { daemon in
            let gate = ConditionLock(value: false)
            let looked = daemon.daemon.blocking.run("accounts", within: nil) {
                gate.lock(whenValue: true)
                gate.unlock()
            }
            async let accepted = peer(nil, of: daemon)
            let own = try await daemon.peer()
            try await own.call("session.list")
            gate.lock()
            gate.unlock(withValue: true)
            try await looked.get()
            let stranger = try await accepted
            await #expect(throws: ControlPeer.CallFailure(code: "not-permitted")) {
                try await stranger.call("session.list")
            }
        }
    }

    /// A connection on one end of a socket pair, whose peer has these roles; `nil`: those of the configuration.
    private func peer(_ roles: Set<Role>?, of daemon: DaemonUnderTest) async throws -> ControlPeer {
        var ends: [CInt] = [0, 0]
        try #require(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &ends) == 0)
        _ = try await ClientBootstrap(group: daemon.eventLoop)
            .channelInitializer { channel in
                let peer = Peer(pid: 77, uid: 4242, gid: 4242, groups: [])
                return daemon.control.assumeIsolated { $0.accept(channel, from: peer, roles: roles) }
            }
            .withConnectedSocket(ends[0]).get()
        return try await ControlPeer.adopt(ends[1], on: daemon.eventLoop)
    }

    @Test func `a cancelled watch gets no more events, and numbers of another daemon are told apart`()
        async throws
    {
        try await DaemonUnderTest.run { daemon, peer in
            let watched = try await peer.call("session.watch", #"{"session":"main"}"#)
            guard let id = watched["watch"]?.text, let epoch = watched["epoch"]?.text,
                case .integer(let sequence)? = watched["sequence"]
            else {
                Issue.record("the watch was not answered")
                return
            }
            #expect(watched["restarted"] == .bool(false))
            try await peer.call("session.unwatch", #"{"watch":"\#(id)"}"#)
            await #expect(throws: ControlPeer.CallFailure(code: "unknown-watch")) {
                try await peer.call("session.unwatch", #"{"watch":"\#(id)"}"#)
            }
            #expect(await daemon.registry.watches.count == 1)
            let known = try await peer.call("session.watch", #"{"since":\#(sequence),"epoch":"\#(epoch)"}"#)
            #expect(known["restarted"] == .bool(false))
            // 1000 is far above the number of events that may happen meanwhile.
            for foreign in [#"{"since":\#(sequence),"epoch":"x"}"#, #"{"since":\#(sequence + 1000)}"#] {
                let late = try await daemon.peer()
                #expect(try await late.call("session.watch", foreign)["restarted"] == .bool(true))
                let first = try await late.notification("session.event")
                #expect(first["sequence"] == .integer(1), "everything of this numbering")
            }
        }
    }

    /// The lines about denied calls, without those that say how many more there were.
    private static func denials(_ daemon: DaemonUnderTest) -> [RecordingLog.Line] {
        daemon.log.lines.filter { $0.message.hasPrefix("denied") && !$0.message.contains(" more call") }
    }

    /// Whether there is a line for the first of so many denied calls. On a slow machine they may take longer than the
    /// period after which a line is written again.
    private static func arePaced(
        _ denials: [RecordingLog.Line], of calls: Int, since start: ContinuousClock.Instant
    ) -> Bool {
        let first = min(calls, JournalPacer.burst)
        return start.duration(to: .now) < JournalPacer.period
            ? denials.count == first : (first...max(first, calls)).contains(denials.count)
    }

    @Test(arguments: [[], [.observe], [.message], [.observe, .message]] as [Set<Role>])
    func `a peer without the role is denied and logged`(roles: Set<Role>) async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            let peer = try await peer(roles, of: daemon)
            _ = try await peer.call("rpc.hello", #"{"client":"probe\n1"}"#)
            let start = ContinuousClock.now
            for method in ControlMethods.all {
                // Without parameters, a permitted call can only fail for another reason.
                let answer = try await peer.answer(try await peer.request(method.name))
                let isDenied = answer["error"]?["data"]?["code"] == "not-permitted"
                #expect(isDenied == (method.role.map { !roles.contains($0) } ?? false), "\(method.name)")
            }
            let denials = Self.denials(daemon)
            let denied = ControlMethods.all.count { $0.role.map { !roles.contains($0) } ?? false }
            #expect(Self.arePaced(denials, of: denied, since: start), "the rest is told as a number")
            #expect(denials.allSatisfy { $0.fields["HOLDFAST_PEER_UID"] == "4242" })
            #expect(denials.allSatisfy { $0.message.contains("pid 77 (\"probe\u{FFFD}1\"):") })
        }
    }

    @Test func `the list of clients says who is connected, and what each receives`() async throws {
        try await DaemonUnderTest.run { daemon in
            let (other, peer) = (try await peer([.observe, .message], of: daemon), try await daemon.watcher())
            try await other.call("rpc.hello", #"{"client":"\#(String(repeating: "n", count: 100))"}"#)
            for consumer in ["c10", "c9"] {
                try await other.call(
                    "message.subscribe", #"{"session":"main","filter":"a","consumer":"\#(consumer)"}"#)
            }
            try await other.call("message.subscribe", #"{"session":"main","filter":"b"}"#)
            let list = try await peer.call("daemon.clients")
            let text = try #require(OutgoingLine.encode(list))
            let clients = try ParameterDecoder.decodeLeniently(
                DaemonClientsMethod.Result.self, from: JSONValue(parsing: text[...])
            ).clients
            #expect(clients.map(\.pid) == [77, getpid()])
            #expect(clients.map(\.uid) == [4242, geteuid()])
            #expect(clients.map(\.roles) == [[.observe, .message], Role.allCases])
            #expect(clients.map(\.client) == [String(repeating: "n", count: 64), nil])
            #expect(clients.map(\.watches) == [0, 1])
            #expect(
                clients.map(\.sessions) == [
                    [.init(session: "main", subscriptions: 1, consumers: ["c9", "c10"])], [],
                ])
            // The call that asks is in flight.
            #expect(clients.map(\.calls) == [.init(answered: 4, inFlight: 0), .init(answered: 1, inFlight: 1)])
            #expect(clients.map(\.dropped) == [0, 0])
            try await other.close()
            try await until("the other has left") {
                guard case .array(let left)? = try await peer.call("daemon.clients")["clients"] else { return false }
                return left.count == 1
            }
        }
    }

    @Test func `connect and disconnect answer with the outcome if they wait for it`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            let peer = try await daemon.peer()
            let waiting = #"{"session":"main","wait":true}"#
            let connected = try await peer.call("session.connect", waiting)
            #expect(connected["outcome"] == "connected" && connected["state"] == "connected")
            let disconnected = try await peer.call("session.disconnect", waiting)
            #expect(disconnected["outcome"] == "disconnected" && disconnected["state"] == "disconnected")
            #expect(disconnected["reason"]?["code"] == "user-disconnect")
            await daemon.server.set { $0.connack = Connack(reasonCode: .banned) }
            let failed = try await peer.call("session.connect", waiting)
            #expect(failed["outcome"] == "failed" && failed["state"] == "failed")
            #expect(failed["reason"]?["code"] == "banned")
            await daemon.server.set { $0.connack = Connack(reasonCode: .serverBusy) }
            let late = try await peer.call("session.connect", #"{"session":"main","wait":true,"timeout":0.1}"#)
            #expect(late["outcome"] == "timeout" && late["state"] == "connecting")
            let unwaited = try await peer.call("session.disconnect", #"{"session":"main"}"#)
            #expect(unwaited["outcome"] == nil && unwaited["reason"] == nil)
        }
    }

    @Test(.timeLimit(.minutes(10)))
    func `a program that leaves no longer waits for the outcome of its command`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            await daemon.server.set { $0.connack = Connack(reasonCode: .serverBusy) }
            let driver = try await daemon.registry.driver("main")
            let peer = try await daemon.peer()
            try await peer.request("session.connect", #"{"session":"main","wait":true,"timeout":3600}"#)
            try await until("it waits") { await driver.session.calls.outcomeWaiters.nextDeadline != nil }
            try await peer.close()
            try await until("it waits no longer") { await driver.session.calls.outcomeWaiters.nextDeadline == nil }
        }
    }

    @Test func `a peer uses only the topics that its user is given`() async throws {
        let topics = "[topics]\npublish = [\"uid:4242 plant/+\"]\nsubscribe = [\"uid:4242 plant/#\"]"
        try await DaemonUnderTest.run(topics) { daemon in
            _ = try await daemon.watcher()
            let peer = try await peer([.observe, .message], of: daemon)
            let calls = [
                ("message.publish", #""topic":"TOPIC","payload":"x""#, "plant/a", "other"),
                ("message.publish", #""topic":"TOPIC","payload":"x","key":"k""#, "plant/b", "plant/a/b"),
                ("publication.put", #""topic":"TOPIC","payload":"x""#, "plant/c", "other"),
                ("publication.remove", #""topic":"TOPIC""#, "plant/c", "other"),
                ("message.subscribe", #""filter":"TOPIC""#, "plant/+/a", "#"),
                ("message.subscribe", #""filter":"TOPIC","consumer":"c""#, "plant/#", "other"),
            ]
            let start = ContinuousClock.now
            for (method, members, own, foreign) in calls {
                func parameters(_ topic: String) -> String {
                    #"{"session":"main",\#(members.replacing("TOPIC", with: topic))}"#
                }
                try await peer.call(method, parameters(own))
                await #expect(throws: ControlPeer.CallFailure(code: "not-permitted"), "\(method)") {
                    try await peer.call(method, parameters(foreign))
                }
            }
            let denials = Self.denials(daemon)
            #expect(Self.arePaced(denials, of: calls.count, since: start))
            #expect(
                denials.first?.message.hasSuffix("[topics] of session main does not let it publish to \"other\"")
                    == true,
                "\(denials)")
            // The limits do not apply to root.
            let root = try await daemon.peer()
            try await root.call("message.publish", #"{"session":"main","topic":"other","payload":"x"}"#)
            // Messages that wait for a consumer are of the topics that it had so far.
            try await root.call("message.subscribe", #"{"session":"main","filter":"other","consumer":"root"}"#)
            for (method, members) in [
                ("message.subscribe", #""filter":"plant/#","consumer":"root""#),
                ("message.unsubscribe", #""consumer":"root""#),
            ] {
                await #expect(throws: ControlPeer.CallFailure(code: "not-permitted"), "\(method)") {
                    try await peer.call(method, #"{"session":"main",\#(members)}"#)
                }
            }
            try await peer.call("message.unsubscribe", #"{"session":"main","consumer":"c"}"#)
            try await root.call("message.unsubscribe", #"{"session":"main","consumer":"root"}"#)
        }
    }

    @Test func `a user or group that does not exist is told once`() async throws {
        let topics = "[topics]\npublish = [\"group:no-such-group a/#\"]"
        try await DaemonUnderTest.run(topics) { daemon, peer in
            try daemon.directory.write(
                "holdfast.toml", "[access]\nobserve = [\"user:no-such-user\", \"user:root\"]\n")
            for _ in 1...2 { try await peer.call("daemon.reload") }
            let missing = ["group:no-such-group", "user:no-such-user"]
            let status = try await peer.call("daemon.status")
            #expect(status["missingAccounts"] == .array(missing.map { .string($0) }))
            func lines(_ name: String) -> Int { daemon.log.lines.count { $0.message.hasPrefix(name) } }
            #expect(missing.map(lines) == [1, 1], "\(daemon.log.lines)")
            try daemon.directory.write("holdfast.toml", "")
            try await daemon.writeSession()
            try await peer.call("daemon.reload")
            #expect(try await peer.call("daemon.status")["missingAccounts"] == .array([]))
        }
    }

    @Test func `a peer has only messages sent again whose topics its user is given`() async throws {
        let options = "room = \"plant\"\n[topics]\npublish = [\"uid:4242 mine/+\", \"uid:4242 ~/#\"]"
        try await DaemonUnderTest.run(options) { daemon in
            let root = try await daemon.watcher()
            let topics = ["mine/a", "other", "~/b"]
            let prefix = try await daemon.registry.driver("main").session.resolve("~/b")
            await daemon.server.set {
                $0.refusedTopics = ["mine/a": .notAuthorized, "other": .notAuthorized, prefix: .notAuthorized]
            }
            for topic in topics {
                _ = try? await root.call(
                    "message.publish", #"{"session":"main","topic":"\#(topic)","payload":"x","wait":"delivered"}"#)
            }
            await daemon.server.set { $0.refusedTopics = [:] }
            let peer = try await peer([.observe, .message], of: daemon)
            func members(_ result: JSONValue, _ name: String, _ member: String) -> [JSONValue?] {
                guard case .array(let list)? = result[name] else { return [] }
                return list.map { $0[member] }
            }
            // Those of others are not among all that it may send again.
            let all = try await peer.call("message.queue.retry", #"{"session":"main","all":"quarantined"}"#)
            #expect(members(all, "retried", "id").count == 2, "\(all)")
            #expect(members(all, "skipped", "code").isEmpty && all["more"] == .bool(false), "\(all)")
            let left = try await root.call("message.queue.list", #"{"session":"main","state":"quarantined"}"#)
            guard case .integer(let id)? = members(left, "messages", "id").first ?? nil else {
                Issue.record("no message is left: \(left)")
                return
            }
            let one = try await peer.call("message.queue.retry", #"{"session":"main","ids":[\#(id)]}"#)
            #expect(members(one, "retried", "id").isEmpty, "\(one)")
            #expect(members(one, "skipped", "code") == ["not-permitted"], "\(one)")
            #expect(
                members(one, "skipped", "message") == ["you may not publish to \"other\" in session main"], "\(one)")
        }
    }

    @Test func `messages of others, however many, do not hide one's own from a retry of all`() async throws {
        try await DaemonUnderTest.run("[topics]\npublish = [\"uid:4242 mine/+\"]") { daemon in
            let root = try await daemon.watcher()
            await daemon.server.set { $0.refusedTopics = ["mine/a": .notAuthorized, "other": .notAuthorized] }
            let count = Session.MessageChoice.maximum + 1
            let foreign = #"{"session":"main","topic":"other","payload":"x"}"#
            for _ in 1...count { try await root.request("message.publish", foreign) }
            _ = try? await root.call(
                "message.publish", #"{"session":"main","topic":"mine/a","payload":"x","wait":"delivered"}"#)
            let own = Int64(count) + 1
            try await until("all are quarantined") {
                try await root.call("session.status", #"{"session":"main"}"#)["outbox"]?["quarantined"] == .integer(own)
            }
            await daemon.server.set { $0.refusedTopics = [:] }
            let peer = try await peer([.observe, .message], of: daemon)
            let all = try await peer.call("message.queue.retry", #"{"session":"main","all":"quarantined"}"#)
            #expect(all["retried"] == .array([.object(["id": .integer(own), "newID": .integer(own + 1)])]))
            #expect(all["skipped"] == .array([]) && all["more"] == .bool(false))
        }
    }

    /// Nothing says then which topics of others a user may publish to.
    @Test func `messages of a session that does not run are sent again for those who may control it`() async throws {
        try await DaemonUnderTest.run(files: ["sessions.d/broken.toml": "endpoints = 7\n"]) { daemon in
            let retry = #"{"session":"broken","all":"quarantined"}"#
            let program = try await peer([.observe, .message], of: daemon)
            await #expect(throws: ControlPeer.CallFailure(code: "not-permitted")) {
                try await program.call("message.queue.retry", retry)
            }
            let operating = try await peer(Set(Role.allCases), of: daemon)
            #expect(try await operating.call("message.queue.retry", retry)["retried"] == .array([]))
        }
    }

    /// The code of the line without an id, which is the last one.
    private func lastWords(of peer: ControlPeer) async throws -> String {
        let told = try await peer.lines.first { line in line?["id"] == .null ? line?["error"] : nil }
        try await peer.end()
        #expect(told["data"]?["code"] == "not-permitted")
        return told["message"]?.text ?? ""
    }

    private static let again = "the configuration was read again, and"

    @Test func `a reload that takes a role away ends the connections that had it`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            func reload(_ access: String, by peer: ControlPeer) async throws {
                try daemon.directory.write("holdfast.toml", "[access]\n\(access)\n")
                try await peer.call("daemon.reload")
            }
            let root = try await daemon.peer()
            try await reload(#"control = ["uid:4242"]"#, by: root)
            let (idle, watching) = (try await peer(nil, of: daemon), try await peer(nil, of: daemon))
            try await watching.call("session.watch")
            #expect(try await idle.call("rpc.hello")["roles"] == .array(["observe", "message", "control"]))
            // The reload that it asked for is answered first.
            try await reload("observe = [\"uid:4242\"]\nmessage = [\"uid:4242\"]", by: watching)
            for peer in [idle, watching] {
                #expect(try await lastWords(of: peer) == "\(Self.again) no longer gives you the role control")
            }
            #expect(daemon.log.lines.contains { $0.message.hasPrefix("closed 2 connections to the control socket: ") })
            // A role that is given counts at once, and ends nothing.
            let other = try await peer(nil, of: daemon)
            #expect(try await other.call("rpc.hello")["roles"] == .array(["observe", "message"]))
            try await reload(#"control = ["uid:4242"]"#, by: root)
            #expect(try await other.call("rpc.hello")["roles"] == .array(["observe", "message", "control"]))
            try await reload("", by: root)
            #expect(try await lastWords(of: other) == "\(Self.again) no longer gives you the role observe")
            // A batch is answered as a whole first, but its watches get nothing more.
            try await reload(#"control = ["uid:4242"]"#, by: root)
            let batched = try await self.peer(nil, of: daemon)
            try daemon.directory.write("holdfast.toml", "[access]\nobserve = [\"uid:4242\"]\n")
            let calls = (1...3).map { #"{"jsonrpc":"2.0","id":\#($0),"method":"daemon.reload"}"# }
            try await batched.send("[\(calls.joined(separator: ","))]")
            let answers = try await batched.lines.first { line -> [JSONValue]? in
                if case .array(let all)? = line { all } else { nil }
            }
            #expect(answers.map { $0["id"] } == [1, 2, 3])
            #expect(answers.first?["result"] != nil)
            #expect(try await lastWords(of: batched) == "\(Self.again) no longer gives you the role message")
        }
    }

    @Test func `a role that a reload takes away is gone before sessions have stopped`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            let root = try await daemon.peer()
            try daemon.directory.write("holdfast.toml", "[access]\nmessage = [\"uid:4242\"]\n")
            try await root.call("daemon.reload")
            let peer = try await peer(nil, of: daemon)
            // Sessions take their time to stop.
            await daemon.registry.takeTurn()
            try daemon.directory.write("holdfast.toml", "")
            let reload = try await root.request("daemon.reload")
            #expect(try await lastWords(of: peer) == "\(Self.again) no longer gives you the role message")
            await daemon.registry.endTurn()
            #expect(try await root.answer(reload)["result"] != nil)
        }
    }

    @Test func `a program whose role is taken away is told first which of its messages are accepted`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            let root = try await daemon.peer()
            try daemon.directory.write("holdfast.toml", "[access]\nmessage = [\"uid:4242\"]\n")
            try await root.call("daemon.reload")
            let peer = try await peer(nil, of: daemon)
            func message(_ more: String) -> String { #"{"session":"main","topic":"t","payload":"x"\#(more)}"# }
            let waiting = try await peer.request("message.publish", message(#","wait":"delivered""#))
            // The one before it is on disk when this one is.
            try await peer.call("message.publish", message(""))
            try daemon.directory.write("holdfast.toml", "")
            try await root.call("daemon.reload")
            #expect(try await lastWords(of: peer) == "\(Self.again) no longer gives you the role message")
            let result = try await peer.answer(waiting)["result"]
            #expect(result?["accepted"] == .bool(true) && result?["delivered"] == .bool(false))
        }
    }

    @Test(arguments: ["", #","consumer":"c""#])
    func `a reload that narrows topics ends the connections that subscribe to others`(consumer: String) async throws {
        func topics(_ filter: String) -> String { "[topics]\nsubscribe = [\"uid:4242 \(filter)\"]" }
        try await DaemonUnderTest.run(topics("plant/#")) { daemon, root in
            try daemon.directory.write("holdfast.toml", "[access]\nmessage = [\"uid:4242\"]\n")
            try await root.call("daemon.reload")
            let (one, other) = (try await peer(nil, of: daemon), try await peer(nil, of: daemon))
            try await one.call("message.subscribe", #"{"session":"main","filter":"plant/a/+"\#(consumer)}"#)
            try await other.call("message.subscribe", #"{"session":"main","filter":"plant/b/c"}"#)
            try await daemon.writeSession(topics("plant/b/#"))
            try await root.call("daemon.reload")
            #expect(
                try await lastWords(of: one)
                    == "\(Self.again) you may no longer subscribe to \"plant/a/+\" in session main")
            try await other.call("message.subscribe", #"{"session":"main","filter":"plant/b/d"}"#)
        }
    }

    @Test func `a peer that may only observe can check TCP, and nothing with the credential`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            let peer = try await peer([.observe], of: daemon)
            let checked = try await peer.call("check.run", #"{"session":"main","until":"tcp"}"#)
            let steps = try ParameterDecoder.decodeLeniently(CheckRunMethod.Result.self, from: checked).endpoints[0]
                .steps
            #expect(steps.map(\.step) == [.dns, .route, .tcp] && steps.allSatisfy(\.ok))
            for until in CheckStep.allCases where ![.dns, .route, .tcp].contains(until) {
                await #expect(throws: ControlPeer.CallFailure(code: "not-permitted"), "\(until)") {
                    try await peer.call("check.run", #"{"session":"main","until":"\#(until.rawValue)"}"#)
                }
            }
        }
    }

    @Test func `an unwritten configuration is checked for root only`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            let port = await daemon.server.port
            func wanted(_ file: String) -> String {
                let text = file.replacing("\n", with: "\\n").replacing("\"", with: "\\\"")
                return #"{"session":"new","configuration":"\#(text)"}"#
            }
            let file = "endpoints = [\"mqtt://127.0.0.1:\(port)\"]\nuser = \"edge-43\"\n"
            let root = try await daemon.peer()
            let answer = try await root.call("check.run", wanted(file))
            let result = try ParameterDecoder.decodeLeniently(CheckRunMethod.Result.self, from: answer)
            #expect(result.session == "new" && result.endpoints.map(\.ok) == [true])
            #expect(try await daemon.server.connect().clientID == "edge-43-check")
            await #expect(throws: ControlPeer.CallFailure(code: "bad-configuration")) {
                try await root.call("check.run", wanted("user = 3\n"))
            }
            let listed = try await root.call("session.list")
            #expect(
                try ParameterDecoder.decodeLeniently(SessionSnapshot.self, from: listed).sessions.map(\.session) == [
                    "main"
                ])
            // The configuration could name any file and command, so the role `control` is not enough.
            let admin = try await peer(Set(Role.allCases), of: daemon)
            await #expect(throws: ControlPeer.CallFailure(code: "not-permitted")) {
                try await admin.call("check.run", wanted(file))
            }
        }
    }
}
