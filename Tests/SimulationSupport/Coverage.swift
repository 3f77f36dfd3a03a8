import ControlAPI

/// What runs have met: which states, for which reasons, under which faults, so that it is seen that they go everywhere.
public struct Coverage: Sendable {
    public private(set) var counts: [String: [String: Int]] = [:]
    /// The faults that are there.
    private var faults: Set<String> = []

    public init() {}

    mutating func count(_ group: String, _ name: String, _ amount: Int = 1) {
        counts[group, default: [:]][name, default: 0] += amount
    }

    mutating func count(_ step: Step) {
        count("steps", step.what.rawValue)
        let host = step.number(0) % 2
        switch step.what {
        case .cut: faults.insert("no path \(host)")
        case .mend: faults.remove("no path \(host)")
        case .silence, .halfOpen: faults.insert("silent \(host)")
        case .unsilence: faults.remove("silent \(host)")
        case .crash: faults.insert("server down \(host)")
        case .restart: faults.remove("server down \(host)")
        case .hang: faults.insert("server hangs \(host)")
        case .goOn: faults.remove("server hangs \(host)")
        case .refuse: faults.insert("server refuses \(host)")
        case .welcome: faults.remove("server refuses \(host)")
        case .holdAnswers: faults.insert("answers held \(host)")
        case .diskFault: faults.insert("disk faulty \(host)")
        case .diskMended: faults.remove("disk faulty \(host)")
        case .diskDelay: faults.insert("disk slow \(host)")
        case .kill, .killAfter: faults.insert("daemon dead \(host)")
        case .shift where step.number(1) == 1: faults.insert("stranded \(host)")
        case .token where [0, 2, 3].contains(step.number(1) % 10): faults.insert("token wrong 0")
        case .token: faults.remove("token wrong 0")
        case .start, .restartDaemon, .reboot: faults.remove("daemon dead \(host)")
        default: break
        }
    }

    mutating func count(_ event: SessionEvent) {
        let state = event.state?.rawValue ?? "?"
        let phase = event.phase.map { "/\($0.rawValue)" } ?? ""
        let (place, reason) = (state + phase, event.reason?.code ?? "?")
        count("states", place)
        count("reasons", reason)
        count("states × reasons", "\(place) \(reason)")
        if let code = event.reason?.serverCode { count("server codes", String(code, radix: 16)) }
        if event.from != event.state { count("transitions", "\(event.from?.rawValue ?? "?") > \(state)") }
        let present = Set(faults.map { $0.dropLast(2) })
        for fault in present { count("states × faults", "\(place) \(fault)") }
        if present.isEmpty { count("states × faults", "\(place) none") }
    }

    mutating func countAcceptance(resumed: Bool) { count("connections", resumed ? "resumed" : "new") }

    public mutating func merge(_ other: Coverage) {
        for (group, names) in other.counts {
            for (name, amount) in names { count(group, name, amount) }
        }
    }

    /// A line for each group of a few, a table for states and faults.
    public var report: String {
        var lines: [String] = []
        for group in ["steps", "states", "transitions", "reasons", "server codes", "connections", "refused"] {
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
