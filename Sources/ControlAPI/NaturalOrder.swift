/// The order in which people sort numbered names: gw-2 comes before gw-10.
public enum NaturalOrder {
    /// Whether `first` comes before `second`. Groups of ASCII digits are compared as numbers.
    public static func precedes(_ first: String, _ second: String) -> Bool {
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
        // Names that differ only in leading zeros are compared as texts, so that any two names have one order.
        return left.isEmpty == right.isEmpty ? first < second : left.isEmpty
    }

    /// Removes the digits at the start and returns them without leading zeros.
    private static func takeNumber(_ text: inout Substring) -> Substring {
        let digits = text.prefix { $0.isASCIIDigit }
        text = text[digits.endIndex...]
        return digits.drop { $0 == "0" }
    }
}

/// Returns the names for a sentence, in natural order; if there are more than ten, the first ten and how many more
/// there are.
public func listed(_ names: [String]) -> String {
    let first = names.sorted(by: NaturalOrder.precedes).prefix(10).joined(separator: ", ")
    return names.count <= 10 ? first : "\(first) and \(names.count - 10) more"
}

extension Character {
    fileprivate var isASCIIDigit: Bool { ("0"..."9").contains(self) }
}

extension [SessionStatus] {
    public var inNaturalOrder: [SessionStatus] { sorted { NaturalOrder.precedes($0.session, $1.session) } }
}
