import Support

/// Runs schedules.
public enum Simulator {
    /// The outcome of one run.
    public struct Outcome: Sendable {
        /// The first one that was found; `nil` if all went well.
        public var violation: Violation?
        /// The number of steps that were carried out.
        public var steps: Int
        public var coverage: Coverage
        /// Everything that happened, as one number.
        public var digest: UInt64
        /// What happened, as lines, if that was requested.
        public var trace: [String]
    }

    /// - Parameters:
    ///   - modelsDisk: whether the disk is a model; otherwise it is the real store.
    ///   - traces: whether to record what happens.
    public static func run(_ schedule: Schedule, modelsDisk: Bool = true, traces: Bool = false) async throws -> Outcome
    {
        try await Scenario.run { scenario in
            let simulation = Simulation(schedule, in: scenario, traces: traces)
            try await simulation.prepare(modelsDisk: modelsDisk)
            var isWell = true
            for step in schedule.steps {
                isWell = try await simulation.run(step)
                if !isWell { break }
            }
            if isWell {
                try await simulation.heal()
                await simulation.checkEnd()
                await simulation.watchEnd()
            }
            return await simulation.outcome(digest: scenario.digest.value)
        }
    }

    /// Returns the schedule without what does not matter: parts are omitted as long as the same invariant is violated.
    ///
    /// - Parameter limit: how many runs that may take for the steps; each trait of the world may take one more.
    public static func shrink(
        _ schedule: Schedule, _ violation: Violation, limit: Int = 600, modelsDisk: Bool = true
    ) async -> Schedule {
        var best = schedule
        best.steps = Array(best.steps.prefix(violation.step + 1))
        var runs = 0
        func fails(_ candidate: Schedule) async -> Bool {
            runs += 1
            guard let outcome = try? await run(candidate, modelsDisk: modelsDisk) else { return false }
            return outcome.violation?.invariant == violation.invariant
        }
        var size = max(1, best.steps.count / 2)
        while runs < limit {
            var start = 0
            var isShorter = false
            while start < best.steps.count, runs < limit {
                var candidate = best
                candidate.steps.removeSubrange(start..<min(start + size, best.steps.count))
                if await fails(candidate) {
                    best = candidate
                    isShorter = true
                } else {
                    start += size
                }
            }
            if size == 1, !isShorter { break }
            size = max(1, size / 2)
        }
        for trait in World.Trait.allCases where best.world[trait] != 0 && runs < limit + World.Trait.allCases.count {
            var candidate = best
            candidate.world[trait] = 0
            if await fails(candidate) { best = candidate }
        }
        return best
    }
}

extension Simulation {
    func outcome(digest: UInt64) -> Simulator.Outcome {
        Simulator.Outcome(
            violation: violations.first, steps: position, coverage: coverage, digest: digest, trace: trace ?? [])
    }
}
