import Glibc
import MQTT
import SessionCore
import Support
import Testing

@testable import DurableStore

@Suite struct `After kill -9` {
    @Test(arguments: [100, 150_000])
    func `every committed change is there`(bytes: Int) async throws {
        let directory = try TemporaryDirectory(in: Support.TemporaryDirectory.diskParent)
        let main = try session()
        let store = try openStore(directory)
        for number: Int64 in 1...50 { try await store.commit(main, .insert(message(number, bytes: bytes))) }
        let survivor = try openStore(try directory.copyAsItIs())
        #expect(try await survivor.queue(main) == (1...50).map { message($0, bytes: bytes) })
    }

    /// The process notes what it would have acknowledged, and is killed in the middle of a commit.
    @Test(arguments: 1...5, [3000, 200_000])
    func `a process killed in the middle of a stream has lost nothing that it acknowledged`(
        round: Int, bytes: Int
    ) async throws {
        let directory = try TemporaryDirectory(in: Support.TemporaryDirectory.diskParent)
        let path = directory.path
        await #expect(processExitsWith: .signal(SIGKILL)) {
            [path = path as String, round = round as Int, bytes = bytes as Int] in
            let store = try openStore(path)
            let main = try session()
            let notes = open("\(path)/acknowledged", O_RDWR | O_CREAT | O_APPEND, 0o600)
            Task.detached {
                var status = stat()
                while status.st_size < 8 * 40 * round { fstat(notes, &status) }
                kill(getpid(), SIGKILL)
            }
            for number: Int64 in 1... {
                try await store.commit([
                    (main, [.insert(message(2 * number - 1, bytes: bytes)), .insert(message(2 * number))])
                ])
                var acknowledged = number
                write(notes, &acknowledged, 8)
            }
        }
        let acknowledged = Int64(try readFile("\(path)/acknowledged").count / 8)
        #expect(acknowledged >= Int64(40 * round))
        let store = try openStore(path)
        #expect(!store.openReport.isNew && store.openReport.movedAside == nil)
        let main = try session()
        let sequences = try await store.queue(main).map(\.sequence.rawValue)
        #expect(sequences.count >= 2 * acknowledged)
        #expect(sequences.count.isMultiple(of: 2), "half of a transaction was applied")
        #expect(sequences == Array(1...Int64(sequences.count)))
        #expect(try await store.mqtt(main).nextSequence > sequence(Int64(sequences.count)))
    }
}
