import Foundation
import SimulationSupport
import Testing

/// Random schedules of everything that can happen to hosts, daemons, servers and disks; `make simulate` runs as many as
/// one likes.
@Suite("Simulation", .timeLimit(.minutes(30)))
struct SimulationTests {
    /// Ninety short runs, nine to a case; `make simulate` has the thousands, optimized.
    @Test(arguments: (0..<10).map { UInt64($0) * 9 })
    func `no invariant is violated in short runs`(first: UInt64) async throws {
        for seed in first..<first + 9 {
            let outcome = try await Simulator.run(Schedule(seed: seed, steps: 50))
            #expect(outcome.violation == nil, "seed \(seed)")
        }
    }

    @Test(arguments: 5000..<UInt64(5015))
    func `no invariant is violated in longer runs`(seed: UInt64) async throws {
        let outcome = try await Simulator.run(Schedule(seed: seed, steps: 200))
        #expect(outcome.violation == nil)
    }

    @Test(arguments: 1000..<UInt64(1004))
    func `no invariant is violated with the real store`(seed: UInt64) async throws {
        let outcome = try await Simulator.run(Schedule(seed: seed, steps: 150), modelsDisk: false)
        #expect(outcome.violation == nil)
    }

    @Test(arguments: 2000..<UInt64(2004))
    func `the same seed gives the same run`(seed: UInt64) async throws {
        let schedule = Schedule(seed: seed, steps: 150)
        let first = try await Simulator.run(schedule)
        let second = try await Simulator.run(schedule)
        #expect(first.digest == second.digest)
    }

    @Test func `a schedule is read back as it was written`() throws {
        let schedule = Schedule(seed: 7, steps: 100)
        #expect(Schedule(schedule.description) == schedule)
    }

    /// The schedules of past findings.
    static let schedules: [String] = {
        let directory = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../Schedules")
            .standardized
        let files = (try? FileManager.default.contentsOfDirectory(at: directory, includingPropertiesForKeys: nil)) ?? []
        precondition(!files.isEmpty, "there are no schedules in \(directory.path())")
        return files.map(\.path).filter { $0.hasSuffix(".txt") }.sorted()
    }()

    @Test(arguments: schedules)
    func `a schedule that once violated an invariant no longer does`(file: String) async throws {
        let schedule = try #require(Schedule(try String(contentsOfFile: file, encoding: .utf8)))
        let outcome = try await Simulator.run(schedule)
        #expect(outcome.violation == nil)
    }
}
