import MQTT
import SessionCore
import Support
import Testing
import Vocabulary

@testable import Configuration

/// A session with the required keys, and more lines after them.
private func session(_ more: String = "") throws(ConfigurationErrors) -> SessionConfiguration {
    let text = "endpoints = [\"mqtts://broker.example\"]\nuser = \"edge-42\"\n" + more
    return try SessionConfiguration(ConfigurationFile(path: "main.toml", text: text))
}

private func daemon(_ text: String) throws(ConfigurationErrors) -> DaemonConfiguration {
    try DaemonConfiguration(ConfigurationFile(path: "holdfast.toml", text: text))
}

/// The names of all values that are not tables.
private func leaves(of value: ConfigurationValue) -> Set<String> {
    guard case .table(let members) = value.content else { return [value.name] }
    return Set(members.flatMap(leaves))
}

@Suite struct `A configuration that is right` {
    @Test func `an empty daemon file is all defaults`() throws {
        #expect(try daemon("") == DaemonConfiguration())
    }

    @Test func `the installed daemon file is all defaults`() throws {
        #expect(try daemon(repositoryFile("etc/holdfast/holdfast.toml")) == DaemonConfiguration())
    }

    @Test func `the example session is all defaults`() throws {
        let text = try repositoryFile("etc/holdfast/sessions.d/example.toml.disabled")
        let example = try SessionConfiguration(ConfigurationFile(path: "example.toml", text: text))
        var expected = try session()
        expected.endpoints = [try Endpoint("mqtts://broker.example:8883"), try Endpoint("mqtts://backup.example:8883")]
        #expect(example == expected)
    }

    @Test func `the installed files name every key`() throws {
        let daemonText = try repositoryFile("etc/holdfast/holdfast.toml")
        let sessionText = try repositoryFile("etc/holdfast/sessions.d/example.toml.disabled")
        for (names, text) in [
            (DaemonConfiguration.keys.map(\.name), daemonText), (SessionConfiguration.keys.map(\.name), sessionText),
        ] {
            let written = leaves(of: ConfigurationParser.parse(text, file: "f"))
            #expect(written == Set(names))
        }
    }

    @Test func `the defaults are those of the manual`() throws {
        let main = try session()
        #expect(main.clientID == "edge-42")
        #expect(main.device == "")
        #expect(main.username == nil)
        #expect(main.password == nil)
        #expect(!main.insecure)
        #expect(main.autoconnect)
        #expect(!main.onDemand)
        #expect(main.idleTimeout == .seconds(120))
        #expect(main.onSuspend == .disconnect)
        #expect(main.roomPrefix == "holdfast/rooms")
        let delays = [50, 250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000]
        #expect(main.reconnect.delays == delays.map { .milliseconds($0) })
        #expect(main.reconnect.spread == .seconds(1))
        #expect(main.reconnect.stableAfter == .seconds(30))
        #expect(main.reconnect.lostAfter == .seconds(10))
        #expect(main.reconnect.giveUpAfter == nil)
        #expect(main.reconnect.giveUpAttempts == nil)
        #expect(main.reconnect.jitter == .zero)
        #expect(main.kick == .takeOver)
        #expect(main.reconnect.watch == .seconds(1))
        #expect(main.heartbeat.interval == .seconds(15))
        #expect(main.heartbeat.timeout == .seconds(5))
        #expect(main.presenceTimeout == .seconds(90))
        #expect(main.timeouts.dial == .seconds(10))
        #expect(main.timeouts.authenticate == .seconds(10))
        #expect(main.timeouts.restore == .seconds(30))
        #expect(main.mqtt.version == .five)
        #expect(main.mqtt.sessionExpiry == .seconds(86_400))
        #expect(main.mqtt.receiveMaximum == 100)
        #expect(main.mqtt.maximumPacketSize == 1_048_576)
        #expect(main.mqtt.redirects == [])
        #expect(main.tls == TLSOptions())
        #expect(main.tls.minimum == .tls12)
        #expect(main.proxy == ProxyConfiguration())
        #expect(main.network == NetworkPolicy())
        #expect(main.outbox.maxMessages == 100_000)
        #expect(main.outbox.maxBytes == 268_435_456)
        #expect(main.outbox.maxAge == nil)
        #expect(main.outbox.whenFull == .refuse)
    }

    @Test func `every daemon key that is supported takes effect`() throws {
        let configuration = try daemon(
            """
            durability = "full"
            access.observe = ["anyone"]
            access.message = ["user:alice", "uid:1000"]
            access.control = []
            log = { level = "debug" }
            metrics = { listen = "127.0.0.1:9464", textfile = "/m/holdfast.prom" }
            """)
        var expected = DaemonConfiguration()
        expected.durability = .full
        expected.access.observe = [.anyone]
        expected.access.message = [.user("alice"), .uid(1000)]
        expected.access.control = []
        expected.logLevel = .debug
        expected.metrics.listen = "127.0.0.1:9464"
        expected.metrics.textfile = "/m/holdfast.prom"
        #expect(configuration == expected)
    }

    @Test func `every session key that is supported takes effect`() throws {
        let configuration = try session(
            """
            device = "left"
            client-id = "c"
            username = "u"
            password = "file:/run/secret"
            room = "plant/north"
            room-prefix = "rooms"
            autoconnect = false
            on-demand = true
            idle-timeout = "30s"
            on-suspend = "keep"
            [reconnect]
            delays = ["0s",
              "1min", # a comment
            ]
            spread = "0s"
            stable-after = "1h"
            lost-after = "never"
            give-up-after = "7d"
            give-up-attempts = 7
            jitter = "300ms"
            kick = "yield"
            watch = "never"
            [heartbeat]
            interval = "30s"
            timeout = "250ms"
            [presence]
            timeout = "2min"
            [timeouts]
            dial = "1s"
            authenticate = "2s"
            restore = "3s"
            acknowledge = "4s"
            [mqtt]
            session-expiry = "never"
            receive-maximum = 65535
            maximum-packet-size = "1KiB"
            [tls]
            ca = "/ca.pem"
            certificate = "/c.pem"
            key = "/k.pem"
            server-name = "s"
            minimum = "1.3"
            [proxy]
            url = "http://proxy.example:3128"
            username = "joe"
            password = "file:/run/proxy"
            [network]
            interfaces = ["wlan0", "enp0s31f6.4094"]
            types = ["wifi", "ethernet"]
            metered = "avoid"
            [outbox]
            max-messages = 1
            max-bytes = "2GiB"
            max-age = "7d"
            when-full = "drop-oldest"
            [inbox]
            max-messages = 2
            max-bytes = "4KiB"
            max-age = "1min"
            when-full = "withhold"
            [topics]
            publish = ["user:joe plant/+", "group:ops with space/#"]
            subscribe = ["anyone ~/chat"]
            """)
        var expected = SessionConfiguration()
        expected.endpoints = [try Endpoint("mqtts://broker.example")]
        expected.user = "edge-42"
        expected.device = "left"
        expected.clientID = "c"
        expected.username = "u"
        expected.password = .file("/run/secret")
        expected.room = "plant/north"
        expected.roomPrefix = "rooms"
        expected.autoconnect = false
        expected.onDemand = true
        expected.idleTimeout = .seconds(30)
        expected.onSuspend = .keep
        expected.reconnect.delays = [.zero, .seconds(60)]
        expected.reconnect.spread = .zero
        expected.reconnect.stableAfter = .seconds(3600)
        expected.reconnect.lostAfter = nil
        expected.reconnect.giveUpAfter = .seconds(7 * 86_400)
        expected.reconnect.giveUpAttempts = 7
        expected.reconnect.jitter = .milliseconds(300)
        expected.kick = .yield
        expected.reconnect.watch = nil
        expected.heartbeat.interval = .seconds(30)
        expected.heartbeat.timeout = .milliseconds(250)
        expected.presenceTimeout = .seconds(120)
        expected.timeouts.dial = .seconds(1)
        expected.timeouts.authenticate = .seconds(2)
        expected.timeouts.restore = .seconds(3)
        expected.timeouts.acknowledge = .seconds(4)
        expected.mqtt.sessionExpiry = nil
        expected.mqtt.receiveMaximum = 65_535
        expected.mqtt.maximumPacketSize = 1024
        expected.tls = TLSOptions(
            authorities: "/ca.pem", certificate: "/c.pem", key: "/k.pem", serverName: "s", minimum: .tls13)
        expected.proxy = ProxyConfiguration(
            address: try ProxyAddress("http://proxy.example:3128"), username: "joe", password: .file("/run/proxy"))
        expected.network.interfaces = ["wlan0", "enp0s31f6.4094"]
        expected.network.types = [.wifi, .ethernet]
        expected.network.metered = .avoid
        expected.outbox = OutboxConfiguration(
            maxMessages: 1, maxBytes: 2 << 30, maxAge: .seconds(7 * 86_400), whenFull: .dropOldest)
        expected.inbox = InboxConfiguration(
            maxMessages: 2, maxBytes: 4096, maxAge: .seconds(60), whenFull: .withhold)
        expected.topics.publish = [
            .init(try TopicFilter("plant/+"), to: .user("joe")),
            .init(try TopicFilter("with space/#"), to: .group("ops")),
        ]
        expected.topics.subscribe = [.init(try TopicFilter("~/chat"), to: .anyone)]
        #expect(configuration == expected)
        // Not together with the others.
        #expect(try session("mqtt.version = \"auto\"").mqtt.version == .automatic)
        let scram = try session("password = \"file:/p\"\nmqtt.authentication = \"SCRAM-SHA-256\"")
        #expect(scram.mqtt.authentication == .scramSHA256)
    }

    @Test(arguments: [
        ("/usr/bin/token", ["/usr/bin/token"]),
        ("/usr/bin/token  -u edge ", ["/usr/bin/token", "-u", "edge"]),
        (#"'/opt/my tool' --for "site 7" a'b c'd"#, ["/opt/my tool", "--for", "site 7", "ab cd"]),
        ("/t $HOME '' x;y", ["/t", "$HOME", "", "x;y"]),
        (#"/t "it's""#, ["/t", "it's"]),
    ])
    func `a helper command is split at unquoted spaces`(command: String, words: [String]) {
        #expect(SecretReference("exec:" + command) == .exec(words))
    }

    @Test func `the user is the username when there is a password`() throws {
        let main = try session("password = \"credential:token\"")
        #expect(main.username == "edge-42")
        #expect(main.password == .credential("token"))
    }

    @Test(arguments: ["mqtt://localhost", "mqtt://127.0.0.1", "mqtt://[::1]:1883"])
    func `a password may be sent to the host itself unencrypted`(endpoint: String) throws {
        let text = "endpoints = [\"\(endpoint)\"]\nuser = \"u\"\npassword = \"file:/p\""
        #expect(try SessionConfiguration(ConfigurationFile(path: "f", text: text)).password == .file("/p"))
    }

    @Test func `insecure lets a password be sent anywhere unencrypted`() throws {
        let text = "endpoints = [\"mqtt://b.example\"]\nuser = \"u\"\npassword = \"file:/p\"\ninsecure = true"
        #expect(try SessionConfiguration(ConfigurationFile(path: "f", text: text)).insecure)
    }
}
