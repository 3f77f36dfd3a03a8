// The part of TOML 1.0 (toml.io) that a configuration can use. Every value knows its position, which the TOML libraries
// for Swift do not report, and no text can crash the process. Dates and fractions are recognized but not decoded, and
// there are no lists of tables ([[…]]), because no key takes any of them.

/// Reads one TOML text into a tree of values.
struct ConfigurationParser {
    /// The most parts of a key, and the deepest nesting of brackets: more than any key or value needs. Bounds the
    /// recursion.
    private static let depthLimit = 16

    private let file: String
    private let scalars: [Unicode.Scalar]
    private var index = 0
    private var position = TextPosition()

    /// The most violations that are looked for in one text.
    private static let errorLimit = 20

    /// Returns the table that the text is, with each violation of the grammar as a member. A key that occurs twice is one.
    static func parse(_ text: String, file: String) -> ConfigurationValue {
        var parser = ConfigurationParser(file: file, scalars: Array(text.unicodeScalars))
        return parser.document()
    }

    private init(file: String, scalars: [Unicode.Scalar]) {
        self.file = file
        self.scalars = scalars
    }

    private mutating func document() -> ConfigurationValue {
        if peek == "\u{FEFF}" { index += 1 }
        let root = Table(origin: .header, name: "", position: position)
        var current = root
        var errors: [ConfigurationError] = []
        while skipBlank(), peek != nil, errors.count < Self.errorLimit {
            let isHeader = peek == "["
            do throws(ConfigurationErrors) {
                if isHeader { current = try header(in: root) } else { try entry(in: current, depth: 0) }
                skipSpaces()
                if peek != nil, peek != "\n", peek != "#" {
                    throw error("nothing but a comment may follow on the same line")
                }
            } catch {
                errors += error.list
                // The table that the following keys are meant for is not known.
                if isHeader { current = Table(origin: .header, name: "", position: position) }
                resume()
            }
        }
        return root.value(file: file, errors: errors)
    }

    private mutating func header(in root: Table) throws(ConfigurationErrors) -> Table {
        advance()
        if peek == "[" { throw error("there are no lists of tables here: write [TABLE]") }
        let keys = try self.keys()
        try expect("]", "after the name of a table")
        return try open(keys, in: root)
    }

    /// Skips what follows an error, up to a line that begins like a table or a key: one error in a list or text of
    /// several lines must not lead to more.
    private mutating func resume() {
        while peek != nil {
            while let scalar = peek, scalar != "\n" { advance() }
            advance()
            let line = scalars[index...].prefix { $0 != "\n" }.drop(while: isSpace)
            let isEntry = line.first.map(isBareKey) == true && line.contains("=")
            if isEntry || line.first == "[" && line.dropFirst().first.map(isBareKey) == true { return }
        }
    }

    // MARK: Tables

    private struct Key {
        let text: String
        let position: TextPosition
    }

    /// A table that is being read.
    private final class Table {
        /// How it was created, which decides what may still be added to it.
        enum Origin { case header, impliedByHeader, dottedKey, inline }
        enum Member {
            case table(Table)
            case value(ConfigurationValue)
        }

        var origin: Origin
        let name: String
        let position: TextPosition
        var members: [String: Member] = [:]

        init(origin: Origin, name: String, position: TextPosition) {
            self.origin = origin
            self.name = name
            self.position = position
        }

        /// Returns the dotted name of a member. A part that is not a bare key is quoted, so that no two keys share a
        /// name.
        func name(of key: Key) -> String {
            let isBare = !key.text.isEmpty && key.text.unicodeScalars.allSatisfy(isBareKey)
            let part = isBare ? key.text : key.text.debugDescription
            return name.isEmpty ? part : "\(name).\(part)"
        }

        func add(_ key: Key, origin: Origin) -> Table {
            let table = Table(origin: origin, name: name(of: key), position: key.position)
            members[key.text] = .table(table)
            return table
        }

        func value(
            file: String, position: TextPosition? = nil, errors: [ConfigurationError] = []
        ) -> ConfigurationValue {
            let values = members.values.map { member in
                switch member {
                case .table(let table): table.value(file: file)
                case .value(let value): value
                }
            }
            let invalid = errors.map { error in
                let place = error.position ?? self.position
                return ConfigurationValue(
                    file: file, name: name, keyPosition: place, position: place, content: .invalid(error))
            }
            return ConfigurationValue(
                file: file, name: name, keyPosition: self.position, position: position ?? self.position,
                content: .table(values + invalid))
        }
    }

    /// Returns the table of a header, which is created if necessary.
    private func open(_ keys: [Key], in root: Table) throws(ConfigurationErrors) -> Table {
        var table = root
        for (number, key) in keys.enumerated() {
            let isLast = number == keys.count - 1
            switch table.members[key.text] {
            case nil:
                table = table.add(key, origin: isLast ? .header : .impliedByHeader)
            case .table(let next) where isLast ? next.origin == .impliedByHeader : next.origin != .inline:
                if isLast { next.origin = .header }
                table = next
            default:
                throw error("\(table.name(of: key)) is defined twice", at: key.position)
            }
        }
        return table
    }

    /// `key.key = value`
    private mutating func entry(in table: Table, depth: Int) throws(ConfigurationErrors) {
        let keys = try self.keys()
        var table = table
        for key in keys.dropLast() {
            switch table.members[key.text] {
            case nil: table = table.add(key, origin: .dottedKey)
            case .table(let next) where next.origin == .dottedKey: table = next
            default: throw error("\(table.name(of: key)) is defined twice", at: key.position)
            }
        }
        guard let key = keys.last else { return }
        let name = table.name(of: key)
        guard table.members[key.text] == nil else { throw error("\(name) is defined twice", at: key.position) }
        try expect("=", "after a key")
        skipSpaces()
        table.members[key.text] = .value(try value(name: name, keyPosition: key.position, depth: depth))
    }

    /// `key . "key"`
    private mutating func keys() throws(ConfigurationErrors) -> [Key] {
        var keys: [Key] = []
        repeat {
            skipSpaces()
            let start = position
            var text = ""
            if peek == "\"" || peek == "'" {
                if isTripled { throw error("a key has one quotation mark on each side") }
                text = try string()
            } else {
                while let scalar = peek, isBareKey(scalar) {
                    text.unicodeScalars.append(scalar)
                    advance()
                }
                if text.isEmpty {
                    throw error("a key is expected: letters, digits, - and _, others in quotation marks")
                }
            }
            keys.append(Key(text: text, position: start))
            if keys.count > Self.depthLimit { throw error("a key has too many parts") }
            skipSpaces()
        } while take(".")
        return keys
    }

    // MARK: Values

    private mutating func value(
        name: String, keyPosition: TextPosition, depth: Int
    ) throws(ConfigurationErrors) -> ConfigurationValue {
        if depth > Self.depthLimit { throw error("brackets are nested too deeply") }
        let start = position
        let content: ConfigurationValue.Content
        switch peek {
        case "\"", "'":
            content = .text(try string())
        case "[":
            advance()
            content = .list(try list(name: name, depth: depth + 1))
        case "{":
            advance()
            let table = Table(origin: .inline, name: name, position: keyPosition)
            try inlineTable(table, depth: depth + 1)
            return table.value(file: file, position: start)
        default:
            content = try bareValue()
        }
        return ConfigurationValue(
            file: file, name: name, keyPosition: keyPosition, position: start, content: content)
    }

    private mutating func list(name: String, depth: Int) throws(ConfigurationErrors) -> [ConfigurationValue] {
        var elements: [ConfigurationValue] = []
        while skipBlank(), !take("]") {
            elements.append(try value(name: name, keyPosition: position, depth: depth))
            skipBlank()
            if !take(","), peek != "]" { throw error("a comma or ] is expected in a list") }
        }
        return elements
    }

    private mutating func inlineTable(_ table: Table, depth: Int) throws(ConfigurationErrors) {
        skipSpaces()
        if take("}") { return }
        repeat {
            try entry(in: table, depth: depth)
            skipSpaces()
        } while take(",")
        try expect("}", "at the end of a table in braces, which stands on one line")
    }

    /// Reads a number, a truth value or a date. An error does not repeat the text, which may be a secret.
    private mutating func bareValue() throws(ConfigurationErrors) -> ConfigurationValue.Content {
        let start = position
        var text = ""
        while let scalar = peek, !isSpace(scalar), !"\n,]}#".unicodeScalars.contains(scalar) {
            text.unicodeScalars.append(scalar)
            advance()
        }
        if text == "true" || text == "false" { return .boolean(text == "true") }
        let unsigned = text.first == "+" || text.first == "-" ? text.dropFirst() : text[...]
        guard let first = unsigned.utf8.first, isDigit(first) || unsigned == "inf" || unsigned == "nan" else {
            throw error("a value is expected: a text stands in quotation marks", at: start)
        }
        let radices: [Substring: Int] = ["0x": 16, "0o": 8, "0b": 2]
        let radix = radices[unsigned.prefix(2)] ?? 10
        let digits = radix == 10 ? unsigned : text.dropFirst(2)
        let groups = digits.split(separator: "_", omittingEmptySubsequences: false)
        let isWhole = groups.allSatisfy { group in
            !group.isEmpty && group.utf8.allSatisfy { isDigit($0) || radix == 16 && isASCIILetter($0) }
        }
        if !isWhole, radix == 10,
            unsigned == "inf" || unsigned == "nan" || unsigned.utf8.contains(where: ".:-eE".utf8.contains),
            text.utf8.allSatisfy({ isDigit($0) || isASCIILetter($0) || "+-.:_".utf8.contains($0) })
        {
            return .other("date or a number that is not whole")
        }
        let sign = text.first == "-" ? "-" : ""
        guard isWhole, radix != 10 || digits.count == 1 || digits.first != "0",
            let number = Int(sign + groups.joined(), radix: radix)
        else { throw error("a value is expected: a text in quotation marks, or a whole number of 64 bits", at: start) }
        return .integer(number)
    }

    // MARK: Strings

    private var isTripled: Bool {
        guard let quote = peek else { return false }
        return scalars[index...].starts(with: [quote, quote, quote])
    }

    /// Reads any of the four kinds of string.
    private mutating func string() throws(ConfigurationErrors) -> String {
        let start = position
        let quote = peek
        let isMultiline = isTripled
        advance(by: isMultiline ? 3 : 1)
        if isMultiline { takeNewline() }
        var text = ""
        while let scalar = peek {
            if scalar == quote, !isMultiline || isTripled {
                advance(by: isMultiline ? 3 : 1)
                // A text in three quotation marks may end with up to two quotation marks of its own.
                for _ in 0..<2 where isMultiline && peek == quote {
                    text.unicodeScalars.append(scalar)
                    advance()
                }
                return text
            }
            if scalar == "\\", quote == "\"" {
                try escape(isMultiline: isMultiline).map { text.unicodeScalars.append($0) }
            } else if takeNewline() {
                guard isMultiline else { break }
                text += "\n"
            } else if scalar != "\t", scalar.value < 0x20 || scalar.value == 0x7F {
                throw error("a text cannot have this control character; write \\u and its four digits")
            } else {
                text.unicodeScalars.append(scalar)
                advance()
            }
        }
        throw error("the text that begins here does not end", at: start)
    }

    /// - Returns: `nil` for a backslash at the end of a line, which removes the white space up to the next character.
    private mutating func escape(isMultiline: Bool) throws(ConfigurationErrors) -> Unicode.Scalar? {
        let start = position
        advance()
        let letter = peek
        if isMultiline, let letter, letter == "\n" || isSpace(letter) {
            skipSpaces()
            guard peek == "\n" else {
                throw error("a backslash before a space is allowed only at the end of a line", at: start)
            }
            while skipSpaces(), takeNewline() {}
            return nil
        }
        advance()
        switch letter {
        case "b": return "\u{8}"
        case "t": return "\t"
        case "n": return "\n"
        case "f": return "\u{C}"
        case "r": return "\r"
        case "\"", "\\": return letter
        case "u", "U":
            var digits = ""
            while digits.utf8.count < (letter == "u" ? 4 : 8), let digit = peek, digit.properties.isASCIIHexDigit {
                digits.unicodeScalars.append(digit)
                advance()
            }
            let isComplete = digits.utf8.count == (letter == "u" ? 4 : 8)
            if isComplete, let scalar = UInt32(digits, radix: 16).flatMap(Unicode.Scalar.init) { return scalar }
            fallthrough
        default:
            throw error("there is no such escape sequence: a backslash itself is written \\\\", at: start)
        }
    }

    // MARK: The text

    private var peek: Unicode.Scalar? { index < scalars.count ? scalars[index] : nil }

    private mutating func advance(by count: Int = 1) {
        for _ in 0..<count {
            guard let scalar = peek else { return }
            position.pass(scalar)
            index += 1
        }
    }

    private mutating func take(_ scalar: Unicode.Scalar) -> Bool {
        guard peek == scalar else { return false }
        advance()
        return true
    }

    @discardableResult
    private mutating func takeNewline() -> Bool {
        if peek == "\r", index + 1 < scalars.count, scalars[index + 1] == "\n" { advance() }
        return take("\n")
    }

    private mutating func expect(_ scalar: Unicode.Scalar, _ place: String) throws(ConfigurationErrors) {
        guard take(scalar) else { throw error("\(scalar) is expected \(place)") }
    }

    @discardableResult
    private mutating func skipSpaces() -> Bool {
        while let scalar = peek, isSpace(scalar) { advance() }
        return true
    }

    /// Skips spaces, newlines and comments.
    @discardableResult
    private mutating func skipBlank() -> Bool {
        while true {
            skipSpaces()
            if peek == "#" {
                while let scalar = peek, scalar != "\n" { advance() }
            } else if !take("\n") {
                return true
            }
        }
    }

    private func error(_ message: String, at position: TextPosition? = nil) -> ConfigurationErrors {
        ConfigurationErrors([
            ConfigurationError(file: file, position: position ?? self.position, message: "not valid TOML: \(message)")
        ])
    }
}

private func isSpace(_ scalar: Unicode.Scalar) -> Bool {
    scalar == " " || scalar == "\t" || scalar == "\r"
}

private func isBareKey(_ scalar: Unicode.Scalar) -> Bool {
    guard let byte = UInt8(exactly: scalar.value) else { return false }
    return isDigit(byte) || isASCIILetter(byte) || scalar == "-" || scalar == "_"
}

private func isDigit(_ byte: UInt8) -> Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) }

private func isASCIILetter(_ byte: UInt8) -> Bool { (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte | 0x20) }
