/// Rows of texts, aligned in columns.
enum Columns {
    /// A table with a heading. The last column is not padded.
    static func table(_ heading: [String], _ rows: [[String]]) -> [String] {
        align([heading] + rows, gap: 2)
    }

    /// As much of a line as there is room for.
    static func fitted(_ line: String, to width: Int) -> String {
        line.count <= width ? line : line.prefix(max(width - 1, 1)) + "…"
    }

    /// Names and values below each other.
    static func details(_ rows: [(String, String)]) -> [String] {
        align(rows.map { [$0.0, $0.1] }, gap: 2).map { "  " + $0 }
    }

    private static func align(_ rows: [[String]], gap: Int) -> [String] {
        let count = rows.map(\.count).max() ?? 0
        let widths = (0..<count).map { column in
            rows.map { column < $0.count ? printable($0[column]).count : 0 }.max() ?? 0
        }
        return rows.map { row in
            var line = ""
            for (column, cell) in row.enumerated() {
                let text = printable(cell)
                line += text
                if column < row.count - 1 {
                    line += String(repeating: " ", count: widths[column] - text.count + gap)
                }
            }
            while line.last == " " { line.removeLast() }
            return line
        }
    }
}
