import ControlAPI
import Dispatch
import DurableStore
import MQTT
import NIOCore
import Session
import SessionCore
import Support
import Testing
import Transport

@testable import Agent

/// What a program at the control socket can do without slowing another one down.
///
/// All of it runs as one user, which is the hardest case: memory is shared between users first.
@Suite(.timeLimit(.minutes(20)))
struct HostileProgramTests {
    /// What hostile programs do, each on several connections.
    enum Behaviour: CaseIterable {
        case historyNeverRead, historyRead, historyAbandoned, listsNeverRead, batchesNeverRead, publishesNeverRead
        case lineWithoutEnd, oneByteEach, garbage, manyValues, deeplyNested, watchesNeverRead, subscriptionsNeverRead
        case deliveriesNeverMade, unknownMethods, notifications, emptyLines, nearMisses

        /// How many connections it uses.
        var connections: Int { self == .oneByteEach ? 100 : 6 }

        var readsAnswers: Bool {
            switch self {
            case .historyRead, .garbage, .unknownMethods, .notifications, .nearMisses: true
            default: false
            }
        }

        /// What is sent on a connection, and how many times.
        var lines: (text: String, count: Int) {
            switch self {
            case .historyNeverRead, .historyRead, .historyAbandoned:
                (Self.call("session.history", #"{"limit":10000}"#), 1400)
            case .listsNeverRead: (Self.call("session.list"), 1400)
            case .batchesNeverRead:
                (
                    "[" + String(repeating: Self.object("session.list") + ",", count: 99) + Self.object("session.list")
                        + "]\n", 20
                )
            case .publishesNeverRead:
                (Self.call("message.publish", #"{"session":"main","topic":"hog","payload":"x","qos":0}"#), 2000)
            case .lineWithoutEnd: (String(repeating: "x", count: 1 << 20), 16)
            case .oneByteEach: ("{", 1)
            case .garbage: ("}{][\u{0}\u{7f}\n", 2000)
            case .manyValues: ("[" + String(repeating: "0,", count: 400_000) + "0]\n", 4)
            case .deeplyNested: (String(repeating: "[", count: 400_000) + "\n", 4)
            case .watchesNeverRead: (Self.call("session.watch", #"{"since":0}"#), 1024)
            case .subscriptionsNeverRead:
                (Self.call("message.subscribe", #"{"session":"main","filter":"flood"}"#), 100)
            case .deliveriesNeverMade:
                (
                    Self.call(
                        "message.publish",
                        #"{"session":"away","topic":"hog","payload":"x","wait":"delivered","timeout":3600}"#), 1500
                )
            case .unknownMethods: (Self.call("session.steal"), 2000)
            case .emptyLines: (String(repeating: "\r\n\n", count: 10_000), 100)
            case .nearMisses: (Self.call("session.status", #"{"session":"mian"}"#), 2000)
            case .notifications: (#"{"jsonrpc":"2.0","method":"session.history","params":{"limit":10000}}"# + "\n", 500)
            }
        }

        private static func object(_ method: String, _ parameters: String = "{}") -> String {
            #"{"jsonrpc":"2.0","id":1,"method":"\#(method)","params":\#(parameters)}"#
        }

        private static func call(_ method: String, _ parameters: String = "{}") -> String {
            object(method, parameters) + "\n"
        }
    }

    @Test(arguments: Behaviour.allCases)
    func `other programs publish whatever one does, and the socket's memory is bounded`(
        behaviour: Behaviour
    ) async throws {
        let away = """
            endpoints = ["mqtt://127.0.0.1:9"]
            user = "away"
            autoconnect = false
            """
        try await DaemonUnderTest.run(files: ["sessions.d/away.toml": away]) { daemon in
            let watcher = try await daemon.watcher()
            try await Self.recordHistory(of: daemon)
            var hogs: [ControlPeer] = []
            for _ in 0..<behaviour.connections {
                let hog = try await daemon.peer(reads: behaviour.readsAnswers)
                let (text, count) = behaviour.lines
                await hog.pour(text, count: count)
                hogs.append(hog)
            }
            let publisher = try await daemon.peer()
            for number in 1...50 {
                if behaviour == .subscriptionsNeverRead {
                    await daemon.server.publish("flood", String(repeating: "x", count: 64 << 10))
                }
                try await publisher.call("message.publish", #"{"session":"main","topic":"t","payload":"\#(number)"}"#)
                let held = await daemon.control.memory
                #expect(held.borrowed <= held.pool)
                if behaviour == .historyAbandoned, number == 25 {
                    for hog in hogs { try? await hog.close() }
                }
            }
            await Watchdog(daemon: daemon.daemon, interval: .zero).answered()
            _ = await daemon.store.statistics()
            for hog in hogs { try? await hog.close() }
            try await watcher.call("session.list")
            // The daemon has noticed that they are gone once it holds nothing of theirs.
            try await until("nothing is held") { await daemon.control.memory.borrowed == 0 }
        }
    }

    @Test func `a line that is not finished delays no other program of the user`() async throws {
        var limits = ControlScheduler.Limits()
        // So that the others do not only wait until the one that stands still is closed.
        limits.standstill.patience = .seconds(3600)
        limits.unfinishedLine.patience = .seconds(3600)
        try await DaemonUnderTest.run(limits: limits) { daemon in
            let publisher = try await daemon.watcher()
            let hog = try await daemon.peer(reads: false)
            await hog.pour(String(repeating: "x", count: 1 << 20), count: 2)
            while await daemon.control.memory.borrowed < 20 << 20 { try await publisher.call("session.list") }
            for length in [100, 60_000, 900_000] {
                let payload = String(repeating: "x", count: length)
                try await publisher.call(
                    "message.publish", #"{"session":"main","topic":"t","payload":"\#(payload)"}"#)
            }
            try await hog.close()
        }
    }

    /// Records as many entries as the history can have.
    private static func recordHistory(of daemon: DaemonUnderTest) async throws {
        let name = try #require(SessionName("main"))
        let now = Timestamp.now.rawValue
        let entries = (0..<10_000).map { number in
            HistoryEntry(
                time: .init(rawValue: now - 20_000 + Int64(number)), session: name, from: "connected",
                to: "reconnecting", reasonCode: "connection-lost", message: "this is entry number \(number)")
        }
        try await daemon.store.record(entries)
    }

    @Test func `a read whose program is gone is not continued`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            try await Self.recordHistory(of: daemon)
            // The disk stands still until nobody waits for the answer any more; the rest of its pages is not read.
            let gate = DispatchSemaphore(value: 0)
            daemon.disk.execute { gate.wait() }
            let reading = Task { try await daemon.registry.history(.init(limit: 10_000), for: .number(1)) }
            reading.cancel()
            gate.signal()
            await #expect(throws: RPCError.self) { try await reading.value }
        }
    }

    @Test func `what reads of a program that is gone hold is given back`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            try await Self.recordHistory(of: daemon)
            let gone = try await daemon.peer()
            for _ in 0..<100 { try await gone.request("session.history", #"{"limit":10000}"#) }
            _ = try await gone.lines.first { $0 }
            try await gone.close()
            try await until("no read runs") { await daemon.control.runningReads == 0 }
            // Between two reads none runs. Once the daemon has noticed that the program is gone, it holds nothing of
            // it.
            try await until("nothing is held") { await daemon.control.memory.borrowed == 0 }
            try await until("no read runs") { await daemon.control.runningReads == 0 }
        }
    }

    @Test func `durable consumers whose programs do not read share the socket's memory`() async throws {
        var limits = ControlScheduler.Limits()
        limits.pool = 4 << 20
        // On a slow machine, none of them may be closed because the others wait.
        limits.standstill.patience = .seconds(3600)
        try await DaemonUnderTest.run(limits: limits) { daemon in
            let watcher = try await daemon.watcher()
            var slow: [ControlPeer] = []
            for number in 1...20 {
                let peer = try await daemon.peer(reads: false)
                try await peer.request(
                    "message.subscribe", #"{"session":"main","filter":"flood","consumer":"c\#(number)"}"#)
                slow.append(peer)
            }
            let driver = try await daemon.registry.driver("main")
            try await until("all are attached") {
                await driver.session.durableConsumers.attached.count >= slow.count
            }
            await daemon.server.publish("flood", String(repeating: "x", count: 900 << 10), qos: .atLeastOnce)
            for _ in 1...100 {
                try await watcher.call("session.list")
                let held = await daemon.control.memory
                #expect(held.borrowed <= held.pool)
            }
            // As some read, there is room for the others' messages.
            for peer in slow { try await peer.startReading() }
            for peer in slow {
                #expect(try await peer.notification("message.received")["topic"] == "flood")
            }
        }
    }

    @Test func `a program that acknowledges each message before it reads the next is not stuck`() async throws {
        try await DaemonUnderTest.run("[mqtt]\nreceive-maximum = 1000") { daemon in
            let (peer, watcher) = (try await daemon.peer(), try await daemon.watcher())
            let answer = try await peer.call(
                "message.subscribe", #"{"session":"main","filter":"in","consumer":"c"}"#)
            let subscription = try #require(answer["subscription"]?.text)
            try await peer.stopReading()
            // More than the kernel's buffers take.
            for _ in 1...900 {
                await daemon.server.publish("in", String(repeating: "x", count: 1000), qos: .atLeastOnce)
            }
            let unread = ControlScheduler.Limits().unread
            func waits() async throws -> Bool {
                guard case .array(let clients)? = try await watcher.call("daemon.clients")["clients"] else {
                    return false
                }
                return clients.contains { $0["unread"]?.wholeNumber ?? 0 > unread }
            }
            let driver = try await daemon.registry.driver("main")
            try await until("all messages are there") { await driver.session.mqtt.inboxCounts.messages >= 900 }
            try await until("more messages are given than the kernel takes") { try await waits() }
            // As many as the program was certainly given.
            for id in 1...100 {
                try await peer.request("message.ack", #"{"subscription":"\#(subscription)","id":\#(id)}"#)
            }
            try await until("they are acknowledged") { await driver.session.mqtt.inboxCounts.messages <= 800 }
            #expect(try await waits(), "the program has not read, and is not stuck all the same")
        }
    }

    @Test func `reads whose programs are gone leave room for others`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            try await Self.recordHistory(of: daemon)
            let peer = try await daemon.peer()
            for _ in 1...20 {
                var gone: [ControlPeer] = []
                // So that the reads still run when their programs leave.
                let standstill = Standstill(of: daemon.disk)
                for _ in 1...8 {
                    let one = try await daemon.peer(reads: false)
                    for _ in 1...2 { try await one.request("session.history", #"{"limit":850}"#) }
                    gone.append(one)
                }
                try await until("a read runs") { await daemon.control.runningReads > 0 }
                await withThrowingTaskGroup(of: Void.self) { group in
                    for one in gone { group.addTask { try await one.close() } }
                }
                standstill.end()
            }
            try await until("nothing is held") { await daemon.control.memory.borrowed == 0 }
            // A read that was under way still ends.
            try await until("no read runs") { await daemon.control.runningReads == 0 }
            try await peer.call("daemon.status")
        }
    }

    @Test func `a long history is one answer`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            try await Self.recordHistory(of: daemon)
            let peer = try await daemon.peer()
            let result = try await peer.call("session.history", #"{"session":"main","limit":1000}"#)
            guard case .array(let entries)? = result["entries"] else {
                Issue.record("there are no entries in \(result)")
                return
            }
            #expect(entries.count == 1000)
            let times = entries.compactMap { $0["time"]?.text }
            #expect(times.count == 1000 && times == times.sorted())
            let later = #"{"session":"main","since":"2099-01-01T00:00:00.000Z"}"#
            #expect(try await peer.call("session.history", later) == .object(["entries": .array([])]))
        }
    }

    @Test func `messages for a subscription of a batch do not delay the rest of the batch`() async throws {
        let away = """
            endpoints = ["mqtt://127.0.0.1:9"]
            user = "away"
            autoconnect = false
            """
        try await DaemonUnderTest.run(files: ["sessions.d/away.toml": away]) { daemon in
            let (peer, other) = (try await daemon.peer(), try await daemon.watcher())
            try await other.call("message.subscribe", #"{"session":"main","filter":"+"}"#)
            // The second call takes until someone disconnects the session.
            try await peer.send(
                #"[{"jsonrpc":"2.0","id":"s","method":"message.subscribe","params":{"session":"main","filter":"in"}},"#
                    + #"{"jsonrpc":"2.0","id":"c","method":"session.connect","params":{"session":"away","wait":true}}]"#
            )
            _ = try await daemon.server.packet { packet -> Bool? in
                guard case .subscribe(let packet) = packet else { return nil }
                return packet.subscriptions.contains { $0.filter == "in" } ? true : nil
            }
            let length = ControlScheduler.Limits().unread * 2
            await daemon.server.publish("in", String(repeating: "x", count: length))
            _ = try await other.notification("message.received")
            try await peer.call("rpc.hello")
            try await other.call("session.disconnect", #"{"session":"away"}"#)
            let answers = try await peer.lines.first { line -> [JSONValue]? in
                if case .array(let answers)? = line { answers } else { nil }
            }
            #expect(answers.map { $0["id"] } == ["s", "c"])
            #expect(try await peer.notification("message.received")["payload"]?.text?.utf8.count == length)
        }
    }

    @Test func `messages of a batch share commits`() async throws {
        // Otherwise there are also commits that remove what is delivered, as many as a busy machine makes of them.
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            let before = await daemon.store.statistics().commits.count
            let publishes = (1...200).map { number in
                #"{"jsonrpc":"2.0","id":\#(1000 + number),"method":"message.publish","params":"#
                    + #"{"session":"main","topic":"t","payload":"\#(number)"}}"#
            }
            try await peer.send("[" + publishes.joined(separator: ",") + "]")
            let answers = try await peer.lines.first { line -> [JSONValue]? in
                if case .array(let answers)? = line { answers } else { nil }
            }
            #expect(answers.count == 200)
            #expect(answers.allSatisfy { $0["result"]?["accepted"] == .bool(true) })
            #expect(await daemon.store.statistics().commits.count - before < 100)
        }
    }

    @Test func `a batch whose answers are too long gets errors in place of some`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            try await Self.recordHistory(of: daemon)
            let peer = try await daemon.peer()
            let reads = (1...8).map { number in
                #"{"jsonrpc":"2.0","id":\#(number),"method":"session.history","params":{"limit":10000}}"#
            }
            try await peer.send("[" + reads.joined(separator: ",") + "]")
            let answers = try await peer.lines.first { line -> [JSONValue]? in
                if case .array(let answers)? = line { answers } else { nil }
            }
            #expect(answers.count == 8)
            #expect(answers.contains { $0["result"] != nil })
            #expect(answers.contains { $0["error"]?["data"]?["code"] == "too-many-requests" })
        }
    }

    @Test func `reads that are refused with their batch take no turn from others`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            let peer = try await daemon.peer()
            let calls = (1...62).map { number in
                #"{"jsonrpc":"2.0","id":\#(number),"method":"\#(number <= 60 ? "rpc.discover" : "daemon.status")"}"#
            }
            for _ in 0..<3 {
                try await peer.send("[" + calls.joined(separator: ",") + "]")
                let answers = try await peer.lines.first { line -> [JSONValue]? in
                    if case .array(let answers)? = line { answers } else { nil }
                }
                #expect(answers.last?["error"]?["data"]?["code"] == "too-many-requests")
            }
            try await peer.call("session.history", #"{"session":"main","limit":10000}"#)
            let other = try await daemon.peer()
            try await other.call("daemon.status", "{}")
        }
    }

    @Test func `a payload of 16 MiB is sent and received`() async throws {
        let limits = "[mqtt]\nmaximum-packet-size = \"17MiB\"\n[outbox]\nmax-bytes = \"256MiB\""
        try await DaemonUnderTest.run(limits) { daemon in
            let (peer, subscriber) = (try await daemon.watcher(), try await daemon.peer())
            try await subscriber.call("message.subscribe", #"{"session":"main","filter":"in"}"#)
            // This is not text, so it is base64: each group of four characters stands for three bytes.
            let base64 = String(repeating: "////", count: (16 << 20) / 3)
            try await peer.call(
                "message.publish", #"{"session":"main","topic":"out","payloadBase64":"\#(base64)","wait":"delivered"}"#)
            await daemon.server.publish("in", String(repeating: "\"", count: 16 << 20))
            let received = try await subscriber.notification("message.received", ["topic": "in"])
            #expect(received["payload"] == nil, "its text would be twice as long")
            let (length, expected) = (received["payloadBase64"]?.text?.utf8.count, ((16 << 20) + 2) / 3 * 4)
            #expect(length == expected)
        }
    }

    @Test func `a publish that times out waiting for delivery says that the message is accepted`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            let peer = try await daemon.peer()
            let result = try await peer.call(
                "message.publish",
                #"{"session":"main","topic":"t","payload":"x","wait":"delivered","timeout":0.01}"#)
            #expect(result["accepted"] == .bool(true) && result["delivered"] == .bool(false))
            #expect(result["id"]?.wholeNumber != nil)
            await #expect(throws: ControlPeer.CallFailure(code: "invalid-parameters")) {
                try await peer.call("message.publish", #"{"session":"main","topic":"t","payload":"x","timeout":1}"#)
            }
            try await peer.call("session.connect", #"{"session":"main"}"#)
            _ = try await daemon.server.packet { if case .publish = $0 { true } else { nil } }
        }
    }

    @Test func `calls that wait for a delivery or an outcome, however many, delay no other call of the connection`()
        async throws
    {
        let away = """
            endpoints = ["mqtt://127.0.0.1:9"]
            user = "away"
            autoconnect = false
            """
        try await DaemonUnderTest.run(files: ["sessions.d/away.toml": away]) { daemon in
            _ = try await daemon.watcher()
            let peer = try await daemon.peer()
            let publish = #"{"session":"away","topic":"t","payload":"x","wait":"delivered"}"#
            var calls: [Int] = []
            for _ in 0...CallKind.delivery.limit { calls.append(try await peer.request("message.publish", publish)) }
            let last = try await peer.answer(calls[CallKind.delivery.limit])["result"]
            #expect(last?["accepted"] == .bool(true) && last?["delivered"] == .bool(false))
            calls = []
            for _ in 0...CallKind.outcome.limit {
                calls.append(try await peer.request("session.connect", #"{"session":"away","wait":true}"#))
            }
            let refused = try await peer.answer(calls[CallKind.outcome.limit])
            #expect(refused["error"]?["data"]?["code"] == "too-many-requests")
            try await peer.call(
                "message.publish", #"{"session":"main","topic":"t","payload":"x","wait":"delivered","qos":0}"#)
            try await peer.call("message.publish", #"{"session":"main","topic":"t","payload":"x"}"#)
            let status = try await peer.call("session.status", #"{"session":"away"}"#)
            #expect(status["outbox"]?["queued"] == .integer(Int64(CallKind.delivery.limit) + 1), "none is lost")
        }
    }

    @Test func `messages that arrive in one turn of the loop are not dropped`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            try await peer.call("message.subscribe", #"{"session":"main","filter":"burst","qos":0}"#)
            let driver = try await daemon.registry.driver("main")
            let count = 60
            try await daemon.eventLoop.submit {
                var burst = ByteBuffer()
                for number in 0..<count {
                    let text = "\(number) " + String(repeating: "x", count: 100_000)
                    Packet.publish(Publish(topic: "burst", payload: ByteBuffer(string: text), qos: .atMostOnce))
                        .encode(into: &burst, as: .five)
                }
                driver.assumeIsolated { driver in
                    guard let connection = driver.session.link?.connection else { return }
                    driver.take(.received(burst), of: connection)
                }
            }.get()
            for number in 0..<count {
                let message = try await peer.notification("message.received")
                #expect(message["payload"]?.text?.hasPrefix("\(number) ") == true)
            }
        }
    }

    @Test func `a connection over the user's share is refused with an error`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            let limit = Admission.Limits().connections
            var peers: [ControlPeer] = []
            for _ in 0..<limit {
                let peer = try await daemon.peer()
                try await peer.call("rpc.hello")
                peers.append(peer)
            }
            let refused = try await daemon.peer()
            let answer = try await refused.lines.first { $0 }
            #expect(answer["error"]?["data"]?["code"] == "too-many-requests")
            #expect(answer["error"]?["data"]?["hint"]?.text?.contains("holdfastctl clients") == true, "\(answer)")
            try await refused.end()
            try await peers[0].close()
            for peer in peers.dropFirst() { try await peer.close() }
        }
    }
}
