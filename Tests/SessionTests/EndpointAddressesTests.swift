import NIOCore
import SessionCore
import Testing

@testable import Session

struct EndpointAddressesTests {
    private let name = EndpointIndex(0)
    private let literal = EndpointIndex(1)
    private var addresses = EndpointAddresses(["server.example", "192.0.2.1"])
    private let own: SocketAddress
    private let other: SocketAddress

    init() throws {
        own = try SocketAddress(ipAddress: "192.0.2.1", port: 0)
        other = try SocketAddress(ipAddress: "192.0.2.2", port: 1883)
    }

    @Test mutating func `a name's peer is watched while connected, and all its addresses otherwise`() {
        #expect(addresses.dialing(name, [own, other]) == .init(addresses: [own, other], origin: .name))
        #expect(addresses.connected(name, to: other) == .init(addresses: [other], origin: .peer))
        #expect(addresses.disconnected(name) == .init(addresses: [own, other], origin: .name))
    }

    @Test mutating func `a literal address is watched all the time`() throws {
        #expect(addresses.dialing(literal, [try SocketAddress(ipAddress: "192.0.2.1", port: 8883)]) == nil)
        #expect(addresses.disconnected(literal) == nil)
    }

    @Test mutating func `a redirected connection's address is watched until the connection ends`() throws {
        #expect(addresses.dialing(literal, [other]) == .init(addresses: [other], origin: .literal))
        #expect(addresses.disconnected(literal) == .init(addresses: [own], origin: .literal))
        #expect(addresses.disconnected(literal) == nil)
    }
}
