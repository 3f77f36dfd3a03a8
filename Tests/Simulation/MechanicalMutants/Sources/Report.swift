import Foundation

/// The score, and what is left to do.
struct Report {
    private let verdicts: [Judge.Verdict]
    private let notes: Notes
    private let all: [Site]

    init(_ verdicts: [Judge.Verdict], _ notes: Notes, all: [Site]) {
        self.verdicts = verdicts
        self.notes = notes
        self.all = all
    }

    func tell() {
        let killed = verdicts.filter { $0.killer != nil }
        let survivors = verdicts.filter { $0.killer == nil }
        let equivalent = survivors.filter { reason($0) != nil }
        let open = survivors.filter { reason($0) == nil }

        say("\nKilled, by module:")
        for module in Workshop.modules { row(module) { $0.site.module == module } }
        say("by kind:")
        for kind in Site.Kind.allCases { row(kind.rawValue) { $0.site.key.kind == kind } }

        let stages = Dictionary(grouping: killed) { verdict in verdict.killer?.split(separator: ":").first ?? "" }
        say("by whom: " + stages.map { "\($0.key) \($0.value.count)" }.sorted().joined(separator: ", "))

        if !equivalent.isEmpty { say("\nNoted as equivalent:") }
        for verdict in equivalent { say("  \(verdict.site)\n      \(reason(verdict) ?? "")") }
        if !open.isEmpty { say("\nSurvivors:") }
        for verdict in open {
            say("  \(verdict.site)\(verdict.isReached ? "" : " | nothing comes by")\n      \(verdict.site.key)")
        }
        for verdict in killed where reason(verdict) != nil {
            say("noted as equivalent, but killed: \(verdict.site.key)")
        }
        let known = Set(all.map(\.key.description))
        for key in notes.reasons.keys.sorted() where !known.contains(key) { say("noted, but not there: \(key)") }

        let counted = verdicts.count - equivalent.count
        say(
            "\n\(killed.count) of \(counted) killed"
                + (counted > 0 ? String(format: ", %.1f %%", 100 * Double(killed.count) / Double(counted)) : "")
                + "; \(equivalent.count) equivalent, \(open.count) survived")
    }

    private func reason(_ verdict: Judge.Verdict) -> String? { notes.reasons[verdict.site.key.description] }

    private func row(_ name: String, _ belongs: (Judge.Verdict) -> Bool) {
        let chosen = verdicts.filter(belongs)
        guard !chosen.isEmpty else { return }
        let count = chosen.count { $0.killer != nil }
        let equivalent = chosen.count { $0.killer == nil && reason($0) != nil }
        say("  \(name): \(count) of \(chosen.count)" + (equivalent > 0 ? ", \(equivalent) equivalent" : ""))
    }
}
