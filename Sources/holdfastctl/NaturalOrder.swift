import ControlAPI

/// Names as people count them: gw-2 comes before gw-10.
enum NaturalOrder {
    static func precedes(_ first: String, _ second: String) -> Bool {
        var (left, right) = (Substring(first), Substring(second))
        while let a = left.first, let b = right.first {
            if a.isASCIIDigit, b.isASCIIDigit {
                let (leftNumber, rightNumber) = (takeNumber(&left), takeNumber(&right))
                if leftNumber.count != rightNumber.count { return leftNumber.count < rightNumber.count }
                if leftNumber != rightNumber { return leftNumber < rightNumber }
            } else {
                if a != b { return a < b }
                left.removeFirst()
                right.removeFirst()
            }
        }
        // With the same numbers, leading zeros decide, so that there is one order of any two names.
        return left.isEmpty == right.isEmpty ? first < second : left.isEmpty
    }

    /// The digits at the start, without leading zeros.
    private static func takeNumber(_ text: inout Substring) -> Substring {
        let digits = text.prefix { $0.isASCIIDigit }
        text = text[digits.endIndex...]
        return digits.drop { $0 == "0" }
    }
}

extension Character {
    fileprivate var isASCIIDigit: Bool { ("0"..."9").contains(self) }
}

extension [SessionStatus] {
    var inNaturalOrder: [SessionStatus] { sorted { NaturalOrder.precedes($0.session, $1.session) } }
}
