import Testing

@testable import MQTT

/// What the documentation of the module says about a configuration in which only the client identifier is given.
@Suite struct DefaultsTests {
    @Test func `a key is remembered for 24 hours`() {
        #expect(PublishKey.lifetime == 86_400_000)
    }

    @Test(arguments: [
        (0x01, true), (0x1F, true), (0x20, false), (0x7E, false), (0x7F, true), (0x9F, true), (0xA0, false),
        (0xFDCF, false), (0xFDD0, true), (0xFDEF, true), (0xFDF0, false), (0xFFFD, false), (0xFFFE, true),
        (0x1FFFF, true), (0x1FFFD, false),
    ])
    func `control characters and noncharacters are those of 1.5.4`(value: UInt32, isDiscouraged: Bool) throws {
        let scalar = try #require(Unicode.Scalar(value))
        #expect(String(scalar).discouragedCharacter == (isDiscouraged ? scalar : nil))
    }

    @Test func `the limits are those of the documentation`() {
        let configuration = MQTTClientMachine.Configuration(clientID: "me")
        #expect(configuration.version == .five)
        #expect((configuration.keepAlive, configuration.sessionExpiry) == (60, 86_400))
        #expect((configuration.receiveMaximum, configuration.maximumPacketSize) == (1024, 16_777_216))
        #expect((configuration.inFlight.messages, configuration.unflushed.qos0) == (1024, 256))
        #expect(configuration.unflushed.bytes == 2_097_152)
        #expect((configuration.readAhead.messages, configuration.readAhead.bytes) == (1024, 4_194_304))
        #expect((configuration.outbox.messages, configuration.outbox.bytes) == (100_000, 268_435_456))
        #expect((configuration.inbox.messages, configuration.inbox.bytes) == (100_000, 268_435_456))
        #expect(configuration.outbox.whenFull == .refuse && configuration.inbox.whenFull == .dropOldest)
        #expect(configuration.outbox.maximumAge == nil && configuration.will == nil)
        #expect(configuration.inbox.waitingBytes == 8_388_608)
        #expect((configuration.acknowledgeTimeout, configuration.requestTimeout) == (60_000, 30_000))
        #expect((configuration.filtersPerPacket, configuration.maximumSubscribeRequests) == (8, 64))
    }
}
