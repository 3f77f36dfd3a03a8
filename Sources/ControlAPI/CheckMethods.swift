/// `check.run`: opens a separate connection to each endpoint of a session, step by step, and leaves the session's own
/// connection alone.
///
/// Steps up to TCP need the role `observe`. Further steps need `control`, because they use the session's credential.
/// Only root and the daemon's own user may try a configuration that they supply, because it can name any file and
/// command that the daemon has access to.
public enum CheckRunMethod: ControlMethod {
    public static let name = "check.run"
    public static let summary = "Tries a separate connection to each endpoint of the session, or to the one given"
    public static let role: Role? = .observe

    public struct Parameters: ClosedObject {
        public var session: String
        /// One of the session's endpoints; `nil`: all of them.
        public var endpoint: String?
        /// The last step to try.
        public var until: CheckStep
        /// The text of a session's file, which is tried instead of the session; the session need not exist.
        public var configuration: String?

        public init(
            session: String, endpoint: String? = nil, until: CheckStep = .connect, configuration: String? = nil
        ) {
            self.session = session
            self.endpoint = endpoint
            self.until = until
            self.configuration = configuration
        }

        /// The role that the caller needs for these parameters, besides the method's own.
        public var role: Role { [.dns, .route, .tcp].contains(until) ? .observe : .control }

        public init(from decoder: any Decoder) throws {
            let container = try decoder.container(keyedBy: CodingKeys.self)
            session = try container.decode(String.self, forKey: .session)
            endpoint = try container.decodeIfPresent(String.self, forKey: .endpoint)
            until = try container.decodeIfPresent(CheckStep.self, forKey: .until) ?? .connect
            configuration = try container.decodeIfPresent(String.self, forKey: .configuration)
        }
    }

    public struct Result: Codable, Hashable, Sendable {
        public var session: String
        /// In the order of the session's file.
        public var endpoints: [CheckedEndpoint]

        public init(session: String, endpoints: [CheckedEndpoint]) {
            self.session = session
            self.endpoints = endpoints
        }
    }
}

/// A step on the way to a session. The cases are in the order in which the steps are taken.
public enum CheckStep: String, Codable, Sendable, CaseIterable {
    /// The password is read.
    case credential
    /// The name is looked up.
    case dns
    /// The kernel has a route to an address that the session may use.
    case route
    /// TCP is connected, to the endpoint or its proxy.
    case tcp
    /// The proxy has connected to the endpoint.
    case proxy
    /// TLS is negotiated, and the certificate is valid.
    case tls
    /// The WebSocket is open.
    case webSocket = "websocket"
    /// The server has accepted CONNECT.
    case connect
}

/// The outcome of the steps to one endpoint.
public struct CheckedEndpoint: Codable, Hashable, Sendable {
    /// The endpoint as a URL.
    public var endpoint: String
    /// Whether every step succeeded.
    public var ok: Bool
    /// The steps that were taken. The last one may have failed.
    public var steps: [CheckedStep]

    public init(endpoint: String, steps: [CheckedStep]) {
        self.endpoint = endpoint
        self.ok = steps.allSatisfy(\.ok)
        self.steps = steps
    }
}

/// The outcome of one step.
public struct CheckedStep: Codable, Hashable, Sendable {
    public var step: CheckStep
    public var ok: Bool
    /// How long the step took, in seconds.
    public var duration: Double
    /// What was found, or what went wrong.
    @OrNull public var detail: String?
    /// The reason code that a session would have; `nil` when the step succeeded.
    @OrNull public var code: String?
    /// What to do about it.
    @OrNull public var hint: String?

    public init(
        step: CheckStep, ok: Bool, duration: Double, detail: String? = nil, code: String? = nil, hint: String? = nil
    ) {
        self.step = step
        self.ok = ok
        self.duration = duration
        self.detail = detail
        self.code = code
        self.hint = hint
    }
}
