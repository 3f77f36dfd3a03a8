import NIOCore
import Testing

@testable import MQTT

/// The messages that wait for one durable consumer, counted in runs.
@Suite struct ConsumerBacklogTests {
    private static let limits = MQTTClientMachine.InboxLimits(messages: 640, bytes: 6400)

    private static func backlog(_ count: Int64, size: Int) -> ConsumerBacklog {
        var backlog = ConsumerBacklog()
        for number in 1...count { backlog.add(InboxSequence(rawValue: number), size, limits) }
        return backlog
    }

    @Test func `a run has at most a 64th of the messages that may wait`() {
        var backlog = Self.backlog(11, size: 1)
        #expect(backlog.dropOldest() == InboxRun(through: InboxSequence(rawValue: 10), messages: 10, bytes: 10))
        #expect(backlog.messages == 1)
        #expect(backlog.bytes == 1)
    }

    @Test func `a run has at most a 64th of the bytes that may wait, unless one message has more`() {
        var backlog = Self.backlog(3, size: 50)
        #expect(backlog.dropOldest() == InboxRun(through: InboxSequence(rawValue: 2), messages: 2, bytes: 100))
        backlog = Self.backlog(2, size: 101)
        #expect(backlog.dropOldest() == InboxRun(through: InboxSequence(rawValue: 1), messages: 1, bytes: 101))
    }

    @Test func `a message that was dropped or never arrived cannot be removed`() {
        var backlog = Self.backlog(11, size: 1)
        backlog.remove(InboxSequence(rawValue: 12), 1)
        #expect(backlog.messages == 11)
        _ = backlog.dropOldest()
        backlog.remove(InboxSequence(rawValue: 10), 1)
        #expect(backlog.messages == 1)
        backlog.remove(InboxSequence(rawValue: 11), 1)
        #expect(backlog.messages == 0)
        #expect(backlog.bytes == 0)
        #expect(backlog.dropOldest() == nil)
    }

    @Test func `runs of which nothing waits any more are passed over`() {
        var backlog = Self.backlog(4, size: 100)
        for number: Int64 in [2, 2, 3] { backlog.remove(InboxSequence(rawValue: number), 100) }
        #expect(backlog.messages == 2, "a message is removed once")
        #expect(backlog.bytes == 200)
        #expect(backlog.dropOldest()?.through == InboxSequence(rawValue: 1))
        #expect(backlog.dropOldest() == InboxRun(through: InboxSequence(rawValue: 4), messages: 1, bytes: 100))
        #expect(backlog.dropOldest() == nil)
    }

    @Test func `the size of a message is that of everything its publisher set`() {
        var properties = Publish.Properties()
        properties.contentType = "text"
        properties.userProperties = [UserProperty(name: "a", value: "bc")]
        let message = MQTTClientMachine.InboundMessage(
            topic: "t", payload: ByteBuffer(string: "payload"), qos: .atLeastOnce, retain: false, duplicate: false,
            properties: properties)
        #expect(message.size == 1 + 7 + 4 + 3)
    }
}
