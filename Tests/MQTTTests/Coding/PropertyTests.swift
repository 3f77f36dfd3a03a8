import NIOCore
import Testing

@testable import MQTT

/// Table 2-4 of the standard (2.2.2.2): which property may be in which packet.
struct PropertyRow: Sendable, CustomTestStringConvertible {
    let id: UInt8
    let name: String
    /// A valid value in hex.
    let value: String
    let places: Set<PropertyPlace>

    var testDescription: String { name }
    var bytes: [UInt8] { [id] + bytesOf(value) }

    init(_ id: UInt8, _ name: String, _ value: String, _ places: Set<PropertyPlace>) {
        self.id = id
        self.name = name
        self.value = value
        self.places = places
    }

    static let all: [PropertyRow] = [
        PropertyRow(0x01, "Payload Format Indicator", "01", [.publish, .will]),
        PropertyRow(0x02, "Message Expiry Interval", "00 00 00 01", [.publish, .will]),
        PropertyRow(0x03, "Content Type", "00 01 61", [.publish, .will]),
        PropertyRow(0x08, "Response Topic", "00 01 61", [.publish, .will]),
        PropertyRow(0x09, "Correlation Data", "00 01 61", [.publish, .will]),
        PropertyRow(0x0B, "Subscription Identifier", "01", [.publish, .subscribe]),
        PropertyRow(0x11, "Session Expiry Interval", "00 00 00 01", [.connect, .connack, .disconnectOfClient]),
        PropertyRow(0x12, "Assigned Client Identifier", "00 01 61", [.connack]),
        PropertyRow(0x13, "Server Keep Alive", "00 01", [.connack]),
        PropertyRow(0x15, "Authentication Method", "00 01 61", [.connect, .connack, .auth]),
        PropertyRow(0x16, "Authentication Data", "00 01 61", [.connect, .connack, .auth]),
        PropertyRow(0x17, "Request Problem Information", "01", [.connect]),
        PropertyRow(0x18, "Will Delay Interval", "00 00 00 01", [.will]),
        PropertyRow(0x19, "Request Response Information", "01", [.connect]),
        PropertyRow(0x1A, "Response Information", "00 01 61", [.connack]),
        PropertyRow(0x1C, "Server Reference", "00 01 61", [.connack, .disconnectOfClient, .disconnectOfServer]),
        PropertyRow(
            0x1F, "Reason String", "00 01 61",
            [
                .connack, .puback, .pubrec, .pubrel, .pubcomp, .suback, .unsuback, .disconnectOfClient,
                .disconnectOfServer, .auth,
            ]),
        PropertyRow(0x21, "Receive Maximum", "00 01", [.connect, .connack]),
        PropertyRow(0x22, "Topic Alias Maximum", "00 01", [.connect, .connack]),
        PropertyRow(0x23, "Topic Alias", "00 01", [.publish]),
        PropertyRow(0x24, "Maximum QoS", "01", [.connack]),
        PropertyRow(0x25, "Retain Available", "01", [.connack]),
        PropertyRow(0x26, "User Property", "00 01 61 00 01 62", Set(PropertyPlace.allCases)),
        PropertyRow(0x27, "Maximum Packet Size", "00 00 00 01", [.connect, .connack]),
        PropertyRow(0x28, "Wildcard Subscription Available", "01", [.connack]),
        PropertyRow(0x29, "Subscription Identifier Available", "01", [.connack]),
        PropertyRow(0x2A, "Shared Subscription Available", "01", [.connack]),
    ]
}

/// Where properties stand: a packet with room for them.
enum PropertyPlace: CaseIterable {
    case connect, will, connack, publish, puback, pubrec, pubrel, pubcomp, subscribe, suback, unsubscribe, unsuback
    case disconnectOfClient, disconnectOfServer, auth

    var sender: Sender {
        switch self {
        case .connect, .will, .subscribe, .unsubscribe, .disconnectOfClient: .client
        default: .server
        }
    }

    /// The packet with these properties, which have less than 100 bytes.
    func packet(with properties: [UInt8]) -> [UInt8] {
        let (first, before, after) = parts
        // Data needs a method in CONNECT, and AUTH always needs one.
        let needsMethod = !properties.isEmpty && (self == .auth || properties.first == 0x16 && self == .connect)
        let method: [UInt8] = needsMethod && properties.first != 0x15 ? bytesOf("15 00 01 6D") : []
        let all = method + properties
        let body = bytesOf(before) + [UInt8(all.count)] + all + bytesOf(after)
        return [first, UInt8(body.count)] + body
    }

    private var parts: (first: UInt8, before: String, after: String) {
        switch self {
        case .connect: (0x10, "00 04 4D 51 54 54 05 02 00 3C", "00 01 61")
        case .will: (0x10, "00 04 4D 51 54 54 05 06 00 3C 00 00 01 61", "00 01 77 00 00")
        case .connack: (0x20, "00 00", "")
        case .publish: (0x30, "00 01 61", "")
        case .puback: (0x40, "00 01 00", "")
        case .pubrec: (0x50, "00 01 00", "")
        case .pubrel: (0x62, "00 01 00", "")
        case .pubcomp: (0x70, "00 01 00", "")
        case .subscribe: (0x82, "00 01", "00 01 61 00")
        case .suback: (0x90, "00 01", "00")
        case .unsubscribe: (0xA2, "00 01", "00 01 61")
        case .unsuback: (0xB0, "00 01", "00")
        case .disconnectOfClient, .disconnectOfServer: (0xE0, "00", "")
        case .auth: (0xF0, "18", "")
        }
    }
}

struct PropertyTests {
    @Test func `the table has every property`() {
        #expect(Set(PropertyRow.all.map(\.id)) == Set(PropertyID.allCases.map(\.rawValue)))
    }

    @Test(arguments: PropertyRow.all, PropertyPlace.allCases)
    func `a property is accepted and kept where the standard allows it, and refused elsewhere`(
        _ row: PropertyRow, _ place: PropertyPlace
    ) throws {
        let bytes = place.packet(with: row.bytes)
        if row.places.contains(place) {
            let packet = try #require(try decode([bytes], from: place.sender).first)
            #expect(encode(packet).count == bytes.count)
            #expect(try decode([encode(packet)], from: place.sender) == [packet])
        } else {
            let error = #expect(throws: MalformedPacket.self) { try decode([bytes], from: place.sender) }
            #expect(error?.message.contains(row.name) == true)
        }
    }

    @Test(arguments: PropertyRow.all, PropertyPlace.allCases)
    func `a property that occurs twice is a protocol error unless it may repeat`(
        _ row: PropertyRow, _ place: PropertyPlace
    ) throws {
        guard row.places.contains(place) else { return }
        let bytes = place.packet(with: row.bytes + row.bytes)
        if row.id == 0x26 || (row.id == 0x0B && place == .publish) {
            let packet = try #require(try decode([bytes], from: place.sender).first)
            #expect(encode(packet).count == bytes.count)
        } else {
            let error = #expect(throws: MalformedPacket.self) { try decode([bytes], from: place.sender) }
            #expect(error?.reasonCode == .protocolError)
            #expect(error?.message.contains("\(row.name) occurs twice") == true)
        }
    }

    @Test(arguments: PropertyRow.all, PropertyPlace.allCases)
    func `a property that is cut off by the Property Length is malformed`(
        _ row: PropertyRow, _ place: PropertyPlace
    ) throws {
        guard row.places.contains(place) else { return }
        for length in 1..<row.bytes.count {
            let cut = Array(row.bytes.prefix(length))
            let bytes = place.packet(with: cut)
            #expect(throws: MalformedPacket.self) { try decode([bytes], from: place.sender) }
        }
    }
}
