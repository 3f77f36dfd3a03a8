import Testing

@testable import MQTT

@Suite struct MQTTClientMachinePacketIDTests {
    @Test func `all 65,535 identifiers are given out once, in turn, and then none`() {
        var allocator = PacketIDAllocator()
        for value in 1...UInt16.max { #expect(allocator.allocate()?.rawValue == value) }
        #expect(allocator.allocate() == nil)
        allocator.free(id(40_000))
        #expect(allocator.allocate() == id(40_000))
        #expect(allocator.allocate() == nil)
    }

    @Test func `a freed identifier rests until its turn comes again`() {
        var allocator = PacketIDAllocator()
        for _ in 0..<100 {
            guard let next = allocator.allocate() else { return }
            allocator.free(next)
        }
        #expect(allocator.allocate() == id(101))
        #expect(allocator.count == 1)
        allocator.resume(after: id(65_534))
        #expect(allocator.allocate() == id(65_535))
        #expect(allocator.allocate() == id(1))
    }

    static let spans: [(Int64, Int64, UInt32)] = [
        (0, 1000, 1), (0, 1001, 2), (0, 0, 0), (5, 4, 0), (0, .max, .max), (.min, .max, .max), (.max, .min, 0),
    ]

    @Test(arguments: spans)
    func `seconds left are rounded up and kept within MQTT's range`(from: Int64, to: Int64, seconds: UInt32) {
        #expect(Timestamp(rawValue: from).secondsLeft(until: Timestamp(rawValue: to)) == seconds)
    }
}
