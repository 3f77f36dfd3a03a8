import NIOCore

/// Messages on their way through the transport: let through to the connection, and not flushed yet. Those of QoS 0 are
/// kept here, because the store has them as queued until they are flushed; of the others only the bytes count.
struct TransportBacklog: Sendable {
    private struct Unflushed: Sendable {
        var queued: Outbox.Queued
        var flush: FlushNumber?
    }

    /// The QoS 0 messages, in order.
    private var unflushed = CircularBuffer<Unflushed>(initialCapacity: 1)
    private(set) var unflushedBytes = 0
    /// How many of `unflushed`, from its start, were written.
    private var writtenCount = 0
    /// The bytes of the messages that went out with each flush.
    private var flushes = CircularBuffer<(number: FlushNumber, bytes: Int)>(initialCapacity: 1)
    /// The bytes of all messages.
    private(set) var bytes = 0

    var unflushedCount: Int { unflushed.count }

    /// The first QoS 0 message.
    var first: Outbox.Queued? { unflushed.first?.queued }

    mutating func letThrough(bytes: Int) { self.bytes += bytes }

    /// Takes back something that was let through, because it is not sent after all.
    mutating func takeBack(bytes: Int) { self.bytes -= bytes }

    mutating func letThrough(_ queued: Outbox.Queued) {
        unflushed.append(Unflushed(queued: queued))
        bytes += queued.message.size
        unflushedBytes += queued.message.size
    }

    /// The next QoS 0 message to be written.
    mutating func nextToWrite() -> OutboundMessage? {
        guard writtenCount < unflushed.count else { return nil }
        defer { writtenCount += 1 }
        return unflushed[offset: writtenCount].queued.message
    }

    /// Gives this number to everything written since the last flush number.
    mutating func assign(_ number: FlushNumber, bytes: Int) {
        flushes.append((number, bytes))
        var offset = writtenCount - 1
        while offset >= 0, unflushed[offset: offset].flush == nil {
            unflushed[offset: offset].flush = number
            offset -= 1
        }
    }

    /// Returns the QoS 0 messages that are flushed, with their sizes.
    mutating func flushed(_ number: FlushNumber) -> [(sequence: MessageSequence, size: Int)] {
        while let flush = flushes.first, flush.number <= number {
            bytes -= flush.bytes
            flushes.removeFirst()
        }
        var done: [(sequence: MessageSequence, size: Int)] = []
        while let first = unflushed.first, let flush = first.flush, flush <= number {
            done.append((first.queued.sequence, first.queued.message.size))
            unflushedBytes -= first.queued.message.size
            unflushed.removeFirst()
            writtenCount -= 1
        }
        return done
    }

    mutating func update(_ change: (inout OutboundMessage) -> Void) {
        for index in unflushed.indices { change(&unflushed[index].queued.message) }
    }

    /// Returns what was not flushed.
    mutating func connectionClosed() -> [Outbox.Queued] {
        defer { self = TransportBacklog() }
        return unflushed.map(\.queued)
    }
}
