import Foundation

/// Tries mistakes one by one: first the tests of the module that they are in, then simulations, then scenarios.
struct Judge {
    struct Verdict: Sendable {
        var site: Site
        /// Who found it, and how; `nil` if it survived.
        var killer: String?
        /// The time of a processor until then, in seconds.
        var processor: Double
        /// Whether any of its trials came by it.
        var isReached: Bool
    }

    /// What every mistake of a module goes through.
    private struct Stage: Sendable {
        var name: String
        var program: URL
        var arguments: [String]
        /// What was reached without a mistake.
        var reached: Set<Int> = []
        var limit = Trial.Limit(processor: 3_600, idle: 600)

        func sign(_ line: Substring) -> String? {
            guard line.contains("✘") || line.hasPrefix("seed ") else { return nil }
            return String(line.replacing("✘ ", with: "").prefix(200))
        }
    }

    private let sites: [Site]
    private let jobs: Int
    private let outputs: URL
    /// By module.
    private var stages: [String: [Stage]] = [:]

    init(_ workshop: Workshop, _ sites: [Site], simulations: Int, steps: Int, jobs: Int) async throws {
        self.sites = sites
        self.jobs = max(1, jobs)
        outputs = workshop.scratch.appending(path: "runs")
        try FileManager.default.createDirectory(at: outputs, withIntermediateDirectories: true)
        var ofDaemons: [Stage] = []
        if simulations > 0 {
            ofDaemons.append(
                try await measured(
                    Stage(
                        name: "simulation", program: workshop.simulator,
                        arguments: [
                            "--seeds", "0..<\(simulations)", "--steps", "\(steps)", "--jobs", "1", "--brief",
                            "--progress", "--survey",
                        ])))
        }
        func tests(_ target: String) async throws -> [Stage] {
            try await quickAndSlow(
                Stage(
                    name: target, program: workshop.tests,
                    arguments: ["--testing-library", "swift-testing", "--filter", "^\(target)\\."]))
        }
        if workshop.hasScenarios { ofDaemons += try await tests(Workshop.scenarios) }
        for module in Set(sites.map(\.module)) { stages[module] = try await tests("\(module)Tests") + ofDaemons }
    }

    /// A few tests take most of the time, and what they find others find, too, most of the time. They come last.
    private func quickAndSlow(_ tests: Stage) async throws -> [Stage] {
        _ = try await measured(tests)
        let passed = /✔ Test "(.*)" (?:with .* )?passed after ([0-9.]+) seconds/
        let output = try String(contentsOf: outputs.appending(path: "0"), encoding: .utf8)
        let times = output.matches(of: passed).map { (name: String($0.1), seconds: Double($0.2) ?? 0) }
        let total = times.reduce(0) { $0 + $1.seconds }
        let slow = times.filter { $0.seconds > total / 40 }.map { NSRegularExpression.escapedPattern(for: $0.name) }
        guard total > 5, !slow.isEmpty else { return [try await measured(tests)] }
        var (quick, rest) = (tests, tests)
        quick.arguments += ["--skip", slow.joined(separator: "|")]
        rest.arguments[rest.arguments.count - 1] += ".*(" + slow.joined(separator: "|") + ")"
        rest.name += ", slow"
        return [try await measured(quick), try await measured(rest)]
    }

    /// Without a mistake everything passes; how long that takes is what is compared with.
    private func measured(_ stage: Stage) async throws -> Stage {
        let list = outputs.appending(path: "reached")
        try? FileManager.default.removeItem(at: list)
        let trial = try await Trial.run(
            stage.program, stage.arguments, mutant: -1, reached: list, output: outputs.appending(path: "0"),
            limit: stage.limit, sign: stage.sign)
        if case .failed(let reason) = trial.outcome {
            throw Workshop.Failure(description: "without a mistake: \(stage.name): \(reason)")
        }
        var stage = stage
        stage.limit = Trial.Limit(processor: 10 + 10 * trial.processor)
        stage.reached = Set(try String(contentsOf: list, encoding: .utf8).split(separator: "\n").compactMap { Int($0) })
        say("\(stage.name): \(seconds(trial.processor)) without a mistake, comes by \(stage.reached.count) places")
        return stage
    }

    func judge() async throws -> [Verdict] {
        var verdicts: [Verdict] = []
        try await withThrowingTaskGroup(of: Verdict.self) { group in
            var next = sites.makeIterator()
            func start() {
                guard let site = next.next() else { return }
                group.addTask { try await judge(site) }
            }
            for _ in 0..<jobs { start() }
            while let verdict = try await group.next() {
                verdicts.append(verdict)
                tell(verdict, "\(verdicts.count)/\(sites.count)")
                start()
            }
        }
        return verdicts.sorted { $0.site.number < $1.site.number }
    }

    private func judge(_ site: Site) async throws -> Verdict {
        var verdict = Verdict(site: site, killer: nil, processor: 0, isReached: false)
        let output = outputs.appending(path: "\(site.number)")
        defer { try? FileManager.default.removeItem(at: output) }
        for stage in stages[site.module] ?? [] where stage.reached.contains(site.number) {
            verdict.isReached = true
            let trial = try await Trial.run(
                stage.program, stage.arguments, mutant: site.number, output: output, limit: stage.limit,
                sign: stage.sign)
            verdict.processor += trial.processor
            if case .failed(let reason) = trial.outcome {
                verdict.killer = "\(stage.name): \(reason)"
                break
            }
        }
        return verdict
    }

    private func tell(_ verdict: Verdict, _ progress: String) {
        let end = verdict.killer ?? (verdict.isReached ? "SURVIVED" : "SURVIVED, nothing comes by")
        say("\(progress) \(verdict.site) | \(seconds(verdict.processor)) \(end)")
    }
}

func seconds(_ value: Double) -> String { String(format: "%.1f s", value) }

extension Site: CustomStringConvertible {
    var module: String { String(key.file.split(separator: "/")[1]) }

    var description: String {
        let file = key.file.replacing("Sources/", with: "")
        return "\(file):\(line) \(key.function) | \(key.kind) | \(key.text) → \(becomes)"
    }
}
