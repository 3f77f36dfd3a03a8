// What the files under /etc/holdfast say, as values: holdfast.toml is a DaemonConfiguration, sessions.d/NAME.toml a
// SessionConfiguration. The initial values of the properties are the defaults of the manual. How the files are read is
// a table, one row per key, in ConfigurationKeys.swift.

import Session
import SessionCore
import Transport
import Vocabulary

/// `holdfast.toml`.
struct DaemonConfiguration: Hashable, Sendable {
    var durability = Durability.normal
    var access = AccessConfiguration()
    var logLevel = LogLevel.info
    var metrics = MetricsConfiguration()
}

/// What a commit survives: a crash of the daemon, or power loss as well.
enum Durability: String, CaseIterable, Sendable {
    case normal, full
}

enum LogLevel: String, CaseIterable, Sendable {
    case trace, debug, info, notice, warning, error, critical
}

/// Who may do what on the control socket; root and the daemon's own user may always do everything.
struct AccessConfiguration: Hashable, Sendable {
    var observe = [Principal.group("holdfast")]
    var message = [Principal.group("holdfast")]
    var control = [Principal.group("holdfast-admin")]
}

/// Some of the host's users.
enum Principal: Hashable, Sendable {
    case user(String)
    case uid(UInt32)
    case group(String)
    case anyone
}

struct MetricsConfiguration: Hashable, Sendable {
    var listen = ""
    var textfile = ""
}

/// `sessions.d/NAME.toml`, with the preset applied and everything derived that does not need the host.
struct SessionConfiguration: Hashable, Sendable {
    /// In the order in which they are tried; never empty.
    var endpoints: [Endpoint] = []
    var user = ""
    /// Empty: to be derived from the machine id.
    var device = ""
    var clientID = ""
    /// `nil` when there is no password and no name was given.
    var username: String?
    var password: SecretReference?
    /// Whether a password may be sent unencrypted to another host.
    var insecure = false

    var preset = Preset.default
    var autoconnect = true
    var onDemand = false
    /// Of a session that is up on demand.
    var idleTimeout = Duration.seconds(120)
    var onSuspend = SuspendBehaviour.disconnect
    /// Of a template only: a session each. Empty in the sessions that come of it.
    var instances: [String] = []
    var room = ""
    var roomPrefix = "holdfast/rooms"

    var reconnect = ReconnectPolicy()
    var kick = KickStrategy.takeOver
    var heartbeat = HeartbeatPolicy()
    var presenceTimeout = Duration.seconds(90)
    var timeouts = AttemptTimeouts()

    var network = NetworkPolicy()
    var mqtt = MQTTConfiguration()
    var tls = TLSConfiguration()
    var proxy = ProxyConfiguration()
    var outbox = OutboxConfiguration()
    var inbox = InboxConfiguration()
}

/// Where a secret is to be found; the secret itself is never in a configuration.
enum SecretReference: Hashable, Sendable {
    /// The absolute path of a file.
    case file(String)
    /// The name of a systemd credential.
    case credential(String)
    /// A command and its arguments, run without a shell.
    case exec([String])
}

struct MQTTConfiguration: Hashable, Sendable {
    var version = MQTTVersion.five
    /// How long the server keeps the session of a client that is away; `nil` is for ever. Sent in whole seconds.
    var sessionExpiry: Duration? = .seconds(24 * 3600)
    var receiveMaximum = 100
    /// In bytes.
    var maximumPacketSize = 1 << 20
    var authentication = MQTTAuthentication.password
    /// The servers that a redirection may lead to.
    var redirects: [HostPattern] = []
}

enum MQTTVersion: String, CaseIterable, Sendable {
    case five = "5"
    case threeOneOne = "3.1.1"
    case automatic = "auto"
}

/// Absolute paths of PEM files; `nil` where there is none.
struct TLSConfiguration: Hashable, Sendable {
    /// `nil`: the system's trust store.
    var authorities: String?
    var certificate: String?
    var key: String?
    /// The name that the server's certificate must have; `nil`: the endpoint's host.
    var serverName: String?
    var minimum = TLSVersion.oneTwo
}

enum TLSVersion: String, CaseIterable, Sendable {
    case oneTwo = "1.2"
    case oneThree = "1.3"
}

struct ProxyConfiguration: Hashable, Sendable {
    /// `nil`: the endpoints are connected to directly.
    var address: ProxyAddress?
    /// Both or none.
    var username: String?
    var password: SecretReference?
}

struct OutboxConfiguration: Hashable, Sendable {
    var maxMessages = 100_000
    var maxBytes = 256 << 20
    /// `nil`: messages do not grow too old.
    var maxAge: Duration?
    var whenFull = OverflowBehaviour.refuse
}

/// What waits for each durable consumer.
struct InboxConfiguration: Hashable, Sendable {
    var maxMessages = 1_000_000
    var maxBytes = 1 << 30
    /// `nil`: messages do not grow too old.
    var maxAge: Duration?
    var whenFull = InboxOverflow.dropOldest
}

enum InboxOverflow: String, CaseIterable, Sendable {
    case dropOldest = "drop-oldest"
    case withhold
}

enum OverflowBehaviour: String, CaseIterable, Sendable {
    case refuse
    case dropOldest = "drop-oldest"
    case dropNew = "drop-new"
}

extension SessionConfiguration {
    /// The hosts that are resolved and dialed to reach the endpoints: with a proxy, only that one's path counts.
    var hosts: [String] { endpoints.map { proxy.address?.host ?? $0.host } }

    /// When the others in a room learn that this session is gone.
    var presence: PresenceTiming { PresenceTiming(timeout: presenceTimeout, heartbeat: heartbeat.interval) }
}
