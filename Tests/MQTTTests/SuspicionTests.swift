import NIOCore
import Support
import Testing

@testable import MQTT

/// The paragraph below the table of reason codes: an end of the connection that may be about what was sent.
@Suite struct `Ends of connections that may be about a message` {
    /// How the server ends a connection, and what the machine is told.
    enum End: CaseIterable, Sendable {
        case byClosing
        case disconnect83, disconnect87, disconnect9B
        /// It sends what is not MQTT, and this side ends the connection.
        case garbage, secondConnack

        var code: ReasonCode? {
            switch self {
            case .byClosing, .garbage, .secondConnack: nil
            case .disconnect83: .implementationSpecificError
            case .disconnect87: .notAuthorized
            case .disconnect9B: .qosNotSupported
            }
        }
    }

    /// A server that takes everything but messages with the payload "bad", and what has arrived there.
    struct Server {
        var client: MQTTClientHarness
        var end = End.byClosing
        /// Whether a bad message is left unanswered instead of ending the connection.
        var isSilent = false
        var arrived: [String] = []
        var ends = 0
        /// What the machine said at each end.
        var findings: [MQTTClientMachine.EndFinding?] = []
        var events: [String] = []

        init(_ client: MQTTClientHarness) { self.client = client }

        /// Connects, and answers until the connection ends or nothing is left to answer. Whether it ended.
        mutating func connection(resumed: Bool = true) -> Bool {
            take(client.connect(resumed: resumed))
            return work()
        }

        /// Lets time pass, over as many connections as it takes, until the client has no message left.
        ///
        /// - Returns: how many connections it gave up.
        mutating func workToTheEnd() -> Int {
            var gaveUp = 0
            var isResumed = false
            for _ in 0..<100 where client.machine.counts.queued + client.machine.counts.inFlight > 0 {
                if !client.machine.isConnected {
                    client.handle(.connectionClosed)
                    _ = connection(resumed: isResumed)
                    isResumed = true
                }
                client.flush()
                guard let due = client.machine.nextDeadline else { break }
                client.now = due
                take(client.handle(.timePassed))
                _ = work()
                if !client.machine.isConnected { gaveUp += 1 }
            }
            return gaveUp
        }

        private var unanswered: [String] = []

        mutating func take(_ words: [String]) {
            unanswered += words
            events += words.filter { !$0.hasPrefix("PUB") }
        }

        mutating func work() -> Bool {
            while !unanswered.isEmpty {
                let word = unanswered.removeFirst()
                let parts = word.split(separator: " ").map(String.init)
                if word == "PINGREQ" {
                    take(client.server(.pingresp))
                } else if parts[0] == "PUBREL", let number = UInt16(parts[1]) {
                    take(client.server(.pubcomp(answer(number))))
                } else if parts[0] == "PUBLISH" {
                    if parts[1] == "bad" {
                        if isSilent { continue }
                        endConnection()
                        return true
                    }
                    if !arrived.contains(parts[1]) { arrived.append(parts[1]) }
                    guard parts.count > 3, let number = UInt16(parts[3]) else { continue }
                    let isTwo = client.publishes.last { $0.packetID == id(number) }?.qos == .exactlyOnce
                    take(client.server(isTwo ? .pubrec(answer(number)) : .puback(answer(number))))
                }
            }
            return false
        }

        mutating func endConnection() {
            ends += 1
            unanswered = []
            findings.append(client.machine.findingIfEnded)
            if let code = end.code, client.machine.version == .five {
                take(client.server(.disconnect(Disconnect(reasonCode: code))))
                client.handle(.connectionClosed)
            } else if end == .garbage {
                take(client.handle(.received(ByteBuffer(string: "HTTP/1.1 400 Bad Request\r\n\r\n"))))
                client.handle(.connectionClosed)
            } else if end == .secondConnack {
                take(client.server(.connack(Connack())))
                client.handle(.connectionClosed)
            } else {
                take(client.handle(.connectionEnded(.byServer)))
            }
            unanswered = []
        }
    }

    @Test(arguments: End.allCases, [QoS.atLeastOnce, .exactlyOnce])
    func `a message that ends connections is found and set aside, and all others arrive`(_ end: End, _ qos: QoS) throws
    {
        for version in end.code == nil ? [ProtocolVersion.five, .threeOneOne] : [.five] {
            var server = Server(MQTTClientHarness { $0.version = version })
            server.end = end
            for name in ["a", "b", "bad", "c", "d"] { try server.client.publish(name, qos: qos) }
            var isResumed = false
            while server.connection(resumed: isResumed) {
                isResumed = true
                try #require(server.ends < 20)
            }
            #expect(Set(server.arrived) == ["a", "b", "c", "d"])
            // With QoS 2 the first end leaves an earlier exchange unfinished.
            #expect(server.ends == (qos == .exactlyOnce ? 6 : 5))
            #expect(server.findings.last == .setAside("message 3"))
            let code = end.code.map { MQTTClientHarness.hex($0) } ?? "without a code"
            #expect(server.events.contains("rejected 3 \(code)"))
            #expect(server.client.machine.counts.quarantined == 1)
            #expect(server.client.machine.counts.total == 1)
        }
    }

    @Test(arguments: [("PUBACK", QoS.exactlyOnce), ("PUBCOMP", .exactlyOnce), ("PUBREC", .atLeastOnce)])
    func `a message that the server always answers wrongly is set aside, and the next one arrives`(
        _ wrong: String, _ qos: QoS
    ) throws {
        var client = MQTTClientHarness()
        try client.publish("bad", qos: qos)
        try client.publish("good")
        for end in 1...3 {
            client.connect(resumed: end > 1)
            let words =
                switch wrong {
                case "PUBACK": client.server(.puback(answer(1)))
                case "PUBCOMP": client.server(.pubcomp(answer(1)))
                default: client.server(.pubrec(answer(1)))
                }
            #expect(words.contains("close"))
            #expect(words.contains("rejected 1 without a code") == (end == 3))
            client.handle(.connectionClosed)
        }
        client.connect(resumed: true)
        #expect(client.machine.counts.quarantined == 1)
        let good = try #require(client.publishes.last { $0.payload == ByteBuffer(string: "good") }?.packetID)
        #expect(client.server(.puback(Acknowledgement(packetID: good))).contains("delivered 2 00"))
    }

    @Test func `several bad messages in a row are found one after the other`() throws {
        var server = Server(MQTTClientHarness())
        for name in ["bad", "a", "bad", "bad", "b"] { try server.client.publish(name) }
        while server.connection(resumed: server.ends > 0) { try #require(server.ends < 30) }
        #expect(Set(server.arrived) == ["a", "b"])
        #expect(server.client.machine.counts.quarantined == 3)
        #expect(server.ends == 9, "three ends, and two for each bad message")
    }

    /// What the one end of a connection may be while a message is alone: a cable that is pulled, a server that is
    /// restarted, or one that a person tells to end this connection.
    @Test(arguments: End.allCases, [QoS.atLeastOnce, .exactlyOnce])
    func `one end while a message is alone sets nothing aside`(_ end: End, _ qos: QoS) throws {
        var server = Server(MQTTClientHarness())
        server.end = end
        for name in ["bad", "innocent"] { try server.client.publish(name, qos: qos) }
        while server.client.machine.counts.quarantined == 0 {
            _ = server.connection(resumed: server.ends > 0)
            try #require(server.ends < 30)
        }
        // The search goes on with the next message, on which this one end falls.
        server.client.connect(resumed: true)
        #expect(server.client.server(.pingresp).contains { $0.hasPrefix("PUBLISH innocent") })
        #expect(server.client.machine.findingIfEnded == .suspected(ends: 1))
        server.endConnection()
        #expect(server.client.machine.counts.quarantined == 1)
        let isEnded = server.connection()
        #expect(!isEnded)
        #expect(server.arrived == ["innocent"])
        #expect(server.client.machine.counts.total == 1)
    }

    @Test func `a link that is cut at every connection and answers in between sets nothing aside`() throws {
        var server = Server(MQTTClientHarness())
        for name in ["bad", "a", "b", "c", "d", "e"] { try server.client.publish(name) }
        while server.client.machine.counts.quarantined == 0 {
            _ = server.connection(resumed: server.ends > 0)
            try #require(server.ends < 30)
        }
        for _ in 1...5 {
            for isCut in [true, false] {
                server.client.connect(resumed: true)
                #expect(server.client.server(.pingresp).contains { $0.hasPrefix("PUBLISH") })
                let sent = try #require(server.client.publishes.last?.packetID)
                if !isCut { server.client.server(.puback(Acknowledgement(packetID: sent))) }
                server.client.handle(isCut ? .connectionEnded(.byServer) : .connectionClosed)
            }
        }
        #expect(server.client.machine.counts.quarantined == 1)
        #expect(server.client.machine.counts.total == 1)
    }

    @Test func `each connection on which a suspect goes out alone has to prove that it works`() throws {
        var client = MQTTClientHarness()
        for name in ["bad", "worse", "a"] { try client.publish(name) }
        for round in 0..<3 {
            client.connect(resumed: round > 0)
            client.handle(.connectionEnded(.byServer))
        }
        for name in ["bad", "bad", "worse", "worse"] {
            let words = client.connect(resumed: true)
            #expect(words.contains("PINGREQ"))
            #expect(!words.contains { $0.hasPrefix("PUBLISH") })
            #expect(client.server(.pingresp).first?.hasPrefix("PUBLISH \(name)") == true)
            client.handle(.connectionEnded(.byServer))
        }
        #expect(client.machine.counts.quarantined == 2)
    }

    @Test func `after a search, a server that names its reason need not prove that it works`() throws {
        var server = Server(MQTTClientHarness())
        for name in ["bad", "a"] { try server.client.publish(name) }
        while server.connection(resumed: server.ends > 0) { try #require(server.ends < 30) }
        #expect(server.client.machine.counts.total == server.client.machine.counts.quarantined)
        var client = server.client
        for name in ["x", "y"] { try client.publish(name) }
        client.server(.disconnect(Disconnect(reasonCode: .packetTooLarge)))
        client.handle(.connectionClosed)
        let words = client.connect(resumed: true)
        #expect(words.filter { $0.hasPrefix("PUBLISH") }.count == 1, "one by one")
        #expect(!words.contains("PINGREQ"))
    }

    @Test func `a message that is finally answered is no longer suspected`() throws {
        var client = MQTTClientHarness().connected()
        for round: UInt16 in 1...20 {
            try client.publish("\(round)")
            #expect(client.machine.findingIfEnded == .suspected(ends: 1))
            client.handle(.connectionEnded(.byServer))
            client.connect(resumed: true)
            #expect(client.server(.puback(answer(round))).contains("delivered \(round) 00"))
        }
        #expect(!client.machine.isIsolating)
    }

    @Test func `ends that were not the server's do not count`() throws {
        var client = MQTTClientHarness()
        try client.publish("a")
        for _ in 1...10 {
            client.connect(resumed: client.machine.claim.isEstablished)
            client.handle(.connectionClosed)
        }
        client.connect(resumed: true)
        #expect(client.machine.findingIfEnded == .suspected(ends: 1))
    }

    @Test(arguments: [
        ReasonCode.serverBusy, .serverShuttingDown, .keepAliveTimeout, .sessionTakenOver, .administrativeAction,
        .useAnotherServer, .serverMoved, .connectionRateExceeded, .maximumConnectTime,
    ])
    func `a code that cannot be about a message blames none`(_ code: ReasonCode) throws {
        var client = MQTTClientHarness()
        try client.publish("a")
        for _ in 1...6 {
            client.connect(resumed: client.machine.claim.isEstablished)
            client.server(.disconnect(Disconnect(reasonCode: code)))
            client.handle(.connectionClosed)
        }
        client.connect(resumed: true)
        #expect(client.machine.counts.quarantined == 0)
        #expect(client.machine.findingIfEnded == .suspected(ends: 1))
    }

    @Test func `an end before a message is sent blames none`() throws {
        var client = MQTTClientHarness()
        try client.publish("a")
        for _ in 1...3 {
            client.connect(resumed: client.machine.claim.isEstablished)
            client.handle(.connectionEnded(.byServer))
        }
        for _ in 1...10 {
            // The PINGREQ that comes before the message is not answered.
            #expect(!client.connect(resumed: true).contains { $0.hasPrefix("PUBLISH") })
            #expect(client.machine.findingIfEnded == nil)
            client.handle(.connectionEnded(.byServer))
        }
        #expect(client.machine.counts.quarantined == 0)
    }

    @Test func `an exchange past PUBREC is finished without the server`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("a", qos: .exactlyOnce)
        client.server(.pubrec(answer(1)))
        var words: [String] = []
        for _ in 1...5 {
            words += client.handle(.connectionEnded(.byServer))
            words += client.connect(resumed: true)
            words += client.server(.pingresp)
        }
        #expect(words.contains("delivered 1 00"))
        #expect(client.machine.counts.total == 0)
        #expect(client.changes.contains(.retireIdentifier(id(1))), "the server may hold on to it")
        #expect(!client.connectAgain().contains("PUBREL 1"))
    }

    @Test func `an announcement that ends connections is found, and its topic left alone for a while`() throws {
        var client = MQTTClientHarness()
        let announcement = Announcement(topic: "presence", payload: ByteBuffer(string: "here"))
        var ends = 0
        var words: [String] = []
        while ends < 10 {
            words = client.connect(resumed: ends > 0) + client.announce(announcement) + client.server(.pingresp)
            guard words.contains(where: { $0.hasPrefix("PUBLISH here") }) else { break }
            ends += 1
            client.handle(.connectionEnded(.byServer))
        }
        #expect(ends == 5)
        #expect(words.contains("announced presence refused"))
        #expect(try client.publish("a").last?.hasPrefix("PUBLISH a") == true, "messages flow")
        let sent = try #require(client.publishes.last?.packetID)
        client.server(.puback(Acknowledgement(packetID: sent)))
        client.now = client.now.advanced(by: 600_000)
        #expect(client.announce(announcement).last?.hasPrefix("PUBLISH here") == true)
    }

    @Test func `an announcement that ended connections goes out alone after ten minutes, and then once an hour`() throws
    {
        var client = MQTTClientHarness()
        for round in 0..<5 {
            client.connect(resumed: round > 0)
            client.announce("here")
            client.server(.pingresp)
            client.handle(.connectionEnded(.byServer))
        }
        client.connect(resumed: true)
        try client.publish("a")
        for minutes: Int64 in [10, 60, 60] {
            client.now = client.now.advanced(by: (minutes - 1) * 60_000)
            #expect(client.announce("here") == ["announced presence refused"])
            client.now = client.now.advanced(by: 60_000)
            let words = client.announce("here")
            #expect(!words.contains { $0.hasPrefix("PUBLISH") }, "not beside the message")
            let sent = try #require(client.publishes.last?.packetID)
            #expect(
                client.server(.puback(Acknowledgement(packetID: sent)), .pingresp).last?.hasPrefix("PUBLISH here")
                    == true)
            #expect(!client.handle(.connectionEnded(.byServer)).contains("announced presence refused"))
            client.connect(resumed: true)
            client.announce("here")
            client.server(.pingresp)
            #expect(client.handle(.connectionEnded(.byServer)).contains("announced presence refused"), "two are enough")
            client.connect(resumed: true)
            try client.publish("a")
        }
        client.now = client.now.advanced(by: 3_600_000)
        let message = try #require(client.publishes.last?.packetID)
        client.announce("here")
        client.server(.puback(Acknowledgement(packetID: message)), .pingresp)
        let sent = try #require(client.publishes.last?.packetID)
        #expect(client.server(.puback(Acknowledgement(packetID: sent))).contains("announced presence 00"))
        #expect(client.announce("here").last?.hasPrefix("PUBLISH here") == true, "the server takes it again")
    }

    @Test func `while announcements go out alone, none goes out beside a message`() throws {
        var client = MQTTClientHarness()
        let announcement = Announcement(topic: "presence", payload: ByteBuffer(string: "here"))
        for round in 0..<3 {
            client.connect(resumed: round > 0)
            _ = client.announce(announcement)
            client.handle(.connectionEnded(.byServer))
        }
        #expect(client.connect(resumed: true).contains("PINGREQ"))
        client.server(.pingresp)
        #expect(try client.publish("a").last?.hasPrefix("PUBLISH a") == true)
        let sent = try #require(client.publishes.last?.packetID)
        #expect(client.announce(announcement) == [])
        #expect(client.server(.puback(Acknowledgement(packetID: sent))).last?.hasPrefix("PUBLISH here") == true)
    }

    @Test func `an announcement that was set aside is sent again when the server closes a connection without it`() {
        var client = MQTTClientHarness()
        for round in 0..<5 {
            client.connect(resumed: round > 0)
            client.announce("here")
            client.server(.pingresp)
            client.handle(.connectionEnded(.byServer))
        }
        for end in [nil, MQTTClientMachine.EndCause.silent] {
            if let end { client.handle(.connectionEnded(end)) }
            client.connect(resumed: true)
            #expect(client.announce("here") == ["announced presence refused"])
        }
        client.handle(.connectionEnded(.byServer))
        client.connect(resumed: true)
        client.announce("here")
        #expect(client.server(.pingresp).last?.hasPrefix("PUBLISH here") == true)
    }

    @Test func `an announcement that the server answers in between is not suspected`() throws {
        var client = MQTTClientHarness()
        for round in 1...6 {
            client.connect(resumed: round > 1)
            client.announce("here")
            let sent = try #require(client.publishes.last?.packetID)
            client.server(.puback(Acknowledgement(packetID: sent)))
            client.announce("here again")
            #expect(client.machine.findingIfEnded == .suspected(ends: 1))
            client.handle(.connectionEnded(.byServer))
        }
        #expect(!client.machine.isIsolating)
    }

    static let codesAtFilter: [ReasonCode?] = [
        nil, .malformedPacket, .protocolError, .implementationSpecificError, .notAuthorized, .topicNameInvalid,
        .packetTooLarge, .payloadFormatInvalid, .qosNotSupported,
    ]

    @Test(arguments: codesAtFilter)
    func `a filter that the server ends connections for is refused, and the others are granted`(
        _ code: ReasonCode?
    ) throws {
        var client = MQTTClientHarness { $0.filtersPerPacket = 8 }
        for filter in ["a", "bad", "c"] { try client.subscribe(filter) }
        var ends = 0
        var granted: Set<String> = []
        while ends < 10 {
            var words = client.connect(resumed: ends > 0, .init(subscriptionIDsAvailable: false))
            var isEnded = false
            while !words.isEmpty, !isEnded {
                let word = words.removeFirst()
                if word == "PINGREQ" { words += client.server(.pingresp) }
                guard word.hasPrefix("SUBSCRIBE"), let subscribe = client.subscribes.last else { continue }
                let filters = word.split(separator: " ").dropFirst().map(String.init)
                if filters.contains("bad") {
                    ends += 1
                    if let code {
                        client.server(.disconnect(Disconnect(reasonCode: code)))
                        client.handle(.connectionClosed)
                    } else {
                        client.handle(.connectionEnded(.byServer))
                    }
                    isEnded = true
                } else {
                    granted.formUnion(filters)
                    words += client.server(
                        .suback(Suback(packetID: subscribe.packetID, reasonCodes: filters.map { _ in .success })))
                }
            }
            if !isEnded { break }
        }
        #expect(ends == 5)
        #expect(granted == ["a", "c"])
        let subscriptions = client.machine.subscriptions
        #expect(subscriptions.answers.keys.filter(subscriptions.isSetAside).map(\.string) == ["bad"])
    }

    @Test(arguments: [false, true])
    func `a server that ends each connection for reasons of its own has no filter refused`(_ isResumed: Bool) throws {
        var client = MQTTClientHarness { $0.filtersPerPacket = 1 }
        for filter in ["a", "b"] { try client.subscribe(filter) }
        for round in 0..<20 {
            client.connect(resumed: isResumed && round > 0)
            client.handle(.connectionEnded(.byServer))
        }
        #expect(client.connect(resumed: isResumed).last == "PINGREQ")
        #expect(client.server(.pingresp) == ["SUBSCRIBE a"])
        for _ in 0..<2 {
            let asked = try #require(client.subscribes.last)
            client.server(.suback(Suback(packetID: asked.packetID, reasonCodes: [.grantedQoS1])))
        }
        #expect(client.machine.subscriptions.restoring == nil)
        let subscriptions = client.machine.subscriptions
        #expect(!subscriptions.answers.keys.contains(where: subscriptions.isSetAside))
    }

    @Test func `once the only filter is found, others are requested at once and are not suspected sooner`() throws {
        var client = try MQTTClientHarness.withFilterSetAside()
        #expect(client.connect(resumed: true).contains("restored"))
        try client.subscribe("a")
        try client.subscribe("b")
        #expect(client.subscribes.suffix(2).flatMap(\.subscriptions).map(\.filter) == ["a", "b"])
        #expect(client.machine.findingIfEnded == .suspected(ends: 1))
    }

    @Test func `a message beside a suspected presence is not blamed where no connection proves to work`() throws {
        var client = MQTTClientHarness()
        for round in 0..<3 {
            client.connect(resumed: round > 0)
            client.announce("here")
            client.handle(.connectionEnded(.byServer))
        }
        try client.publish("innocent")
        for _ in 0..<9 {
            #expect(client.connect(resumed: true).contains("PINGREQ"))
            client.announce("here")
            client.handle(.connectionEnded(.byServer))
        }
        #expect(client.machine.counts.quarantined == 0)
    }

    // MARK: Silence

    @Test func `a PUBLISH unanswered for the limit causes a PINGREQ, and then the end of the connection`() throws {
        var client = MQTTClientHarness { $0.acknowledgeTimeout = 60_000 }
        client.connect()
        try client.publish("a")
        client.flush()
        let due = try #require(client.machine.nextDeadline)
        #expect(due.rawValue == client.now.rawValue + 60_000)
        client.now = due.advanced(by: -1)
        #expect(client.handle(.timePassed).isEmpty)
        client.now = due
        #expect(client.handle(.timePassed) == ["PINGREQ"])
        #expect(
            client.server(.pingresp) == [
                "unanswered: the server leaves a message unanswered, although it answers a PINGREQ sent after it",
                "DISCONNECT 00", "close",
            ])
    }

    @Test func `an answer that comes before that of the PINGREQ is in time`() throws {
        var client = try MQTTClientHarness.late()
        #expect(client.server(.puback(answer(1)), .pingresp) == ["delivered 1 00"])
        #expect(client.machine.nextDeadline == nil)
    }

    @Test func `a connection whose PINGREQ is not answered either is given up`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("a")
        client.flush()
        client.now = client.now.advanced(by: 60_000)
        client.handle(.timePassed)
        let due = client.now.advanced(by: 60_000)
        #expect(client.machine.nextDeadline == due)
        client.now = due.advanced(by: -1)
        #expect(client.handle(.timePassed) == [])
        client.now = due
        #expect(
            client.handle(.timePassed) == [
                "unanswered: the server answers neither a message nor a PINGREQ", "DISCONNECT 00", "close",
            ])
    }

    @Test func `a message that has not left the host by its time limit has as much time again`() throws {
        var client = MQTTClientHarness { $0.acknowledgeTimeout = 60_000 }
        client.connect()
        try client.publish("a")
        client.now = client.now.advanced(by: 60_000)
        #expect(client.handle(.timePassed) == [], "the link is slow, not the server")
        client.flush()
        let due = client.now.advanced(by: 60_000)
        #expect(client.machine.nextDeadline == due)
        client.now = due.advanced(by: -1)
        #expect(client.handle(.timePassed) == [])
        client.now = due
        #expect(client.handle(.timePassed) == ["PINGREQ"])
    }

    @Test func `a link that has become slow is given time before the server is asked again`() throws {
        var client = MQTTClientHarness { $0.acknowledgeTimeout = 60_000 }
        client.connect()
        try client.publish("a")
        client.flush()
        client.now = client.now.advanced(by: 60_000)
        #expect(client.handle(.timePassed) == ["PINGREQ"])
        try client.publish("b")
        client.now = client.now.advanced(by: 60_000)
        #expect(client.handle(.timePassed) == [])
        #expect(client.machine.nextDeadline == client.now.advanced(by: 60_000), "nothing is due at once")
        client.flush()
        client.now = client.now.advanced(by: 60_000)
        #expect(client.handle(.timePassed) == ["PINGREQ"])
    }

    @Test func `a SUBSCRIBE that stays unanswered ends the connection`() throws {
        var client = MQTTClientHarness { $0.requestTimeout = 30_000 }
        client.connect()
        try client.subscribe("f")
        client.now = client.now.advanced(by: 29_999)
        #expect(client.handle(.timePassed) == [])
        client.now = client.now.advanced(by: 1)
        #expect(client.handle(.timePassed) == ["PINGREQ"])
        #expect(
            client.server(.pingresp).first
                == "unanswered: the server leaves a subscription unanswered, although it answers a PINGREQ sent after it"
        )
    }

    @Test func `an UNSUBSCRIBE that stays unanswered is called that, also when it is set aside`() throws {
        var client = MQTTClientHarness { $0.requestTimeout = 30_000 }
        client.connect()
        try client.subscribe("f")
        client.server(.suback(Suback(packetID: id(1), reasonCodes: [.grantedQoS1])))
        client.handle(.unsubscribe(try TopicFilter("f")))
        var findings: [MQTTClientMachine.EndFinding?] = []
        for _ in 1...8 where client.machine.nextDeadline != nil {
            client.now = client.now.advanced(by: 30_000)
            #expect(client.handle(.timePassed).contains("PINGREQ"))
            let sentence = "the server leaves an UNSUBSCRIBE unanswered, although it answers a PINGREQ sent after it"
            #expect(client.server(.pingresp).contains("unanswered: \(sentence)"))
            findings.append(client.lastFinding)
            client.handle(.connectionClosed)
            client.connectAndProve(resumed: true)
        }
        #expect(findings.last == .setAside("the UNSUBSCRIBE from f"))
    }

    @Test func `an UNSUBSCRIBE that stays unanswered is called that while a subscription still has time`() throws {
        var client = MQTTClientHarness { $0.requestTimeout = 30_000 }
        client.connect()
        try client.subscribe("f")
        client.server(.suback(Suback(packetID: id(1), reasonCodes: [.grantedQoS1])))
        client.handle(.unsubscribe(try TopicFilter("f")))
        client.now = client.now.advanced(by: 20_000)
        try client.subscribe("g")
        client.now = client.now.advanced(by: 10_000)
        client.handle(.timePassed)
        let sentence = "the server leaves an UNSUBSCRIBE unanswered, although it answers a PINGREQ sent after it"
        #expect(client.server(.pingresp).contains("unanswered: \(sentence)"))
    }

    @Test func `a connection whose PINGREQ is still on its way is not given up`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("a")
        client.flush()
        func pass(acknowledged: Int, pending: Int) -> [String] {
            client.now = client.now.advanced(by: 60_000)
            client.machine.measured(acknowledged: acknowledged, pending: pending, at: client.now)
            return client.handle(.timePassed)
        }
        #expect(pass(acknowledged: 0, pending: 0) == [])
        #expect(pass(acknowledged: 0, pending: 9_000_000) == ["PINGREQ"])
        #expect(pass(acknowledged: 3_000_000, pending: 6_000_000) == [])
        // More was sent behind it.
        #expect(pass(acknowledged: 6_000_000, pending: 9_000_000) == [])
        #expect(pass(acknowledged: 9_000_000, pending: 6_000_000).contains("close"))
    }

    @Test func `a PINGREQ that has arrived is not waited for longer`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("a")
        for (milliseconds, words) in [(30_000, []), (30_000, ["PINGREQ"]), (60_000, nil)] as [(Int64, [String]?)] {
            client.now = client.now.advanced(by: milliseconds)
            client.machine.measured(acknowledged: 100, pending: 0, at: client.now)
            let done = client.handle(.timePassed)
            #expect(words.map { $0 == done } ?? done.contains("close"))
        }
    }

    @Test func `PUBREL and SUBSCRIBE have time limits too`() throws {
        var client = MQTTClientHarness { $0.requestTimeout = 30_000 }
        client.connect()
        try client.publish("a", qos: .exactlyOnce)
        client.now = client.now.advanced(by: 50_000)
        client.server(.pubrec(answer(1)))
        #expect(client.machine.nextDeadline?.rawValue == client.now.rawValue + 60_000, "PUBREC was an answer")
        try client.subscribe("f")
        #expect(client.machine.nextDeadline?.rawValue == client.now.rawValue + 30_000)
    }

    @Test func `a wall clock that is set makes no answer late`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("a")
        let range = Timestamp(rawValue: 0)...client.now
        client.handle(.clockStepped(by: 3_600_000, acceptedWithin: range))
        client.now = client.now.advanced(by: 3_600_000)
        #expect(client.machine.nextDeadline?.rawValue == client.now.rawValue + 60_000)
    }

    @Test func `a message that is never answered is found at last, and the others arrive`() throws {
        var server = Server(MQTTClientHarness())
        server.isSilent = true
        for name in ["bad", "a"] { try server.client.publish(name) }
        #expect(server.workToTheEnd() == 5)
        #expect(server.arrived == ["a"])
        #expect(server.client.machine.counts.quarantined == 1)
    }

    @Test func `a server that answers nothing at all has messages blamed ever more slowly`() throws {
        var client = MQTTClientHarness()
        for name in ["a", "b", "c", "d"] { try client.publish(name) }
        var rounds: [Int] = []
        for round in 1...30 {
            client.handle(.connectionClosed)
            client.connect(resumed: round > 1)
            client.server(.pingresp)
            client.flush()
            client.now = client.now.advanced(by: 60_000)
            client.handle(.timePassed)
            client.server(.pingresp)
            while client.machine.counts.quarantined > rounds.count { rounds.append(round) }
        }
        #expect(rounds == [5, 13, 27])
    }

    @Test func `messages that are never answered do not fill the window for good`() throws {
        var server = Server(MQTTClientHarness { $0.inFlight.messages = 2 })
        server.isSilent = true
        for name in ["bad", "bad", "bad", "a", "bad", "b"] { try server.client.publish(name) }
        // The third leaves the window a place for "a", which is answered.
        #expect(server.workToTheEnd() == 5 + 8 + 5 + 5)
        #expect(server.arrived == ["a", "b"])
        #expect(server.client.machine.counts.quarantined == 4)
    }

    @Test(arguments: [QoS.atLeastOnce, .exactlyOnce])
    func `a message of QoS 2 that is set aside is said to have arrived perhaps`(qos: QoS) throws {
        var client = MQTTClientHarness().connected()
        try client.publish("a", qos: qos)
        client.handle(.connectionClosed)
        var actions: [MQTTClientMachine.Action] = []
        client.open()
        let bytes = encoded(.connack(Connack(sessionPresent: true, properties: .init(maximumQoS: .atMostOnce))))
        client.machine.handle(.received(bytes), at: client.now, into: &actions)
        let words = actions.compactMap { action -> String? in
            if case .event(.rejected(let message)) = action { message.words } else { nil }
        }
        let isInDoubt = words.first?.contains("it may have arrived")
        #expect(isInDoubt == (qos == .exactlyOnce))
    }

    /// The server answers neither of the first two, and with the one behind them they take more memory than is allowed.
    @Test func `a large message behind an unanswered one does not hide that the server answers others`() throws {
        var server = Server(MQTTClientHarness { $0.inFlight.bytes = 40 })
        server.isSilent = true
        let large = String(repeating: "l", count: 60)
        for name in ["bad", "bad", large, "a"] { try server.client.publish(name) }
        _ = server.workToTheEnd()
        #expect(server.arrived == [large, "a"])
        #expect(server.client.machine.counts.quarantined == 2)
    }

    @Test func `a message that still has time is not to blame when the connection ends for something else`() throws {
        var client = MQTTClientHarness()
        for name in ["a", "b"] { try client.publish(name) }
        for round in 1...3 {
            client.connect(resumed: round > 1)
            client.handle(.connectionEnded(.byServer))
        }
        client.connect(resumed: true)
        #expect(client.machine.isIsolating)
        #expect(client.server(.pingresp).contains { $0.hasPrefix("PUBLISH a") })
        client.now = client.now.advanced(by: 30_000)
        client.handle(.connectionEnded(.unanswered))
        #expect(client.machine.counts.quarantined == 0)
    }

    @Test func `a filter that is never answered is found even while messages are in flight`() throws {
        var client = MQTTClientHarness { $0.requestTimeout = 30_000 }
        for filter in ["a", "bad"] { try client.subscribe(filter) }
        func setAside() -> [String] {
            let subscriptions = client.machine.subscriptions
            return subscriptions.answers.keys.filter(subscriptions.isSetAside).map(\.string)
        }
        var rounds = 0
        while rounds < 10, setAside().isEmpty {
            rounds += 1
            var words = client.connect(resumed: rounds > 1, .init(subscriptionIDsAvailable: false))
            words += try client.publish("\(rounds)")
            while !words.isEmpty {
                let word = words.removeFirst()
                if word == "PINGREQ" { words += client.server(.pingresp) }
                guard word.hasPrefix("SUBSCRIBE"), !word.contains("bad"), let subscribe = client.subscribes.last else {
                    continue
                }
                words += client.server(.suback(Suback(packetID: subscribe.packetID, reasonCodes: [.success])))
            }
            client.now = client.now.advanced(by: 30_000)
            client.handle(.connectionEnded(.unanswered))
        }
        #expect(rounds == 5)
        #expect(setAside() == ["bad"])
        #expect(client.machine.counts.quarantined == 0)
    }

    @Test func `a filter that is answered with a malformed SUBACK is found even while messages are in flight`() throws {
        var client = MQTTClientHarness()
        try client.subscribe("bad")
        var rounds = 0
        while rounds < 10, client.connectAndProve(resumed: rounds > 0).contains(where: { $0.hasPrefix("SUBSCRIBE") }) {
            rounds += 1
            try client.publish("\(rounds)")
            let id = try #require(client.subscribes.last?.packetID)
            client.server(.suback(Suback(packetID: id, reasonCodes: [.success, .success])))
            client.handle(.connectionClosed)
        }
        #expect(rounds == 5)
        #expect(client.machine.counts.quarantined == 0)
        #expect(!client.machine.isIsolating)
    }

    @Test func `a PUBLISH from the server that is malformed blames no message`() throws {
        var client = MQTTClientHarness()
        try client.publish("a")
        for round in 1...8 {
            client.connect(resumed: round > 1)
            client.server(.pingresp)
            // QoS 3.
            let words = client.handle(.received(ByteBuffer(bytes: [0x36, 5, 0, 1, 0x74, 0, 1])))
            #expect(words.contains("close"))
            client.handle(.connectionClosed)
        }
        #expect(client.machine.counts.inFlight == 1 && !client.machine.isIsolating)
    }

    @Test func `a filter that ended connections is not asked for at once by each new subscription`() throws {
        var client = try MQTTClientHarness.withFilterSetAside()
        client.connect(resumed: true)
        #expect(try client.subscribe("bad") == ["subscribed bad refused"])
        client.now = client.now.advanced(by: 600_000)
        #expect(try client.subscribe("bad") == ["PINGREQ"])
        #expect(client.server(.pingresp).contains { $0.hasPrefix("SUBSCRIBE") })
        client.handle(.connectionEnded(.byServer))
        #expect(client.connectAndProve(resumed: true).contains { $0.hasPrefix("SUBSCRIBE") }, "one end may be chance")
        client.handle(.connectionEnded(.byServer))
        #expect(!client.connectAndProve(resumed: true).contains { $0.hasPrefix("SUBSCRIBE") }, "two are enough by now")
    }

    @Test func `PUBREC again and again is no answer to PUBREL`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("a", qos: .exactlyOnce)
        client.server(.pubrec(answer(1)))
        let due = try #require(client.machine.nextDeadline)
        for _ in 1...3 {
            client.now = client.now.advanced(by: 10_000)
            #expect(client.server(.pubrec(answer(1))) == ["PUBREL 1"])
        }
        #expect(client.machine.nextDeadline == due)
    }

    @Test func `QoS 2 messages that are sent again in a new session are reported`() throws {
        var client = MQTTClientHarness().connected()
        try client.publish("a", qos: .exactlyOnce)
        try client.publish("b", qos: .exactlyOnce)
        client.server(.pubrec(answer(2)))
        client.handle(.connectionClosed)
        let words = client.connect(resumed: false)
        #expect(words.contains("repeated 1"))
    }
}

extension MQTTClientHarness {
    fileprivate mutating func connectAgain() -> [String] {
        handle(.connectionClosed)
        return connect(resumed: true)
    }

    fileprivate mutating func announce(_ announcement: Announcement) -> [String] {
        var actions: [MQTTClientMachine.Action] = []
        machine.announce(announcement, at: now, into: &actions)
        return describe(actions)
    }
}
