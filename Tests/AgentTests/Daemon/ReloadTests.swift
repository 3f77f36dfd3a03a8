import ControlAPI
import Glibc
import MQTT
import NIOCore
import NIOPosix
import Session
import SessionCore
import Support
import Synchronization
import Testing

@testable import Agent
@testable import DurableStore

@Suite(.timeLimit(.minutes(10)))
struct ReloadTests {
    private static func names(_ result: JSONValue, _ member: String) -> [String] {
        guard case .array(let names)? = result[member] else { return [] }
        return names.compactMap(\.text)
    }

    /// Returns the sessions that have errors, once per error.
    private static func problems(_ result: JSONValue) -> [String] {
        guard case .array(let errors)? = result["errors"] else { return [] }
        return errors.compactMap { $0["session"]?.text }
    }

    @Test func `a session that is added connects`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            try daemon.directory.write(
                "sessions.d/second.toml", await DaemonUnderTest.session(daemon.server, user: "second"))
            #expect(Self.names(try await peer.call("daemon.reload"), "added") == ["second"])
            try await peer.state("connected", of: "second")
            #expect(try await daemon.server.connect().clientID == "second")
        }
    }

    @Test func `files that were changed, added or removed are named until they are read`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            func changed() async throws -> [String] {
                Self.names(try await peer.call("daemon.status"), "changedFiles").map {
                    String($0.dropFirst(daemon.directory.path.count + 1))
                }
            }
            #expect(try await changed() == [])
            let text = await DaemonUnderTest.session(daemon.server, user: "second")
            try daemon.directory.write("sessions.d/main.toml", text)
            try daemon.directory.write("holdfast.toml", "")
            #expect(try await changed() == ["holdfast.toml", "sessions.d/main.toml"])
            try await peer.call("daemon.reload")
            #expect(try await changed() == [])
            try daemon.directory.write("holdfast.toml", "nonsense")
            await #expect(throws: ControlPeer.CallFailure(code: "bad-configuration")) {
                try await peer.call("daemon.reload")
            }
            #expect(try await changed() == ["holdfast.toml"], "it is not in effect")
            let error = try await peer.call("daemon.status")["configurationError"]?.text
            #expect(error?.contains("holdfast.toml:1:") == true, "the daemon would not start again")
            try daemon.directory.write("holdfast.toml", "# nothing\n")
            #expect(try await peer.call("daemon.status")["configurationError"] == .null)
            // An editor makes another file.
            try daemon.directory.write("holdfast.toml.new", "")
            #expect(rename("\(daemon.directory.path)/holdfast.toml.new", "\(daemon.directory.path)/holdfast.toml") == 0)
            #expect(try await changed() == [], "it says what is in effect")
        }
    }

    @Test func `a file whose name is no session's is named, also after a start`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            #expect(try await peer.call("daemon.status")["ignoredFiles"]?.elements == [])
            for name in ["Pump_7.toml", "gw@.toml", "notes.txt", ".hidden.toml"] {
                try daemon.directory.write("sessions.d/\(name)", "instances = []\n")
            }
            let path = "\(daemon.directory.path)/sessions.d/Pump_7.toml"
            #expect(try await peer.call("daemon.status")["ignoredFiles"]?.elements == [.string(path)])
        }
    }

    @Test func `a change of durability counts from what the store was opened with`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            let steps = [("full", ["\"normal\"", "\"full\""]), ("full", []), ("normal", [])]
            for (written, expected) in steps {
                try daemon.directory.write("holdfast.toml", "durability = \"\(written)\"\n")
                let changes = try await peer.call("daemon.reload")["changes"]?.elements ?? []
                #expect(changes.flatMap { [$0["from"], $0["to"]] } == expected.map { JSONValue.string($0) })
                let needed = try await peer.call("daemon.status")["restartNeeded"]
                #expect(needed == (written == "full" ? "durability = \"full\"" : .null))
            }
            #expect(daemon.log.lines.count { $0.message.hasPrefix("a change of durability takes effect") } == 1)
        }
    }

    @Test func `the log level of the command line has precedence in a reload`() async throws {
        try await DaemonUnderTest.run(autoconnect: false, logLevel: "info") { daemon in
            try daemon.directory.write("holdfast.toml", "[log]\nlevel = \"error\"\n")
            let peer = try await daemon.peer()
            #expect(
                try await peer.call("daemon.reload")["changes"]
                    == JSONValue(
                        parsing: Array(
                            #"""
                            [{"session":null,"key":"log.level","from":"\"info\"","to":"\"error\"",
                            "overriddenBy":"--log-level"}]
                            """#.utf8)[...]))
            #expect(try await peer.call("daemon.logLevel")["level"] == "debug", "as the test's log has it")
        }
    }

    @Test func `a log level that was set while the daemon runs stays until a reload finds another in the file`()
        async throws
    {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            func level() async throws -> JSONValue? { try await peer.call("daemon.logLevel")["level"] }
            try daemon.directory.write("holdfast.toml", "[log]\nlevel = \"warning\"\n")
            try await peer.call("daemon.reload")
            #expect(try await level() == "warning")
            try await peer.call("daemon.logLevel", #"{"level":"trace"}"#)
            try await peer.call("daemon.reload")
            #expect(try await level() == "trace")
            try daemon.directory.write("holdfast.toml", "[log]\nlevel = \"notice\"\n")
            try await peer.call("daemon.reload")
            #expect(try await level() == "notice")
            let told = "the log level is trace from now on"
            #expect(daemon.log.lines.map(\.message).contains(told))
        }
    }

    @Test func `a reload logs what is wrong with files of no session`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            try daemon.directory.write("sessions.d/Bad.toml", await DaemonUnderTest.session(daemon.server))
            #expect(Self.problems(try await peer.call("daemon.reload")) == [])
            #expect(daemon.log.lines.contains { $0.message.contains("/sessions.d/Bad.toml") })
        }
    }

    @Test func `a reload whose file system does not answer is refused and logged, and does not hold up the next`()
        async throws
    {
        try await DaemonUnderTest.run(autoconnect: false, configurationPatience: .milliseconds(1)) { daemon in
            let fileSystem = Standstill(of: daemon.directory.path, in: daemon.daemon.blocking)
            defer { fileSystem.end() }
            let peer = try await daemon.peer()
            for parameters in ["{}", #"{"dryRun":true}"#, "{}"] {
                let answer = try await peer.answer(try await peer.request("daemon.reload", parameters))
                #expect(answer["error"]?["data"]?["code"] == "bad-configuration")
                #expect(answer["error"]?["message"]?.text?.contains("the old one stays: there was no answer") == true)
            }
            let told = daemon.log.lines.filter { $0.message.hasPrefix("reload refused: the configuration in ") }
            #expect(told.count == 2)
        }
    }

    @Test func `a reload without changes disturbs nothing`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            let result = try await peer.call("daemon.reload")
            for member in ["added", "changed", "removed"] { #expect(Self.names(result, member) == []) }
            #expect(await daemon.server.events.all.filter { if case .opened = $0 { true } else { false } }.count == 1)
        }
    }

    @Test func `no session ends because sessions.d is gone, and an empty one means that there are none`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            let folder = "\(daemon.directory.path)/sessions.d"
            #expect(rename(folder, folder + ".old") == 0)
            for parameters in ["{}", #"{"dryRun":true}"#] {
                let answer = try await peer.answer(try await peer.request("daemon.reload", parameters))
                #expect(answer["error"]?["data"]?["code"] == "bad-configuration")
                #expect(answer["error"]?["message"]?.text?.contains("\(folder): cannot be read") == true)
            }
            #expect(try await peer.call("session.status", #"{"session":"main"}"#)["state"] == "connected")
            #expect(mkdir(folder, 0o700) == 0)
            #expect(Self.names(try await peer.call("daemon.reload"), "removed") == ["main"])
            // Nothing would be lost by it any more, but it is as likely to be a mistake.
            #expect(rmdir(folder) == 0)
            await #expect(throws: ControlPeer.CallFailure(code: "bad-configuration")) {
                try await peer.call("daemon.reload")
            }
        }
    }

    @Test func `a session that changes reconnects and keeps its subscriptions and counters`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            try await peer.call("message.subscribe", #"{"session":"main","filter":"a"}"#)
            await daemon.server.publish("a", "before")
            #expect(try await peer.notification("message.received")["payload"] == "before")
            try await daemon.writeSession(user: "edge-43")
            #expect(Self.names(try await peer.call("daemon.reload"), "changed") == ["main"])
            try await peer.state("connected")
            await daemon.server.publish("a", "still")
            #expect(try await peer.notification("message.received")["payload"] == "still")
            let status = try await peer.call("session.status", #"{"session":"main"}"#)
            #expect(status["counters"]?["received"] == 2)
            let connects = await daemon.server.events.all.compactMap { event -> Connect? in
                if case .packet(.connect(let connect)) = event { connect } else { nil }
            }
            #expect(connects.map(\.clientID) == ["edge-42", "edge-43", "edge-43"])
            // The session that the server says it has under the other identifier was never ours.
            #expect(connects.map(\.cleanStart) == [false, false, true])
        }
    }

    @Test func `a session that was connected by hand is connected after its configuration changed`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            try await peer.call("session.connect", #"{"session":"main"}"#)
            try await peer.state("connected")
            try await daemon.writeSession(autoconnect: false, user: "edge-43")
            try await peer.request("daemon.reload")
            try await peer.state("disconnected")
            try await peer.state("connected")
        }
    }

    @Test func `a session that cannot be read is started later as it was to be, also after another reload`()
        async throws
    {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            try await peer.call("session.connect", #"{"session":"main"}"#)
            try await peer.state("connected")
            try await daemon.store.execute("ALTER TABLE presence_topic RENAME TO gone")
            for user in ["edge-43", "edge-44"] {
                try await daemon.writeSession(autoconnect: false, user: user)
                await #expect(throws: ControlPeer.CallFailure.self) { try await peer.call("daemon.reload") }
            }
            // Nor is it forgotten because its file has an error for a while.
            try await daemon.writeSession("no-such-key = 1", autoconnect: false)
            try await peer.call("daemon.reload")
            try await daemon.writeSession(autoconnect: false, user: "edge-45")
            await #expect(throws: ControlPeer.CallFailure.self) { try await peer.call("daemon.reload") }
            try await daemon.store.execute("ALTER TABLE gone RENAME TO presence_topic")
            try await peer.state("connected")
        }
    }

    @Test func `a session disconnected by hand stays so when its configuration changes`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            try await peer.call("session.disconnect", #"{"session":"main"}"#)
            try await peer.state("disconnected")
            try await daemon.writeSession(user: "edge-43")
            try await peer.call("daemon.reload")
            let status = try await peer.call("session.status", #"{"session":"main"}"#)
            #expect(status["state"] == "disconnected")
            #expect(status["reason"]?["code"] == "user-disconnect")
        }
    }

    @Test func `a failed session starts again when its configuration changes`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            await daemon.server.disconnect(.sessionTakenOver)
            try await peer.state("failed")
            try await daemon.writeSession(user: "edge-43")
            try await peer.request("daemon.reload")
            try await peer.state("connected")
        }
    }

    @Test func `sessions are listed in natural order, also in a snapshot`() async throws {
        try await DaemonUnderTest.run { daemon in
            for name in ["gw-10", "gw-2"] {
                let text = await DaemonUnderTest.session(daemon.server, autoconnect: false, user: name)
                try daemon.directory.write("sessions.d/\(name).toml", text)
            }
            let peer = try await daemon.peer()
            try await peer.call("daemon.reload")
            for answer in [try await peer.call("session.list"), try await peer.call("session.watch")["snapshot"]] {
                guard case .array(let sessions)? = answer?["sessions"] else {
                    throw ControlPeer.CallFailure(code: "none")
                }
                #expect(sessions.map { $0["session"] } == ["gw-2", "gw-10", "main"])
            }
        }
    }

    @Test func `a session that is removed is gone`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            await daemon.server.drop()
            try await peer.state("reconnecting")
            try await peer.state("connected")
            #expect(await daemon.registry.metrics.failures.keys.sorted() == ["main"])
            #expect(unlink("\(daemon.directory.path)/sessions.d/main.toml") == 0)
            let reload = try await peer.request("daemon.reload")
            // Also for a session that was down, whose state does not change.
            let removal = try await peer.notification("session.event", ["event": "session-removed"])
            #expect(removal["session"] == "main")
            #expect(Self.names(try await peer.answer(reload)["result"] ?? .null, "removed") == ["main"])
            #expect(await daemon.registry.metrics.failures.isEmpty)
            await #expect(throws: ControlPeer.CallFailure(code: "unknown-session")) {
                try await peer.call("session.status", #"{"session":"main"}"#)
            }
            _ = try await daemon.server.packet { if case .disconnect = $0 { true } else { nil } }
            #expect(
                daemon.log.lines.contains {
                    $0.message == "main: disconnected: the session was removed from the configuration"
                })
        }
    }

    @Test func `the removal of a session in a room names the room`() async throws {
        try await DaemonUnderTest.run("room = \"plant\"") { daemon, peer in
            #expect(unlink("\(daemon.directory.path)/sessions.d/main.toml") == 0)
            try await peer.request("daemon.reload")
            let removal = try await peer.notification("session.event", ["event": "session-removed"])
            #expect(removal["room"] == "plant")
        }
    }

    private static func publish(_ payload: String, to session: String = "main") -> String {
        #"{"session":"\#(session)","topic":"t","payload":"\#(payload)"}"#
    }

    /// Returns the sessions without a file that have messages, and how many.
    private static func absent(_ result: JSONValue) -> [String: Int64] {
        guard case .array(let sessions)? = result["absentSessions"] else { return [:] }
        return sessions.reduce(into: [:]) { found, session in
            guard let name = session["session"]?.text, case .integer(let count)? = session["messages"] else { return }
            found[name] = count
        }
    }

    @Test func `messages of a session that is removed are told, and can be listed and dropped`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            for payload in ["1", "2"] { try await peer.call("message.publish", Self.publish(payload)) }
            #expect(Self.absent(try await peer.call("daemon.status")) == [:])
            #expect(unlink("\(daemon.directory.path)/sessions.d/main.toml") == 0)
            #expect(Self.absent(try await peer.call("daemon.reload", #"{"dryRun":true}"#)) == ["main": 2])
            #expect(Self.absent(try await peer.call("daemon.reload")) == ["main": 2])
            #expect(
                daemon.log.lines.contains {
                    $0.message == "main: 2 accepted messages stay on disk; a file named main.toml with one of the same "
                        + "servers sends them"
                })
            #expect(Self.absent(try await peer.call("daemon.reload")) == [:], "nothing was removed")
            #expect(Self.absent(try await peer.call("daemon.status")) == ["main": 2])
            let list = try await peer.call("message.queue.list", #"{"session":"main"}"#)
            #expect(list["messages"].map { if case .array(let all) = $0 { all.count } else { 0 } } == 2)
            await #expect(throws: ControlPeer.CallFailure(code: "unknown-session")) {
                try await peer.call("message.queue.list", #"{"session":"mian"}"#)
            }
            let dropped = try await peer.call("message.queue.drop", #"{"session":"main","ids":[1]}"#)
            #expect(dropped["dropped"] == .array([1]))
            #expect(Self.absent(try await peer.call("daemon.status")) == ["main": 1])

            try await daemon.writeSession()
            try await peer.call("daemon.reload")
            #expect(try await daemon.server.message().payload == ByteBuffer(string: "2"))
            #expect(Self.absent(try await peer.call("daemon.status")) == [:])
        }
    }

    @Test func `whatever is on disk of a session that is removed is told and can be dropped`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            func absent(_ result: JSONValue) -> [String: JSONValue]? {
                guard case .array(let all)? = result["absentSessions"], all.count < 2 else { return nil }
                return all.first?.members ?? [:]
            }
            try await peer.call(
                "message.subscribe", #"{"session":"main","filter":"in","qos":1,"consumer":"billing"}"#)
            try await peer.call("publication.put", #"{"session":"main","topic":"p","payload":"x"}"#)
            await #expect(throws: ControlPeer.CallFailure(code: "invalid-parameters")) {
                try await peer.call("message.queue.drop", #"{"session":"main","all":"everything"}"#)
            }
            #expect(unlink("\(daemon.directory.path)/sessions.d/main.toml") == 0)
            let foreseen = try #require(absent(try await peer.call("daemon.reload", #"{"dryRun":true}"#)))
            let told = try #require(absent(try await peer.call("daemon.reload")))
            for member in [foreseen, told] {
                #expect(member["consumers"] == 1 && member["publications"] == 1 && member["messages"] == 0)
            }
            #expect(
                daemon.log.lines.contains {
                    $0.message
                        == "main: 1 durable consumer and 1 publication stay on disk; a file named main.toml with one "
                        + "of the same servers takes them up"
                })
            let dropped = try await peer.call("message.queue.drop", #"{"session":"main","all":"everything"}"#)
            #expect(dropped["dropped"] == .array([]) && dropped["more"] == .bool(false))
            #expect(dropped["rest"] == .object(["consumers": 1, "received": 0, "publications": 1]))
            #expect(try await absent(peer.call("daemon.status")) == [:])
            await #expect(throws: ControlPeer.CallFailure(code: "unknown-session")) {
                try await peer.call("message.queue.drop", #"{"session":"main","all":"everything"}"#)
            }
        }
    }

    /// Returns the file of `main`, which names its server otherwise, as if it were another one.
    private static func foreign(_ server: LoopbackServer) async -> String {
        await DaemonUnderTest.session(server, autoconnect: false).replacing("127.0.0.1", with: "localhost")
    }

    private static func queued(_ peer: ControlPeer) async throws -> (state: String, queued: JSONValue, why: String) {
        let status = try await peer.call("session.status", #"{"session":"main"}"#)
        return (
            status["state"]?.text ?? "", status["outbox"]?["queued"] ?? .null, status["reason"]?["message"]?.text ?? ""
        )
    }

    @Test func `a file that names other servers does not get what a session left that was removed`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            func write(_ text: String) throws { try daemon.directory.write("sessions.d/main.toml", text) }
            let (own, foreign) = (
                await DaemonUnderTest.session(daemon.server, autoconnect: false), await Self.foreign(daemon.server)
            )
            for payload in ["1", "2"] { try await peer.call("message.publish", Self.publish(payload)) }
            #expect(unlink("\(daemon.directory.path)/sessions.d/main.toml") == 0)
            try await peer.call("daemon.reload")
            try write(foreign)
            for parameters in [#"{"dryRun":true}"#, "{}", "{}"] {
                #expect(Self.problems(try await peer.call("daemon.reload", parameters)) == ["main"])
            }
            let refused = try await Self.queued(peer)
            #expect(refused.state == "failed" && refused.queued == 2)
            let port = await daemon.server.port
            for part in ["2 accepted messages", "mqtt://127.0.0.1:\(port)", "queue drop main --all --any-state"] {
                #expect(refused.why.contains(part), "\(refused.why)")
            }
            try await peer.call("message.queue.drop", #"{"session":"main","ids":[1]}"#)
            try await peer.call("daemon.reload")
            #expect(try await Self.queued(peer).why.contains("1 accepted message of"))
            // With an error of another kind in between.
            try write(foreign + "[x]\n")
            try await peer.call("daemon.reload")
            try write(foreign)
            #expect(Self.problems(try await peer.call("daemon.reload")) == ["main"])
            // With its earlier server it is the session that it was.
            try write(own)
            #expect(Self.problems(try await peer.call("daemon.reload")) == [])
            let started = try await Self.queued(peer)
            #expect(started.state == "disconnected" && started.queued == 1)
            // The servers of a session that has a file can be changed.
            try write(foreign)
            #expect(Self.problems(try await peer.call("daemon.reload")) == [])
            #expect(try await Self.queued(peer).queued == 1)
        }
    }

    @Test func `an error about what is on disk is that of the file that an instance has`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            func write(_ name: String, _ text: String) throws {
                try daemon.directory.write("sessions.d/\(name).toml", text)
            }
            func files(_ result: JSONValue) -> [String?] {
                guard case .array(let errors)? = result["errors"] else { return [] }
                return errors.map { $0["file"]?.text }
            }
            let own = await DaemonUnderTest.session(daemon.server, autoconnect: false, user: "gateway")
            let foreign = own.replacing("127.0.0.1", with: "localhost")
            try write("gw@a", own)
            try await peer.call("daemon.reload")
            try await peer.call("message.publish", Self.publish("1", to: "gw@a"))
            #expect(unlink("\(daemon.directory.path)/sessions.d/gw@a.toml") == 0)
            try await peer.call("daemon.reload")
            try write("gw@a", foreign)
            #expect(files(try await peer.call("daemon.reload", #"{"dryRun":true}"#)) == ["sessions.d/gw@a.toml"])
            #expect(files(try await peer.call("daemon.reload")) == ["sessions.d/gw@a.toml"])
            #expect(unlink("\(daemon.directory.path)/sessions.d/gw@a.toml") == 0)
            try write("gw@", "instances = [\"a\"]\n" + foreign)
            #expect(files(try await peer.call("daemon.reload")) == ["sessions.d/gw@.toml"])
        }
    }

    @Test func `a session with other servers than a removed one of its name starts when nothing is left of that`()
        async throws
    {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            let everything = #"{"session":"main","all":"everything"}"#
            try await peer.call("message.publish", Self.publish("1"))
            try await peer.call("publication.put", #"{"session":"main","topic":"p","payload":"x"}"#)
            #expect(unlink("\(daemon.directory.path)/sessions.d/main.toml") == 0)
            try await peer.call("daemon.reload")
            try daemon.directory.write("sessions.d/main.toml", await Self.foreign(daemon.server))
            #expect(Self.problems(try await peer.call("daemon.reload")) == ["main"])
            let messages = try await peer.call("message.queue.drop", everything)
            #expect(messages["dropped"] == .array([1]) && messages["more"] == .bool(true))
            #expect(Self.problems(try await peer.call("daemon.reload")) == ["main"], "the publication")
            let rest = try await peer.call("message.queue.drop", everything)
            #expect(rest["rest"] == .object(["consumers": 0, "received": 0, "publications": 1]))
            #expect(rest["more"] == .bool(false))
            #expect(Self.problems(try await peer.call("daemon.reload")) == [])
            #expect(try await Self.queued(peer).state == "disconnected")
            await #expect(throws: ControlPeer.CallFailure(code: "invalid-parameters")) {
                try await peer.call("message.queue.drop", everything)
            }
        }
    }

    @Test func `reloads that the disk does not take are limited, and no removal among them is forgotten`() throws {
        let (main, other) = (try #require(SessionName("main")), try #require(SessionName("other")))
        let (one, two) = (try Endpoint("mqtt://one.example"), try Endpoint("mqtt://two.example"))
        var unrecorded: [[SessionName: [Endpoint]]] = []
        SessionRegistry.note([main: [one], other: [one]], in: &unrecorded)
        SessionRegistry.note([other: [one]], in: &unrecorded)
        SessionRegistry.note([other: [one]], in: &unrecorded)
        #expect(unrecorded.count == 2, "a reload that changes nothing")
        for number in 0..<(3 * SessionRegistry.mostUnrecorded) {
            SessionRegistry.note([main: [two], other: [number.isMultiple(of: 2) ? one : two]], in: &unrecorded)
        }
        #expect(unrecorded.count == SessionRegistry.mostUnrecorded)
        #expect(unrecorded.first == [other: [one]], "main was removed")
        #expect(unrecorded.dropFirst().allSatisfy { $0[main] == [two] && $0[other] != nil })
        #expect(unrecorded.last == [main: [two], other: [two]])
    }

    @Test func `a daemon that starts knows that a session had no file, and which servers it had`() async throws {
        try await DaemonUnderTest.withServer { directory, server, group in
            func life(_ text: String?, _ body: (ControlPeer) async throws -> Void) async throws {
                if let text { try directory.write("sessions.d/main.toml", text) }
                try await DaemonUnderTest.run(in: directory, server, on: group) { daemon in
                    try await body(try await daemon.peer())
                }
            }
            let own = await DaemonUnderTest.session(server, autoconnect: false)
            let foreign = await Self.foreign(server)
            try await life(own) { peer in try await peer.call("message.publish", Self.publish("1")) }
            // It is changed while no daemon runs.
            try await life(foreign) { peer in
                let moved = try await Self.queued(peer)
                #expect(moved.state == "disconnected" && moved.queued == 1)
            }
            #expect(unlink("\(directory.path)/sessions.d/main.toml") == 0)
            try await life(nil) { peer in
                let absent = Self.absent(try await peer.call("daemon.status"))
                #expect(absent == ["main": 1])
            }
            for _ in 1...2 {
                try await life(own) { peer in
                    let refused = try await Self.queued(peer)
                    #expect(refused.state == "failed" && refused.queued == 1)
                    #expect(refused.why.contains("mqtt://localhost:"), "\(refused.why)")
                }
            }
            try await life(foreign) { peer in
                let started = try await Self.queued(peer)
                #expect(started.state == "disconnected" && started.queued == 1)
            }
        }
    }

    @Test(arguments: ["", #","consumer":"c""#])
    func `who subscribes to a session is told when it is removed`(_ consumer: String) async throws {
        try await DaemonUnderTest.run { daemon, peer in
            let subscribe = #"{"session":"main","filter":"a"\#(consumer)}"#
            let id = try #require(try await peer.call("message.subscribe", subscribe)["subscription"]?.text)
            #expect(unlink("\(daemon.directory.path)/sessions.d/main.toml") == 0)
            let reload = try await peer.request("daemon.reload")
            let removal = try await peer.notification(
                "session.event", ["event": "session-removed", "watch": .string(id)])
            #expect(removal["session"] == "main")
            _ = try await peer.answer(reload)
            await #expect(throws: ControlPeer.CallFailure(code: "unknown-subscription")) {
                try await peer.call("message.unsubscribe", #"{"subscription":"\#(id)"}"#)
            }
            // Another session of that name has nothing to do with it.
            try await daemon.writeSession()
            await daemon.server.loseSession()
            try await peer.request("daemon.reload")
            try await peer.state("connected")
            try await peer.call("message.subscribe", subscribe)
            await daemon.server.publish("a", "to the new one")
            let message = try await peer.notification("message.received")
            #expect(message["payload"] == "to the new one" && message["subscription"] != .string(id))
        }
    }

    @Test func `a session that is broken at the start is listed with its error, and the others run`() async throws {
        let files = ["sessions.d/broken.toml": "endpoints = []\nuser = \"x\"\nuesr = 1\n"]
        try await DaemonUnderTest.run(files: files) { daemon in
            let peer = try await daemon.watcher()
            let broken = try await peer.call("session.status", #"{"session":"broken"}"#)
            #expect(broken["state"] == "failed")
            #expect(broken["reason"]?["code"] == "bad-configuration")
            // The message is one line, however many errors there are.
            #expect(broken["reason"]?["message"]?.text?.hasSuffix("and 1 more") == true)
            await #expect(throws: ControlPeer.CallFailure(code: "wrong-state")) {
                try await peer.call("session.connect", #"{"session":"broken"}"#)
            }
            let result = try await peer.call("daemon.reload")
            #expect(Self.names(result, "kept") == [])
            #expect(Set(Self.problems(result)) == ["broken"])
        }
    }

    @Test func `a session whose file breaks continues as it was, and says so`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            try daemon.directory.write("sessions.d/main.toml", "endpoints = 7\n")
            for _ in 0..<2 {
                let result = try await peer.call("daemon.reload")
                #expect(Self.names(result, "kept") == ["main"])
                #expect(Self.names(result, "changed") == [])
                #expect(Set(Self.problems(result)) == ["main"])
            }
            let status = try await peer.call("session.status", #"{"session":"main"}"#)
            #expect(status["state"] == "connected")
            #expect(status["configurationError"]?.text?.contains("sessions.d/main.toml") == true)
            // The same mistake is reported once.
            let told = daemon.log.lines.filter { $0.message.contains("keeps the previous one") }
            #expect(told.map { $0.fields["HOLDFAST_SESSION"] } == ["main"])
            #expect(await daemon.server.events.all.filter { if case .opened = $0 { true } else { false } }.count == 1)

            try await daemon.writeSession()
            #expect(Self.names(try await peer.call("daemon.reload"), "changed") == [])
            let mended = try await peer.call("session.status", #"{"session":"main"}"#)
            #expect(mended["configurationError"] == .null)
            #expect(await daemon.server.events.all.filter { if case .opened = $0 { true } else { false } }.count == 1)
        }
    }

    @Test func `a session continues while the list of its template's instances cannot be read`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            let template = await DaemonUnderTest.session(daemon.server, "instances = [\"a\"]", user: "%i")
            try daemon.directory.write("sessions.d/gw@.toml", template)
            #expect(Self.names(try await peer.call("daemon.reload"), "added") == ["gw@a"])
            try await peer.state("connected", of: "gw@a")
            try daemon.directory.write("sessions.d/gw@.toml", "instances = 7\n")
            let result = try await peer.call("daemon.reload")
            #expect(Self.names(result, "kept") == ["gw@a"])
            #expect(Self.names(result, "removed") == [])
            #expect(try await peer.call("session.status", #"{"session":"gw@a"}"#)["state"] == "connected")
        }
    }

    /// Its instances had messages, and may have more, so it must not look as if there were none.
    @Test(arguments: ["broken = ", "instances = [\"s\", \"N\"]"])
    func `a template that is broken at the start is listed, and its instances with their messages`(
        _ mistake: String
    ) async throws {
        try await Self.twoLives { daemon in
            let template = await DaemonUnderTest.session(
                daemon.server, "instances = [\"n\"]", autoconnect: false, user: "%i")
            try daemon.directory.write("sessions.d/gw@.toml", template)
            let peer = try await daemon.peer()
            #expect(Self.names(try await peer.call("daemon.reload"), "added") == ["gw@n"])
            try await peer.call("message.publish", #"{"session":"gw@n","topic":"t","payload":"12"}"#)
            try daemon.directory.write(
                "sessions.d/gw@.toml",
                await DaemonUnderTest.session(daemon.server, mistake, autoconnect: false, user: "%i"))
            // What runs continues, and the list does not change.
            let result = try await peer.call("daemon.reload")
            #expect(Self.names(result, "kept") == ["gw@n"])
            #expect(!Self.names(result, "added").contains("gw@"))
        } second: { daemon in
            let peer = try await daemon.peer()
            for name in ["gw@", "gw@n"] {
                let status = try await peer.call("session.status", #"{"session":"\#(name)"}"#)
                #expect(status["state"] == "failed" && status["reason"]?["code"] == "bad-configuration", "\(name)")
                #expect(status["reason"]?["message"]?.text?.contains("sessions.d/gw@.toml") == true)
            }
            let outbox = try await peer.call("session.status", #"{"session":"gw@n"}"#)["outbox"]
            #expect(outbox?["queued"] == 1 && outbox?["bytes"] == 3, "\(outbox ?? .null)")
            #expect(outbox?["oldest"]?.text != nil)
            // The list may have had it.
            await #expect(throws: ControlPeer.CallFailure(code: "bad-configuration")) {
                try await peer.call("session.status", #"{"session":"gw@x"}"#)
            }
            let wrong = try await peer.answer(
                try await peer.request("message.publish", #"{"session":"gw@n","topic":"t","payload":"1"}"#))
            #expect(wrong["error"]?["data"]?["code"] == "wrong-state")
            #expect(daemon.log.lines.contains { $0.message.hasPrefix("gw@: failed (bad-configuration)") })

            let template = await DaemonUnderTest.session(
                daemon.server, "instances = [\"n\"]", autoconnect: false, user: "%i")
            try daemon.directory.write("sessions.d/gw@.toml", template)
            #expect(Self.names(try await peer.call("daemon.reload"), "removed").contains("gw@"))
            let mended = try await peer.call("session.status", #"{"session":"gw@n"}"#)
            #expect(mended["state"] == "disconnected" && mended["outbox"]?["queued"] == 1)
        }
    }

    @Test func `a session that is broken at the start shows what waits in its outbox`() async throws {
        try await Self.twoLives { daemon in
            let peer = try await daemon.peer()
            for _ in 0..<5 {
                try await peer.call("message.publish", #"{"session":"main","topic":"t","payload":"12"}"#)
            }
            try daemon.directory.write("sessions.d/main.toml", "oops = 1\n")
        } second: { daemon in
            let peer = try await daemon.peer()
            let outbox = try await peer.call("session.status", #"{"session":"main"}"#)["outbox"]
            #expect(outbox?["queued"] == 5 && outbox?["bytes"] == 15, "\(outbox ?? .null)")
            let list = try await peer.call("message.queue.list", #"{"session":"main","after":2,"limit":2}"#)
            guard case .array(let messages)? = list["messages"] else { throw ControlPeer.CallFailure(code: "shape") }
            #expect(messages.map { $0["id"] } == [3, 4])
            #expect(list["next"] == 4)
            let metrics = try await peer.call("daemon.metrics")["text"]?.text ?? ""
            #expect(metrics.contains("holdfast_session_outbox_messages{session=\"main\",state=\"queued\"} 5"))
        }
    }

    /// Runs one daemon after the other in the same directory.
    private static func twoLives(
        _ first: (DaemonUnderTest) async throws -> Void, second: (DaemonUnderTest) async throws -> Void
    ) async throws {
        try await DaemonUnderTest.withServer { directory, server, group in
            try directory.write("sessions.d/main.toml", await DaemonUnderTest.session(server, autoconnect: false))
            try await DaemonUnderTest.run(in: directory, server, on: group, first)
            try await DaemonUnderTest.run(in: directory, server, on: group, second)
        }
    }

    @Test func `a dry run says what would change and changes nothing`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            try await daemon.writeSession("password = \"exec:/bin/helper --token secret\"", user: "edge-43")
            try daemon.directory.write(
                "sessions.d/second.toml", await DaemonUnderTest.session(daemon.server, user: "second"))
            try daemon.directory.write("sessions.d/broken.toml", "endpoints = 7\n")
            try daemon.directory.write("holdfast.toml", "[log]\nlevel = \"debug\"\n")
            for _ in 0..<2 {
                let result = try await peer.call("daemon.reload", #"{"dryRun":true}"#)
                #expect(Self.names(result, "changed") == ["main"])
                #expect(Self.names(result, "added") == ["broken", "second"])
                #expect(Self.problems(result) == ["broken", "broken"])
                guard case .array(let changes)? = result["changes"] else {
                    Issue.record("no changes are told")
                    return
                }
                #expect(
                    changes.map { "\($0["session"]?.text ?? "-") \($0["key"]?.text ?? ""): \($0["to"]?.text ?? "")" }
                        == [
                            "- log.level: \"debug\"", "main user: \"edge-43\"", "main client-id: \"edge-43\"",
                            "main username: \"edge-43\"", "main password: \"exec:/bin/helper …\"",
                        ])
            }
            let sessions = try await peer.call("session.list")["sessions"]
            guard case .array(let listed)? = sessions else {
                Issue.record("no sessions are listed")
                return
            }
            #expect(listed.map { $0["user"] } == ["edge-42"])
        }
    }

    @Test func `other programs do not wait while the files are read`() async throws {
        try await DaemonUnderTest.run { daemon in
            let (peer, other) = (try await daemon.peer(), try await daemon.peer())
            for number in 0..<500 {
                try daemon.directory.write(
                    "sessions.d/s\(number).toml", await DaemonUnderTest.session(daemon.server, user: "u\(number)"))
            }
            // On a busy machine the files may have been read before the other program has called often enough; then the
            // test reloads again.
            var answered = 0
            while answered <= 5 {
                try Task.checkCancellation()
                let reload = Task { try await peer.call("daemon.reload", #"{"dryRun":true}"#) }
                let isOver = Mutex(false)
                let calls = Task {
                    var count = 0
                    while !isOver.withLock({ $0 }) {
                        try await other.call("session.status", #"{"session":"main"}"#)
                        count += 1
                    }
                    return count
                }
                #expect(Self.names(try await reload.value, "added").count == 500)
                isOver.withLock { $0 = true }
                answered = try await calls.value
            }
        }
    }

    @Test func `reloads that are asked for together take turns`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            let peer = try await daemon.peer()
            var reloads: [Int] = []
            for number in 0..<5 {
                try daemon.directory.write(
                    "sessions.d/s\(number).toml",
                    await DaemonUnderTest.session(daemon.server, autoconnect: false, user: "u\(number)"))
                reloads.append(try await peer.request("daemon.reload"))
            }
            let answers = try await peer.answers(to: reloads)
            let added = answers.values.flatMap { Self.names($0["result"] ?? .null, "added") }
            #expect(added.sorted() == (0..<5).map { "s\($0)" })
        }
    }

    @Test func `a broken daemon configuration changes nothing`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            try daemon.directory.write("holdfast.toml", "durability = \"perhaps\"\n")
            #expect(unlink("\(daemon.directory.path)/sessions.d/main.toml") == 0)
            await #expect(throws: ControlPeer.CallFailure(code: "bad-configuration")) {
                try await peer.call("daemon.reload")
            }
            #expect(try await peer.call("session.status", #"{"session":"main"}"#)["state"] == "connected")
        }
    }

    /// Sessions are also stopped and started because the store was replaced, or because a start is tried again.
    @Test func `a reload waits while sessions are restarted for another reason`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            let standstill = Standstill(of: daemon.disk)
            await daemon.registry.storeReplaced(.init(path: nil, cause: "a test"))
            try await until("they are restarted") { await daemon.registry.turns.isTaken }
            let reload = try await peer.request("daemon.reload")
            try await until("the reload waits") { await !daemon.registry.turns.waiting.isEmpty }
            standstill.end()
            #expect(try await peer.answer(reload)["result"] != nil)
            #expect(try await peer.state("disconnecting")["reason"]?["code"] == "store-replaced")
            try await peer.state("connected")
        }
    }

    @Test func `a call to a session during its reload is made afterwards`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            await daemon.server.set { $0.answersMessages = false }
            try await peer.call("message.publish", #"{"session":"main","topic":"t","payload":"0"}"#)
            let first = try await daemon.server.message()
            try await daemon.writeSession(user: "edge-43")
            let reload = try await peer.request("daemon.reload")
            try await peer.state("disconnecting")
            // The call would bring the old session up again while the new one waits for its end.
            let connect = try await peer.request("session.connect", #"{"session":"main"}"#)
            let publish = try await peer.request(
                "message.publish", #"{"session":"main","topic":"t","payload":"1","wait":"delivered"}"#)
            await daemon.server.set { $0.answersMessages = true }
            if let id = first.packetID { await daemon.server.send(.puback(Acknowledgement(packetID: id))) }
            let answers = try await peer.answers(to: [reload, connect, publish])
            #expect(Self.names(answers[reload]?["result"] ?? .null, "changed") == ["main"])
            #expect(answers[connect]?["result"] != nil)
            #expect(answers[publish]?["result"]?["delivered"] == .bool(true))
            let clients = await daemon.server.events.all.compactMap { event -> String? in
                if case .packet(.connect(let connect)) = event { connect.clientID } else { nil }
            }
            // On a slow machine the call finds the new session connecting, and begins its attempt again.
            #expect(clients.first == "edge-42" && clients.count > 1)
            #expect(clients.dropFirst().allSatisfy { $0 == "edge-43" })
        }
    }

    @Test func `a caller that waits for a delivery keeps waiting while the session is restarted`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            await daemon.server.set { $0.answersMessages = false }
            let publish = try await peer.request(
                "message.publish", #"{"session":"main","topic":"t","payload":"1","wait":"delivered"}"#)
            _ = try await daemon.server.message()
            // It has not answered this one; what the restarted session sends it does.
            await daemon.server.set { $0.answersMessages = true }
            try await daemon.writeSession(user: "edge-43")
            let reload = try await peer.request("daemon.reload")
            try await peer.state("disconnected")
            let answers = try await peer.answers(to: [reload, publish])
            #expect(answers[publish]?["result"]?["delivered"] == .bool(true))
        }
    }

    @Test func `a caller that waits for a delivery is answered when the session is removed`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            await daemon.server.set { $0.answersMessages = false }
            let publish = try await peer.request(
                "message.publish", #"{"session":"main","topic":"t","payload":"1","wait":"delivered"}"#)
            _ = try await daemon.server.message()
            #expect(unlink("\(daemon.directory.path)/sessions.d/main.toml") == 0)
            let reload = try await peer.request("daemon.reload")
            let answers = try await peer.answers(to: [reload, publish])
            #expect(answers[publish]?["result"]?["delivered"] == .bool(false))
        }
    }

    @Test func `messages published during reloads are all kept, in their order`() async throws {
        try await DaemonUnderTest.run { daemon in
            let (peer, other) = (try await daemon.watcher(), try await daemon.peer())
            var requests: [Int] = []
            for round in 0..<5 {
                try await daemon.writeSession(user: "edge-\(round)")
                try await other.request("daemon.reload")
                for number in 0..<40 {
                    requests.append(
                        try await peer.request(
                            "message.publish",
                            #"{"session":"main","topic":"t","payload":"\#(round * 40 + number)","qos":1}"#))
                }
            }
            let answers = try await peer.answers(to: requests)
            #expect(answers.values.compactMap { $0["error"]?["message"]?.text } == [])
            let ids = requests.compactMap { answers[$0]?["result"]?["id"]?.wholeNumber }
            #expect(ids == ids.sorted(), "a message has overtaken another one")
            var payloads: Set<String> = []
            while payloads.count < 200 { payloads.insert(String(buffer: try await daemon.server.message().payload)) }
        }
    }
}

extension ControlPeer {
    /// Returns the answers to several requests, in whatever order they come.
    func answers(to ids: [Int]) async throws -> [Int: JSONValue] {
        var answers: [Int: JSONValue] = [:]
        for id in ids { answers[id] = try await answer(id) }
        return answers
    }
}
