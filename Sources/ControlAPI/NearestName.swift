/// A longer name is no typing mistake: one that arrives over the socket may be a megabyte long.
private let longestName = 128
/// How much is done to find the nearest names, in comparisons of two bytes; looking at a candidate counts for 16. It takes
/// 0.1 ms. The caller chooses the name, and perhaps the candidates, while all sessions wait.
private let mostComparisons = 20_000

/// Returns the names that a person who typed `name` most likely meant, nearest first, at most three.
///
/// - Returns: nothing if there are too many candidates to be compared.
public func nearest(to name: String, among candidates: some Sequence<String>) -> [String] {
    guard name.utf8.count <= longestName else { return [] }
    let typed = name.utf8.map(folded)
    let limit = max(1, typed.count / 3)
    var comparisons = 0
    var best: [(name: String, distance: Int)] = []
    for candidate in candidates {
        let length = candidate.utf8.count
        let isSimilarlyLong = abs(length - typed.count) <= limit
        let common = zip(typed, candidate.utf8).prefix { $0 == folded($1) }.count
        comparisons += 16 + common + (isSimilarlyLong ? typed.count * length : 0)
        guard comparisons <= mostComparisons else { return [] }
        guard length <= longestName else { continue }
        let distance: Int? =
            if typed.count >= 2, common == min(typed.count, length) {
                abs(length - typed.count)
            } else if isSimilarlyLong {
                editDistance(typed, candidate.utf8.map(folded), limit: limit)
            } else { nil }
        guard let distance else { continue }
        let place = best.firstIndex { precedes((candidate, distance), $0) } ?? best.count
        if place < 3 { best.insert((candidate, distance), at: place) }
        if best.count > 3 { best.removeLast() }
    }
    return best.map(\.name)
}

/// The nearest first; of those that are equally near, the shortest, so that gw-20 comes before gw-101.
private func precedes(_ left: (name: String, distance: Int), _ right: (name: String, distance: Int)) -> Bool {
    let (first, second) = ((left.distance, left.name.utf8.count), (right.distance, right.name.utf8.count))
    return first == second ? left.name.utf8.lexicographicallyPrecedes(right.name.utf8) : first < second
}

/// Returns a letter of ASCII in lower case, and any other byte as it is.
private func folded(_ byte: UInt8) -> UInt8 {
    (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte) ? byte | 0x20 : byte
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
/// string alignment). It stops early if they are far apart.
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
