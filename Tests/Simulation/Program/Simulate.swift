import ArgumentParser
import Foundation
import SimulationSupport

/// Runs schedules that are drawn from seeds, until one violates an invariant; then makes it as short as it can.
@main
struct Simulate: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Simulates daemons, servers, networks and disks, and checks every invariant.")

    @Option(help: "The seeds, as A..<B.")
    var seeds = "0..<100"

    @Option(help: "How many steps each run has.")
    var steps = 1000

    @Option(help: "How many runs at once.")
    var jobs = 2

    @Option(help: "Run one seed, and tell what happens.")
    var replay: UInt64?

    @Option(help: "Run the schedule in a file, and tell what happens.")
    var schedule: String?

    @Flag(help: "Put the real store on a real disk, instead of a model.")
    var realDisk = false

    @Option(help: "Run every nth seed twice, and compare.")
    var twice = 50

    @Option(help: "How many runs shrinking a schedule may take.")
    var shrink = 600

    @Flag(help: "Do not tell what was covered.")
    var brief = false

    @Flag(help: "Tell of every run.")
    var progress = false

    @Flag(help: "Go on after a violation, and tell of each.")
    var survey = false

    func run() async throws {
        if let schedule {
            guard let text = try? String(contentsOfFile: schedule, encoding: .utf8), let parsed = Schedule(text) else {
                throw ValidationError("\(schedule) is not a schedule")
            }
            try await tell(parsed)
        } else if let replay {
            try await tell(Schedule(seed: replay, steps: steps))
        } else {
            try await runAll()
        }
    }

    private func tell(_ schedule: Schedule) async throws {
        let outcome = try await Simulator.run(schedule, modelsDisk: !realDisk, traces: true)
        for line in outcome.trace { say(line) }
        say("world \(schedule.world)")
        guard let violation = outcome.violation else {
            say("no violation; digest \(String(outcome.digest, radix: 16))")
            return
        }
        say(violation.description)
        throw ExitCode.failure
    }

    private func runAll() async throws {
        let bounds = seeds.components(separatedBy: "..<").compactMap { UInt64($0) }
        guard bounds.count == 2, bounds[0] < bounds[1] else { throw ValidationError("seeds are given as A..<B") }
        let begin = ContinuousClock.now
        let length = Length(steps: steps, modelsDisk: !realDisk, twice: UInt64(max(0, twice)))
        var total = Total()
        var told = begin
        try await withThrowingTaskGroup(of: Run.self) { group in
            var next = bounds[0]
            func start() {
                guard next < bounds[1], survey || total.failure == nil else { return }
                let seed = next
                next += 1
                group.addTask { try await Run(seed, length) }
            }
            for _ in 0..<max(1, jobs) { start() }
            while let run = try await group.next() {
                total.add(run)
                if progress { say("run \(run.seed), in all steps \(total.steps)") }
                if survey, let violation = run.outcome.violation { say("seed \(run.seed): \(violation)") }
                start()
                if told.duration(to: .now) > .seconds(30) {
                    told = .now
                    say("\(total.runs) runs, \(total.steps) steps, \(rate(total.steps, since: begin)) steps/s")
                }
            }
        }
        let seconds = begin.duration(to: .now)
        say("\(total.runs) runs, \(total.steps) steps in \(seconds), \(rate(total.steps, since: begin)) steps/s")
        if !brief { say(total.coverage.report) }
        if survey, total.failures > 0 {
            say("\(total.failures) runs with a violation")
            throw ExitCode.failure
        }
        if let failure = total.failure { try await tell(failure) }
        say("no violation")
    }

    private struct Length: Sendable {
        var steps: Int
        var modelsDisk: Bool
        var twice: UInt64
    }

    private struct Run: Sendable {
        var seed: UInt64
        var outcome: Simulator.Outcome
        var steps: Int

        init(_ seed: UInt64, _ length: Length) async throws {
            let schedule = Schedule(seed: seed, steps: length.steps)
            self.seed = seed
            outcome = try await Simulator.run(schedule, modelsDisk: length.modelsDisk)
            steps = outcome.steps
            guard outcome.violation == nil, length.twice > 0, seed % length.twice == 0 else { return }
            let again = try await Simulator.run(schedule, modelsDisk: length.modelsDisk)
            steps += again.steps
            guard again.digest != outcome.digest else { return }
            outcome.violation = Violation(
                invariant: .sameSeedSameRun, sentence: "two runs of seed \(seed) differ", step: length.steps)
        }
    }

    private struct Total {
        var runs = 0
        var steps = 0
        var coverage = Coverage()
        /// How many runs had a violation, and the one of the first seed.
        var failures = 0
        var failure: Run?

        mutating func add(_ run: Run) {
            runs += 1
            steps += run.steps
            coverage.merge(run.outcome.coverage)
            guard run.outcome.violation != nil else { return }
            failures += 1
            if failure.map({ run.seed < $0.seed }) ?? true { failure = run }
        }
    }

    private func tell(_ failure: Run) async throws {
        guard let violation = failure.outcome.violation else { return }
        say("seed \(failure.seed): \(violation)")
        guard shrink > 0, violation.invariant != .sameSeedSameRun else { throw ExitCode.failure }
        let schedule = Schedule(seed: failure.seed, steps: steps)
        let short = await Simulator.shrink(schedule, violation, limit: shrink, modelsDisk: !realDisk)
        say("shrunk from \(violation.step + 1) to \(short.steps.count) steps; to be replayed with --schedule FILE:")
        say(short.description)
        throw ExitCode.failure
    }

    private func rate(_ steps: Int, since begin: ContinuousClock.Instant) -> Int {
        let duration = begin.duration(to: .now)
        return Int(Double(steps) / (duration / .seconds(1)))
    }

    private func say(_ text: String) { FileHandle.standardOutput.write(Data((text + "\n").utf8)) }
}
