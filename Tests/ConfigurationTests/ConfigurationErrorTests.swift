import Glibc
import Support
import Testing
import Vocabulary

@testable import Configuration

/// The errors of a session file whose first two lines are right, in their printed form; `[]` if there are none.
private func errors(_ more: String) -> [String] {
    errors(file: "endpoints = [\"mqtts://broker.example\"]\nuser = \"edge-42\"\n" + more)
}

private func errors(file text: String) -> [String] {
    do throws(ConfigurationErrors) {
        _ = try SessionConfiguration(ConfigurationFile(path: "main.toml", text: text))
        return []
    } catch {
        return error.list.map(\.description)
    }
}

// The forms that values must have, as errors put them.
private let text = "a text of at most 65535 bytes without control characters"
private let room = #"levels of a topic such as "plant/north", none of them empty, without + and #"#
private let number = "a whole number from 1 to 65535"
private let duration = #"a duration such as "250ms", "15s" or "20min""#

@Suite struct `A configuration that is wrong` {
    @Test func `a file that no descriptor is left for says which limit to raise`() {
        let error = ConfigurationError.unreadable("/etc/holdfast/holdfast.toml", EMFILE)
        #expect(error.message == "cannot be read: Too many open files; raise LimitNOFILE of the service")
    }

    @Test func `has the errors of its grammar and those of its values in one list`() {
        let found = errors(
            file: """
                endpoints = ["mqtts://broker.example",
                  "mqtts://b"
                usre = "x"
                room = "a//b"
                [timeouts
                dial = "1s"
                [mqtt]
                receive-maximum = 0
                authentication = SCRAM
                """)
        #expect(
            found.map { $0.split(separator: ":").dropFirst().prefix(2).joined(separator: ":") }
                == ["3:1", "4:8", "5:10", "8:19", "9:18"], "\(found)")
        #expect(found.filter { $0.contains("not valid TOML") }.count == 3, "\(found)")
        #expect(!found.contains { $0.contains("missing") }, "it may be in the part that cannot be read: \(found)")
    }

    @Test func `has a limited number of errors of its grammar`() {
        #expect(errors(file: String(repeating: "a = b\n", count: 1000)).count == 20)
    }

    @Test(arguments: [
        // Keys.
        ("usre = \"x\"", #"3:1: there is no key "usre"; did you mean "user"?"#),
        ("[reconect]\nspread = \"1s\"", #"3:2: there is no table "reconect"; did you mean "reconnect"?"#),
        (
            "[reconnect]\nlost-aftr = \"1s\"",
            #"4:1: there is no key "reconnect.lost-aftr"; did you mean "reconnect.lost-after"?"#
        ),
        (
            "reconnect . 'lost-aftr' = 1",
            #"3:13: there is no key "reconnect.lost-aftr"; did you mean "reconnect.lost-after"?"#
        ),
        (
            "heartbeat = { interval = \"1s\", \"time\\u006Fot\" = 1 }",
            #"3:32: there is no key "heartbeat.timeoot"; did you mean "heartbeat.timeout"?"#
        ),
        ("lost-after = \"1s\"", #"3:1: there is no key "lost-after"; did you mean "reconnect.lost-after"?"#),
        (
            "[tls]\npassword = \"file:/p\"",
            #"4:1: there is no key "tls.password"; "password" belongs before the first table"#
        ),
        (
            "[tls]\nautoconect = true",
            #"4:1: there is no key "tls.autoconect"; "autoconnect" belongs before the first table"#
        ),
        ("colour = \"blue\"", #"3:1: there is no key "colour""#),
        ("\"a\\nb\" = 1", #"3:1: there is no key ""a\nb"""#),
        ("rules = [{ a = 1 }]", #"3:1: there is no key "rules""#),
        // Types.
        ("autoconnect = \"yes\"", #"3:15: autoconnect must be true or false, not "yes""#),
        ("device = 5", #"3:10: device must be \#(text), not the number 5"#),
        ("reconnect = 5", "3:13: reconnect is a table: write [reconnect]"),
        ("[device]", #"3:2: device must be \#(text), not a table"#),
        ("tls = []", "3:7: tls is a table: write [tls]"),
        (
            "mqtt.receive-maximum = 1.5",
            #"3:24: mqtt.receive-maximum must be \#(number), not a date or a number that is not whole"#
        ),
        (
            "mqtt.receive-maximum = 2026-01-01",
            #"3:24: mqtt.receive-maximum must be \#(number), not a date or a number that is not whole"#
        ),
        ("reconnect.delays = \"1s\"", #"3:20: reconnect.delays must be a list of durations, not "1s""#),
        // Values.
        ("mqtt.receive-maximum = 0", #"3:24: mqtt.receive-maximum must be \#(number), not the number 0"#),
        ("timeouts.dial = \"10\"", #"3:17: timeouts.dial must be \#(duration), from "100ms" to "1h", not "10""#),
        ("timeouts.dial = \"2h\"", #"3:17: timeouts.dial must be \#(duration), from "100ms" to "1h", not "2h""#),
        ("timeouts.dial = \"never\"", #"3:17: timeouts.dial must be \#(duration), from "100ms" to "1h", not "never""#),
        (
            "timeouts.dial = \"99999999999999999h\"",
            #"3:17: timeouts.dial must be \#(duration), from "100ms" to "1h", not "99999999999999999h""#
        ),
        (
            "reconnect.give-up-after = \"nevr\"",
            #"3:27: reconnect.give-up-after must be "never" or \#(duration), from "1s" to "365d", not "nevr"; did you mean "never"?"#
        ),
        (
            "reconnect.delays = [\"1s\", \"0s\"]",
            #"3:20: the last of reconnect.delays is used indefinitely and must be at least "10ms""#
        ),
        ("reconnect.delays = []", "3:20: reconnect.delays must have at least one of the durations"),
        (
            "outbox.max-bytes = \"64MB\"",
            #"3:20: outbox.max-bytes must be a size such as "512B" or "64MiB", from "1KiB" to "1024TiB", not "64MB""#
        ),
        (
            "reconnect.give-up-attempts = 0",
            #"3:30: reconnect.give-up-attempts must be "never" or a whole number from 1 to 1000000, not the number 0"#
        ),
        (
            "preset = \"nexcon\"",
            #"3:10: preset must be one of "default", "livekit", "nexconn", "agora", "zego", not "nexcon"; did you mean "nexconn"?"#
        ),
        ("tls.ca = \"ca.pem\"", "3:10: tls.ca must be the absolute path of a file, or empty"),
        (
            "network.types = [\"wlan\"]",
            #"3:18: network.types must be one of "ethernet", "wifi", "cellular", "vpn", "loopback", "other", not "wlan""#
        ),
        (
            "network.interfaces = [\"a b\"]",
            #"3:23: network.interfaces must be the name of a network interface, 1 to 15 bytes without spaces and /, not "a b""#
        ),
        (
            "network.metered = \"avoids\"",
            #"3:19: network.metered must be one of "allow", "avoid", not "avoids"; did you mean "avoid"?"#
        ),
        ("tls.minimum = \"1.1\"", #"3:15: tls.minimum must be one of "1.2", "1.3", not "1.1"; did you mean "1.2"?"#),
        ("client-id = \"a\\tb\"", #"3:13: client-id must be \#(text), not "a\tb""#),
        ("tls.certificate = \"/c\"", "3:19: tls.certificate needs tls.key as well"),
        ("tls.key = \"/k\"", "3:11: tls.key needs tls.certificate as well"),
        // Grammar.
        ("user = \"again\"", "3:1: not valid TOML: user is defined twice"),
        ("[tls]\n[tls]", "4:2: not valid TOML: tls is defined twice"),
        ("device = left", "3:10: not valid TOML: a value is expected: a text stands in quotation marks"),
        ("[[tls]]", "3:2: not valid TOML: there are no lists of tables here: write [TABLE]"),
        (
            "\"reconnect.spread\" = \"1s\"",
            #"3:1: there is no key ""reconnect.spread""; did you mean "reconnect.spread"?"#
        ),
        ("room = \"a//b\"", "3:8: room must be \(room), or empty, not \"a//b\""),
        ("room-prefix = \"a/#\"", "3:15: room-prefix must be \(room), not \"a/#\""),
        ("room-prefix = \"\"", "3:15: room-prefix must be \(room), not \"\""),
        (
            "room = \"r\"\ndevice = \"a/b\"",
            "4:10: in a room, the device is a level of a topic: without /, + and #"
        ),
        (
            "room = \"cafe\u{301}\"",
            "3:8: in a room, room must be in Unicode's normalization form C, in which a letter with an accent is one "
                + "character: servers compare byte by byte"
        ),
        (
            "room = \"r\"\npresence.timeout = \"3s\"",
            "4:20: in a room, presence.timeout is at least \"4s\": the session sends something four times within it; with "
                + "\"0s\" the others learn of a loss when the server does"
        ),
        (
            "room = \"r\"\nmqtt.session-expiry = \"90s\"",
            "4:23: mqtt.session-expiry must be longer than presence.timeout, so that short outages are not seen"
        ),
        (
            "mqtt.redirects = [\"*.b.example\", \"*\"]",
            "3:34: mqtt.redirects must be a host name or an IP address, or \"*.DOMAIN\" for every host in a domain, not \"*\""
        ),
        (
            "mqtt.version = \"3.1.1\"\nmqtt.session-expiry = \"1h\"",
            "4:23: MQTT 3.1.1 has no equivalent of mqtt.session-expiry: omit the key"
        ),
        (
            "mqtt.version = \"3.1.1\"\nmqtt.redirects = [\"a.example\"]",
            "4:18: MQTT 3.1.1 has no equivalent of mqtt.redirects: omit the key"
        ),
        (
            "mqtt.version = \"auto\"\npassword = \"file:/p\"\nmqtt.authentication = \"SCRAM-SHA-256\"",
            "5:23: mqtt.authentication \"SCRAM-SHA-256\" needs mqtt.version \"5\""
        ),
        ("device = \"a\\u0000b\"", #"3:10: device must be \#(text), not "a\0b""#),
    ])
    func `is reported with its place and what was expected`(text: String, expected: String) {
        #expect(errors(text) == ["main.toml:\(expected)"])
    }

    @Test(arguments: ["joe", "user:", "group:", "uid:", "uid:-1", "uid:+1", "uid:4294967295", "gid:1", "anyone "])
    func `names no user or group`(principal: String) {
        #expect(throws: ConfigurationErrors.self) {
            let text = "access.observe = [\"anyone\", \"\(principal)\"]"
            _ = try DaemonConfiguration(ConfigurationFile(path: "holdfast.toml", text: text))
        }
    }

    @Test(arguments: ["user:joe", "user:joe ", "joe a", "user:joe a/#/b", "user:joe $share/g/a", "anyone"])
    func `gives no topics to a user`(grant: String) {
        #expect(throws: ConfigurationErrors.self) {
            let text = "endpoints = [\"mqtts://a\"]\nuser = \"u\"\ntopics.publish = [\"\(grant)\"]"
            _ = try SessionConfiguration(ConfigurationFile(path: "main.toml", text: text))
        }
    }

    @Test(arguments: [
        "metrics.listen = \"0.0.0.0:9464\"", "metrics.listen = \"localhost:9464\"", "metrics.listen = \"127.0.0.1\"",
        "metrics.textfile = \"/m\"", "metrics.textfile = \"m.prom\"",
    ])
    func `offers metrics to other hosts, or in a file that no collector reads`(text: String) {
        #expect(throws: ConfigurationErrors.self) {
            try DaemonConfiguration(ConfigurationFile(path: "holdfast.toml", text: text))
        }
    }

    @Test func `lacks required keys`() {
        #expect(
            errors(file: "# nothing\n") == [
                #"main.toml:1:1: the key "endpoints" is required and missing"#,
                #"main.toml:1:1: the key "user" is required and missing"#,
            ])
    }

    @Test func `has endpoints that cannot be used, each with its place`() {
        let text = """
            user = "u"
            endpoints = [
                "mqtts://good.example", # ["not this"]
                "http://b.example/mqtt", 'broker', 5,
                "mqtts://joe:hunter2@b.example",
            ]
            """
        let found = errors(file: text)
        let places = ["4:5", "4:30", "4:40", "5:5"]
        #expect(found.map { $0.prefix { $0 != " " } } == places.map { "main.toml:\($0):" })
        #expect(found.first?.contains("write mqtt, mqtts, ws or wss") == true)
        #expect(!found.contains { $0.contains("hunter2") })
        #expect(
            errors(file: "user = \"u\"\nendpoints = []")
                == ["main.toml:2:13: endpoints must have at least one of the endpoints"])
    }

    @Test func `sends a password unencrypted`() {
        let text = """
            endpoints = ["mqtts://a.example", "mqtt://b.example", "mqtt://localhost"]
            user = "u"
            password = "file:/p"
            """
        let message = "the password would be sent to mqtt://b.example:1883 unencrypted"
        #expect(errors(file: text) == ["main.toml:1:35: \(message): use mqtts://, or allow it with insecure = true"])
    }

    @Test(arguments: [
        (
            "url = \"https://p:1\"",
            "3:13: \"https://p:1\" is not a proxy: \"https\" is not a kind of proxy; write http or socks5"
        ),
        ("username = \"u\"\nproxy.password = \"file:/p\"", "3:18: proxy.username needs proxy.url as well"),
        ("url = \"socks5://p\"\nproxy.username = \"u\"", "4:18: proxy.username needs proxy.password as well"),
        ("url = \"socks5://p\"\nproxy.password = \"file:/p\"", "4:18: proxy.password needs proxy.username as well"),
        (
            "url = \"http://p:1\"\nproxy.password = \"file:/p\"\nproxy.username = \"a:b\"",
            "5:18: the user name for an HTTP proxy has no colon (RFC 7617, 2)"
        ),
    ])
    func `has a proxy that cannot be used`(text: String, expected: String) {
        #expect(errors("proxy." + text).first == "main.toml:\(expected)")
    }

    @Test func `has the password for a proxy in its URL`() {
        let found = errors("proxy.url = \"http://joe:hunter2@p:3128\"")
        #expect(found.count == 1)
        #expect(found.first?.contains("set username and password in [proxy] instead") == true)
        #expect(found.first?.contains("hunter2") == false)
    }

    @Test func `sends a password unencrypted through a proxy or a WebSocket`() {
        func found(_ endpoint: String, _ proxy: String) -> [String] {
            errors(
                file: "endpoints = [\"\(endpoint)\"]\nuser = \"u\"\npassword = \"file:/p\"\n[proxy]\nurl = \"\(proxy)\""
            )
        }
        #expect(found("mqtt://localhost", "http://proxy:3128").first?.contains("unencrypted: use mqtts://") == true)
        #expect(found("mqtt://localhost", "http://localhost:3128") == [])
        #expect(found("ws://b.example", "").first?.contains("unencrypted: use wss://") == true)
        #expect(found("ws://127.0.0.1", "") == [])
        #expect(found("wss://b.example", "socks5://proxy") == [])
    }

    @Test func `has no name for the certificate behind a proxy`() {
        let text = "endpoints = [\"mqtts://192.0.2.1\"]\nuser = \"u\"\nproxy.url = \"socks5://p\""
        #expect(errors(file: text).first?.contains("can only be verified by a name") == true)
        #expect(errors(file: text + "\ntls.server-name = \"b.example\"") == [])
    }

    @Test(arguments: [
        "a b", "b\u{FC}cher.example", "*.example", "localhost:8883", "127.0.0.1", "::1", "a.example..", "-a",
    ])
    func `a server name that no certificate can have is an error`(name: String) throws {
        let text = "endpoints = [\"mqtts://a.example\"]\nuser = \"u\"\n[tls]\nserver-name = "
        let message = try #require(errors(file: text + "\"\(name)\"").first)
        #expect(message.contains("tls.server-name must be a host name"), "\(message)")
        for good in ["my_broker", "Broker.Example", "a.example.", ""] {
            #expect(errors(file: text + "\"\(good)\"") == [])
        }
    }

    @Test(arguments: [
        "password = \"hunter2\"", "password = \"file:hunter2\"", "password = \"exec:hunter2\"", "password = 42424242",
        "password = \"exec:/bin/token 'hunter2\"", "password = \"exec:'' hunter2\"", "password = \"exec:\"",
        "password = [\"hunter2\"]", "password = hunter2", "password = \"hunter2", "password = 42424242424242424242",
    ])
    func `never repeats a secret that stands in the wrong place`(text: String) {
        let found = errors(text)
        #expect(found.count == 1)
        #expect(found.allSatisfy { $0.hasPrefix("main.toml:3:") && !$0.contains("hunter2") && !$0.contains("4242") })
    }

    @Test func `is reported as a whole, in the order of the text`() {
        let found = errors(
            file: """
                usre = "u"
                endpoints = ["broker"]
                [heartbeat]
                timeout = 5
                interval = "fast"
                [outbox]
                max-age = "10ms"
                """)
        #expect(
            found.map { $0.prefix { $0 != " " } }
                == ["1:1", "1:1", "2:14", "4:11", "5:12", "7:11"].map { "main.toml:\($0):" })
    }
}

@Suite struct `Any text` {
    /// Pieces of TOML's grammar, so that mutations get past the first character.
    private static let pieces = [
        "\"", "'", "\"\"\"", "'''", "[", "]", "[[", "]]", "{", "}", "=", ".", ",", "#", "\n", "\r\n", "\\", "\\u0000",
        "\\U0010FFFF",
        "\u{FEFF}", "é", "\u{301}", "🦊", "-9223372036854775808", "1e999", "1979-05-27T07:32:00Z", "nan", "0x", "true",
        "reconnect", "tls = {ca = [", "99999999999999999999",
    ]

    @Test(arguments: 0..<40)
    func `is read or refused, never a crash`(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let example = Array(try repositoryFile("etc/holdfast/sessions.d/example.toml.disabled").utf8)
        for _ in 0..<25 {
            var bytes = example
            for _ in 0..<Int.random(in: 1...8, using: &random) {
                let start = Int.random(in: 0...bytes.count, using: &random)
                let end = min(bytes.count, start + Int.random(in: 0...12, using: &random))
                let piece = Self.pieces.randomElement(using: &random) ?? ""
                switch Int.random(in: 0...3, using: &random) {
                case 0: bytes.removeSubrange(start..<end)
                case 1: bytes.removeSubrange(start...)
                default: bytes.replaceSubrange(start..<end, with: Array(piece.utf8))
                }
            }
            let text = String(decoding: bytes, as: UTF8.self)
            do throws(ConfigurationErrors) {
                let configuration = try SessionConfiguration(ConfigurationFile(path: "f", text: text))
                #expect(!configuration.endpoints.isEmpty)
            } catch {
                #expect(!error.list.isEmpty)
                let lines = text.utf8.count { $0 == UInt8(ascii: "\n") } + 1
                #expect(error.list.allSatisfy { (1...lines).contains($0.line ?? 1) && ($0.column ?? 1) >= 1 })
            }
        }
    }
}
