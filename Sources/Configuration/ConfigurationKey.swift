import ControlAPI

/// One key of a configuration file: its name, where its value belongs, and what the value must be.
struct ConfigurationKey<Root: Sendable>: Sendable {
    /// With the table's name: `reconnect.spread`.
    let name: String
    let isRequired: Bool
    /// The effective value as a file would write it; parts that may be secret are omitted.
    let written: @Sendable (Root) -> String
    private let assign: @Sendable (ConfigurationValue, inout Root) throws(ConfigurationErrors) -> Void

    init<Value: Equatable & Sendable>(
        _ name: String, _ member: any WritableKeyPath<Root, Value> & Sendable, _ form: ConfigurationForm<Value>,
        isRequired: Bool = false
    ) {
        self.init(name, member, form, isRequired: isRequired) { $0[keyPath: member] = $1 }
    }

    /// Creates a key that sets more than its own member.
    init<Value: Equatable & Sendable>(
        _ name: String, _ member: any WritableKeyPath<Root, Value> & Sendable, _ form: ConfigurationForm<Value>,
        isRequired: Bool = false, set: @escaping @Sendable (inout Root, Value) -> Void
    ) {
        self.name = name
        self.isRequired = isRequired
        written = { form.write($0[keyPath: member]) }
        assign = { value, root throws(ConfigurationErrors) in
            set(&root, try form.read(value))
        }
    }

    /// Reads a parsed file.
    ///
    /// - Parameters:
    ///   - keys: all keys that exist, in the order in which they take effect.
    ///   - root: the defaults, which the file's values replace.
    /// - Returns: everything that is wrong with single keys.
    static func read(_ keys: [Self], from file: ConfigurationValue, into root: inout Root) -> [ConfigurationError] {
        var tables: Set<String> = []
        for key in keys {
            if let dot = key.name.lastIndex(of: ".") { tables.insert(String(key.name[..<dot])) }
        }
        let names = keys.map(\.name)
        var found: [String: ConfigurationValue] = [:]
        var errors: [ConfigurationError] = []

        func collect(_ value: ConfigurationValue) {
            if case .invalid(let error) = value.content {
                errors.append(error)
            } else if tables.contains(value.name) || value.name.isEmpty {
                if case .table(let members) = value.content {
                    for member in members { collect(member) }
                } else {
                    errors += value.error("\(value.name) is a table: write [\(value.name)]").list
                }
            } else if names.contains(value.name) {
                found[value.name] = value
            } else {
                let isTable = if case .table = value.content { true } else { false }
                var error = ConfigurationError(
                    file: value.file, position: value.keyPosition,
                    message: "there is no \(isTable ? "table" : "key") \"\(value.name)\"",
                    suggestion: nearestName(to: value.name, among: isTable ? tables.sorted() : names))
                // At the end of a file, a line is usually in a table.
                if !isTable, value.name.contains("."), let key = error.suggestion, !key.contains(".") {
                    error.message += "; \"\(key)\" belongs before the first table"
                    error.suggestion = nil
                }
                errors.append(error)
            }
        }
        collect(file)
        let isComplete = file.syntaxErrors.isEmpty

        for key in keys {
            guard let value = found[key.name] else {
                if key.isRequired, isComplete {
                    errors += file.error("the key \"\(key.name)\" is required and missing").list
                }
                continue
            }
            do throws(ConfigurationErrors) {
                try key.assign(value, &root)
            } catch {
                errors += error.list
            }
        }
        return errors
    }
}

/// Returns the valid name that was probably meant: one with a similar spelling, or the same word in another table.
private func nearestName(to name: String, among names: [String]) -> String? {
    func word(_ name: String) -> String {
        name.split(separator: ".").last.map(String.init) ?? name
    }
    return nearest(to: name, among: names).first ?? names.first { word($0) == word(name) }
        ?? nearest(to: word(name), among: names).first
}
