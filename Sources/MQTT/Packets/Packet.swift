/// One MQTT control packet (section 2.1.2), as it is on the wire and without any meaning that depends on a session. The
/// types are those of MQTT 5. MQTT 3.1.1 has the same packets except AUTH, and can express less in them.
///
/// The codec is pure, and a client's: `PacketDecoder` turns the bytes of a server into packets, and `encode(into:)` makes
/// the bytes of the packets that a client sends. Strings are
/// Swift strings; note that `==` on strings is canonical equivalence, while the standard compares topics byte by byte
/// [MQTT-4.7.3-4]. Use `TopicName` and `TopicFilter` where topics are compared.
public enum Packet: Hashable, Sendable {
    /// Client asks for a connection (3.1).
    case connect(Connect)
    /// Server's answer to CONNECT (3.2).
    case connack(Connack)
    /// An application message (3.3).
    case publish(Publish)
    /// Answer to a PUBLISH of QoS 1 (3.4).
    case puback(Acknowledgement)
    /// First answer to a PUBLISH of QoS 2 (3.5).
    case pubrec(Acknowledgement)
    /// Answer to PUBREC (3.6).
    case pubrel(Acknowledgement)
    /// Answer to PUBREL; ends the exchange (3.7).
    case pubcomp(Acknowledgement)
    /// Client asks for subscriptions (3.8).
    case subscribe(Subscribe)
    /// Answer to SUBSCRIBE (3.9).
    case suback(Suback)
    /// Client ends subscriptions (3.10).
    case unsubscribe(Unsubscribe)
    /// Answer to UNSUBSCRIBE (3.11).
    case unsuback(Unsuback)
    /// Client asks for a sign of life (3.12).
    case pingreq
    /// Server's sign of life (3.13).
    case pingresp
    /// Either side ends the connection and says why (3.14).
    case disconnect(Disconnect)
    /// A step of enhanced authentication (3.15).
    case auth(Auth)
}

extension Packet {
    /// The control packet types with their values in the fixed header (2.1.2).
    public enum Kind: UInt8, Hashable, Sendable, CaseIterable {
        case connect = 1
        case connack = 2
        case publish = 3
        case puback = 4
        case pubrec = 5
        case pubrel = 6
        case pubcomp = 7
        case subscribe = 8
        case suback = 9
        case unsubscribe = 10
        case unsuback = 11
        case pingreq = 12
        case pingresp = 13
        case disconnect = 14
        case auth = 15
    }

    /// The type of this packet.
    public var kind: Kind {
        switch self {
        case .connect: .connect
        case .connack: .connack
        case .publish: .publish
        case .puback: .puback
        case .pubrec: .pubrec
        case .pubrel: .pubrel
        case .pubcomp: .pubcomp
        case .subscribe: .subscribe
        case .suback: .suback
        case .unsubscribe: .unsubscribe
        case .unsuback: .unsuback
        case .pingreq: .pingreq
        case .pingresp: .pingresp
        case .disconnect: .disconnect
        case .auth: .auth
        }
    }
}

extension Packet.Kind: CustomStringConvertible {
    /// The name that the standard uses, such as `PUBLISH`.
    public var description: String {
        switch self {
        case .connect: "CONNECT"
        case .connack: "CONNACK"
        case .publish: "PUBLISH"
        case .puback: "PUBACK"
        case .pubrec: "PUBREC"
        case .pubrel: "PUBREL"
        case .pubcomp: "PUBCOMP"
        case .subscribe: "SUBSCRIBE"
        case .suback: "SUBACK"
        case .unsubscribe: "UNSUBSCRIBE"
        case .unsuback: "UNSUBACK"
        case .pingreq: "PINGREQ"
        case .pingresp: "PINGRESP"
        case .disconnect: "DISCONNECT"
        case .auth: "AUTH"
        }
    }
}

/// Who sent a packet. Some packets and properties belong to one side only.
package enum Sender: Hashable, Sendable {
    case client
    case server
}
