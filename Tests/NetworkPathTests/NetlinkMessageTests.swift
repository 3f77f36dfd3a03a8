import Testing
import Vocabulary

@testable import NetworkPath

@Suite struct NetlinkMessageTests {
    private static let gateway4 = IPAddress("10.9.0.254")

    private func only(_ datagram: [UInt8]) throws -> NetlinkMessage {
        let messages = NetlinkMessage.parse(datagram[...])
        #expect(messages.count == 1)
        return try #require(messages.first)
    }

    @Test func `a route lookup's answer has interface, source, gateway and table`() throws {
        let route = RouteMessage(
            family: .ipv4, destinationLength: 32, kind: 1, table: 254, source: IPAddress("10.9.0.1"),
            hops: [.init(interfaceIndex: 3, gateway: Self.gateway4, flags: 0x200)])
        #expect(
            try only(Fixture.route4) == NetlinkMessage(sequence: 7, isInterrupted: false, body: .route(route)))
    }

    @Test func `a lookup of the host's own address is local`() throws {
        let route = RouteMessage(
            family: .ipv4, destinationLength: 32, kind: 2, table: 254, source: IPAddress("10.9.0.1"),
            hops: [.init(interfaceIndex: 1, gateway: nil, flags: 0x8000_0200)])
        #expect(try only(Fixture.local4).body == .route(route))
    }

    @Test func `an IPv6 lookup's answer is read like one of IPv4`() throws {
        let route = RouteMessage(
            family: .ipv6, destinationLength: 128, kind: 1, table: 254, metric: 901,
            source: IPAddress("2001:db8:9::1"),
            hops: [.init(interfaceIndex: 3, gateway: IPAddress("2001:db8:9::fe"), flags: 0)])
        #expect(try only(Fixture.route6).body == .route(route))
    }

    @Test func `routes of a dump keep all next hops`() {
        let messages = NetlinkMessage.parse((Fixture.defaults4 + Fixture.done)[...])
        let single = RouteMessage(
            family: .ipv4, destinationLength: 0, kind: 1, table: 254, metric: 50,
            hops: [.init(interfaceIndex: 3, gateway: Self.gateway4, flags: 0)])
        let double = RouteMessage(
            family: .ipv4, destinationLength: 0, kind: 1, table: 254, metric: 900,
            hops: [
                .init(interfaceIndex: 3, gateway: Self.gateway4, flags: 0),
                .init(interfaceIndex: 3, gateway: IPAddress("10.9.0.253"), flags: 0),
            ])
        #expect(messages.map(\.body) == [.route(single), .route(double), .done(number: 0, text: nil)])
    }

    @Test func `a gateway of the other family is read`() throws {
        let datagram = hex(
            """
            3c000000 1800 0000 07000000 00000000
            02 00 00 00 fe 03 00 01 00000000
            1600 1200 0a00 20010db80009000000000000000000fe 0000  # RTA_VIA: AF_INET6
            0800 0400 03000000
            """)
        guard case .route(let route) = try only(datagram).body else {
            Issue.record("not a route")
            return
        }
        #expect(route.hops == [.init(interfaceIndex: 3, gateway: IPAddress("2001:db8:9::fe"), flags: 0)])
    }

    @Test func `a refusal has its number and the kernel's words`() throws {
        #expect(try only(Fixture.unreachable4).body == .error(number: 113, text: nil))
        #expect(
            try only(Fixture.badFlag).body == .error(number: 22, text: "ipv6: Invalid flags for get route request"))
    }

    @Test func `an address keeps its prefix and interface`() throws {
        let address = AddressMessage(
            interfaceIndex: 3, prefixLength: 24, address: try #require(IPAddress("10.9.0.1")))
        #expect(try only(Fixture.address4).body == .address(address))
    }

    @Test(arguments: [(Fixture.linkUp, true), (Fixture.linkWithoutCarrier, false)])
    func `a link has its name, kind and carrier`(datagram: [UInt8], hasCarrier: Bool) throws {
        guard case .link(let link) = try only(datagram).body else {
            Issue.record("not a link")
            return
        }
        #expect(link.name == "up0")
        #expect(link.kind == "veth")
        #expect(link.index == 3)
        #expect(link.isUp)
        #expect(link.hasCarrier == hasCarrier)
    }

    @Test func `what was removed is not read`() throws {
        var removed = Fixture.linkUp
        removed[4] = 17
        #expect(try only(removed).body == .skipped(type: 17))
    }

    @Test func `an interrupted dump is recognized`() throws {
        var datagram = Fixture.done
        datagram[6] |= 0x10
        #expect(try only(datagram).isInterrupted)
    }

    @Test(arguments: [UInt8(28), 99, 255])
    func `an unknown type is skipped and the next message read`(type: UInt8) {
        var unknown = Fixture.address4
        unknown[4] = type
        let messages = NetlinkMessage.parse((unknown + Fixture.done)[...])
        #expect(messages.map(\.body) == [.skipped(type: UInt16(type)), .done(number: 0, text: nil)])
    }

    static let all = [
        Fixture.route4, Fixture.local4, Fixture.route6, Fixture.unreachable4, Fixture.badFlag, Fixture.defaults4,
        Fixture.done, Fixture.address4, Fixture.linkUp, Fixture.linkWithoutCarrier,
    ]

    @Test(arguments: all) func `a truncated datagram never gives more messages`(datagram: [UInt8]) {
        let whole = NetlinkMessage.parse(datagram[...]).count
        for length in 0..<datagram.count {
            #expect(NetlinkMessage.parse(datagram[..<length]).count < whole)
        }
    }

    @Test(arguments: all) func `a message with too small a length is read without a trap`(datagram: [UInt8]) {
        for length in 0..<min(datagram.count, 256) {
            var shortened = datagram
            shortened[0] = UInt8(length)
            #expect((NetlinkMessage.parse(shortened[...]).isEmpty) == (length < 16))
        }
    }

    /// A byte that the kernel would never send, at every place: whatever comes out, nothing traps and reading ends.
    @Test(arguments: all, [UInt8(0), 1, 3, 0x7f, 0x80, 0xff])
    func `a wrong byte anywhere never traps`(datagram: [UInt8], byte: UInt8) {
        for place in datagram.indices {
            var wrong = datagram
            wrong[place] = byte
            #expect(NetlinkMessage.parse(wrong[...]).count <= datagram.count / 16)
        }
    }

    @Test func `an attribute of length zero ends the attributes`() throws {
        var datagram = Fixture.route4
        datagram[28] = 0
        guard case .route(let route) = try only(datagram).body else {
            Issue.record("not a route")
            return
        }
        #expect(route.hops.isEmpty)
        #expect(route.source == nil)
    }

    @Test func `the most negative error number is read as 0`() throws {
        var datagram = Fixture.unreachable4
        datagram.replaceSubrange(16..<20, with: [0, 0, 0, 0x80])
        #expect(try only(datagram).body == .error(number: 0, text: nil))
    }
}
