/// `rpc.hello`: which daemon answers, what it can do, and what this caller may do.
public enum RPCHelloMethod: ControlMethod {
    public static let name = "rpc.hello"
    public static let summary = "Identifies the daemon and the caller"
    public static let role: Role? = nil

    public struct Parameters: ClosedObject {
        /// The caller's name, for example `holdfastctl 0.1.0`, for journal entries about denied calls.
        public var client: String?
        /// The version of the protocol that the caller speaks; any other than the daemon's is refused.
        public var `protocol`: Int?

        public init(client: String? = nil, protocol: Int? = nil) {
            self.client = client
            self.protocol = `protocol`
        }
    }

    public struct Result: Codable, Hashable, Sendable {
        /// The version of the daemon.
        public var version: String
        /// See ``ControlMethods/protocolVersion``.
        public var `protocol`: Int
        /// The names of all methods that this daemon has.
        public var capabilities: [String]
        /// The roles of the caller.
        public var roles: [Role]

        public init(version: String, protocol: Int, capabilities: [String], roles: [Role]) {
            self.version = version
            self.protocol = `protocol`
            self.capabilities = capabilities
            self.roles = roles
        }
    }
}

public enum DaemonStatusMethod: ControlMethod {
    public static let name = "daemon.status"
    public static let summary = "Describes the daemon itself"
    public static let role: Role? = .observe
    public typealias Parameters = NoParameters
    public typealias Result = DaemonStatus
}

/// The state of the daemon itself.
public struct DaemonStatus: Codable, Hashable, Sendable {
    /// The version of the daemon.
    public var version: String
    /// Its process ID.
    public var pid: Int32
    /// When it was started.
    public var since: Timestamp
    public var sessions: SessionCounts
    /// Statistics of the store, by name: bytes, messages, commits and the like.
    public var store: [String: Int64]
    /// Why published messages cannot be stored now, so that they wait or are refused; `nil` while they can be.
    @OrNull public var storeFailure: String?
    /// Counters of the network watcher, by name: messages, overruns and the like.
    public var netlink: [String: Int64]
    /// The paths of files of the configuration that were changed, added or removed since the daemon read it.
    public var changedFiles: [String]
    /// The directory of the configuration; `nil` from a daemon that does not say so.
    @OrNull public var configurationDirectory: String?
    /// While `holdfast.toml` has errors as it is now, so that the daemon would not start again: the first error, and how
    /// many more there are. Otherwise `nil`.
    @OrNull public var configurationError: String?
    /// Sessions that are not configured, of which something stays on disk; `nil` while the disk does not answer.
    @OrNull public var absentSessions: [AbsentSession]?
    /// Why the metrics are not published as `[metrics]` says; `nil` if they are.
    @OrNull public var metricsFailure: String?
    /// The users and groups that `[access]` and `[topics]` name and that did not exist when they were last looked up, as
    /// `user:NAME` or `group:NAME`; `nil` from a daemon that does not say so.
    @OrNull public var missingAccounts: [String]?
    /// What the configuration has that takes effect when the daemon is restarted; `nil` if there is nothing.
    @OrNull public var restartNeeded: String?
    /// The paths of files in `sessions.d` that are not read, since their names are no session's; `nil` from a daemon that
    /// does not say so.
    @OrNull public var ignoredFiles: [String]?

    public init(
        version: String, pid: Int32, since: Timestamp, sessions: SessionCounts, store: [String: Int64],
        storeFailure: String? = nil, netlink: [String: Int64], changedFiles: [String] = [],
        configurationDirectory: String? = nil, configurationError: String? = nil,
        absentSessions: [AbsentSession]? = nil, metricsFailure: String? = nil, missingAccounts: [String]? = nil,
        restartNeeded: String? = nil, ignoredFiles: [String]? = nil
    ) {
        self.ignoredFiles = ignoredFiles
        self.missingAccounts = missingAccounts
        self.restartNeeded = restartNeeded
        self.changedFiles = changedFiles
        self.configurationDirectory = configurationDirectory
        self.configurationError = configurationError
        self.absentSessions = absentSessions
        self.metricsFailure = metricsFailure
        self.storeFailure = storeFailure
        self.version = version
        self.pid = pid
        self.since = since
        self.sessions = sessions
        self.store = store
        self.netlink = netlink
    }

    /// How many sessions are in which state.
    public struct SessionCounts: Codable, Hashable, Sendable {
        /// The sum of the others.
        public var total: Int
        public var connected: Int
        public var connecting: Int
        public var reconnecting: Int
        public var disconnecting: Int
        public var disconnected: Int
        public var failed: Int

        /// Counts the states of all sessions.
        public init(states: some Sequence<SessionState>) {
            let counts = states.reduce(into: [:]) { $0[$1, default: 0] += 1 }
            total = counts.values.reduce(0, +)
            connected = counts[.connected] ?? 0
            connecting = counts[.connecting] ?? 0
            reconnecting = counts[.reconnecting] ?? 0
            disconnecting = counts[.disconnecting] ?? 0
            disconnected = counts[.disconnected] ?? 0
            failed = counts[.failed] ?? 0
        }
    }
}

/// A session that is not configured, and what stays on disk of it until a session of that name is configured.
public struct AbsentSession: Codable, Hashable, Sendable {
    public var session: String
    /// How many messages were accepted and not delivered.
    public var messages: Int
    /// What they count towards `max-bytes` together.
    public var bytes: Int64
    /// When the oldest of them was accepted.
    @OrNull public var oldest: Timestamp?
    /// How many durable consumers there are.
    public var consumers: Int
    /// How many received messages these have not taken.
    public var received: Int
    /// How many publications there are.
    public var publications: Int

    public init(
        session: String, messages: Int, bytes: Int64, oldest: Timestamp?, consumers: Int = 0, received: Int = 0,
        publications: Int = 0
    ) {
        self.session = session
        self.messages = messages
        self.bytes = bytes
        self.oldest = oldest
        self.consumers = consumers
        self.received = received
        self.publications = publications
    }

    /// What there is, for example "3 received messages and 1 durable consumer".
    public var list: String {
        func count(_ number: Int, _ noun: String) -> String? {
            number == 0 ? nil : "\(number) \(noun)\(number == 1 ? "" : "s")"
        }
        let parts = [
            count(messages, "accepted message"), count(received, "received message"),
            count(consumers, "durable consumer"), count(publications, "publication"),
        ].compactMap(\.self)
        return parts.count < 2
            ? parts.joined() : "\(parts.dropLast().joined(separator: ", ")) and \(parts.last ?? "")"
    }

    /// What stays, and what uses it again at one of its servers, without the final full stop.
    public var sentence: String {
        let isOne = messages + received + consumers + publications == 1
        let object = isOne ? "it" : "them"
        let remedy = messages > 0 && received + consumers + publications == 0 ? "sends \(object)" : "takes \(object) up"
        let way =
            session.contains("@")
            ? "holdfastctl instance add \(session) \(remedy) if the template has one of the same servers"
            : "a file named \(session).toml with one of the same servers \(remedy)"
        return "\(session): \(list) \(isOne ? "stays" : "stay") on disk; \(way)"
    }
}

/// `daemon.reload`: reads the configuration again. The answer comes when it is in effect. A session whose file is
/// broken keeps the configuration that it had; one that had none is listed as failed (bad-configuration) until its file
/// is fixed.
public enum DaemonReloadMethod: ControlMethod {
    public static let name = "daemon.reload"
    public static let summary = "Reads the configuration again, and answers when it is in effect"
    public static let role: Role? = .control

    public struct Parameters: ClosedObject {
        /// Whether to report what would change without changing anything.
        public var dryRun: Bool?

        public init(dryRun: Bool? = nil) {
            self.dryRun = dryRun
        }
    }

    public struct Result: Codable, Hashable, Sendable {
        /// Sessions whose configuration changed.
        public var changed: [String]
        /// Sessions that are new.
        public var added: [String]
        /// Sessions whose files are gone.
        public var removed: [String]
        /// Sessions that keep their previous configuration, because their files have errors.
        public var kept: [String]
        /// All errors in all files.
        public var errors: [ConfigurationProblem]
        /// The keys whose effective values changed.
        public var changes: [ConfigurationChange]
        /// What servers may keep of sessions that were removed, or whose endpoints are all others now, because the
        /// sessions were not connected when they ended. A dry run does not tell.
        public var leftBehind: [LeftBehind]
        /// Sessions among `removed` of which something stays on disk.
        public var absentSessions: [AbsentSession]

        public struct LeftBehind: Codable, Hashable, Sendable {
            public var session: String
            /// What the server may keep, and for how long.
            public var message: String

            public init(session: String, message: String) {
                self.session = session
                self.message = message
            }
        }

        public init(
            changed: [String] = [], added: [String] = [], removed: [String] = [], kept: [String] = [],
            errors: [ConfigurationProblem] = [], changes: [ConfigurationChange] = [], leftBehind: [LeftBehind] = [],
            absentSessions: [AbsentSession] = []
        ) {
            self.absentSessions = absentSessions
            self.changed = changed
            self.added = added
            self.removed = removed
            self.kept = kept
            self.errors = errors
            self.changes = changes
            self.leftBehind = leftBehind
        }
    }
}

/// A key whose value changed.
public struct ConfigurationChange: Codable, Hashable, Sendable {
    /// `nil` for a key of holdfast.toml.
    @OrNull public var session: String?
    /// The key with its table's name, for example `reconnect.spread`.
    public var key: String
    /// The old value as TOML; a value that may be secret is omitted.
    public var from: String
    /// The new value, in the same form.
    public var to: String
    /// The option of holdfastd that has precedence over the key, so that the new value is not in effect; `nil` if there is
    /// none.
    @OrNull public var overriddenBy: String?

    public init(session: String?, key: String, from: String, to: String, overriddenBy: String? = nil) {
        self.overriddenBy = overriddenBy
        self.session = session
        self.key = key
        self.from = from
        self.to = to
    }
}

/// One error in a configuration file.
public struct ConfigurationProblem: Codable, Hashable, Sendable {
    /// `nil` when the file belongs to no session.
    @OrNull public var session: String?
    /// The path of the file.
    public var file: String
    /// From 1; `nil` when the error concerns the whole file.
    @OrNull public var line: Int?
    /// From 1, in Unicode scalars; `nil` when the error concerns the whole file.
    @OrNull public var column: Int?
    /// What is wrong, and what was expected.
    public var message: String

    public init(session: String?, file: String, line: Int?, column: Int?, message: String) {
        self.session = session
        self.file = file
        self.line = line
        self.column = column
        self.message = message
    }
}

/// `daemon.metrics`: counters and gauges of the daemon and all sessions.
public enum DaemonMetricsMethod: ControlMethod {
    public static let name = "daemon.metrics"
    public static let summary = "Returns counters and gauges of the daemon and of all sessions"
    public static let role: Role? = .observe
    public typealias Parameters = NoParameters

    public struct Result: Codable, Hashable, Sendable {
        /// The media type of `text`.
        public var contentType: String
        /// In the text format of OpenMetrics 1.0.
        public var text: String

        public init(contentType: String, text: String) {
            self.contentType = contentType
            self.text = text
        }
    }
}

/// `daemon.logLevel`: how much the daemon writes to the journal, until it is restarted, or reads another level in its
/// configuration than before.
public enum DaemonLogLevelMethod: ControlMethod {
    public static let name = "daemon.logLevel"
    public static let summary = "Returns the log level of the daemon, or changes it"
    public static let role: Role? = .control

    public struct Parameters: ClosedObject {
        /// trace, debug, info, notice, warning, error or critical; `nil` changes nothing.
        public var level: String?

        public init(level: String? = nil) {
            self.level = level
        }
    }

    public struct Result: Codable, Hashable, Sendable {
        /// The level that is in effect now.
        public var level: String

        public init(level: String) {
            self.level = level
        }
    }
}
