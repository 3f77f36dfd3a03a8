import NIOCore
import Testing

@testable import MQTT

@Suite struct ReadAheadTests {
    private static func stored(_ number: Int64) -> StoredMessage {
        StoredMessage(
            sequence: MessageSequence(rawValue: number),
            message: OutboundMessage(topic: "t", payload: ByteBuffer(), qos: .atLeastOnce), state: .queued)
    }

    @Test func `a message that came back from the window is not taken again from the store`() {
        var readAhead = ReadAhead(loadedThrough: MessageSequence(rawValue: 5))
        #expect(readAhead.nextLoad(through: MessageSequence(rawValue: 9), maxMessages: 10, maxBytes: 1000) != nil)
        readAhead.prepend(Outbox.Queued(sequence: Self.stored(7).sequence, message: Self.stored(7).message))
        // Another one, 8, is held back in doubt.
        readAhead.loaded([7, 8, 9].map(Self.stored), except: [MessageSequence(rawValue: 8)])
        #expect(readAhead.messages.map(\.sequence.rawValue) == [7, 9])
        #expect(readAhead.loadedThrough == MessageSequence(rawValue: 9))
    }
}
