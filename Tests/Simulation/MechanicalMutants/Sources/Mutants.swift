import ArgumentParser
import Foundation

@main
struct Mutants: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Makes mechanical mistakes in the pure modules, and shows which are found by the tests.")

    @Option(help: "How many mistakes are tried.")
    var count = 400

    @Option(help: "Which ones: another number, others.")
    var seed: UInt64 = 1

    @Option(help: "How many are tried at once.")
    var jobs = 2

    @Option(help: "How many simulations what the tests do not find goes through; 0: none are built.")
    var simulations = 50

    @Option(help: "How many steps each simulation has.")
    var steps = 200

    @Flag(help: "Only the tests of each module judge: without simulations and scenarios, little of the rest is built.")
    var testsOnly = false

    @Option(help: "Only those whose file, function, kind and text contain this.")
    var only: String?

    @Flag(help: "Only those that survived the last time.")
    var survivors = false

    @Flag(help: "Take what was built the last time; the sources must be the same.")
    var built = false

    @Option(help: "The repository.")
    var root = "."

    @Option(help: "Where it is built.")
    var scratch = ".build-mutants/mechanical"

    func run() async throws {
        let root = URL(filePath: root).standardizedFileURL
        let simulations = testsOnly ? 0 : simulations
        let workshop = Workshop(
            root: root, scratch: root.appending(path: scratch).standardizedFileURL, hasScenarios: !testsOnly)
        let sites = built ? try workshop.built() : try workshop.build(simulates: simulations > 0)
        let byKind = Site.Kind.allCases.map { kind in "\(sites.count { $0.key.kind == kind }) \(kind)" }
        say("\(sites.count) mistakes are built in: " + byKind.joined(separator: ", "))
        let chosen = choose(sites, try lastSurvivors(workshop))
        let judge = try await Judge(workshop, chosen, simulations: simulations, steps: steps, jobs: jobs)
        let verdicts = try await judge.judge()
        let notes = try Notes(root.appending(path: "Tests/Simulation/MechanicalMutants/equivalent.txt"))
        Report(verdicts, notes, all: sites).tell()
        let file = survivorsFile(workshop)
        let survived = verdicts.filter { $0.killer == nil }.map(\.site.key.description)
        try (survived.joined(separator: "\n") + "\n").write(to: file, atomically: true, encoding: .utf8)
    }

    private func survivorsFile(_ workshop: Workshop) -> URL { workshop.scratch.appending(path: "survivors") }

    private func lastSurvivors(_ workshop: Workshop) throws -> Set<String>? {
        guard survivors else { return nil }
        return Set(
            try String(contentsOf: survivorsFile(workshop), encoding: .utf8).split(separator: "\n").map(String.init))
    }

    private func choose(_ sites: [Site], _ survivors: Set<String>?) -> [Site] {
        if let survivors { return sites.filter { survivors.contains($0.key.description) } }
        let candidates = sites.filter { site in only.map { site.key.description.contains($0) } ?? true }
        let ranked = candidates.map { ($0, $0.rank(seed: seed)) }.sorted { $0.1 < $1.1 }
        return ranked.prefix(count).map(\.0).sorted { $0.number < $1.number }
    }
}
