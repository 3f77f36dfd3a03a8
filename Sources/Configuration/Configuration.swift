// The contents of the files under /etc/holdfast as values: holdfast.toml is a DaemonConfiguration, sessions.d/NAME.toml
// a SessionConfiguration. The initial values of the properties are the defaults of the manual. How the files are read
// is a table, one row per key, in ConfigurationKeys.swift.

package import MQTT
package import Session
package import SessionCore
package import Vocabulary

/// `holdfast.toml`.
package struct DaemonConfiguration: Hashable, Sendable {
    package var durability = Durability.normal
    package var access = AccessConfiguration()
    package var logLevel = LogLevel.info
    package var metrics = MetricsConfiguration()

    package init() {}
}

package enum LogLevel: String, CaseIterable, Sendable {
    case trace, debug, info, notice, warning, error, critical
}

/// Who may do what on the control socket; root and the daemon's own user may always do everything.
package struct AccessConfiguration: Hashable, Sendable {
    package var observe = [Principal.group("holdfast")]
    package var message = [Principal.group("holdfast")]
    package var control = [Principal.group("holdfast-admin")]

    package init() {}
}

/// Some of the host's users.
package enum Principal: Hashable, Sendable {
    case user(String)
    case uid(UInt32)
    case group(String)
    case anyone
}

package struct MetricsConfiguration: Hashable, Sendable {
    package var listen = ""
    package var textfile = ""

    package init() {}
}

/// `sessions.d/NAME.toml`, with the preset applied and everything derived that does not need the host.
package struct SessionConfiguration: Hashable, Sendable {
    /// In the order in which they are tried; never empty.
    package var endpoints: [Endpoint] = []
    package var user = ""
    /// Empty: derived from the machine id.
    package var device = ""
    package var clientID = ""
    /// `nil` when neither a password nor a name was given.
    package var username: String?
    package var password: SecretReference?
    /// Whether a password may be sent unencrypted to another host.
    package var insecure = false

    package var preset = Preset.default
    package var autoconnect = true
    package var onDemand = false
    /// Applies only with `onDemand`.
    package var idleTimeout = Duration.seconds(120)
    package var onSuspend = SuspendBehaviour.disconnect
    /// Only in a template: its instances, each of which is a session. Empty in those sessions.
    package var instances: [String] = []
    package var room = ""
    package var roomPrefix = "holdfast/rooms"

    package var reconnect = ReconnectPolicy()
    package var kick = KickStrategy.takeOver
    package var heartbeat = HeartbeatPolicy()
    package var presenceTimeout = Duration.seconds(90)
    package var timeouts = AttemptTimeouts()

    package var network = NetworkPolicy()
    package var mqtt = MQTTConfiguration()
    package var tls = TLSOptions()
    package var proxy = ProxyConfiguration()
    package var outbox = OutboxConfiguration()
    package var inbox = InboxConfiguration()
    package var topics = TopicConfiguration()

    package init() {}
}

/// A reference to a secret; a configuration never contains the secret itself.
package enum SecretReference: Hashable, Sendable {
    /// The absolute path of a file.
    case file(String)
    /// The name of a systemd credential.
    case credential(String)
    /// A command and its arguments, run without a shell.
    case exec([String])
}

package struct MQTTConfiguration: Hashable, Sendable {
    package var version = MQTTVersion.five
    /// How long the server keeps the session of a client that is away; `nil` means forever. Sent in whole seconds.
    package var sessionExpiry: Duration? = .seconds(24 * 3600)
    package var receiveMaximum = 100
    /// In bytes.
    package var maximumPacketSize = 1 << 20
    package var authentication = MQTTAuthentication.password
    /// The servers that a redirection may lead to.
    package var redirects: [HostPattern] = []
}

/// How the session authenticates itself.
package enum MQTTAuthentication: String, CaseIterable, Sendable {
    /// By user name and password in CONNECT.
    case password = ""
    case scramSHA256 = "SCRAM-SHA-256"
}

package enum MQTTVersion: String, CaseIterable, Sendable {
    case five = "5"
    case threeOneOne = "3.1.1"
    case automatic = "auto"
}

package struct ProxyConfiguration: Hashable, Sendable {
    /// `nil`: the endpoints are connected to directly.
    package var address: ProxyAddress?
    /// Name and password: both or neither.
    package var username: String?
    package var password: SecretReference?
}

package struct OutboxConfiguration: Hashable, Sendable {
    package var maxMessages = 100_000
    package var maxBytes = 256 << 20
    /// `nil`: messages never become too old.
    package var maxAge: Duration?
    package var whenFull = MQTTClientMachine.OverflowBehaviour.refuse
}

/// The limits of what waits for each durable consumer.
package struct InboxConfiguration: Hashable, Sendable {
    package var maxMessages = 1_000_000
    package var maxBytes = 1 << 30
    /// `nil`: messages never become too old.
    package var maxAge: Duration?
    package var whenFull = MQTTClientMachine.InboxOverflow.dropOldest
}

/// The topics that programs may use; root and the daemon's own user may use all.
package struct TopicConfiguration: Hashable, Sendable {
    /// Gives users the topics that match a filter.
    package struct Grant: Hashable, Sendable {
        package var who: Principal
        package var filter: TopicFilter

        package init(_ filter: TopicFilter, to who: Principal) {
            self.who = who
            self.filter = filter
        }
    }

    /// Empty: every program may publish to every topic. Otherwise only to those that are given to its user here.
    package var publish: [Grant] = []
    /// The same for subscriptions.
    package var subscribe: [Grant] = []

    package var isEmpty: Bool { publish.isEmpty && subscribe.isEmpty }
}

extension SessionConfiguration {
    /// The hosts that are resolved and dialed to reach the endpoints; with a proxy, that is the proxy's.
    package var hosts: [String] { endpoints.map { proxy.address?.host ?? $0.host } }

    /// The same with their ports.
    package var hops: [(host: String, port: Int)] {
        endpoints.map { endpoint in
            guard let proxy = proxy.address else { return (endpoint.host, endpoint.port) }
            return (proxy.host, proxy.port)
        }
    }

    /// When the others in a room learn that this session is gone.
    package var presence: PresenceTiming { PresenceTiming(timeout: presenceTimeout, heartbeat: heartbeat.interval) }
}

extension MetricsConfiguration {
    /// Reads a loopback address with a port; `nil` for any other text.
    package static func address(_ text: String) -> (host: IPAddress, port: Int)? {
        guard let colon = text.lastIndex(of: ":"), let port = Int(text[text.index(after: colon)...]),
            (0...65_535).contains(port)
        else { return nil }
        var host = text[..<colon]
        if host.hasPrefix("["), host.hasSuffix("]") { host = host.dropFirst().dropLast() }
        guard host.hasPrefix("127.") || host == "::1", let address = IPAddress(String(host)) else { return nil }
        return (address, port)
    }
}
