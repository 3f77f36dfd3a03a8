import ControlAPI
import DurableStore
import Glibc
import MQTT
import NIOCore
import NIOPosix
import Session
import SessionCore
import Support
import Testing

@testable import Agent

/// Durable consumers through the control socket.
@Suite(.timeLimit(.minutes(10)))
struct DurableConsumerTests {
    private static func subscribe(
        _ peer: ControlPeer, _ consumer: String = "billing", filter: String = "a/#", qos: Int = 2
    ) async throws -> JSONValue {
        try await peer.call(
            "message.subscribe",
            #"{"session":"main","filter":"\#(filter)","qos":\#(qos),"consumer":"\#(consumer)"}"#)
    }

    private static func ack(_ made: JSONValue, _ id: Int, upTo: Bool = false) -> String {
        #"{"subscription":\#(text(made["subscription"])),"id":\#(id),"upTo":\#(upTo)}"#
    }

    private static func text(_ value: JSONValue?) -> String { "\"\(value?.text ?? "")\"" }

    private static func acknowledged(_ daemon: DaemonUnderTest, _ number: UInt16) async throws {
        _ = try await daemon.server.packet { packet -> Bool? in
            switch packet {
            case .puback(let answer), .pubcomp(let answer): answer.packetID.rawValue == number ? true : nil
            default: nil
            }
        }
    }

    @Test func `a program with a large message still to read is not cut off, and is answered later`()
        async throws
    {
        try await DaemonUnderTest.run("[mqtt]\nmaximum-packet-size = \"2MiB\"\n") { daemon in
            let watcher = try await daemon.watcher()
            let peer = try await daemon.peer(reads: false)
            try await peer.request(
                "message.subscribe", #"{"session":"main","filter":"a","qos":1,"consumer":"billing"}"#)
            _ = try await daemon.server.packet { if case .subscribe = $0 { true } else { nil } }
            await daemon.server.publish("a", String(repeating: "x", count: 1 << 20), qos: .atLeastOnce)
            try await Self.acknowledged(daemon, 1)
            let driver = try await daemon.registry.driver("main")
            let name = try #require(ConsumerName("billing"))
            try await until("the message is given") {
                await driver.session.durableConsumers[name]?.attachment?.cursor == InboxSequence(rawValue: 1)
            }
            let disconnect = try await peer.request("session.disconnect", #"{"session":"main"}"#)
            // The call does not wait for the peer to read what it did not ask for.
            try await watcher.call("message.publish", #"{"session":"main","topic":"b","payload":"x"}"#)
            try await watcher.state("disconnected")
            try await peer.startReading()
            #expect(try await peer.notification("message.received")["payload"]?.text?.utf8.count == 1 << 20)
            #expect(try await peer.answer(disconnect)["result"] != nil)
        }
    }

    @Test(arguments: [1, 2])
    func `a message is given until it is acknowledged`(qos: Int) async throws {
        try await DaemonUnderTest.run { daemon, peer in
            let made = try await Self.subscribe(peer)
            #expect(made["grantedQoS"] == 2)
            await daemon.server.publish("a/1", "x", qos: QoS(rawValue: UInt8(qos)) ?? .atMostOnce)
            let message = try await peer.notification("message.received")
            #expect(message["payload"] == "x")
            #expect(message["id"] == 1)
            #expect(message["duplicate"] == .bool(false))
            try await Self.acknowledged(daemon, 1)
            // The program ends without notice.
            try await peer.close()
            let next = try await daemon.peer()
            let again = try await Self.subscribe(next)
            let repeated = try await next.notification("message.received")
            #expect(repeated["id"] == 1)
            #expect(repeated["duplicate"] == .bool(true))
            #expect(try await next.call("message.ack", Self.ack(again, 1)) == .object(["acknowledged": 1]))
            #expect(try await next.call("message.ack", Self.ack(again, 1)) == .object(["acknowledged": 0]))
            let status = try await next.call("session.status", #"{"session":"main"}"#)
            #expect(status["inbox"]?["messages"] == 0)
        }
    }

    @Test func `a window of unacknowledged messages is given, and more when it has room`() async throws {
        // The server sends everything at once.
        try await DaemonUnderTest.run("[mqtt]\nreceive-maximum = 2000") { daemon, peer in
            let made = try await Self.subscribe(peer)
            let count = DurableConsumers.windowMessages + 100
            for number in 1...count { await daemon.server.publish("a/1", "\(number)", qos: .atLeastOnce) }
            try await Self.acknowledged(daemon, UInt16(count))
            // A quarter of the window must be free before more is read.
            let first = DurableConsumers.windowMessages * 3 / 4
            for number in 1...first {
                #expect(try await peer.notification("message.received")["payload"]?.text == "\(number)")
            }
            let status = try await peer.call("session.status", #"{"session":"main"}"#)
            #expect(status["inbox"]?["messages"]?.wholeNumber == Int64(count))
            try await peer.call("message.ack", Self.ack(made, first, upTo: true))
            for number in (first + 1)...count {
                #expect(try await peer.notification("message.received")["payload"]?.text == "\(number)")
            }
        }
    }

    @Test func `acknowledgements that come at once are each answered when they are durable`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            let made = try await Self.subscribe(peer)
            for number in 1...30 { await daemon.server.publish("a/1", "\(number)", qos: .atLeastOnce) }
            for _ in 1...30 { _ = try await peer.notification("message.received") }
            var calls: [Int] = []
            for id in 1...20 { calls.append(try await peer.request("message.ack", Self.ack(made, id))) }
            for id in 21...30 {
                try await peer.send(#"{"jsonrpc":"2.0","method":"message.ack","params":\#(Self.ack(made, id))}"#)
            }
            let wrong = try await peer.request("message.ack", Self.ack(made, 31))
            let repeated = try await peer.request("message.ack", Self.ack(made, 30))
            for call in calls { #expect(try await peer.answer(call)["result"] == .object(["acknowledged": 1])) }
            #expect(try await peer.answer(wrong)["error"]?["data"]?["code"] == "invalid-parameters")
            #expect(try await peer.answer(repeated)["result"] == .object(["acknowledged": 0]))
            let main = try await daemon.registry.driver("main").name
            #expect(try await daemon.store.session(main).mqtt.consumers.map(\.runs.count) == [0])
        }
    }

    @Test func `a program is told how many messages its consumer missed, and others are not affected`() async throws {
        try await DaemonUnderTest.run("[inbox]\nmax-messages = 3") { daemon, peer in
            let other = try await peer.call(
                "message.subscribe", #"{"session":"main","filter":"a/#","qos":1,"consumer":"other"}"#)
            #expect(other["missed"] == 0)
            let made = try await Self.subscribe(peer)
            let id = try #require(made["subscription"]?.text)
            try await peer.call("message.unsubscribe", #"{"subscription":"\#(id)","keep":true}"#)
            for number in 1...8 {
                await daemon.server.publish("a/1", "\(number)", qos: .atLeastOnce)
                let message = try await peer.notification("message.received")
                #expect(message["payload"]?.text == "\(number)")
                try await peer.call("message.ack", Self.ack(other, message["id"]?.wholeNumber.map(Int.init) ?? 0))
            }
            try await Self.acknowledged(daemon, 8)
            let again = try await Self.subscribe(peer)
            #expect(again["missed"] == 5)
            let metrics = await daemon.daemon.metrics().text
            #expect(metrics.contains("\nholdfast_session_inbox_dropped_total{session=\"main\"} 5\n"))
            #expect(again["epoch"] == other["epoch"])
            #expect(again["epoch"]?.text?.isEmpty == false)
            for number in 6...8 {
                #expect(try await peer.notification("message.received")["payload"]?.text == "\(number)")
            }
            #expect(try await Self.subscribe(peer)["missed"] == 0)
        }
    }

    @Test func `the inbox and its consumer outlive the daemon`() async throws {
        try await DaemonUnderTest.withServer { directory, server, group in
            try directory.write("sessions.d/main.toml", await DaemonUnderTest.session(server))
            try await DaemonUnderTest.run(in: directory, server, on: group) { daemon in
                let peer = try await daemon.watcher()
                _ = try await Self.subscribe(peer)
                await daemon.server.publish("a/1", "x", qos: .exactlyOnce)
                _ = try await peer.notification("message.received")
                try await Self.acknowledged(daemon, 1)
            }
            try await DaemonUnderTest.run(in: directory, server, on: group) { daemon in
                let subscribed = try await daemon.server.packet { packet in
                    if case .subscribe(let subscribe) = packet { subscribe.subscriptions.map(\.filter) } else { nil }
                }
                #expect(subscribed == ["a/#"])
                let peer = try await daemon.watcher()
                _ = try await Self.subscribe(peer)
                let message = try await peer.notification("message.received")
                #expect(message["id"] == 1)
                #expect(message["duplicate"] == .bool(true))
            }
        }
    }

    @Test func `another program takes over a consumer, and the first is told`() async throws {
        try await DaemonUnderTest.run("room = \"r\"\n") { daemon in
            let first = try await daemon.watcher()
            let second = try await daemon.peer()
            let made = try await Self.subscribe(first)
            _ = try await Self.subscribe(second)
            let event = try await first.notification("session.event", ["event": "consumer-ended"])
            #expect(event["watch"] == made["subscription"])
            #expect(event["consumer"] == "billing")
            #expect(event["room"] == "r")
            await #expect(throws: ControlPeer.CallFailure(code: "unknown-subscription")) {
                try await first.call("message.ack", Self.ack(made, 1))
            }
            await daemon.server.publish("a/1", "x", qos: .atLeastOnce)
            #expect(try await second.notification("message.received")["payload"] == "x")
        }
    }

    @Test(arguments: [true, false])
    func `an unsubscribe keeps the consumer, or ends it`(keep: Bool) async throws {
        try await DaemonUnderTest.run { daemon, peer in
            let made = try await Self.subscribe(peer)
            try await peer.call(
                "message.unsubscribe", #"{"subscription":\#(Self.text(made["subscription"])),"keep":\#(keep)}"#)
            let status = try await peer.call("session.status", #"{"session":"main"}"#)
            guard case .array(let consumers)? = status["inbox"]?["consumers"] else {
                Issue.record("no consumers in \(status)")
                return
            }
            #expect(consumers.count == (keep ? 1 : 0))
            guard keep else {
                _ = try await daemon.server.packet { if case .unsubscribe = $0 { true } else { nil } }
                return
            }
            #expect(consumers[0]["attached"] == .bool(false))
            try await peer.call("message.unsubscribe", #"{"session":"main","consumer":"billing"}"#)
            await #expect(throws: ControlPeer.CallFailure(code: "unknown-consumer")) {
                try await peer.call("message.unsubscribe", #"{"session":"main","consumer":"billing"}"#)
            }
        }
    }

    @Test func `a reload keeps the consumer and its program`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            let made = try await Self.subscribe(peer)
            await daemon.server.publish("a/1", "before", qos: .atLeastOnce)
            #expect(try await peer.notification("message.received")["payload"] == "before")
            try await daemon.writeSession("[mqtt]\nreceive-maximum = 17")
            try await peer.call("daemon.reload")
            try await peer.state("connected")
            await daemon.server.publish("a/1", "after", qos: .atLeastOnce)
            let message = try await peer.notification("message.received")
            #expect(message["payload"] == "after")
            #expect(message["subscription"] == made["subscription"])
            #expect(try await peer.call("message.ack", Self.ack(made, 2, upTo: true)) == .object(["acknowledged": 2]))
        }
    }

    @Test func `a filter that the server refuses creates no consumer`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            await daemon.server.set { $0.refusedFilters = ["a/#": .notAuthorized] }
            await #expect(throws: ControlPeer.CallFailure(code: "subscription-refused")) {
                _ = try await Self.subscribe(peer)
            }
            let status = try await peer.call("session.status", #"{"session":"main"}"#)
            #expect(status["inbox"]?["consumers"] == .array([]))
        }
    }

    @Test func `what was collected is given to a consumer even if the server now refuses its filter`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            let made = try await Self.subscribe(peer)
            let text = made["subscription"]?.text ?? ""
            try await peer.call("message.unsubscribe", #"{"subscription":"\#(text)","keep":true}"#)
            await daemon.server.publish("a/1", "collected", qos: .atLeastOnce)
            try await Self.acknowledged(daemon, 1)
            await daemon.server.set { $0.refusedFilters = ["a/#": .notAuthorized] }
            await daemon.server.loseSession()
            await daemon.server.drop()
            try await peer.state("connected")
            let again = try await Self.subscribe(peer)
            #expect(again["grantedQoS"] == .null)
            #expect(try await peer.notification("message.received")["payload"] == "collected")
            let status = try await peer.call("session.status", #"{"session":"main"}"#)
            guard case .array(let consumers)? = status["inbox"]?["consumers"], let consumer = consumers.first else {
                Issue.record("there is no consumer")
                return
            }
            #expect(consumer["refused"] == "not authorized (0x87)")
            #expect(consumer["attached"] == .bool(true))
            // The program is told when it has everything.
            let told = #"{"jsonrpc":"2.0","id":900,"method":"message.ack","params":\#(Self.ack(again, 1))}"#
            try await peer.send(told)
            let refusal = try await peer.notification("session.event", ["watch": again["subscription"] ?? .null])
            #expect(refusal["event"] == "subscription-changed")
            #expect(refusal["subscription"]?["state"] == "refused")
        }
    }

    @Test func `a program is told of a refusal that waits for its messages even if the session is restarted`()
        async throws
    {
        try await DaemonUnderTest.run { daemon, peer in
            let made = try await Self.subscribe(peer)
            let text = made["subscription"]?.text ?? ""
            try await peer.call("message.unsubscribe", #"{"subscription":"\#(text)","keep":true}"#)
            await daemon.server.publish("a/1", "collected", qos: .atLeastOnce)
            try await Self.acknowledged(daemon, 1)
            await daemon.server.set { $0.refusedFilters = ["a/#": .notAuthorized] }
            await daemon.server.loseSession()
            await daemon.server.drop()
            try await peer.state("connected")
            let again = try await Self.subscribe(peer)
            #expect(try await peer.notification("message.received")["payload"] == "collected")
            // The last message is acknowledged while the next driver has no answer.
            await daemon.server.set { $0.answersSubscribe = false }
            try await daemon.writeSession("[mqtt]\nreceive-maximum = 17")
            try await peer.call("daemon.reload")
            try await peer.call("message.ack", Self.ack(again, 1))
            await daemon.server.set { $0.answersSubscribe = true }
            await daemon.server.drop()
            let refusal = try await peer.notification("session.event", ["watch": again["subscription"] ?? .null])
            #expect(refusal["event"] == "subscription-changed")
            #expect(refusal["subscription"]?["state"] == "refused")
        }
    }

    @Test func `a consumer whose new filter the server refuses continues with the old one`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            let made = try await Self.subscribe(peer)
            await daemon.server.set { $0.refusedFilters = ["b/#": .notAuthorized] }
            await #expect(throws: ControlPeer.CallFailure(code: "subscription-refused")) {
                _ = try await Self.subscribe(peer, filter: "b/#")
            }
            await daemon.server.publish("a/1", "still", qos: .atLeastOnce)
            try await Self.acknowledged(daemon, 1)
            let again = try await Self.subscribe(peer)
            #expect(again["subscription"] != made["subscription"])
            #expect(try await peer.notification("message.received")["payload"] == "still")
            let left = await daemon.server.events.all.contains { event in
                if case .packet(.unsubscribe(let packet)) = event { packet.filters.contains("a/#") } else { false }
            }
            #expect(!left, "there was a gap")
        }
    }

    @Test func `a consumer loses nothing while the server has not answered for its new filter`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            _ = try await Self.subscribe(peer)
            await daemon.server.set { $0.answersSubscribe = false }
            let request = try await peer.request(
                "message.subscribe", #"{"session":"main","filter":"b/#","qos":2,"consumer":"billing"}"#)
            let id = try await daemon.server.packet { packet -> PacketID? in
                guard case .subscribe(let subscribe) = packet else { return nil }
                return subscribe.subscriptions[0].filter == "b/#" ? subscribe.packetID : nil
            }
            await daemon.server.publish("a/1", "between", qos: .atLeastOnce)
            try await Self.acknowledged(daemon, 1)
            await daemon.server.send(.suback(Suback(packetID: id, reasonCodes: [.notAuthorized])))
            #expect(try await peer.answer(request)["error"] != nil)
            await daemon.server.set { $0.answersSubscribe = true }
            _ = try await Self.subscribe(peer)
            #expect(try await peer.notification("message.received")["payload"] == "between")
        }
    }

    @Test func `a program that subscribes live puts no retained messages into another program's inbox`() async throws {
        try await DaemonUnderTest.run { daemon in
            let (peer, other) = (try await daemon.watcher(), try await daemon.peer())
            _ = try await Self.subscribe(peer)
            try await other.call("message.subscribe", #"{"session":"main","filter":"a/#","qos":2}"#)
            let identifiers = await daemon.server.events.all.compactMap { event in
                if case .packet(.subscribe(let subscribe)) = event { subscribe.properties.subscriptionID } else { nil }
            }
            #expect(identifiers.count == 2)
            // The server sends what it retains in answer to each.
            for (number, identifier) in zip(UInt16(1)..., identifiers) {
                var publish = Publish(
                    topic: "a/1", payload: ByteBuffer(string: "\(number)"), qos: .atLeastOnce, retain: true,
                    packetID: PacketID(rawValue: number))
                publish.properties.subscriptionIDs = [identifier]
                await daemon.server.send(.publish(publish))
                #expect(try await other.notification("message.received")["payload"]?.text == "\(number)")
                try await Self.acknowledged(daemon, number)
            }
            #expect(try await peer.notification("message.received")["payload"] == "1")
            let status = try await peer.call("session.status", #"{"session":"main"}"#)
            #expect(status["inbox"]?["messages"] == 1)
        }
    }

    @Test func `a refusal for a program that was taken over from ends nothing`() async throws {
        try await DaemonUnderTest.run { daemon in
            let (first, second) = (try await daemon.watcher(), try await daemon.peer())
            // Another program wants the filter too, so that its answer still counts.
            try await second.call("message.subscribe", #"{"session":"main","filter":"a/#"}"#)
            await daemon.server.set { $0.answersSubscribe = false }
            let request = try await first.request(
                "message.subscribe", #"{"session":"main","filter":"a/#","qos":2,"consumer":"billing"}"#)
            let id = try await daemon.server.packet { packet in
                if case .subscribe(let subscribe) = packet, subscribe.subscriptions[0].qos == .exactlyOnce {
                    subscribe.packetID
                } else {
                    nil
                }
            }
            await daemon.server.set { $0.answersSubscribe = true }
            _ = try await Self.subscribe(second, filter: "b/#")
            await daemon.server.send(.suback(Suback(packetID: id, reasonCodes: [.notAuthorized])))
            #expect(try await first.answer(request)["error"] != nil)
            await daemon.server.publish("b/1", "x", qos: .atLeastOnce)
            #expect(try await second.notification("message.received")["payload"] == "x")
        }
    }

    @Test func `the journal says when a consumer gets another filter, and only then`() async throws {
        try await DaemonUnderTest.run { daemon in
            let peer = try await daemon.watcher()
            for (filter, qos) in [("a/#", 2), ("a/#", 1), ("b/#", 1)] {
                _ = try await Self.subscribe(peer, filter: filter, qos: qos)
            }
            #expect(
                daemon.log.lines.map(\.message).filter { $0.contains("billing") } == [
                    "main: a program gave the durable consumer billing the filter b/#; before, it had a/#"
                ])
        }
    }

    @Test func `a call whose consumer ends before the server answers is answered`() async throws {
        try await DaemonUnderTest.run { daemon in
            let (peer, other) = (try await daemon.watcher(), try await daemon.peer())
            await daemon.server.set { $0.answersSubscribe = false }
            let request = try await peer.request(
                "message.subscribe", #"{"session":"main","filter":"a/#","qos":2,"consumer":"billing"}"#)
            _ = try await daemon.server.packet { if case .subscribe = $0 { true } else { nil } }
            await daemon.server.set { $0.answersSubscribe = true }
            try await other.call("message.unsubscribe", #"{"session":"main","consumer":"billing"}"#)
            // The connection stays up, and the server will not answer for the filter any more.
            #expect(try await peer.answer(request)["error"]?["data"]?["code"] == "unknown-subscription")
        }
    }

    @Test func `a program whose consumer is taken over before its call is answered gets an error`() async throws {
        try await DaemonUnderTest.run { daemon in
            let (first, second) = (try await daemon.watcher(), try await daemon.peer())
            await daemon.server.set { $0.answersSubscribe = false }
            let request = try await first.request(
                "message.subscribe", #"{"session":"main","filter":"a/#","qos":2,"consumer":"billing"}"#)
            let id = try await daemon.server.packet { packet in
                if case .subscribe(let subscribe) = packet { subscribe.packetID } else { nil }
            }
            await daemon.server.set { $0.answersSubscribe = true }
            _ = try await Self.subscribe(second, filter: "b/#")
            await daemon.server.send(.suback(Suback(packetID: id, reasonCodes: [.grantedQoS2])))
            #expect(try await first.answer(request)["error"]?["data"]?["code"] == "unknown-subscription")
            await daemon.server.publish("b/1", "x", qos: .atLeastOnce)
            #expect(try await second.notification("message.received")["payload"] == "x")
            let told = await first.lines.all.contains { $0?["params"]?["event"] == "consumer-ended" }
            #expect(!told, "the program does not know the subscription")
        }
    }

    @Test func `a program is told of a take-over after the answer that names its subscription`() async throws {
        try await DaemonUnderTest.run { daemon in
            let (first, second) = (try await daemon.watcher(), try await daemon.peer())
            await daemon.server.set { $0.answersMessages = false }
            // The answers of a batch wait for the last of them.
            try await first.send(
                #"[{"jsonrpc":"2.0","id":901,"method":"message.subscribe","params":"#
                    + #"{"session":"main","filter":"a/#","consumer":"billing"}},"#
                    + #"{"jsonrpc":"2.0","id":902,"method":"message.publish","params":"#
                    + #"{"session":"main","topic":"t","payload":"x","wait":"delivered"}}]"#)
            let published = try await daemon.server.message()
            await daemon.server.publish("a/1", "x", qos: .atLeastOnce)
            try await Self.acknowledged(daemon, 1)
            let driver = try await daemon.registry.driver("main")
            let name = try #require(ConsumerName("billing"))
            try await until("the message is given") {
                await driver.session.durableConsumers[name]?.attachment?.cursor == InboxSequence(rawValue: 1)
            }
            _ = try await Self.subscribe(second)
            let id = try #require(published.packetID)
            await daemon.server.send(.puback(Acknowledgement(packetID: id)))
            let isAnsweredFirst = try await first.lines.first { line -> Bool? in
                if case .array? = line { return true }
                return line?["params"]?["event"] == "consumer-ended" ? false : nil
            }
            #expect(isAnsweredFirst)
            #expect(try await first.notification("session.event", ["event": "consumer-ended"])["consumer"] == "billing")
        }
    }

    @Test func `a program that attaches while its session is restarted gets its messages`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            await daemon.server.set { $0.answersSubscribe = false }
            let request = try await peer.request(
                "message.subscribe", #"{"session":"main","filter":"a/#","qos":2,"consumer":"billing"}"#)
            _ = try await daemon.server.packet { if case .subscribe = $0 { true } else { nil } }
            await daemon.server.set { $0.answersSubscribe = true }
            try await daemon.writeSession("[mqtt]\nreceive-maximum = 17")
            try await peer.request("daemon.reload")
            try await peer.state("connected")
            let made = try #require(try await peer.answer(request)["result"])
            await daemon.server.publish("a/1", "x", qos: .atLeastOnce)
            let message = try await peer.notification("message.received")
            #expect(message["payload"] == "x" && message["subscription"] == made["subscription"])
        }
    }

    @Test func `the number of consumers is limited`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            for number in 0..<DurableConsumers.maximum { _ = try await Self.subscribe(peer, "c\(number)") }
            await #expect(throws: ControlPeer.CallFailure(code: "too-many-consumers")) {
                _ = try await Self.subscribe(peer, "one-more")
            }
        }
    }

    @Test(arguments: [
        ("message.subscribe", #"{"session":"main","filter":"a","consumer":"a b"}"#, "invalid-parameters"),
        ("message.ack", #"{"subscription":"s9","id":1}"#, "unknown-subscription"),
        ("message.unsubscribe", #"{"session":"main","subscription":"s1"}"#, "invalid-parameters"),
        ("message.unsubscribe", #"{"consumer":"billing"}"#, "invalid-parameters"),
        ("message.unsubscribe", "{}", "invalid-parameters"),
    ])
    func `impossible parameters are refused`(method: String, parameters: String, code: String) async throws {
        try await DaemonUnderTest.run { daemon in
            let peer = try await daemon.peer()
            await #expect(throws: ControlPeer.CallFailure(code: code)) { try await peer.call(method, parameters) }
        }
    }

    @Test func `only messages that were given can be acknowledged`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            let made = try await Self.subscribe(peer)
            for id in [-1, 0, 1, 77] {
                await #expect(throws: ControlPeer.CallFailure(code: "invalid-parameters")) {
                    try await peer.call("message.ack", Self.ack(made, id))
                }
            }
        }
    }
}
