/// The names that a person who typed `name` most likely meant, nearest first, at most three. Of a file with thousands of
/// wrong names each is compared with every right one: names whose lengths alone tell them apart are not looked at closer.
public func nearest(to name: String, among candidates: [String]) -> [String] {
    // A name that arrives over the socket may be a megabyte; nobody means anything by it.
    guard name.utf8.count <= 128 else { return [] }
    let typed = Array(name.lowercased().unicodeScalars)
    let limit = max(1, typed.count / 3)
    let scored = candidates.compactMap { candidate -> (String, Int)? in
        let scalars = Array(candidate.lowercased().unicodeScalars)
        let isExtension = typed.count >= 2 && (scalars.starts(with: typed) || typed.starts(with: scalars))
        let difference = abs(typed.count - scalars.count)
        guard !isExtension else { return (candidate, difference) }
        guard difference <= limit else { return nil }
        let distance = editDistance(typed, scalars)
        return distance <= limit ? (candidate, distance) : nil
    }
    return scored.sorted { ($0.1, $0.0) < ($1.1, $1.0) }.prefix(3).map(\.0)
}

/// "did you mean a or b?"; `nil` without names.
public func didYouMean(_ names: [String]) -> String? {
    guard let last = names.last else { return nil }
    let list = names.count == 1 ? last : names.dropLast().joined(separator: ", ") + " or " + last
    return "did you mean \(list)?"
}

/// The text in quotes, shortened and with control characters replaced, so that it can stand in a message or a log line.
func quoted(_ text: String) -> String {
    var shown = ""
    for scalar in text.unicodeScalars.prefix(65) {
        shown.unicodeScalars.append(scalar.value < 0x20 || (0x7F...0x9F).contains(scalar.value) ? "\u{FFFD}" : scalar)
    }
    if text.unicodeScalars.count > 65 { shown = String(shown.unicodeScalars.prefix(64)) + "…" }
    return "\"\(shown)\""
}

/// Insertions, deletions, replacements and swaps of neighbours that turn one into the other.
private func editDistance(_ left: [Unicode.Scalar], _ right: [Unicode.Scalar]) -> Int {
    guard !left.isEmpty, !right.isEmpty else { return max(left.count, right.count) }
    var beforeLast: [Int] = []
    var last = Array(0...right.count)
    for row in 1...left.count {
        var current = [row]
        for column in 1...right.count {
            let same = left[row - 1] == right[column - 1]
            var best = min(last[column] + 1, current[column - 1] + 1, last[column - 1] + (same ? 0 : 1))
            if row > 1, column > 1, left[row - 1] == right[column - 2], left[row - 2] == right[column - 1] {
                best = min(best, beforeLast[column - 2] + 1)
            }
            current.append(best)
        }
        beforeLast = last
        last = current
    }
    return last[right.count]
}
