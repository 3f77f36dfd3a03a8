import MQTT
import NIOCore
import Vocabulary

/// Makes packets that a sender may send, with every field and property sometimes present, sometimes extreme.
struct PacketGenerator {
    private var random: SplitMix64

    init(seed: UInt64) {
        random = SplitMix64(seed: seed)
    }

    mutating func packet(from sender: Sender) -> Packet {
        switch (sender, int(0...8)) {
        case (_, 0): return .publish(publish(from: sender))
        case (_, 1): return .puback(acknowledgement())
        case (_, 2): return .pubrec(acknowledgement())
        case (_, 3): return .pubrel(acknowledgement())
        case (_, 4): return .pubcomp(acknowledgement())
        case (_, 5): return .disconnect(disconnect(from: sender))
        case (_, 6): return .auth(auth())
        case (.client, 7): return flip() ? .connect(connect()) : .pingreq
        case (.client, _):
            if flip() { return .subscribe(subscribe()) }
            let filters = many(1...4) { $0.filter() }
            return .unsubscribe(
                Unsubscribe(
                    packetID: packetID(), filters: filters,
                    properties: Unsubscribe.Properties(userProperties: userProperties())))
        case (.server, 7): return flip() ? .connack(connack()) : .pingresp
        case (.server, _):
            let codes = many(1...4) { $0.reasonCode() }
            if flip() {
                return .suback(
                    Suback(packetID: packetID(), reasonCodes: codes, properties: reasonProperties()))
            }
            return .unsuback(
                Unsuback(packetID: packetID(), reasonCodes: codes, properties: reasonProperties()))
        }
    }

    private mutating func publish(from sender: Sender) -> Publish {
        let qos = self.qos()
        let alias = optional { $0.nonZero16() }
        let withoutTopic = alias != nil && flip()
        return Publish(
            topic: withoutTopic ? "" : topic(), payload: data(0...300), qos: qos, retain: flip(),
            duplicate: qos > .atMostOnce && flip(), packetID: qos > .atMostOnce ? packetID() : nil,
            properties: Publish.Properties(
                payloadFormat: payloadFormat(), messageExpiryInterval: uint32(), topicAlias: alias,
                responseTopic: optional { $0.topic() }, correlationData: optional { $0.data(0...20) },
                userProperties: userProperties(),
                subscriptionIDs: sender == .client ? [] : many(0...3) { $0.subscriptionID() }, contentType: string()))
    }

    private mutating func connect() -> Connect {
        let method = string()
        return Connect(
            clientID: text(), cleanStart: flip(), keepAlive: number(), username: string(),
            password: optional { $0.data(0...20) }, will: optional { $0.will() },
            properties: Connect.Properties(
                sessionExpiryInterval: uint32(), receiveMaximum: optional { $0.nonZero16() },
                maximumPacketSize: optional { UInt32($0.nonZero16()) }, topicAliasMaximum: optional { $0.number() },
                requestResponseInformation: bool(), requestProblemInformation: bool(), authenticationMethod: method,
                authenticationData: method == nil ? nil : optional { $0.data(0...20) },
                userProperties: userProperties()))
    }

    private mutating func will() -> Will {
        Will(
            topic: topic(), payload: data(0...20), qos: qos(), retain: flip(),
            properties: Will.Properties(
                willDelay: uint32(), payloadFormat: payloadFormat(), messageExpiryInterval: uint32(),
                contentType: string(), responseTopic: optional { $0.topic() },
                correlationData: optional { $0.data(0...20) }, userProperties: userProperties()))
    }

    private mutating func connack() -> Connack {
        Connack(
            sessionPresent: flip(), reasonCode: reasonCode(),
            properties: Connack.Properties(
                sessionExpiryInterval: uint32(), receiveMaximum: optional { $0.nonZero16() },
                maximumQoS: optional { $0.flip() ? .atMostOnce : .atLeastOnce }, retainAvailable: bool(),
                maximumPacketSize: optional { UInt32($0.nonZero16()) }, assignedClientID: string(),
                topicAliasMaximum: optional { $0.number() }, reasonString: string(),
                userProperties: userProperties(), wildcardSubscriptionAvailable: bool(),
                subscriptionIDsAvailable: bool(), sharedSubscriptionAvailable: bool(),
                serverKeepAlive: optional { $0.number() }, responseInformation: string(), serverReference: string(),
                authenticationMethod: string(), authenticationData: optional { $0.data(0...20) }))
    }

    private mutating func subscribe() -> Subscribe {
        let subscriptions = many(1...4) { generator in
            let filter = generator.filter()
            return Subscription(
                filter: filter, qos: generator.qos(), noLocal: !filter.hasPrefix("$share/") && generator.flip(),
                retainAsPublished: generator.flip(),
                retainHandling: generator.pick([.sendOnSubscribe, .sendIfNew, .doNotSend]))
        }
        return Subscribe(
            packetID: packetID(), subscriptions: subscriptions,
            properties: Subscribe.Properties(
                subscriptionID: optional { $0.subscriptionID() }, userProperties: userProperties()))
    }

    private mutating func disconnect(from sender: Sender) -> Disconnect {
        Disconnect(
            reasonCode: reasonCode(),
            properties: Disconnect.Properties(
                sessionExpiryInterval: sender == .client ? uint32() : nil, reasonString: string(),
                userProperties: userProperties(), serverReference: string()))
    }

    private mutating func auth() -> Auth {
        guard flip() else { return Auth() }
        return Auth(
            reasonCode: pick([.success, .continueAuthentication, .reauthenticate]),
            properties: Auth.Properties(
                authenticationMethod: text(), authenticationData: optional { $0.data(0...20) },
                reasonString: string(), userProperties: userProperties()))
    }

    private mutating func acknowledgement() -> Acknowledgement {
        Acknowledgement(packetID: packetID(), reasonCode: reasonCode(), properties: reasonProperties())
    }

    private mutating func reasonProperties() -> Acknowledgement.Properties {
        Acknowledgement.Properties(reasonString: string(), userProperties: userProperties())
    }

    // MARK: Values

    mutating func int(_ range: ClosedRange<Int>) -> Int { Int.random(in: range, using: &random) }
    mutating func flip() -> Bool { Bool.random(using: &random) }

    mutating func bytes(_ count: ClosedRange<Int>) -> [UInt8] {
        (0..<int(count)).map { _ in UInt8.random(in: .min ... .max, using: &random) }
    }

    private mutating func pick<Value>(_ values: [Value]) -> Value { values[int(0...values.count - 1)] }

    private mutating func optional<Value>(_ make: (inout Self) -> Value) -> Value? {
        flip() ? make(&self) : nil
    }

    private mutating func many<Value>(_ count: ClosedRange<Int>, _ make: (inout Self) -> Value) -> [Value] {
        var values: [Value] = []
        for _ in 0..<int(count) { values.append(make(&self)) }
        return values
    }

    private mutating func number() -> UInt16 { pick([0, 1, 255, 256, .max, UInt16(int(0...65_535))]) }
    private mutating func nonZero16() -> UInt16 { max(1, number()) }
    private mutating func packetID() -> PacketID { identifier(nonZero16()) }
    private mutating func uint32() -> UInt32? { optional { $0.pick([0, 1, .max, UInt32($0.number())]) } }
    private mutating func bool() -> Bool? { optional { $0.flip() } }
    private mutating func qos() -> QoS { pick(QoS.allCases) }
    private mutating func payloadFormat() -> PayloadFormat? { optional { $0.pick(PayloadFormat.allCases) } }
    private mutating func reasonCode() -> ReasonCode { ReasonCode(rawValue: flip() ? 0 : UInt8(int(0...255))) }
    private mutating func string() -> String? { optional { $0.text() } }
    private mutating func data(_ count: ClosedRange<Int>) -> ByteBuffer { ByteBuffer(bytes: bytes(count)) }
    private mutating func subscriptionID() -> UInt32 { pick([1, 127, 128, 16_384, 2_097_152, 268_435_455]) }
    private mutating func text() -> String {
        pick(["", "a", "reason", "\u{FEFF}x", "é😀", "\u{1}", String(repeating: "long ", count: int(1...60))])
    }
    private mutating func topic() -> String {
        pick(["a", "/", "a/b/c", "é/😀", String(repeating: "t", count: 200)])
    }
    private mutating func filter() -> String { pick(["#", "+", "a/+/b", "a/#", "$share/g/a/#", "$SYS/#", "a"]) }
    private mutating func userProperties() -> [UserProperty] {
        guard flip() else { return [] }
        return many(0...3) { UserProperty(name: $0.text(), value: $0.text()) }
    }
}
