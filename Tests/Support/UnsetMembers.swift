/// The stored properties that are `nil` or empty: a value "with everything" must have none, also when properties are
/// added later.
public func unsetMembers(of value: Any) -> [String] {
    Mirror(reflecting: value).children.compactMap { label, child in
        let mirror = Mirror(reflecting: child)
        let isUnset =
            switch mirror.displayStyle {
            case .optional?, .collection?, .dictionary?: mirror.children.isEmpty
            default: false
            }
        return isUnset ? label : nil
    }
}
