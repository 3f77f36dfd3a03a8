import Testing

@testable import Vocabulary

@Suite struct IPAddressTests {
    @Test(
        arguments: [
            ("192.0.2.7/24", "192.0.2.6"), ("192.0.2.1/24", "192.0.2.3"), ("192.0.2.254/24", "192.0.2.252"),
            ("192.0.2.2/30", "192.0.2.1"), ("192.0.2.1/30", "192.0.2.2"), ("10.1.2.254/8", "10.1.2.252"),
            ("192.0.2.6/31", "192.0.2.7"), ("192.0.2.7/32", nil), ("192.0.2.7", nil),
            ("2001:db8::1/64", "2001:db8::"), ("2001:db8::1/128", nil), ("up0/24", nil),
        ] as [(String, String?)])
    func `a neighbour is next to an address, in its network`(text: String, neighbour: String?) {
        #expect(IPAddress(besides: text)?.description == neighbour)
    }

    @Test func `a host's own addresses are not neighbours`() throws {
        let own = try ["192.0.2.6", "192.0.2.7", "192.0.2.5"].map { try #require(IPAddress($0)) }
        #expect(IPAddress(besides: "192.0.2.7/24", exceptFor: Set(own))?.description == "192.0.2.4")
        #expect(IPAddress(besides: "192.0.2.6/31", exceptFor: Set(own)) == nil)
    }

    @Test func `an IPv6 address that stands for one of IPv4 is that`() {
        let texts = ["::ffff:192.0.2.1", "::ffff:0:192.0.2.1", "::192.0.2.1", "2001:db8::1", "192.0.2.1"]
        #expect(
            texts.map { IPAddress($0)?.unmapped.description }
                == ["192.0.2.1", "::ffff:0:c000:201", "::192.0.2.1", "2001:db8::1", "192.0.2.1"])
        let others = ["::2", "1::1", "127.0.0.1"].map { IPAddress($0)?.isLoopbackIPv6 }
        #expect(IPAddress("::1")?.isLoopbackIPv6 == true && others == [false, false, false])
    }

    @Test func `a link-local IPv6 address is told apart from others`() {
        #expect(
            ["fe80::1", "febf::1", "fec0::1", "2001:db8::1", "169.254.0.1"].map { IPAddress($0)?.isLinkLocalIPv6 }
                == [true, true, false, false, false])
    }

    @Test(arguments: [
        ("192.0.2.1", "192.0.2.1", IPAddress.Family.ipv4),
        ("2001:DB8:0:0::1", "2001:db8::1", .ipv6),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.1", .ipv6),
    ])
    func `text becomes an address and canonical text again`(text: String, canonical: String, family: IPAddress.Family) {
        let address = IPAddress(text)
        #expect(address?.description == canonical)
        #expect(address?.family == family)
    }

    @Test(arguments: ["", "localhost", "192.0.2", "192.0.2.256", "[::1]", "fe80::1%eth0", "::1:443:", "010.0.0.1/8"])
    func `other text is not an address`(text: String) {
        #expect(IPAddress(text) == nil)
    }

    @Test(arguments: [0, 3, 5, 15, 17])
    func `an address has 4 or 16 bytes`(count: Int) {
        #expect(IPAddress(bytes: [UInt8](repeating: 1, count: count)) == nil)
    }
}
