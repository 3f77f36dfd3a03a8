/// The bytes of annotated hex: everything after `#` on a line is a remark, blanks do not count.
func hex(_ text: String) -> [UInt8] {
    let digits = text.split(separator: "\n").flatMap { line in
        line.prefix { $0 != "#" }.compactMap(\.hexDigitValue)
    }
    precondition(digits.count.isMultiple(of: 2), "a fixture has whole bytes")
    return stride(from: 0, to: digits.count, by: 2).map { UInt8(digits[$0] << 4 | digits[$0 + 1]) }
}
