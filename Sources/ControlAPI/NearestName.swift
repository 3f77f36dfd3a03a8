/// Returns the names that a person who typed `name` most likely meant, nearest first, at most three.
public func nearest(to name: String, among candidates: [String]) -> [String] {
    // A name that arrives over the socket may be a megabyte long; that is not a typing mistake.
    guard name.utf8.count <= 128 else { return [] }
    let typed = Array(name.lowercased().utf8)
    let limit = max(1, typed.count / 3)
    let scored = candidates.compactMap { candidate -> (String, Int)? in
        let candidateBytes = Array(candidate.lowercased().utf8)
        let isExtension = typed.count >= 2 && (candidateBytes.starts(with: typed) || typed.starts(with: candidateBytes))
        if isExtension { return (candidate, abs(typed.count - candidateBytes.count)) }
        return editDistance(typed, candidateBytes, limit: limit).map { (candidate, $0) }
    }
    return scored.sorted { $0.1 == $1.1 ? NaturalOrder.precedes($0.0, $1.0) : $0.1 < $1.1 }.prefix(3).map(\.0)
}

/// Returns "did you mean a or b?", or `nil` without names.
public func didYouMean(_ names: [String]) -> String? {
    guard let last = names.last else { return nil }
    let list = names.count == 1 ? last : names.dropLast().joined(separator: ", ") + " or " + last
    return "did you mean \(list)?"
}

/// Returns the text in quotes, shortened and with control characters replaced, so that it can be part of a message or a
/// log line.
public func quoted(_ text: String) -> String {
    var shown = ""
    for scalar in text.unicodeScalars.prefix(65) {
        shown.unicodeScalars.append(scalar.value < 0x20 || (0x7F...0x9F).contains(scalar.value) ? "\u{FFFD}" : scalar)
    }
    if text.unicodeScalars.count > 65 { shown = String(shown.unicodeScalars.prefix(64)) + "…" }
    return "\"\(shown)\""
}

/// Returns how many insertions, deletions, replacements and swaps of neighbours turn one text into the other (optimal
/// string alignment). It stops early, because a file with thousands of wrong names has each of them compared with every
/// right one.
///
/// - Returns: `nil` if the number is above the limit.
private func editDistance(_ left: [UInt8], _ right: [UInt8], limit: Int) -> Int? {
    guard abs(left.count - right.count) <= limit else { return nil }
    var beforeLast = Array(repeating: 0, count: right.count + 1)
    var last = Array(0...right.count)
    var current = beforeLast
    for row in left.indices {
        current[0] = row + 1
        var lowest = current[0]
        for column in right.indices {
            let replaced = last[column] + (left[row] == right[column] ? 0 : 1)
            var best = min(replaced, last[column + 1] + 1, current[column] + 1)
            if row > 0, column > 0, left[row] == right[column - 1], left[row - 1] == right[column] {
                best = min(best, beforeLast[column - 1] + 1)
            }
            current[column + 1] = best
            lowest = min(lowest, best)
        }
        // A swap reaches back over one row, and no further.
        if lowest > limit + 1 { return nil }
        (beforeLast, last, current) = (last, current, beforeLast)
    }
    return last[right.count] <= limit ? last[right.count] : nil
}
