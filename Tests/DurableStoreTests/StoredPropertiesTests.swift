import MQTT
import NIOCore
import Support
import Testing

@testable import DurableStore

/// The bytes of the column `properties`: they are in files, so they never change.
@Suite struct StoredPropertiesTests {
    /// Version, then tag, length and value.
    private static let contentType: [UInt8] = [1, 9, 0, 0, 0, 1, 0x74]

    private static func decoded(_ bytes: [UInt8]) -> Publish.Properties? {
        StoredProperties.decode(ByteBuffer(bytes: bytes))
    }

    @Test func `a tag has the number that files have`() throws {
        let properties = Publish.Properties(
            payloadFormat: .utf8, messageExpiryInterval: 2, topicAlias: 3, responseTopic: "r",
            correlationData: ByteBuffer(bytes: [5]), userProperties: [.init(name: "n", value: "v")],
            subscriptionIDs: [8], contentType: "t")
        #expect(unsetMembers(of: properties).isEmpty)
        let bytes = try #require(StoredProperties.encode(properties))
        #expect(
            Array(bytes.readableBytesView) == [
                1,
                1, 0, 0, 0, 1, 1,
                2, 0, 0, 0, 4, 0, 0, 0, 2,
                3, 0, 0, 0, 2, 0, 3,
                4, 0, 0, 0, 1, 0x72,
                5, 0, 0, 0, 1, 5,
                6, 0, 0, 0, 1, 0x6E,
                7, 0, 0, 0, 1, 0x76,
                8, 0, 0, 0, 4, 0, 0, 0, 8,
                9, 0, 0, 0, 1, 0x74,
            ])
        #expect(StoredProperties.decode(bytes) == properties)
    }

    @Test func `a property of a later version is skipped, and the others are read`() {
        #expect(Self.decoded(Self.contentType + [200, 0, 0, 0, 2, 7, 7]) == Publish.Properties(contentType: "t"))
    }

    @Test(
        arguments: [
            [], [2], [1, 9], [1, 9, 0, 0, 0, 2, 0x74], [1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 1, 9],
            [1, 6, 0, 0, 0, 1, 0x6E], [1, 7, 0, 0, 0, 1, 0x76], [1, 6, 0, 0, 0, 1, 0x6E, 200, 0, 0, 0, 0],
        ] as [[UInt8]])
    func `a record that no version writes is not read`(_ bytes: [UInt8]) {
        #expect(Self.decoded(bytes) == nil)
    }
}
