import ControlAPI
import MQTT
import NIOCore
import SessionCore
import Testing

@testable import Session

/// What a session publishes, step by step.
@Suite struct PublicationsTests {
    var publications = Publications()

    static func publication(_ topic: String, _ payload: String = "1", qos: QoS = .atLeastOnce) -> Publication {
        Publication(topic: topic, payload: ByteBuffer(string: payload), qos: qos, since: Timestamp(rawValue: 0))
    }

    /// What is sent next, after everything that must be remembered was.
    mutating func next() -> [String] {
        var said: [String] = []
        while true {
            let step = publications.next()
            said += step.announcements.map {
                "\($0.topic) " + ($0.payload.readableBytes == 0 ? "-" : String(buffer: $0.payload))
            }
            guard !step.remember.isEmpty else { return said }
            for topic in step.remember { publications.remembered(topic) }
        }
    }

    mutating func answer(
        _ topic: String, _ payload: String = "1", _ answer: ServerAnswer = .success, qos: QoS = .atLeastOnce
    ) -> Publications.Answer? {
        let payload = payload == "-" ? ByteBuffer() : ByteBuffer(string: payload)
        return publications.answered(Announcement(topic: topic, payload: payload, qos: qos), answer)
    }

    mutating func connect(isProbable: Bool = false, isKept: Bool = false) {
        publications.connected(isProbable: isProbable || isKept, isKept: isKept)
        publications.open()
    }

    @Test mutating func `a publication is sent after the subscriptions, and after it is remembered`() {
        publications.put(Self.publication("a"))
        #expect(!publications.isQuiet, "the publication waits for a server")
        #expect(next() == [])
        publications.connected(isProbable: false, isKept: false)
        #expect(next() == [])
        publications.open()
        #expect(publications.next() == .init(remember: ["a"]))
        #expect(publications.next() == .init(), "the publication is being remembered")
        publications.remembered("a")
        #expect(next() == ["a 1"])
        #expect(!publications.isAnswered)
        #expect(answer("a") == .noted)
        #expect(publications.isAnswered && publications.isQuiet)
        #expect(publications["a"]?.state == .published)
    }

    @Test func `only new messages, what is dropped for them, and publications need room on the disk`() throws {
        let message = OutboundMessage(topic: "t", payload: ByteBuffer())
        let insert = DurableChange.insert(
            StoredMessage(sequence: MessageSequence(rawValue: 1), message: message, state: .queued))
        let name = try #require(ConsumerName("c"))
        #expect(SessionChange.mqtt(insert).needsRoom)
        #expect(SessionChange.mqtt(.dropCollected(name, through: .zero, count: 1)).needsRoom)
        #expect(!SessionChange.mqtt(.removeCollected(.zero, name)).needsRoom)
        #expect(SessionChange.putPublication(Self.publication("a")).needsRoom)
        #expect(!SessionChange.removePublication("a").needsRoom)
        #expect(!SessionChange.rememberRetained("a").needsRoom)
        #expect(!SessionChange.mqtt(.release(MessageSequence(rawValue: 1))).needsRoom)
    }

    @Test(arguments: [true, false]) mutating func `a publication is not sent again to a server that kept everything`(
        isKept: Bool
    ) {
        publications.put(Self.publication("a"))
        connect()
        _ = next()
        _ = answer("a")
        publications.connectionClosed()
        connect(isKept: isKept)
        #expect(next() == (isKept ? [] : ["a 1"]))
    }

    @Test mutating func `a session that is resumed does not wait for what the server probably has`() {
        publications.put(Self.publication("a"))
        connect()
        _ = next()
        _ = answer("a")
        publications.put(Self.publication("b"))
        publications.connectionClosed()
        connect(isProbable: true)
        #expect(next() == ["a 1", "b 1"])
        #expect(!publications.isSetUp, "it never had b")
        _ = answer("b")
        #expect(publications.isSetUp && !publications.isAnswered)
    }

    @Test mutating func `an unanswered publication is sent again even to a server that kept everything`() {
        publications.put(Self.publication("a"))
        connect()
        #expect(next() == ["a 1"])
        publications.connectionClosed()
        connect(isKept: true)
        #expect(next() == ["a 1"])
    }

    @Test mutating func `a publication with QoS 0 is sent again on every connection`() {
        publications.put(Self.publication("a", qos: .atMostOnce))
        connect()
        #expect(next() == ["a 1"])
        #expect(answer("a", qos: .atMostOnce) == .noted)
        #expect(publications["a"]?.state == .published)
        publications.connectionClosed()
        // A session that is up on demand does not connect for this.
        #expect(!publications.needsServer)
        connect(isKept: true)
        #expect(publications.takeChanges().map(\.state).last == .pending)
        #expect(next() == ["a 1"])
    }

    /// QoS 0 is answered when it is sent, and what is too large before that.
    @Test mutating func `a publication waits for the answer to what was sent on its topic before`() {
        publications.put(Self.publication("a"))
        connect()
        #expect(next() == ["a 1"])
        publications.put(Self.publication("a", "2", qos: .atMostOnce))
        #expect(next() == [])
        #expect(answer("a") == .noted)
        #expect(next() == ["a 2"])
        #expect(answer("a", "2", qos: .atMostOnce) == .noted)
        #expect(publications["a"]?.state == .published)
        #expect(publications.isQuiet)
        publications.remove("a")
        #expect(next() == ["a -"])
        publications.put(Self.publication("a", "3", qos: .atMostOnce))
        #expect(next() == [])
        #expect(answer("a", "-") == .cleared("a"))
        #expect(next() == ["a 3"])
        #expect(answer("a", "3", qos: .atMostOnce) == .noted)
        #expect(publications.isQuiet)
    }

    @Test mutating func `a program that puts something all the time does not keep the session from being restored`() {
        publications.put(Self.publication("a"))
        publications.put(Self.publication("b"))
        connect()
        #expect(next() == ["a 1", "b 1"])
        publications.put(Self.publication("a", "2"))
        #expect(answer("a") == .noted)
        #expect(!publications.isSetUp)
        publications.put(Self.publication("c"))
        publications.remove("b")
        #expect(publications.isSetUp)
        #expect(!publications.isAnswered)
    }

    @Test mutating func `what a server took remains to be cleared although it refuses what follows`() {
        publications.put(Self.publication("a"))
        connect()
        _ = next()
        publications.put(Self.publication("a", "2"))
        _ = answer("a")
        #expect(next() == ["a 2"])
        _ = answer("a", "2", .payloadFormatInvalid)
        publications.remove("a")
        #expect(publications.removing == ["a"])
    }

    @Test mutating func `what a server may have taken remains to be cleared although it is refused later`() {
        publications.put(Self.publication("a"))
        connect()
        _ = next()
        publications.connectionClosed()
        connect()
        _ = next()
        _ = answer("a", "1", .notAuthorized)
        publications.remove("a")
        #expect(publications.removing == ["a"])
    }

    @Test mutating func `a removal clears the topic, and is forgotten once the server took it`() {
        publications.put(Self.publication("a"))
        connect()
        _ = next()
        _ = answer("a")
        publications.remove("a")
        #expect(publications.removing == ["a"])
        #expect(next() == ["a -"])
        #expect(next() == [], "a clearing is sent once per connection")
        #expect(answer("a", "-") == .cleared("a"))
        #expect(publications.removing == [])
    }

    @Test mutating func `a removal waits for a connection, and survives a restart of the daemon`() {
        publications = Publications([], retained: ["a"])
        #expect(publications.removing == ["a"])
        connect(isKept: true)
        #expect(next() == ["a -"])
        publications.connectionClosed()
        connect(isKept: true)
        #expect(next() == ["a -"])
        #expect(answer("a", "-", .notAuthorized) == .refused("a", .notAuthorized, isNews: true))
        #expect(publications.removing == ["a"])
    }

    @Test mutating func `a publication that was never sent is not cleared`() {
        publications.put(Self.publication("a"))
        publications.remove("a")
        connect()
        #expect(next() == [])
    }

    @Test mutating func `only the last of several answers counts`() {
        publications.put(Self.publication("a"))
        connect()
        #expect(next() == ["a 1"])
        publications.remove("a")
        #expect(next() == ["a -"])
        #expect(answer("a") == .noted)
        #expect(publications.removing == ["a"])
        #expect(answer("a", "-") == .cleared("a"))
    }

    @Test mutating func `a leave clears every publication, and the next connect restores them`() {
        publications.put(Self.publication("a"))
        publications.put(Self.publication("b"))
        connect()
        _ = next()
        _ = (answer("a"), answer("b"))
        publications.leave()
        #expect(next() == ["a -", "b -"])
        #expect(answer("a", "-") == .cleared("a"))
        #expect(publications["a"]?.state == .pending)
        publications.connectionClosed()
        connect(isKept: true)
        #expect(next() == ["b 1", "a 1"], "a publication that must be remembered first comes later")
    }

    @Test mutating func `a relative publication follows the session to another room`() {
        publications.put(Self.publication("~/a"))
        publications.put(Self.publication("b"))
        connect()
        #expect(next() == ["b 1"], "there is no room yet")
        _ = answer("b")
        #expect(publications.isAnswered)
        publications.enter(Room(prefix: "rooms", name: "x"))
        #expect(next() == ["rooms/x/a 1"])
        _ = answer("rooms/x/a")
        publications.enter(Room(prefix: "rooms", name: "y"))
        #expect(next().sorted() == ["rooms/x/a -", "rooms/y/a 1"])
        #expect(answer("rooms/x/a", "-") == .cleared("rooms/x/a"))
        #expect(publications["~/a"]?.topic == "rooms/y/a")
        #expect(publications.twin(of: "rooms/y/a", resolved: "rooms/y/a") == "~/a")
    }

    @Test mutating func `a refusal is reported once, and tried again on every connection`() {
        publications.put(Self.publication("a"))
        connect()
        _ = next()
        #expect(answer("a", "1", .notAuthorized) == .refused("a", .notAuthorized, isNews: true, nothingOn: "a"))
        #expect(publications.isAnswered, "a refusal does not keep the session from connecting")
        for isKept in [true, false] {
            publications.connectionClosed()
            connect(isKept: isKept)
            #expect(publications.isSetUp == isKept)
            #expect(next() == ["a 1"])
            guard isKept else { break }
            #expect(answer("a", "1", .notAuthorized) == .refused("a", .notAuthorized, isNews: false, nothingOn: "a"))
        }
        #expect(answer("a", "1", .notAuthorized) == .refused("a", .notAuthorized, isNews: false, nothingOn: "a"))
        publications.put(Self.publication("a", "2"))
        #expect(next() == ["a 2"])
        _ = answer("a", "2")
        publications.put(Self.publication("a", "3"))
        #expect(next() == ["a 3"])
        #expect(answer("a", "3", .quotaExceeded) == .refused("a", .quotaExceeded, isNews: true))
        publications.remove("a")
        #expect(next() == ["a -"], "the server still has the second one")
    }

    @Test mutating func `a publication that the session does not send is told once, and is not at the server`() {
        let answer = ServerAnswer.notAsked("the session does not send it, because the server does not retain messages")
        publications.put(Self.publication("a"))
        connect()
        _ = next()
        #expect(self.answer("a", "1", answer) == .refused("a", answer, isNews: true, nothingOn: "a"))
        #expect(publications.takeChanges() == [.init(topic: "a", state: .refused, answer: answer)])
        publications.connectionClosed()
        connect()
        _ = next()
        #expect(self.answer("a", "1", answer) == .refused("a", answer, isNews: false, nothingOn: "a"))
        publications.connectionClosed()
        connect()
        _ = next()
        #expect(self.answer("a", "1", .quotaExceeded) == .refused("a", .quotaExceeded, isNews: true, nothingOn: "a"))
    }

    @Test mutating func `the same refusal in other words is no news`() {
        publications.put(Self.publication("a"))
        connect()
        for words in ["at 12:00", "at 12:01"] {
            _ = next()
            let refused = answer("a", "1", .said(.quotaExceeded, words))
            #expect(
                refused
                    == .refused("a", .said(.quotaExceeded, words), isNews: words == "at 12:00", nothingOn: "a"))
            publications.connectionClosed()
            connect()
        }
    }

    @Test mutating func `a refused publication is tried again ten minutes later, unless it ended the connection`() {
        func at(_ seconds: Int64) -> Instant { Instant(nanoseconds: seconds * 1_000_000_000) }
        publications.put(Self.publication("a"))
        publications.put(Self.publication("b"))
        connect()
        _ = next()
        _ = answer("b")
        _ = answer("a", "1", .quotaExceeded)
        for round: Int64 in 0...1 {
            _ = publications.retryRefused(at: at(round * 1000))
            _ = publications.retryRefused(at: at(round * 1000 + 599))
            #expect(next() == [])
            let isDue = publications.retryRefused(at: at(round * 1000 + 600))
            #expect(isDue)
            #expect(next() == ["a 1"])
            _ = publications.retryRefused(at: at(round * 1000 + 999))
            #expect(next() == [], "it is not answered")
            #expect(answer("a", "1", .quotaExceeded) == .refused("a", .quotaExceeded, isNews: false, nothingOn: "a"))
        }
        publications.connectionClosed()
        connect()
        _ = (next(), answer("b"))
        _ = publications.serverEnded(.payloadFormatInvalid, isAlone: true)
        publications.connectionClosed()
        connect(isKept: true)
        for second: Int64 in [5000, 9000] { _ = publications.retryRefused(at: at(second)) }
        #expect(next() == [])
    }

    @Test mutating func `a publication that is put again and refused again is reported again`() {
        publications.put(Self.publication("a"))
        connect()
        _ = next()
        for payload in ["1", "2", "2"] {
            publications.put(Self.publication("a", payload))
            _ = next()
            _ = (answer("a", payload, .notAuthorized), publications.next())
            _ = answer("a", payload, .notAuthorized)
            #expect(publications.takeChanges().map(\.state) == [.refused])
        }
    }

    @Test mutating func `two publications for the same topic are published once`() {
        publications.put(Self.publication("rooms/x/a", "absolute"))
        publications.put(Self.publication("~/a", "relative"))
        publications.enter(Room(prefix: "rooms", name: "x"))
        connect()
        #expect(next() == ["rooms/x/a absolute"])
        _ = answer("rooms/x/a", "absolute")
        #expect(publications.isAnswered)
        publications.remove("rooms/x/a")
        #expect(next() == ["rooms/x/a relative"])
    }

    @Test mutating func `publications and those on their way to the disk share the room`() {
        let long = String(repeating: "x", count: Publications.maximumBytes / 4)
        let large = ["a", "b", "c"].map { Self.publication($0, long) }
        publications.put(large[0])
        for publication in large[1...] { publications.arrive(publication) }
        #expect(!publications.hasRoom(for: Self.publication("d", long)))
        #expect(publications.hasRoom(for: Self.publication("d")))
        #expect(publications.hasRoom(for: large[2]), "it replaces the one that is on its way")
        // Of several with one topic, the last one counts.
        publications.arrive(Self.publication("c"))
        #expect(publications.hasRoom(for: Self.publication("d", long)))
        publications.arrived(large[2])
        publications.put(large[2])
        publications.arrived(Self.publication("c"))
        #expect(!publications.hasRoom(for: Self.publication("d", long)), "the last one was refused")
        publications.arrived(large[1])
        #expect(publications.hasRoom(for: Self.publication("d", long)))
        publications.remove("a")
        publications.remove("c")
        for number in 1...Publications.maximumCount { publications.put(Self.publication("t/\(number)")) }
        #expect(!publications.hasRoom(for: Self.publication("d")))
        #expect(publications.hasRoom(for: Self.publication("t/1", "2")))
        publications.remove("t/2")
        #expect(publications.hasRoom(for: Self.publication("d")))
        #expect(publications["t/2"] == nil && publications["t/1"] != nil)
    }

    @Test mutating func `a publication that is put again keeps its topic from its twin`() {
        publications.put(Self.publication("rooms/x/a", "absolute"))
        publications.put(Self.publication("~/a", "relative"))
        publications.enter(Room(prefix: "rooms", name: "x"))
        publications.put(Self.publication("rooms/x/a", "again"))
        connect()
        #expect(next() == ["rooms/x/a again"])
        #expect(publications.twin(of: "~/a", resolved: "rooms/x/a") == "rooms/x/a")
        publications.remove("rooms/x/a")
        #expect(publications.twin(of: "rooms/x/a", resolved: "rooms/x/a") == "~/a")
    }

    @Test mutating func `a thousand publications are all answered`() {
        for number in 0..<Publications.maximumCount { publications.put(Self.publication("t/\(number)")) }
        connect()
        for said in next() { _ = (answer(String(said.dropLast(2))), publications.next()) }
        #expect(publications.isAnswered)
    }

    @Test mutating func `a publication that the server ends the connection for is found and left out`() {
        for topic in ["a", "b", "c"] { publications.put(Self.publication(topic)) }
        connect()
        #expect(next() == ["a 1", "b 1", "c 1"])
        #expect(publications.serverEnded(.serverBusy, isAlone: true) == .noted)
        #expect(publications.serverEnded(.payloadFormatInvalid, isAlone: true) == .noted)
        publications.connectionClosed()
        connect()
        #expect(next() == ["a 1"], "one by one")
        _ = answer("a")
        #expect(next() == ["b 1"])
        #expect(
            publications.serverEnded(.payloadFormatInvalid, isAlone: true)
                == .refused("b", .payloadFormatInvalid, isNews: true))
        publications.connectionClosed()
        connect()
        #expect(next() == ["a 1"])
        _ = answer("a")
        #expect(next() == ["c 1"])
        _ = answer("c")
        #expect(next() == [] && publications.isAnswered)
        publications.put(Self.publication("d"))
        publications.put(Self.publication("e"))
        #expect(next() == ["d 1", "e 1"], "together again")
    }

    @Test mutating func `a publication unanswered together with messages is refused only after it was sent alone`() {
        publications.put(Self.publication("a"))
        connect()
        #expect(next() == ["a 1"])
        #expect(publications.serverEnded(.packetTooLarge, isAlone: false) == .noted)
        publications.connectionClosed()
        connect()
        #expect(publications.next(isolatesMessages: true).announcements.isEmpty)
        #expect(publications.isHeldBack)
        #expect(next() == ["a 1"])
        #expect(!publications.isHeldBack)
        #expect(
            publications.serverEnded(.packetTooLarge, isAlone: true) == .refused("a", .packetTooLarge, isNews: true))
    }

    @Test mutating func `a publication that is never alone is refused the third time`() {
        publications.put(Self.publication("a"))
        for round in 1...3 {
            connect()
            #expect(next() == ["a 1"])
            let answer = publications.serverEnded(.packetTooLarge, isAlone: false)
            #expect(answer == (round < 3 ? .noted : .refused("a", .packetTooLarge, isNews: true)))
            publications.connectionClosed()
        }
    }

    @Test mutating func `a publication that the server has taken is no longer under suspicion`() {
        publications.put(Self.publication("a"))
        for isTaken in [false, false, true, false, false] {
            connect()
            #expect(next() == ["a 1"])
            if isTaken { #expect(answer("a") == .noted) }
            #expect(publications.serverEnded(.packetTooLarge, isAlone: false) == .noted)
            publications.connectionClosed()
        }
    }

    @Test mutating func `a cleared publication is reported with the topic that the program gave`() {
        publications.enter(Room(prefix: "p", name: "plant"))
        publications.put(Self.publication("~/a"))
        connect()
        #expect(next() == ["p/plant/a 1"])
        _ = answer("p/plant/a")
        _ = publications.takeChanges()
        publications.leave()
        #expect(next() == ["p/plant/a -"])
        _ = answer("p/plant/a", "-")
        #expect(publications.takeChanges().map(\.topic) == ["~/a"])
    }

    @Test mutating func `the answer to another announcement is ignored`() {
        connect()
        #expect(answer("presence") == nil)
    }
}
