/// What a caller may do. Roles are given in `[access]`; a caller that may control may also observe and message.
public enum Role: String, Sendable, Codable, CaseIterable {
    /// See states, watch, list.
    case observe
    /// Publish and subscribe.
    case message
    /// Connect, disconnect, reconnect, reload, and see which programs are connected.
    case control
}

/// An object in a request that may have only the members that its type reads; any other is refused.
public protocol ClosedObject: Codable, Hashable, Sendable {}

extension ClosedObject {
    /// The names of all members, in the order in which they are read.
    static var members: [String] { ControlMethods.members[ObjectIdentifier(self)] ?? JSONSchema.members(of: self) }
}

/// One method of the control socket: its name, who may call it, what it takes and what it answers.
public protocol ControlMethod: Sendable {
    /// The `params` of the request: always an object, which may be omitted when it is empty.
    associatedtype Parameters: ClosedObject
    /// The `result` of the answer: always an object. Readers ignore members that they do not know.
    associatedtype Result: Codable & Hashable & Sendable
    static var name: String { get }
    /// What it does, in one sentence without the final full stop: the beginning of its entry in holdfast-rpc(7).
    static var summary: String { get }
    /// The role that the caller needs; `nil` when anyone who may connect to the socket may call it.
    static var role: Role? { get }
}

/// One notification that the daemon sends.
public protocol ControlNotification: Codable, Hashable, Sendable {
    static var name: String { get }
}

/// The catalogue of methods.
public enum ControlMethods {
    /// The version of this protocol. It changes only when an old client would misunderstand the daemon.
    public static let protocolVersion = 1

    public static let all: [any ControlMethod.Type] = [
        RPCHelloMethod.self, RPCDiscoverMethod.self,
        DaemonStatusMethod.self, DaemonClientsMethod.self, DaemonReloadMethod.self, DaemonMetricsMethod.self,
        DaemonLogLevelMethod.self,
        SessionListMethod.self, SessionStatusMethod.self, SessionConnectMethod.self, SessionDisconnectMethod.self,
        SessionReconnectMethod.self, SessionWatchMethod.self, SessionUnwatchMethod.self, SessionHistoryMethod.self,
        SessionSwitchRoomMethod.self, SessionRenewTokenMethod.self, SessionSimulateMethod.self,
        RoomParticipantsMethod.self,
        MessagePublishMethod.self, MessageSubscribeMethod.self, MessageUnsubscribeMethod.self, MessageAckMethod.self,
        MessageQueueListMethod.self, MessageQueueRetryMethod.self, MessageQueueDropMethod.self,
        PublicationListMethod.self, PublicationPutMethod.self, PublicationRemoveMethod.self,
        NetworkStatusMethod.self, CheckRunMethod.self,
    ]

    /// The names of all methods.
    public static var names: [String] { all.map { $0.name } }

    /// The members of every object that requests may have. They are noted once, because each request is checked.
    fileprivate static let members: [ObjectIdentifier: [String]] = {
        let parts: [any ClosedObject.Type] = [MessageProperties.self, UserProperty.self]
        let objects = all.map { $0.parameters } + parts
        return Dictionary(
            objects.map { (ObjectIdentifier($0), JSONSchema.members(of: $0)) }, uniquingKeysWith: { first, _ in first })
    }()
}

extension ControlMethod {
    fileprivate static var parameters: any ClosedObject.Type { Parameters.self }
}

/// The parameters of a method that takes none.
public struct NoParameters: ClosedObject {
    public init() {}
}
