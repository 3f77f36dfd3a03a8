/// A reason code of MQTT 5 (2.4). Values below 0x80 mean success.
///
/// The decoder takes every value, even those that the standard does not list: a server of a later revision must not
/// make a connection fail because of a code in its answer.
public struct ReasonCode: RawRepresentable, Hashable, Sendable {
    public let rawValue: UInt8

    public init(rawValue: UInt8) {
        self.rawValue = rawValue
    }

    /// Whether the operation, or the connection, failed.
    public var isError: Bool { rawValue >= 0x80 }
}

extension ReasonCode {
    public static let success = ReasonCode(rawValue: 0x00)
    /// 0x00 by the name that it has in DISCONNECT.
    public static let normalDisconnection = ReasonCode(rawValue: 0x00)
    public static let grantedQoS1 = ReasonCode(rawValue: 0x01)
    public static let grantedQoS2 = ReasonCode(rawValue: 0x02)
    public static let disconnectWithWill = ReasonCode(rawValue: 0x04)
    public static let noMatchingSubscribers = ReasonCode(rawValue: 0x10)
    public static let noSubscriptionExisted = ReasonCode(rawValue: 0x11)
    public static let continueAuthentication = ReasonCode(rawValue: 0x18)
    public static let reauthenticate = ReasonCode(rawValue: 0x19)
    public static let unspecifiedError = ReasonCode(rawValue: 0x80)
    public static let malformedPacket = ReasonCode(rawValue: 0x81)
    public static let protocolError = ReasonCode(rawValue: 0x82)
    public static let implementationSpecificError = ReasonCode(rawValue: 0x83)
    public static let unsupportedProtocolVersion = ReasonCode(rawValue: 0x84)
    public static let clientIdentifierNotValid = ReasonCode(rawValue: 0x85)
    public static let badUserNameOrPassword = ReasonCode(rawValue: 0x86)
    public static let notAuthorized = ReasonCode(rawValue: 0x87)
    public static let serverUnavailable = ReasonCode(rawValue: 0x88)
    public static let serverBusy = ReasonCode(rawValue: 0x89)
    public static let banned = ReasonCode(rawValue: 0x8A)
    public static let serverShuttingDown = ReasonCode(rawValue: 0x8B)
    public static let badAuthenticationMethod = ReasonCode(rawValue: 0x8C)
    public static let keepAliveTimeout = ReasonCode(rawValue: 0x8D)
    public static let sessionTakenOver = ReasonCode(rawValue: 0x8E)
    public static let topicFilterInvalid = ReasonCode(rawValue: 0x8F)
    public static let topicNameInvalid = ReasonCode(rawValue: 0x90)
    public static let packetIdentifierInUse = ReasonCode(rawValue: 0x91)
    public static let packetIdentifierNotFound = ReasonCode(rawValue: 0x92)
    public static let receiveMaximumExceeded = ReasonCode(rawValue: 0x93)
    public static let topicAliasInvalid = ReasonCode(rawValue: 0x94)
    public static let packetTooLarge = ReasonCode(rawValue: 0x95)
    public static let messageRateTooHigh = ReasonCode(rawValue: 0x96)
    public static let quotaExceeded = ReasonCode(rawValue: 0x97)
    public static let administrativeAction = ReasonCode(rawValue: 0x98)
    public static let payloadFormatInvalid = ReasonCode(rawValue: 0x99)
    public static let retainNotSupported = ReasonCode(rawValue: 0x9A)
    public static let qosNotSupported = ReasonCode(rawValue: 0x9B)
    public static let useAnotherServer = ReasonCode(rawValue: 0x9C)
    public static let serverMoved = ReasonCode(rawValue: 0x9D)
    public static let sharedSubscriptionsNotSupported = ReasonCode(rawValue: 0x9E)
    public static let connectionRateExceeded = ReasonCode(rawValue: 0x9F)
    public static let maximumConnectTime = ReasonCode(rawValue: 0xA0)
    public static let subscriptionIdentifiersNotSupported = ReasonCode(rawValue: 0xA1)
    public static let wildcardSubscriptionsNotSupported = ReasonCode(rawValue: 0xA2)
}

extension ReasonCode: CustomStringConvertible {
    /// The standard's name as a phrase, such as `session taken over`; for codes that it does not list, `reason code`
    /// and the number.
    public var name: String {
        switch self {
        case .success: "success"
        case .grantedQoS1: "granted QoS 1"
        case .grantedQoS2: "granted QoS 2"
        case .disconnectWithWill: "disconnect with will message"
        case .noMatchingSubscribers: "no matching subscribers"
        case .noSubscriptionExisted: "no subscription existed"
        case .continueAuthentication: "continue authentication"
        case .reauthenticate: "re-authenticate"
        case .unspecifiedError: "unspecified error"
        case .malformedPacket: "malformed packet"
        case .protocolError: "protocol error"
        case .implementationSpecificError: "implementation specific error"
        case .unsupportedProtocolVersion: "unsupported protocol version"
        case .clientIdentifierNotValid: "client identifier not valid"
        case .badUserNameOrPassword: "bad user name or password"
        case .notAuthorized: "not authorized"
        case .serverUnavailable: "server unavailable"
        case .serverBusy: "server busy"
        case .banned: "banned"
        case .serverShuttingDown: "server shutting down"
        case .badAuthenticationMethod: "bad authentication method"
        case .keepAliveTimeout: "keep alive timeout"
        case .sessionTakenOver: "session taken over"
        case .topicFilterInvalid: "topic filter invalid"
        case .topicNameInvalid: "topic name invalid"
        case .packetIdentifierInUse: "packet identifier in use"
        case .packetIdentifierNotFound: "packet identifier not found"
        case .receiveMaximumExceeded: "receive maximum exceeded"
        case .topicAliasInvalid: "topic alias invalid"
        case .packetTooLarge: "packet too large"
        case .messageRateTooHigh: "message rate too high"
        case .quotaExceeded: "quota exceeded"
        case .administrativeAction: "administrative action"
        case .payloadFormatInvalid: "payload format invalid"
        case .retainNotSupported: "retain not supported"
        case .qosNotSupported: "QoS not supported"
        case .useAnotherServer: "use another server"
        case .serverMoved: "server moved"
        case .sharedSubscriptionsNotSupported: "shared subscriptions not supported"
        case .connectionRateExceeded: "connection rate exceeded"
        case .maximumConnectTime: "maximum connect time"
        case .subscriptionIdentifiersNotSupported: "subscription identifiers not supported"
        case .wildcardSubscriptionsNotSupported: "wildcard subscriptions not supported"
        default: number
        }
    }

    /// Name and number, such as `session taken over (0x8E)`.
    public var description: String { "\(name) (\(hexadecimal))" }

    /// The number alone, such as `reason code 0x8E`: a code below 0x80 has a name that depends on the packet.
    public var number: String { "reason code \(hexadecimal)" }

    private var hexadecimal: String {
        let digits = String(rawValue, radix: 16, uppercase: true)
        return rawValue < 0x10 ? "0x0\(digits)" : "0x\(digits)"
    }
}
