/// Why a state was entered: a stable code, a sentence for people, and the server's own code if it gave one.
public struct Reason: Hashable, Sendable {
    public var code: Reason.Code
    /// What happened, in one sentence without the final full stop; plain text of at most 500 characters, no matter
    /// who wrote parts of it.
    public var message: String {
        didSet { message = message.plain() }
    }
    /// The reason code of the wire protocol, if the server gave one.
    public var serverCode: UInt8?
    /// The kernel's number of the error, as in errno(3), if the kernel refused something.
    public var systemError: Int32?
    /// What else is known about it. It is not kept on disk.
    public var detail: FailureDetail?
    /// The last failure before the session gave up; `nil` if there was none, or it is for another reason. It is not kept on
    /// disk.
    public var lastFailure: Failure?

    /// A failure after which the session went on.
    public struct Failure: Hashable, Sendable {
        public var code: Reason.Code
        public var message: String

        public init(_ reason: Reason) { (code, message) = (reason.code, reason.message) }
    }

    /// - Parameter message: what happened; `nil`: the code's own sentence.
    public init(
        _ code: Reason.Code, _ message: String? = nil, serverCode: UInt8? = nil, systemError: Int32? = nil,
        detail: FailureDetail? = nil
    ) {
        self.code = code
        self.message = (message ?? code.sentence).plain()
        self.serverCode = serverCode
        self.systemError = systemError
        self.detail = detail
    }

    /// Whether the session stays down until a person, a new configuration or a new credential changes something.
    public var isTerminal: Bool { code.isTerminal }

    /// Returns the reason to fail because the server has objected to the same thing for the second time.
    package static func incompatible(_ last: Reason) -> Reason {
        Reason(.incompatible, "\(last.message), and again when it was tried once more", serverCode: last.serverCode)
    }
}

/// The groups of codes, for people and programs that need less than the code. Whether a reason is terminal follows from the
/// group, with two exceptions.
public enum ReasonGroup: String, Sendable, CaseIterable {
    case local, network, liveness, auth, session, server, displaced, removed, config, unknown
}

extension Reason {
    /// The stable codes. Names never change meaning; new ones may be added.
    public enum Code: String, Sendable, CaseIterable {
        // local
        case autoconnect
        case notStarted = "not-started"
        case userConnect = "user-connect"
        case userDisconnect = "user-disconnect"
        case goodbyeUnheard = "goodbye-unheard"
        case userReconnect = "user-reconnect"
        case configurationChanged = "configuration-changed"
        case credentialRenewed = "credential-renewed"
        case credentialChanged = "credential-changed"
        case shutdown
        case switchRoom = "switch-room"
        case demand
        case idle
        case suspend
        case wake
        case returning
        case inboxRoom = "inbox-room"
        case otherVersion = "other-version"
        case storeReplaced = "store-replaced"
        case storeUnavailable = "store-unavailable"
        case clockSet = "clock-set"
        // network
        case noPath = "no-path"
        case pathGained = "path-gained"
        case pathMoved = "path-moved"
        case pathReturned = "path-returned"
        case pathLost = "path-lost"
        case networkNotAllowed = "network-not-allowed"
        case answered
        case dnsFailed = "dns-failed"
        case unreachable
        case refused
        case reset
        case dialTimeout = "dial-timeout"
        case tlsTimeout = "tls-timeout"
        case tlsFailed = "tls-failed"
        case proxyFailed = "proxy-failed"
        case retryTimeout = "retry-timeout"
        // liveness
        case heartbeatTimeout = "heartbeat-timeout"
        case probeTimeout = "probe-timeout"
        case unacknowledged
        case unanswered
        // auth
        case credentialRejected = "credential-rejected"
        case credentialExpired = "credential-expired"
        case credentialUnreadable = "credential-unreadable"
        case notAuthorized = "not-authorized"
        // session
        case sessionLost = "session-lost"
        case stateMismatch = "state-mismatch"
        // server
        case serverClosed = "server-closed"
        case displacedSuspected = "displaced-suspected"
        case serverShutdown = "server-shutdown"
        case serverBusy = "server-busy"
        case rateLimited = "rate-limited"
        case serverMoved = "moved"
        case serverError = "server-error"
        case serverKeepAliveTimeout = "server-keep-alive-timeout"
        case authenticateTimeout = "authenticate-timeout"
        case restoreTimeout = "restore-timeout"
        case protocolError = "protocol-error"
        case wrongProtocol = "wrong-protocol"
        case webSocketFailed = "websocket-failed"
        // displaced
        case displaced
        case yielded
        // removed
        case banned
        case removedByAdministrator = "removed-by-administrator"
        // config
        case badConfiguration = "bad-configuration"
        case badEndpoint = "bad-endpoint"
        case clientIdentifierRejected = "client-identifier-rejected"
        case unsupportedVersion = "unsupported-version"
        case certificateInvalid = "certificate-invalid"
        case serverUnauthenticated = "server-unauthenticated"
        case authenticationMethodRejected = "authentication-method-rejected"
        case redirectRefused = "redirect-refused"
        case incompatible
        // unknown
        case unknown
    }
}

extension Reason.Code {
    /// The group that the code belongs to.
    public var group: ReasonGroup { entry.group }

    /// The default message of a reason with this code.
    public var sentence: String { entry.sentence }

    /// Whether the session stays down until a person, a new configuration or a new credential changes something.
    ///
    /// `credential-unreadable` is not terminal: a secret that is being replaced will be there at the next attempt.
    public var isTerminal: Bool {
        switch group {
        case .displaced, .removed, .config: true
        case .auth: self != .credentialUnreadable
        default: self == .retryTimeout
        }
    }

    private var entry: (group: ReasonGroup, sentence: String) {
        switch self {
        case .autoconnect: (.local, "the session connects automatically")
        case .notStarted:
            (
                .local,
                "the session does not connect on its own (autoconnect = false), and no connect was requested since the host "
                    + "started"
            )
        case .userConnect: (.local, "a connect was requested")
        case .userDisconnect: (.local, "a disconnect was requested")
        case .goodbyeUnheard: (.local, "a disconnect was requested, but the server cannot have received it")
        case .userReconnect: (.local, "a reconnect was requested")
        case .configurationChanged: (.local, "the session's configuration changed")
        case .credentialRenewed: (.local, "the credential was renewed")
        case .credentialChanged: (.local, "the file with the rejected credential, or with the authorities, has changed")
        case .shutdown: (.local, "the daemon is stopping")
        case .switchRoom: (.local, "the session connected again to change its room")
        case .demand: (.local, "a local program uses the session")
        case .idle: (.local, "no local program uses the session")
        case .suspend: (.local, "the host is about to sleep")
        case .wake: (.local, "the host woke up")
        case .returning: (.local, "the first endpoint answers again, and the session returns to it")
        case .storeReplaced:
            (.local, "the durable state was damaged, and the session continues with what could be recovered")
        case .storeUnavailable: (.local, "what must be stored before the session can connect was not stored in time")
        case .clockSet: (.local, "the host's clock was set")
        case .inboxRoom: (.local, "the inbox has room again, and the server resends the messages that did not fit")
        case .otherVersion: (.local, "a message cannot be sent with MQTT 3.1.1, and MQTT 5 is tried once more")
        case .noPath: (.network, "no network: the kernel has no route to any endpoint")
        case .pathGained: (.network, "the kernel has a route to the endpoint again")
        case .pathMoved: (.network, "the route to the endpoint moved to another interface, address or gateway")
        case .pathReturned: (.network, "the route to the endpoint came back unchanged")
        case .pathLost: (.network, "the route to the endpoint is gone, or its interface has no carrier")
        case .networkNotAllowed:
            (.network, "there is a route to the endpoint, but not through a network that the session may use")
        case .answered: (.network, "the endpoint answers again")
        case .dnsFailed: (.network, "the endpoint's name could not be resolved")
        case .unreachable: (.network, "the endpoint cannot be reached")
        case .refused: (.network, "the endpoint refused the TCP connection")
        case .reset: (.network, "the connection was reset")
        case .dialTimeout: (.network, "the endpoint did not answer the TCP connection in time")
        case .tlsTimeout: (.network, "the TLS handshake was not finished in time")
        case .tlsFailed: (.network, "the TLS handshake failed")
        case .proxyFailed: (.network, "the proxy does not connect to the endpoint")
        case .retryTimeout: (.network, "the session could not be connected within give-up-after")
        case .heartbeatTimeout: (.liveness, "nothing was heard from the server within the heartbeat timeout")
        case .probeTimeout: (.liveness, "the server did not answer a probe after the network changed")
        case .unacknowledged: (.liveness, "sent data is no longer acknowledged, despite retransmissions")
        case .unanswered: (.liveness, "the server responds, but leaves a message or a subscription unanswered")
        case .credentialRejected: (.auth, "the server rejected the user name or password")
        case .credentialExpired: (.auth, "the credential has expired")
        case .credentialUnreadable: (.auth, "the credential could not be read")
        case .notAuthorized: (.auth, "the server does not let this user connect")
        case .sessionLost: (.session, "the server no longer has the session")
        case .stateMismatch: (.session, "server and client disagree about the session's state")
        case .serverClosed: (.server, "the server closed the connection without saying why")
        case .displacedSuspected:
            (
                .server,
                "the server repeatedly closes the connection soon after connecting, without saying why: another "
                    + "device may have the same client-id"
            )
        case .serverShutdown: (.server, "the server is shutting down")
        case .serverBusy: (.server, "the server is busy")
        case .rateLimited: (.server, "the server limits the rate of connections or messages")
        case .serverMoved: (.server, "the server says that the session has moved elsewhere")
        case .serverError: (.server, "the server reported an error")
        case .serverKeepAliveTimeout: (.server, "the server heard nothing from us within the keep-alive interval")
        case .authenticateTimeout: (.server, "the server did not answer CONNECT in time")
        case .restoreTimeout: (.server, "the server did not acknowledge the subscriptions in time")
        case .protocolError: (.server, "the server broke the protocol")
        case .wrongProtocol: (.server, "the endpoint is not an MQTT server")
        case .webSocketFailed: (.server, "the endpoint does not speak MQTT over WebSocket")
        case .displaced: (.displaced, "another device took over this session's identity")
        case .yielded: (.displaced, "another device of this user is online, and this session yields")
        case .banned: (.removed, "the server has banned this client")
        case .removedByAdministrator: (.removed, "an administrator removed this session at the server")
        case .badConfiguration: (.config, "the session's configuration file has errors")
        case .badEndpoint: (.config, "the endpoint cannot be used")
        case .clientIdentifierRejected: (.config, "the server does not accept the client identifier")
        case .unsupportedVersion: (.config, "the server does not speak this version of the protocol")
        case .certificateInvalid: (.config, "the server's certificate is not valid for this endpoint")
        case .serverUnauthenticated: (.config, "the server could not prove that it knows the password")
        case .authenticationMethodRejected: (.config, "the server does not accept this authentication method")
        case .redirectRefused: (.config, "the server sends the session to another server, which is not allowed")
        case .incompatible: (.config, "the server does not accept what this client sends")
        case .unknown: (.unknown, "an unknown error")
        }
    }
}
