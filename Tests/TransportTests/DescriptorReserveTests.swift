import Testing

@testable import Transport

@Suite struct DescriptorReserveTests {
    @Test(arguments: [(9, 20, false), (10, 20, true), (31, 64, false), (32, 64, true), (65_503, 65_536, false)])
    func `the last descriptors, and no more than half of them, are not used for connections`(
        descriptor: UInt, limit: UInt, isReserved: Bool
    ) {
        #expect(DescriptorReserve.isReserved(descriptor, of: limit) == isReserved)
    }
}
