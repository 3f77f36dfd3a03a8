import Session
import Testing

struct OutboxMemoryTests {
    @Test(arguments: [0, 1])
    func `one session alone gets what is good for it`(sessions: Int) {
        let memory = OutboxMemory(sessions: sessions)
        #expect((memory.inFlight, memory.readAhead, memory.unflushed) == (16 << 20, 4 << 20, 2 << 20))
    }

    /// `MemoryMax=` of the service is based on this.
    @Test(arguments: [64, 256, 4096])
    func `the messages of many sessions together take 448 MiB at most`(sessions: Int) {
        let memory = OutboxMemory(sessions: sessions)
        #expect(sessions * (memory.inFlight + memory.readAhead + memory.unflushed) == 448 << 20)
    }
}
