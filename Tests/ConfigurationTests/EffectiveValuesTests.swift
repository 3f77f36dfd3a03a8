import ControlAPI
import Glibc
import Testing

@testable import Configuration

@Suite struct EffectiveValuesTests {
    /// All of it as a file writes it.
    private static func text(_ session: SessionConfiguration) -> String {
        SessionConfiguration.keys.map { "\($0.name) = \($0.written(session))" }.joined(separator: "\n")
    }

    private static func read(_ text: String) throws(ConfigurationErrors) -> SessionConfiguration {
        try SessionConfiguration(ConfigurationFile(path: "main.toml", text: text))
    }

    @Test(arguments: Preset.allCases)
    func `a written session is read back the same`(preset: Preset) throws {
        let session = try Self.read(
            """
            endpoints = ["mqtts://broker.example:8883", "wss://[2001:db8::1]:444/mqtt?a=b"]
            user = "edge \\"42\\" \\\\"
            password = "file:/etc/secret"
            preset = "\(preset.rawValue)"
            reconnect.delays = ["50ms", "1500ms", "90s", "24h"]
            reconnect.give-up-after = "36h"
            outbox.max-bytes = "1500KiB"
            outbox.max-age = "7d"
            proxy.url = "socks5://proxy.example:1080"
            inbox.max-age = "30d"
            mqtt.redirects = ["*.example", "10.0.0.1"]
            network.interfaces = ["wlan0"]
            tls.server-name = "broker.example"
            """)
        #expect(try Self.read(Self.text(session)) == session)
    }

    @Test func `another way to write the same letter is a change`() throws {
        var old = SessionConfiguration()
        (old.clientID, old.password) = ("caf\u{E9}", .file("/caf\u{E9}"))
        var new = old
        #expect(old.isSame(as: new))
        (new.clientID, new.password) = ("cafe\u{301}", .file("/cafe\u{301}"))
        #expect(old == new && !old.isSame(as: new))
        let name = try #require(SessionName("main"))
        #expect(SessionConfiguration.changes(from: old, to: new, of: name).map(\.key) == ["client-id", "password"])
    }

    @Test func `a written daemon configuration is read back the same`() throws {
        var daemon = DaemonConfiguration()
        daemon.access.observe = [.user("a"), .uid(1000), .group("b"), .anyone]
        daemon.metrics.listen = "127.0.0.1:9464"
        let text = DaemonConfiguration.keys.map { "\($0.name) = \($0.written(daemon))" }.joined(separator: "\n")
        #expect(try DaemonConfiguration(ConfigurationFile(path: "f", text: text)) == daemon)
    }

    @Test func `a command's arguments are omitted`() throws {
        let session = try Self.read(
            "endpoints = [\"mqtts://b.example\"]\nuser = \"u\"\npassword = \"exec:/bin/helper --token hunter2\"")
        #expect(!Self.text(session).contains("hunter2"))
        #expect(Self.text(session).contains("password = \"exec:/bin/helper …\""))
    }

    @Test func `every value says where it comes from`() throws {
        let scratch = try ConfigurationScratch()
        try scratch.write(
            "sessions.d/main.toml", "endpoints = [\"mqtts://b.example\"]\nuser = \"u\"\npreset = \"zego\"\n")
        try scratch.write("sessions.d/broken.toml", "user = 7\n")
        let shown = effectiveConfiguration(in: scratch.path, deviceID: "device")
        #expect(shown.files.map(\.session) == [nil, "main"])
        #expect(shown.errors.allSatisfy { $0.session == "broken" } && shown.errors.count == 2)
        let values = try #require(shown.files.last).values
        func value(_ key: String) -> EffectiveValue? { values.first { $0.key == key } }
        #expect(value("user") == EffectiveValue(key: "user", value: "\"u\"", origin: .file, line: 2))
        #expect(value("client-id") == EffectiveValue(key: "client-id", value: "\"u\"", origin: .derived))
        #expect(
            value("heartbeat.interval") == EffectiveValue(key: "heartbeat.interval", value: "\"30s\"", origin: .preset))
        #expect(value("mqtt.version") == EffectiveValue(key: "mqtt.version", value: "\"5\"", origin: .default))
        #expect(Set(values.map(\.key)) == Set(SessionConfiguration.keys.map(\.name)).subtracting(["instances"]))
    }

    @Test func `sessions are in natural order`() throws {
        let scratch = try ConfigurationScratch()
        for name in ["gw-10", "gw-2"] {
            try scratch.write("sessions.d/\(name).toml", "endpoints = [\"mqtts://\(name).example\"]\nuser = \"u\"\n")
        }
        let shown = effectiveConfiguration(in: scratch.path, deviceID: "device")
        #expect(shown.files.map(\.session) == [nil, "gw-2", "gw-10"])
    }

    @Test func `a missing sessions.d is an error, as at a reload`() throws {
        let scratch = try ConfigurationScratch()
        #expect(effectiveConfiguration(in: scratch.path, deviceID: "d").errors.isEmpty)
        #expect(rmdir("\(scratch.path)/sessions.d") == 0)
        let errors = effectiveConfiguration(in: scratch.path, deviceID: "d").errors
        #expect(errors.map(\.file) == ["\(scratch.path)/sessions.d"])
        #expect(errors.first?.message.contains("create it, and leave it empty") == true)
    }
}
