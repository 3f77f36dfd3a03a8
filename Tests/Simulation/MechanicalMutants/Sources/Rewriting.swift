/// One file with all of its mistakes in it, each behind a switch. It has the lines of the original.
struct Rewriting {
    private(set) var text: String
    /// Where each site is in the new text.
    private var ranges: [(site: Int, range: Range<Int>)] = []

    /// - Parameter sites: of this file, in the order in which they were found: what contains comes before what is contained.
    init(_ source: String, _ sites: [Site]) {
        struct Insertion {
            var offset: Int
            /// At one offset: first what ends, the innermost first, then what begins, the outermost first.
            var order: (Int, Int, Int)
            var removed: Int
            var text: String
            var site: Int
            var isEnd: Bool
        }
        var insertions: [Insertion] = []
        for (index, site) in sites.enumerated() {
            func number(_ text: String) -> String { text.replacing("#", with: "\(site.number)") }
            let range = site.edit.range
            insertions.append(
                Insertion(
                    offset: range.lowerBound, order: (2, -range.count, index), removed: 0,
                    text: number(site.edit.opening), site: index, isEnd: false))
            if let (operation, text) = site.edit.replaced {
                insertions.append(
                    Insertion(
                        offset: operation.lowerBound, order: (1, 0, 0), removed: operation.count, text: text,
                        site: -1, isEnd: false))
            }
            insertions.append(
                Insertion(
                    offset: range.upperBound, order: (0, range.count, -index), removed: 0,
                    text: number(site.edit.closing), site: index, isEnd: true))
        }
        insertions.sort {
            ($0.offset, $0.order.0, $0.order.1, $0.order.2) < ($1.offset, $1.order.0, $1.order.1, $1.order.2)
        }

        let bytes = Array(source.utf8)
        var new: [UInt8] = []
        var position = 0
        var begins: [Int: Int] = [:]
        for insertion in insertions {
            new += bytes[position..<insertion.offset]
            position = insertion.offset + insertion.removed
            if insertion.site >= 0, !insertion.isEnd { begins[insertion.site] = new.count }
            new += Array(insertion.text.utf8)
            if insertion.isEnd { ranges.append((insertion.site, (begins[insertion.site] ?? 0)..<new.count)) }
        }
        new += bytes[position...]
        text = String(decoding: new, as: UTF8.self)
        ranges.sort { $0.range.count < $1.range.count }
    }

    /// The sites that an error of the compiler at this place is probably about, as indices.
    func suspects(line: Int, column: Int, sites: [Site]) -> [Int] {
        let bytes = Array(text.utf8)
        var lineStart = 0
        var current = 1
        while current < line, let next = bytes[lineStart...].firstIndex(of: UInt8(ascii: "\n")) {
            lineStart = next + 1
            current += 1
        }
        let offset = lineStart + column - 1
        if let innermost = ranges.first(where: { $0.range.contains(offset) }) { return [innermost.site] }
        let lineEnd = bytes[lineStart...].firstIndex(of: UInt8(ascii: "\n")) ?? bytes.count
        let onLine = ranges.filter { $0.range.overlaps(lineStart..<max(lineEnd, lineStart + 1)) }
        if !onLine.isEmpty { return onLine.map(\.site) }
        // The innermost function around it: its lines are those of the original.
        let around = sites.indices.filter { sites[$0].functionLines.contains(line) }
        let omissions = around.filter { sites[$0].key.kind == .omitted }
        return omissions.isEmpty ? around : omissions
    }
}
