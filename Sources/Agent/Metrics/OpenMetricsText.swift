/// The formats in which metrics are written.
enum MetricsFormat {
    /// OpenMetrics 1.0.
    case openMetrics
    /// The text format of Prometheus, which is the only one that the node exporter reads. It has no kind `info` and no
    /// units, and a family of counters has the same name as its samples.
    case prometheus

    /// The media type.
    var contentType: String {
        switch self {
        case .openMetrics: "application/openmetrics-text; version=1.0.0; charset=utf-8"
        case .prometheus: "text/plain; version=0.0.4; charset=utf-8"
        }
    }
}

/// Writes metrics as text.
struct OpenMetricsText {
    enum Kind: String {
        case counter, gauge, histogram, info
    }

    typealias Labels = [(name: String, value: String)]

    private let format: MetricsFormat
    private var lines: [String] = []
    private var family = ""

    init(_ format: MetricsFormat = .openMetrics) {
        self.format = format
    }

    /// Begins a family.
    ///
    /// - Parameter name: the name without the suffix of its samples.
    mutating func begin(_ name: String, _ kind: Kind, unit: String? = nil, _ help: String) {
        family = name
        switch format {
        case .openMetrics:
            lines.append("# TYPE \(name) \(kind.rawValue)")
            if let unit { lines.append("# UNIT \(name) \(unit)") }
            lines.append("# HELP \(name) \(Self.escaped(help, quotes: false))")
        case .prometheus:
            let name = name + (kind == .counter ? "_total" : kind == .info ? "_info" : "")
            lines.append("# HELP \(name) \(Self.escaped(help, quotes: false))")
            lines.append("# TYPE \(name) \((kind == .info ? .gauge : kind).rawValue)")
        }
    }

    /// - Parameter suffix: the suffix for the kind: `_total`, `_bucket`, `_info` and the like.
    mutating func add(_ suffix: String = "", _ labels: Labels = [], _ value: Double) {
        let list = labels.map { "\($0.name)=\"\(Self.escaped($0.value, quotes: true))\"" }.joined(separator: ",")
        lines.append("\(family)\(suffix)\(list.isEmpty ? "" : "{\(list)}") \(Self.number(value))")
    }

    mutating func add(_ histogram: Histogram, _ labels: Labels = []) {
        var count: Int64 = 0
        for (bound, own) in zip(histogram.bounds, histogram.counts) {
            count += own
            add("_bucket", labels + [("le", Self.number(bound))], Double(count))
        }
        add("_bucket", labels + [("le", "+Inf")], Double(histogram.count))
        add("_count", labels, Double(histogram.count))
        add("_sum", labels, histogram.sum)
    }

    /// The complete text.
    var text: String { (lines + (format == .openMetrics ? ["# EOF", ""] : [""])).joined(separator: "\n") }

    private static func escaped(_ text: String, quotes: Bool) -> String {
        var escaped = ""
        for character in text.unicodeScalars {
            switch character {
            case "\\": escaped += "\\\\"
            case "\n": escaped += "\\n"
            case "\"" where quotes: escaped += "\\\""
            default: escaped.unicodeScalars.append(character)
            }
        }
        return escaped
    }

    private static func number(_ value: Double) -> String {
        if value == value.rounded(), abs(value) < 1e15 { return "\(Int64(value))" }
        return "\(value)"
    }
}

/// Counts values by the first of some bounds that they do not exceed.
struct Histogram: Hashable, Sendable {
    let bounds: [Double]
    private(set) var counts: [Int64]
    private(set) var count: Int64 = 0
    private(set) var sum = 0.0

    init(bounds: [Double]) {
        self.bounds = bounds
        counts = Array(repeating: 0, count: bounds.count)
    }

    mutating func add(_ value: Double) {
        count += 1
        sum += value
        if let index = bounds.firstIndex(where: { value <= $0 }) { counts[index] += 1 }
    }
}
