public enum NetworkStatusMethod: ControlMethod {
    public static let name = "network.status"
    public static let summary =
        "Returns the kernel's interfaces, the path to each endpoint, and the last 32 changes of a path"
    public static let role: Role? = .observe
    public typealias Parameters = NoParameters
    public typealias Result = NetworkStatus
}

/// What the kernel says about the network, and what it means for the sessions.
public struct NetworkStatus: Codable, Hashable, Sendable {
    public var interfaces: [Interface]
    /// One per session and endpoint.
    public var paths: [EndpointPath]
    /// The last 32, oldest first.
    public var changes: [Change]
    /// Counters of the network watcher, by name.
    public var counters: [String: Int64]

    public init(
        interfaces: [Interface], paths: [EndpointPath], changes: [Change], counters: [String: Int64]
    ) {
        self.interfaces = interfaces
        self.paths = paths
        self.changes = changes
        self.counters = counters
    }

    /// One network interface.
    public struct Interface: Codable, Hashable, Sendable {
        /// The kernel's name, for example `wlan0`.
        public var name: String
        /// The kernel's number for it, as `ip link` shows it.
        public var index: Int32
        /// `ethernet`, `wifi`, `cellular`, `vpn`, `loopback` or `other`.
        public var type: String
        /// Whether the administrator has set it up.
        public var up: Bool
        /// Whether its link works, for example because a cable is plugged in.
        public var carrier: Bool
        /// With prefix length, for example `192.168.1.20/24`.
        public var addresses: [String]
        /// The default routes through it: `via GATEWAY` or `on link`, `metric NUMBER` and, unless it is the main table,
        /// `table NUMBER`.
        public var defaultRoutes: [String]

        public init(
            name: String, index: Int32, type: String, up: Bool, carrier: Bool, addresses: [String],
            defaultRoutes: [String]
        ) {
            self.name = name
            self.index = index
            self.type = type
            self.up = up
            self.carrier = carrier
            self.addresses = addresses
            self.defaultRoutes = defaultRoutes
        }
    }

    /// The kernel's answer for one endpoint. Without a path, the members after `endpoint` are `null`, except perhaps
    /// `excluded`.
    public struct EndpointPath: Codable, Hashable, Sendable {
        public var session: String
        public var endpoint: String
        @OrNull public var interface: String?
        @OrNull public var type: String?
        @OrNull public var source: String?
        @OrNull public var gateway: String?
        /// Without a path: a path that the kernel has but the session must not use, if there is one.
        @OrNull public var excluded: SessionStatus.Path?

        public init(
            session: String, endpoint: String, path: SessionStatus.Path?, excluded: SessionStatus.Path? = nil
        ) {
            self.session = session
            self.endpoint = endpoint
            self.interface = path?.interface
            self.type = path?.type
            self.source = path?.source
            self.gateway = path?.gateway
            self.excluded = excluded
        }
    }

    /// One change of the path of a session.
    public struct Change: Codable, Hashable, Sendable {
        public var time: Timestamp
        /// For example `moved-source-gone`.
        public var `class`: String
        @OrNull public var session: String?
        @OrNull public var from: SessionStatus.Path?
        @OrNull public var to: SessionStatus.Path?

        public init(
            time: Timestamp, class: String, session: String?, from: SessionStatus.Path?, to: SessionStatus.Path?
        ) {
            self.time = time
            self.class = `class`
            self.session = session
            self.from = from
            self.to = to
        }
    }
}
