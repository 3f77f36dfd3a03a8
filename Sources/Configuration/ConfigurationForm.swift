import ControlAPI
import MQTT
import Session

/// What the value of a key must be, how it is read, and how a file would write it.
struct ConfigurationForm<Value: Equatable & Sendable>: Sendable {
    let read: @Sendable (ConfigurationValue) throws(ConfigurationErrors) -> Value
    /// As TOML; parts that may be secret are omitted.
    let write: @Sendable (Value) -> String

    /// - Parameters:
    ///   - expected: the end of the sentence "KEY must be …".
    ///   - isSecret: whether a wrong value must not be repeated in the error.
    ///   - choices: the valid values, if they can be listed; the nearest one is suggested.
    ///   - write: writes the value as TOML.
    ///   - parse: reads the value; returns `nil` if the content is not a valid one.
    init(
        _ expected: String, isSecret: Bool = false, choices: [String] = [],
        write: @escaping @Sendable (Value) -> String, parse: @escaping @Sendable (ConfigurationValue.Content) -> Value?
    ) {
        self.write = write
        read = { value throws(ConfigurationErrors) in
            if let result = parse(value.content) { return result }
            var suggestion: String?
            if case .text(let text) = value.content { suggestion = nearest(to: text, among: choices).first }
            let message = "\(value.name) must be \(expected)" + (isSecret ? "" : ", not \(value.given)")
            throw value.error(message, suggestion: suggestion)
        }
    }

    /// A form that is written as a text.
    static func text(
        _ expected: String, isSecret: Bool = false, choices: [String] = [],
        write: @escaping @Sendable (Value) -> String, parse: @escaping @Sendable (String) -> Value?
    ) -> Self {
        Self(expected, isSecret: isSecret, choices: choices, write: write) { content in
            if case .text(let text) = content { parse(text) } else { nil }
        }
    }

    init(
        write: @escaping @Sendable (Value) -> String,
        read: @escaping @Sendable (ConfigurationValue) throws(ConfigurationErrors) -> Value
    ) {
        self.write = write
        self.read = read
    }
}

extension ConfigurationForm<String> {
    static var metricsAddress: Self {
        text("empty, or a loopback address with a port, such as \"127.0.0.1:9464\"", write: TOML.text) { text in
            text.isEmpty || MetricsConfiguration.address(text) != nil ? text : nil
        }
    }

    static var metricsFile: Self {
        text(
            "empty, or the absolute path of a file whose name ends with .prom", isSecret: true, write: TOML.text
        ) { text in
            text.isEmpty || text.hasPrefix("/") && text.hasSuffix(".prom") ? text : nil
        }
    }
}

extension ConfigurationForm<Bool> {
    static var boolean: Self {
        Self("true or false", write: { "\($0)" }) { content in
            if case .boolean(let flag) = content { flag } else { nil }
        }
    }
}

extension ConfigurationForm<Int> {
    static func integer(_ range: ClosedRange<Int>) -> Self {
        Self("a whole number from \(range.lowerBound) to \(range.upperBound)", write: { "\($0)" }) { content in
            if case .integer(let number) = content, range.contains(number) { number } else { nil }
        }
    }

    /// A number of bytes, written with a unit: `"64MiB"`.
    static func size(_ lowest: String, to highest: String) -> Self {
        let units = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)]
        @Sendable func bytes(_ text: String) -> Int? { Quantity.parse(text, units: units) }
        let expected = "a size such as \"512B\" or \"64MiB\", from \"\(lowest)\" to \"\(highest)\""
        return text(expected, write: TOML.size) { text in
            guard let size = bytes(text), let low = bytes(lowest), let high = bytes(highest) else { return nil }
            return (low...high).contains(size) ? size : nil
        }
    }
}

private func duration(_ text: String, from lowest: String, to highest: String) -> Duration? {
    guard let value = Duration(text: text), let low = Duration(text: lowest), let high = Duration(text: highest) else {
        return nil
    }
    return low <= value && value <= high ? value : nil
}

extension ConfigurationForm<Duration> {
    static func duration(_ lowest: String, to highest: String) -> Self {
        let expected = "a duration such as \"250ms\", \"15s\" or \"20min\", from \"\(lowest)\" to \"\(highest)\""
        return text(expected, write: TOML.duration) { text in
            Configuration.duration(text, from: lowest, to: highest)
        }
    }
}

extension ConfigurationForm<Int?> {
    /// `"never"` is `nil`.
    static func integerOrNever(_ range: ClosedRange<Int>) -> Self {
        let numbers = "a whole number from \(range.lowerBound) to \(range.upperBound)"
        return Self(
            "\"never\" or \(numbers)", choices: ["never"], write: { $0.map { "\($0)" } ?? TOML.never }
        ) { content in
            switch content {
            case .text("never"): .some(nil)
            case .integer(let number) where range.contains(number): .some(number)
            default: nil
            }
        }
    }
}

extension ConfigurationForm<Duration?> {
    /// `"never"` is `nil`.
    static func durationOrNever(_ lowest: String, to highest: String) -> Self {
        let range = "from \"\(lowest)\" to \"\(highest)\""
        return text(
            "\"never\" or a duration such as \"250ms\", \"15s\" or \"20min\", \(range)", choices: ["never"],
            write: { $0.map(TOML.duration) ?? TOML.never }
        ) { text in
            if text == "never" { return .some(nil) }
            return Configuration.duration(text, from: lowest, to: highest).map { .some($0) }
        }
    }
}

extension ConfigurationForm where Value: RawRepresentable<String> & CaseIterable {
    static var choice: Self {
        let choices = Value.allCases.map(\.rawValue)
        let expected = "one of " + choices.map { "\"\($0)\"" }.joined(separator: ", ")
        return text(expected, choices: choices, write: { TOML.text($0.rawValue) }) { text in
            Value(rawValue: text)
        }
    }
}

extension ConfigurationForm {
    static func list<Element>(_ element: ConfigurationForm<Element>, of plural: String, mayBeEmpty: Bool = true) -> Self
    where Value == [Element] {
        Self(write: { "[" + $0.map(element.write).joined(separator: ", ") + "]" }) {
            value throws(ConfigurationErrors) in
            guard case .list(let items) = value.content else {
                throw value.error("\(value.name) must be a list of \(plural), not \(value.given)")
            }
            if items.isEmpty, !mayBeEmpty { throw value.error("\(value.name) must have at least one of the \(plural)") }
            var elements: [Element] = []
            var errors: [ConfigurationError] = []
            for item in items {
                do throws(ConfigurationErrors) {
                    elements.append(try element.read(item))
                } catch {
                    errors += error.list
                }
            }
            guard errors.isEmpty else { throw ConfigurationErrors(errors) }
            return elements
        }
    }
}

/// Whether MQTT can send the text: UTF-8 of at most 65,535 bytes, without control characters (MQTT 5, section 1.5.4).
private func isSendable(_ text: String) -> Bool {
    text.utf8.count <= 65_535 && !text.unicodeScalars.contains { $0.properties.generalCategory == .control }
}

extension ConfigurationForm<String> {
    static var anyText: Self {
        text("a text of at most 65535 bytes without control characters", write: TOML.text) { isSendable($0) ? $0 : nil }
    }

    static var nonemptyText: Self {
        text("a text of 1 to 65535 bytes without control characters", write: TOML.text) {
            isSendable($0) && !$0.isEmpty ? $0 : nil
        }
    }
}

extension ConfigurationForm<String?> {
    /// An empty text is `nil`.
    static var optionalText: Self {
        text("a text of at most 65535 bytes without control characters", write: { TOML.text($0 ?? "") }) { text in
            isSendable(text) ? .some(text.isEmpty ? nil : text) : nil
        }
    }

    /// The name that a server's certificate must have. An empty text is `nil`.
    static var serverName: Self {
        let expected = "a host name, as it is in the server's certificate, without port and wildcard, or empty"
        return text(expected, write: { TOML.text($0 ?? "") }) { text in
            if text.isEmpty { return .some(nil) }
            // A certificate's name has no dot at its end.
            let text = text.hasSuffix(".") ? String(text.dropLast()) : text
            guard IPAddress(text) == nil, !text.hasSuffix("."), let name = try? Endpoint.canonicalHost(text) else {
                return nil
            }
            return .some(name)
        }
    }

    /// An empty text is `nil`. What is no path may be the content of the file: a private key.
    static var path: Self {
        text("the absolute path of a file, or empty", isSecret: true, write: { TOML.text($0 ?? "") }) { text in
            if text.isEmpty { return .some(nil) }
            return text.hasPrefix("/") && isSendable(text) ? .some(text) : nil
        }
    }
}

extension ConfigurationForm<SecretReference?> {
    /// An empty text is `nil`.
    static var secret: Self {
        let expected =
            "\"file:PATH\", \"credential:NAME\" or \"exec:COMMAND ARGUMENT…\" with absolute paths: where to find the secret"
        return text(
            expected + ", never the secret itself", isSecret: true, write: { TOML.text($0?.shown ?? "") }
        ) { text in
            if text.isEmpty { return .some(nil) }
            return SecretReference(text).map { .some($0) }
        }
    }
}

extension SecretReference {
    /// As a file writes it. The arguments of a command may contain a secret, and are omitted.
    var shown: String {
        switch self {
        case .file(let path): "file:\(path)"
        case .credential(let name): "credential:\(name)"
        case .exec(let words): "exec:\(words.first ?? "")" + (words.count > 1 ? " …" : "")
        }
    }

    init?(_ text: String) {
        guard let colon = text.firstIndex(of: ":"), isSendable(text) else { return nil }
        let value = String(text[text.index(after: colon)...])
        switch text[..<colon] {
        case "file" where value.hasPrefix("/"):
            self = .file(value)
        case "credential" where !value.isEmpty && value != "." && value != ".." && !value.contains("/"):
            self = .credential(value)
        case "exec":
            guard let words = words(of: value), let program = words.first, program.hasPrefix("/") else { return nil }
            self = .exec(words)
        default:
            return nil
        }
    }
}

/// Splits a command into words, at spaces outside '…' and "…". Nothing else is special: no quote can stand inside
/// quotes of its own kind, and nothing is expanded.
///
/// - Returns: `nil` if a quote is not closed.
private func words(of command: String) -> [String]? {
    var words: [String] = []
    var word: String?
    var quote: Character?
    for character in command {
        if character == quote {
            quote = nil
        } else if quote != nil {
            word?.append(character)
        } else if character == "\"" || character == "'" {
            quote = character
            word = word ?? ""
        } else if character == " " {
            if let word { words.append(word) }
            word = nil
        } else {
            word = (word ?? "") + String(character)
        }
    }
    if let word { words.append(word) }
    return quote == nil ? words : nil
}

extension ConfigurationForm<Principal> {
    static var principal: Self {
        text(
            "\"user:NAME\", \"uid:N\", \"group:NAME\" or \"anyone\"", choices: ["anyone"], write: { TOML.text($0.text) }
        ) { Principal($0) }
    }
}

extension Principal {
    var text: String {
        switch self {
        case .user(let name): "user:\(name)"
        case .uid(let number): "uid:\(number)"
        case .group(let name): "group:\(name)"
        case .anyone: "anyone"
        }
    }

    init?(_ text: String) {
        if text == "anyone" {
            self = .anyone
            return
        }
        guard let colon = text.firstIndex(of: ":"), isSendable(text) else { return nil }
        let value = String(text[text.index(after: colon)...])
        switch text[..<colon] {
        case "user" where !value.isEmpty: self = .user(value)
        case "group" where !value.isEmpty: self = .group(value)
        case "uid":
            // The greatest number means "no user" to the kernel.
            guard let number = UInt32(value), number < .max, value.utf8.allSatisfy({ $0 != UInt8(ascii: "+") }) else {
                return nil
            }
            self = .uid(number)
        default: return nil
        }
    }
}

extension ConfigurationForm<TopicConfiguration.Grant> {
    static var grant: Self {
        text(
            "\"user:NAME FILTER\", or the same with \"uid:N\", \"group:NAME\" or \"anyone\": who may use which topics",
            write: { TOML.text("\($0.who.text) \($0.filter)") }
        ) { text in
            guard let space = text.firstIndex(of: " "), let who = Principal(String(text[..<space])),
                let filter = try? TopicFilter(String(text[text.index(after: space)...])), !filter.isShared
            else { return nil }
            return .init(filter, to: who)
        }
    }
}

extension ConfigurationForm<HostPattern> {
    static var hostPattern: Self {
        text(
            "a host name or an IP address, or \"*.DOMAIN\" for every host in a domain", write: { TOML.text($0.text) }
        ) { HostPattern($0) }
    }
}

extension ConfigurationForm<Endpoint> {
    static var endpoint: Self {
        Self(write: { TOML.text($0.description) }) { value throws(ConfigurationErrors) in
            guard case .text(let text) = value.content else {
                throw value.error("an endpoint must be a text such as \"mqtts://HOST:PORT\", not \(value.given)")
            }
            // A user and password in an address would put a secret into a message.
            let given = text.contains("@") ? "this" : value.given
            do throws(EndpointError) {
                return try Endpoint(text)
            } catch {
                throw value.error("\(given) is not an endpoint: \(error)")
            }
        }
    }
}

extension ConfigurationForm<ProxyAddress?> {
    /// An empty text is `nil`.
    static var proxy: Self {
        Self(write: { TOML.text($0?.description ?? "") }) { value throws(ConfigurationErrors) in
            guard case .text(let text) = value.content else {
                throw value.error("proxy.url must be a text such as \"http://HOST:PORT\", not \(value.given)")
            }
            if text.isEmpty { return nil }
            // A user and password in a URL would put a secret into a message.
            let given = text.contains("@") ? "this" : value.given
            do throws(ProxyError) {
                return try ProxyAddress(text)
            } catch {
                throw value.error("\(given) is not a proxy: \(error)")
            }
        }
    }
}
