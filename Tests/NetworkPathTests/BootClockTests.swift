import NetworkPath
import SessionCore
import Testing

@Test func `the boot clock does not go back`() {
    let first = BootClock.now()
    #expect(first.nanoseconds > 0)
    #expect(BootClock.now() >= first)
}
