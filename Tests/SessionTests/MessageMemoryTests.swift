import Session
import Testing

struct MessageMemoryTests {
    @Test(arguments: [0, 1, 16])
    func `a few sessions get as much as they can use`(sessions: Int) {
        let memory = MessageMemory(sessions: sessions)
        #expect((memory.inFlight, memory.readAhead, memory.unflushed) == (16 << 20, 4 << 20, 2 << 20))
        #expect(memory.ahead == 2 << 20)
    }

    /// `MemoryMax=` of the service is based on this.
    @Test(arguments: [17, 64, 256, 1000, 4096, 65_535])
    func `the messages of many sessions together take 512 MiB at most`(sessions: Int) {
        let memory = MessageMemory(sessions: sessions)
        let sum = sessions * (memory.inFlight + memory.readAhead + memory.unflushed + memory.ahead)
        #expect(sum <= 512 << 20)
        if sessions >= 64, sessions.nonzeroBitCount == 1 { #expect(sum == 512 << 20) }
    }
}
