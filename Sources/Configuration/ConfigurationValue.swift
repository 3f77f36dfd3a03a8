/// A value of a configuration file, with its position.
struct ConfigurationValue {
    enum Content {
        case text(String)
        case integer(Int)
        case boolean(Bool)
        case list([ConfigurationValue])
        case table([ConfigurationValue])
        /// A kind of value that no key takes, in TOML's words.
        case other(String)
        /// A part of the file that is not valid TOML.
        case invalid(ConfigurationError)
    }

    let file: String
    /// The dotted key; an element of a list has the name of its list.
    let name: String
    let keyPosition: TextPosition
    let position: TextPosition
    let content: Content

    /// The value as an error names it. A long text is not repeated.
    var given: String {
        switch content {
        case .text(let text): text.count <= 80 ? text.debugDescription : "a text of \(text.count) characters"
        case .integer(let number): "the number \(number)"
        case .boolean(let flag): "\(flag)"
        case .list: "a list"
        case .table: "a table"
        case .other(let word): "a \(word)"
        case .invalid: "something that is not valid TOML"
        }
    }

    /// What is not valid TOML in the file whose whole this is.
    var syntaxErrors: [ConfigurationError] {
        guard case .table(let members) = content else { return [] }
        return members.compactMap { if case .invalid(let error) = $0.content { error } else { nil } }
    }

    func error(_ message: String, suggestion: String? = nil) -> ConfigurationErrors {
        ConfigurationErrors([
            ConfigurationError(file: file, position: position, message: message, suggestion: suggestion)
        ])
    }
}
