import SessionCore
import Testing
import Vocabulary

@testable import NetworkPath

@Suite struct NetworkTypeTests {
    struct Case: Sendable {
        var type: NetworkType
        var hardware: UInt16 = 1
        var flags: UInt32 = 0x11043
        var kind: String?
        var isWireless = false
        var deviceType: String?
    }

    @Test(arguments: [
        Case(type: .ethernet),
        Case(type: .ethernet, kind: "veth"),
        Case(type: .ethernet, kind: "bridge", deviceType: "bridge"),
        Case(type: .loopback, hardware: 772, flags: 0x10049),
        Case(type: .wifi, isWireless: true, deviceType: "wlan"),
        Case(type: .wifi, deviceType: "wlan"),
        Case(type: .cellular, deviceType: "wwan"),
        Case(type: .cellular, hardware: 519, kind: "rmnet"),
        Case(type: .cellular, hardware: 65534, kind: "wwan"),
        Case(type: .vpn, hardware: 65534, kind: "tun"),
        Case(type: .vpn, kind: "tun"),
        Case(type: .vpn, hardware: 65534, kind: "wireguard", deviceType: "wireguard"),
        Case(type: .vpn, hardware: 768, kind: "ipip"),
        Case(type: .vpn, hardware: 778, kind: "gre"),
        Case(type: .vpn, hardware: 776),
        Case(type: .other, hardware: 512, kind: "ppp", deviceType: "ppp"),
        Case(type: .other, hardware: 65534),
    ])
    func `an interface's type follows from hardware, driver and sysfs`(_ example: Case) {
        let link = LinkMessage(
            hardware: example.hardware, index: 2, flags: example.flags, name: "x", operationalState: 6,
            kind: example.kind)
        #expect(
            NetworkType(link: link, isWireless: example.isWireless, deviceType: example.deviceType) == example.type)
    }

    @Test func `the device type is found in the event's text`() {
        #expect(deviceType(inEvent: "DEVTYPE=wwan\nINTERFACE=wwan0\nIFINDEX=7\n") == "wwan")
        #expect(deviceType(inEvent: "INTERFACE=eth0\nIFINDEX=4\n") == nil)
        #expect(deviceType(inEvent: "") == nil)
    }

    @Test(arguments: [
        (UInt32(0x11043), UInt8(6), true), (0x11043, 0, true),
        (0x11042, 6, false), (0x01003, 6, false), (0x11043, 2, false), (0x11003, 5, false),
    ])
    func `a carrier needs the interface, the lower layer and the operational state up`(
        flags: UInt32, state: UInt8, hasCarrier: Bool
    ) {
        let link = LinkMessage(hardware: 1, index: 2, flags: flags, name: "x", operationalState: state)
        #expect(link.hasCarrier == hasCarrier)
    }

    @Test func `only unicast routes outside the local table are default routes`() {
        let hop = RouteMessage.Hop(interfaceIndex: 2, gateway: nil, flags: 0)
        let routes = [
            RouteMessage(family: .ipv4, destinationLength: 0, kind: 1, table: 254, metric: 200, hops: [hop]),
            RouteMessage(family: .ipv4, destinationLength: 0, kind: 1, table: 254, metric: 100, hops: [hop]),
            RouteMessage(family: .ipv4, destinationLength: 0, kind: 7, table: 254, hops: [hop]),
            RouteMessage(family: .ipv4, destinationLength: 0, kind: 1, table: 255, hops: [hop]),
            RouteMessage(family: .ipv4, destinationLength: 24, kind: 1, table: 254, hops: [hop]),
        ]
        let link = LinkMessage(hardware: 1, index: 2, flags: 0x11043, name: "up0", operationalState: 6)
        let tables = TableReader.Tables(links: [link], addresses: [], routes: routes) { _ in .ethernet }
        #expect(tables.defaultRoutes.map(\.metric) == [100, 200])
        #expect(tables.defaultRoutes.allSatisfy { $0.interface == "up0" && $0.isInMainTable })
    }
}
