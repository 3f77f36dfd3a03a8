/// Rows of text, aligned in columns.
enum Columns {
    /// A table with a heading. The last column is not padded.
    static func table(_ heading: [String], _ rows: [[String]]) -> [String] {
        align([heading] + rows, gap: 2)
    }

    /// Lists names and values, one pair per line.
    ///
    /// - Parameter width: the width of a line; a longer value continues on the next one.
    static func details(_ rows: [(String, String)], width: Int? = nil) -> [String] {
        let names = rows.map { printable($0.0).columns }.max() ?? 0
        return align(rows.map { [$0.0, $0.1] }, gap: 2).flatMap { wrapped("  " + $0, to: width, indent: names + 4) }
    }

    /// Cuts a line between words into parts that fit into `width`. A word that is longer than a line gets a line of its
    /// own.
    ///
    /// - Parameters:
    ///   - width: `nil` leaves the line as it is.
    ///   - indent: the indentation of the parts after the first; 2 if it is more than half of the width.
    static func wrapped(_ line: String, to width: Int?, indent: Int) -> [String] {
        guard let width, Terminal.room(for: line) > width else { return [line] }
        let indent = String(repeating: " ", count: indent <= width / 2 ? indent : 2)
        // The blanks before a word, which indent or align it, stay with that word.
        var parts: [String] = []
        var part = ""
        var blanks = ""
        for word in line.split(separator: " ", omittingEmptySubsequences: false) {
            let longer = part + blanks + word
            if word.isEmpty || part.allSatisfy({ $0 == " " }) || Terminal.room(for: longer) <= width {
                part = word.isEmpty ? part : longer
                blanks = word.isEmpty ? blanks + " " : " "
            } else {
                parts.append(part)
                part = indent + word
                blanks = " "
            }
        }
        return parts + [part]
    }

    private static func align(_ rows: [[String]], gap: Int) -> [String] {
        let count = rows.map(\.count).max() ?? 0
        let widths = (0..<count).map { column in
            rows.map { column < $0.count ? printable($0[column]).columns : 0 }.max() ?? 0
        }
        return rows.map { row in
            var line = ""
            for (column, cell) in row.enumerated() {
                let text = printable(cell)
                line += text
                if column < row.count - 1 {
                    line += String(repeating: " ", count: widths[column] - text.columns + gap)
                }
            }
            while line.last == " " { line.removeLast() }
            return line
        }
    }
}
