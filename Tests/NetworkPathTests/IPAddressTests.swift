import NetworkPath
import Testing

@Suite struct IPAddressTests {
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
    func `other text is no address`(text: String) {
        #expect(IPAddress(text) == nil)
    }

    @Test(arguments: [0, 3, 5, 15, 17])
    func `an address has 4 or 16 bytes`(count: Int) {
        #expect(IPAddress(bytes: [UInt8](repeating: 1, count: count)) == nil)
    }
}
