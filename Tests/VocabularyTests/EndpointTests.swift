import Testing
import Vocabulary

@Suite struct EndpointTests {
    @Test(arguments: [
        ("mqtt://broker.example", "mqtt://broker.example:1883"),
        ("mqtts://broker.example", "mqtts://broker.example:8883"),
        ("ws://broker.example", "ws://broker.example:80/mqtt"),
        ("ws://broker.example/", "ws://broker.example:80/"),
        ("wss://broker.example/mqtt", "wss://broker.example:443/mqtt"),
        ("wss://broker.example/mqtt?token=1", "wss://broker.example:443/mqtt?token=1"),
        ("ws://broker.example?x", "ws://broker.example:80/mqtt?x"),
        ("MQTTS://Broker.EXAMPLE:8884/", "mqtts://broker.example:8884"),
        ("mqtt://192.0.2.1:1", "mqtt://192.0.2.1:1"),
        ("mqtt://[2001:DB8:0:0:0:0:0:1]:65535", "mqtt://[2001:db8::1]:65535"),
        ("mqtt://[::ffff:192.0.2.1]", "mqtt://[::ffff:192.0.2.1]:1883"),
        ("mqtt://a", "mqtt://a:1883"),
        ("mqtt://my_broker._tcp.lan", "mqtt://my_broker._tcp.lan:1883"),
        ("mqtt://3com.example.", "mqtt://3com.example.:1883"),
        ("mqtt://xn--bcher-kva.example", "mqtt://xn--bcher-kva.example:1883"),
        ("mqtt://" + String(repeating: "a", count: 63), "mqtt://" + String(repeating: "a", count: 63) + ":1883"),
    ])
    func `an endpoint is read and written in its canonical form`(text: String, canonical: String) throws {
        let endpoint = try Endpoint(text)
        #expect(endpoint.description == canonical)
        #expect(try Endpoint(canonical) == endpoint)
    }

    @Test(
        arguments: [
            ("", .noScheme), ("broker.example", .noScheme), ("broker.example:8883", .noScheme), ("mqtt:/a", .noScheme),
            ("mqtt:", .noScheme), ("http://a", .unknownScheme("http")), ("://a", .unknownScheme("")),
            ("mqtt://a b", .unexpectedCharacter), ("mqtt://bücher.example", .unexpectedCharacter),
            ("mqtt://a\n", .unexpectedCharacter), ("mqtt://a\u{0}", .unexpectedCharacter),
            ("mqtt://", .noHost), ("mqtt://:1883", .noHost), ("ws:///mqtt", .noHost),
            ("mqtt://user:secret@a", .userInformation), ("mqtt://a@b", .userInformation),
            ("mqtt://-a", .badHost("-a")), ("mqtt://a-", .badHost("a-")), ("mqtt://a..b", .badHost("a..b")),
            ("mqtt://.", .badHost(".")), ("mqtt://a+b", .badHost("a+b")), ("mqtt://a%20b", .badHost("a%20b")),
            ("mqtt://a/b", .path), ("mqtt://a//", .path), ("mqtt://a?b", .query), ("mqtt://a/?b", .query),
            ("mqtt://a#b", .fragment), ("wss://a/b#c", .fragment),
            ("mqtt://256.0.0.1", .badIPv4("256.0.0.1")), ("mqtt://1.2.3", .badIPv4("1.2.3")),
            ("mqtt://127.1", .badIPv4("127.1")), ("mqtt://1", .badIPv4("1")), ("mqtt://a.1", .badIPv4("a.1")),
            ("mqtt://::1", .unbracketedIPv6("::1")), ("mqtt://a:1:2", .unbracketedIPv6("a:1:2")),
            ("mqtt://[::1", .badIPv6("[::1")), ("mqtt://[::1]1", .badIPv6("[::1]1")),
            ("mqtt://[fe80::1%25eth0]", .badIPv6("fe80::1%25eth0")), ("mqtt://[127.0.0.1]", .badIPv6("127.0.0.1")),
            ("mqtt://[]", .badIPv6("")), ("mqtt://[:::]", .badIPv6(":::")),
            ("mqtt://a:", .badPort("")), ("mqtt://[::1]:", .badPort("")), ("mqtt://a:0", .badPort("0")),
            ("mqtt://a:65536", .badPort("65536")), ("mqtt://a:+1", .badPort("+1")), ("mqtt://a:-1", .badPort("-1")),
            ("mqtt://a:01883", .badPort("01883")), ("mqtt://a:18x", .badPort("18x")),
            ("mqtt://a:99999999999999999999", .badPort("99999999999999999999")),
        ] as [(String, EndpointError)])
    func `an endpoint that cannot be dialed is refused`(text: String, error: EndpointError) {
        #expect(throws: error) { try Endpoint(text) }
    }

    @Test func `a host name has at most 253 characters and 63 in each part`() throws {
        let label = String(repeating: "a", count: 63)
        let longest = [label, label, label, String(repeating: "b", count: 61)].joined(separator: ".")
        #expect(try Endpoint("mqtt://\(longest)").host.utf8.count == 253)
        #expect(try Endpoint("mqtt://\(longest).").host.utf8.count == 254)
        #expect(throws: EndpointError.badHost(longest + "b")) { try Endpoint("mqtt://\(longest)b") }
        #expect(throws: EndpointError.badHost(label + "a")) { try Endpoint("mqtt://\(label)a") }
    }

    @Test(arguments: [
        ("mqtt://127.0.0.1", true), ("mqtt://127.255.0.9", true), ("mqtt://[::1]", true), ("mqtt://LocalHost", true),
        ("mqtt://128.0.0.1", false), ("mqtt://[::2]", false), ("mqtt://127.example", false),
        ("mqtt://localhost.example", false),
    ])
    func `loopback endpoints are recognized by literal or name`(text: String, isLoopback: Bool) throws {
        #expect(try Endpoint(text).isLoopback == isLoopback)
    }

    @Test func `every scheme has its usual port`() throws {
        for scheme in Endpoint.Scheme.allCases {
            #expect(try Endpoint(scheme: scheme, host: "a").port == scheme.defaultPort)
        }
    }

    @Test func `the parts of an endpoint are checked like its text`() throws {
        #expect(try Endpoint(scheme: .mqtts, host: "::1").description == "mqtts://[::1]:8883")
        #expect(throws: EndpointError.badPort("0")) { try Endpoint(scheme: .mqtt, host: "a", port: 0) }
        #expect(throws: EndpointError.badIPv6("a:b")) { try Endpoint(scheme: .mqtt, host: "a:b") }
        #expect(throws: EndpointError.noHost) { try Endpoint(scheme: .mqtt, host: "") }
    }
}
