import Session
import Testing

struct MessageMemoryTests {
    @Test(arguments: [0, 1])
    func `one session alone gets what is good for it`(sessions: Int) {
        let memory = MessageMemory(sessions: sessions)
        #expect((memory.inFlight, memory.readAhead, memory.unflushed) == (16 << 20, 4 << 20, 2 << 20))
        #expect(memory.ahead == 2 << 20)
    }

    /// `MemoryMax=` of the service is based on this.
    @Test(arguments: [64, 256, 4096])
    func `the messages of many sessions together take 512 MiB at most`(sessions: Int) {
        let memory = MessageMemory(sessions: sessions)
        #expect(sessions * (memory.inFlight + memory.readAhead + memory.unflushed + memory.ahead) == 512 << 20)
    }
}
