/// Rows of text, aligned in columns.
enum Columns {
    /// A table with a heading. The last column is not padded.
    ///
    /// - Parameters:
    ///   - width: the width of a terminal. If the table is wider, the cells of the widest columns are cut, so that one long
    ///     name does not hide all other columns; the last column is left to be cut at the edge. If too little of it would
    ///     be seen, each row becomes a list of its cells.
    ///   - marks: the colour of each row's mark, as the number in an escape sequence; `nil` without colour.
    ///   - isLineEach: whether a row stays one line even then.
    static func table(
        _ heading: [String], _ rows: [[String]], width: Int? = nil, marks: [String]? = nil, isLineEach: Bool = false
    ) -> [String] {
        let table = [heading] + rows
        let markWidth = marks?.isEmpty == false ? 2 : 0
        if let width, !rows.isEmpty, !isLineEach, !fits(table, in: width - markWidth) {
            return rows.enumerated().flatMap { row, cells in
                list(heading, cells, width: width, mark: marks.flatMap { row < $0.count ? $0[row] : nil })
            }
        }
        let lines = align(width.map { narrowed(table, to: $0 - markWidth) } ?? table)
        guard let marks else { return lines }
        let blank = String(repeating: " ", count: markWidth)
        return ["\u{1B}[1m\(blank)\(lines[0])\u{1B}[0m"]
            + lines.dropFirst().enumerated().map { row, line in
                row < marks.count ? "\u{1B}[\(marks[row])m●\u{1B}[0m \(line)" : blank + line
            }
    }

    private static let gap = 2
    /// The width that a column keeps.
    static let least = 16

    /// Whether enough of the last column is seen once the others are cut.
    private static func fits(_ rows: [[String]], in width: Int) -> Bool {
        widths(rows).reduce(-gap) { $0 + min($1, least) + gap } <= width
    }

    /// A row as its first cell, and below it the others with their headings.
    private static func list(_ heading: [String], _ cells: [String], width: Int, mark: String?) -> [String] {
        let name = shortened(printable(cells.first ?? ""), to: width - (mark == nil ? 0 : 2))
        let rest = zip(heading, cells).dropFirst().filter { !["", "-"].contains($0.1) }
        return [mark.map { "\u{1B}[\($0)m●\u{1B}[0m \(name)" } ?? name]
            + details(rest.map { ($0.0, $0.1) }, width: width)
    }

    private static func narrowed(_ rows: [[String]], to width: Int) -> [[String]] {
        var widths = widths(rows)
        guard let last = widths.popLast() else { return rows }
        var excess = widths.reduce(min(last, least) - width) { $0 + $1 + gap }
        while excess > 0, let widest = widths.indices.max(by: { widths[$0] < widths[$1] }), widths[widest] > least {
            widths[widest] -= 1
            excess -= 1
        }
        return rows.map { row in
            row.enumerated().map { column, cell in
                guard column < widths.count else { return cell }
                // Names often differ only at the end.
                return column == 0
                    ? shortened(printable(cell), to: widths[0]) : Terminal.fitted(printable(cell), to: widths[column])
            }
        }
    }

    /// Cuts the middle out of a name.
    static func shortened(_ name: String, to width: Int) -> String {
        guard name.columns > width else { return name }
        func beginning(_ text: some Sequence<Character>, _ width: Int) -> [Character] {
            var left = width
            return text.prefix { character in
                left -= character.columns
                return left >= 0
            }
        }
        let end = beginning(name.reversed(), (width - 1) / 2)
        return String(beginning(name, width - 1 - (width - 1) / 2)) + "…" + String(end.reversed())
    }

    /// Lists names and values, one pair per line.
    ///
    /// - Parameter width: the width of a line; a longer value continues on the next one.
    static func details(_ rows: [(String, String)], width: Int? = nil) -> [String] {
        let names = rows.map { printable($0.0).columns }.max() ?? 0
        return align(rows.map { [$0.0, $0.1] }).flatMap { wrapped("  " + $0, to: width, indent: names + 4) }
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

    private static func widths(_ rows: [[String]]) -> [Int] {
        (0..<(rows.map(\.count).max() ?? 0)).map { column in
            rows.map { column < $0.count ? printable($0[column]).columns : 0 }.max() ?? 0
        }
    }

    private static func align(_ rows: [[String]]) -> [String] {
        let widths = widths(rows)
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
