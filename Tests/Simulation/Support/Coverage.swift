import ControlAPI

/// What runs have met: which states, for which reasons, under which faults. It shows what they do not reach.
public struct Coverage: Sendable {
    public private(set) var counts: [String: [String: Int]] = [:]
    public init() {}

    mutating func count(_ group: String, _ name: String, _ amount: Int = 1) {
        counts[group, default: [:]][name, default: 0] += amount
    }

    mutating func count(_ step: Step) { count("steps", step.what.rawValue) }

    /// - Parameter faults: what is wrong at the moment around the event's session.
    mutating func count(_ event: SessionEvent, under faults: [String]) {
        let state = event.state?.rawValue ?? "?"
        let phase = event.phase.map { "/\($0.rawValue)" } ?? ""
        let (place, reason) = (state + phase, event.reason?.code ?? "?")
        count("states", place)
        count("reasons", reason)
        count("states × reasons", "\(place) \(reason)")
        if let code = event.reason?.serverCode { count("server codes", String(code, radix: 16)) }
        if event.from != event.state { count("transitions", "\(event.from?.rawValue ?? "?") > \(state)") }
        for fault in faults { count("states × faults", "\(place) \(fault)") }
        if faults.isEmpty { count("states × faults", "\(place) none") }
    }

    mutating func countAcceptance(resumed: Bool) { count("connections", resumed ? "resumed" : "new") }

    public mutating func merge(_ other: Coverage) {
        for (group, names) in other.counts {
            for (name, amount) in names { count(group, name, amount) }
        }
    }

    /// One line for each group of counts, and a table of states and faults.
    public var report: String {
        var lines: [String] = []
        for group in ["steps", "states", "transitions", "reasons", "server codes", "connections", "refused", "ends"] {
            let names = counts[group] ?? [:]
            let sorted = names.sorted { ($1.value, $0.key) < ($0.value, $1.key) }
            lines.append("\(group) (\(names.count)): " + sorted.map { "\($0.key) \($0.value)" }.joined(separator: ", "))
        }
        lines.append("states × reasons: \(counts["states × reasons"]?.count ?? 0) different")
        let pairs = counts["states × faults"] ?? [:]
        let faults = Set(pairs.keys.map { String($0.drop { $0 != " " }.dropFirst()) }).sorted()
        lines.append("states × faults, \(pairs.count) different:")
        for state in Set(pairs.keys.map { String($0.prefix { $0 != " " }) }).sorted() {
            let cells = faults.map { "\($0) \(pairs["\(state) \($0)"] ?? 0)" }
            lines.append("  \(state): " + cells.joined(separator: ", "))
        }
        return lines.joined(separator: "\n")
    }
}
