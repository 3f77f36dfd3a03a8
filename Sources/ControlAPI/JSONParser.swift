/// Why and where bytes are not a JSON text.
public struct JSONParseError: Error, Hashable, Sendable, CustomStringConvertible {
    /// In one phrase, for example "unexpected character".
    public var problem: String
    /// The position of the byte, from 0.
    public var offset: Int

    public var description: String { "\(problem) at byte \(offset)" }
}

extension JSONValue {
    /// How deep arrays and objects may be nested.
    public static let maximumDepth = 512

    /// Reads one JSON text (RFC 8259) that fills all the bytes, except for white space.
    ///
    /// Stricter than the standard demands: an object that names a member twice is refused, and so is a number that is
    /// out of the range of a `Double`. Nesting is bounded by ``maximumDepth``, so no input can exhaust the stack.
    ///
    /// - Parameter maximumValues: how many values the text may have. A value takes much more memory than its shortest
    ///   text.
    public init(parsing bytes: ArraySlice<UInt8>, maximumValues: Int = .max) throws(JSONParseError) {
        // The whole text is checked once: any part that is cut out of it at ASCII characters is valid too.
        guard Self.isUTF8(bytes) else {
            throw JSONParseError(problem: "not UTF-8", offset: Self.firstInvalid(bytes))
        }
        var parser = JSONParser(bytes: bytes, valuesLeft: maximumValues)
        self = try parser.document()
    }

    static func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 }

    /// Checks without a copy, because the text may be megabytes long.
    private static func isUTF8(_ bytes: ArraySlice<UInt8>) -> Bool {
        (try? UTF8Span(validating: bytes.span)) != nil
    }

    private static func firstInvalid(_ bytes: ArraySlice<UInt8>) -> Int {
        var decoder = UTF8()
        var iterator = bytes.makeIterator()
        var offset = 0
        while case .scalarValue(let scalar) = decoder.decode(&iterator) {
            offset += UTF8.width(scalar)
        }
        return offset
    }
}

private struct JSONParser {
    let bytes: ArraySlice<UInt8>
    var position: Int
    /// How many more values there may be.
    private var valuesLeft: Int

    init(bytes: ArraySlice<UInt8>, valuesLeft: Int) {
        self.bytes = bytes
        self.position = bytes.startIndex
        self.valuesLeft = valuesLeft
    }

    mutating func document() throws(JSONParseError) -> JSONValue {
        skipSpace()
        let value = try value(depth: 0)
        skipSpace()
        guard position == bytes.endIndex else { throw failure("unexpected data after the JSON text") }
        return value
    }

    private var current: UInt8? { position < bytes.endIndex ? bytes[position] : nil }

    private func failure(_ problem: String) -> JSONParseError {
        let isAtEnd = position >= bytes.endIndex
        return JSONParseError(problem: isAtEnd ? "unexpected end" : problem, offset: position - bytes.startIndex)
    }

    private mutating func skipSpace() {
        while let byte = current, JSONValue.isSpace(byte) { position += 1 }
    }

    private mutating func take(_ byte: UInt8) -> Bool {
        guard current == byte else { return false }
        position += 1
        return true
    }

    private mutating func value(depth: Int) throws(JSONParseError) -> JSONValue {
        guard valuesLeft > 0 else { throw failure("too many values") }
        valuesLeft -= 1
        switch current {
        case UInt8(ascii: "{"): return try object(depth: depth + 1)
        case UInt8(ascii: "["): return try array(depth: depth + 1)
        case UInt8(ascii: "\""): return .string(try string())
        case UInt8(ascii: "t"): return try literal("true", .bool(true))
        case UInt8(ascii: "f"): return try literal("false", .bool(false))
        case UInt8(ascii: "n"): return try literal("null", .null)
        default: return try number()
        }
    }

    private mutating func literal(_ word: StaticString, _ value: JSONValue) throws(JSONParseError) -> JSONValue {
        let count = word.utf8CodeUnitCount
        let matches = word.withUTF8Buffer { bytes[position...].prefix(count).elementsEqual($0) }
        guard matches else { throw failure("unexpected character") }
        position += count
        return value
    }

    private mutating func object(depth: Int) throws(JSONParseError) -> JSONValue {
        guard depth <= JSONValue.maximumDepth else { throw failure("nested too deeply") }
        position += 1
        var members: [String: JSONValue] = [:]
        skipSpace()
        if take(UInt8(ascii: "}")) { return .object(members) }
        while true {
            skipSpace()
            guard current == UInt8(ascii: "\"") else { throw failure("expected the name of a member") }
            let start = position
            let name = try string()
            skipSpace()
            guard take(UInt8(ascii: ":")) else { throw failure("expected a colon") }
            skipSpace()
            let value = try value(depth: depth)
            guard members.updateValue(value, forKey: name) == nil else {
                position = start
                throw failure("member \(quoted(name)) is given twice")
            }
            skipSpace()
            if take(UInt8(ascii: "}")) { return .object(members) }
            guard take(UInt8(ascii: ",")) else { throw failure("expected a comma or }") }
        }
    }

    private mutating func array(depth: Int) throws(JSONParseError) -> JSONValue {
        guard depth <= JSONValue.maximumDepth else { throw failure("nested too deeply") }
        position += 1
        var elements: [JSONValue] = []
        skipSpace()
        if take(UInt8(ascii: "]")) { return .array(elements) }
        while true {
            skipSpace()
            elements.append(try value(depth: depth))
            skipSpace()
            if take(UInt8(ascii: "]")) { return .array(elements) }
            guard take(UInt8(ascii: ",")) else { throw failure("expected a comma or ]") }
        }
    }
}

// Numbers (RFC 8259, section 6).
extension JSONParser {
    private mutating func digits() -> Int {
        let start = position
        while let byte = current, (0x30...0x39).contains(byte) { position += 1 }
        return position - start
    }

    private mutating func number() throws(JSONParseError) -> JSONValue {
        let start = position
        _ = take(UInt8(ascii: "-"))
        let leading = current
        let count = digits()
        guard count > 0 else { throw failure(position == start ? "unexpected character" : "expected a digit") }
        guard count == 1 || leading != UInt8(ascii: "0") else {
            position = start
            throw failure("a number cannot begin with 0")
        }
        var isWhole = true
        if take(UInt8(ascii: ".")) {
            isWhole = false
            guard digits() > 0 else { throw failure("expected a digit") }
        }
        if take(UInt8(ascii: "e")) || take(UInt8(ascii: "E")) {
            isWhole = false
            if !take(UInt8(ascii: "+")) { _ = take(UInt8(ascii: "-")) }
            guard digits() > 0 else { throw failure("expected a digit") }
        }
        let text = String(decoding: bytes[start..<position], as: UTF8.self)
        if isWhole, let value = Int64(text) { return .integer(value) }
        guard let value = Double(text), value.isFinite else {
            position = start
            throw failure("the number is out of range")
        }
        // The sign of a zero is dropped. It would be lost anyway when the number is written as "-0" and read again.
        return .number(value == 0 ? 0 : value)
    }
}

// Strings (RFC 8259, section 7).
extension JSONParser {
    private mutating func string() throws(JSONParseError) -> String {
        position += 1
        let start = position
        while let byte = current, byte != UInt8(ascii: "\""), byte != UInt8(ascii: "\\"), byte >= 0x20 {
            position += 1
        }
        if current == UInt8(ascii: "\"") {
            position += 1
            return String(decoding: bytes[start..<(position - 1)], as: UTF8.self)
        }
        var content = Array(bytes[start..<position])
        while let byte = current {
            switch byte {
            case UInt8(ascii: "\""):
                position += 1
                return String(decoding: content, as: UTF8.self)
            case UInt8(ascii: "\\"):
                position += 1
                try escape(into: &content)
            case 0..<0x20:
                throw failure("a control character in a string must be escaped")
            default:
                content.append(byte)
                position += 1
            }
        }
        throw failure("unexpected end")
    }

    private mutating func escape(into content: inout [UInt8]) throws(JSONParseError) {
        guard let byte = current else { throw failure("unexpected end") }
        let plain: UInt8
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): plain = byte
        case UInt8(ascii: "b"): plain = 0x08
        case UInt8(ascii: "f"): plain = 0x0C
        case UInt8(ascii: "n"): plain = 0x0A
        case UInt8(ascii: "r"): plain = 0x0D
        case UInt8(ascii: "t"): plain = 0x09
        case UInt8(ascii: "u"):
            position += 1
            content.append(contentsOf: String(try escapedScalar()).utf8)
            return
        default: throw failure("unknown escape")
        }
        position += 1
        content.append(plain)
    }

    private mutating func escapedScalar() throws(JSONParseError) -> Character {
        let first = try hexadecimal()
        var value = UInt32(first)
        if (0xD800...0xDBFF).contains(first) {
            guard take(UInt8(ascii: "\\")), take(UInt8(ascii: "u")) else { throw failure("half a surrogate pair") }
            let second = try hexadecimal()
            guard (0xDC00...0xDFFF).contains(second) else { throw failure("half a surrogate pair") }
            value = 0x10000 + (UInt32(first) - 0xD800) << 10 + (UInt32(second) - 0xDC00)
        }
        guard let scalar = Unicode.Scalar(value) else { throw failure("half a surrogate pair") }
        return Character(scalar)
    }

    private mutating func hexadecimal() throws(JSONParseError) -> UInt16 {
        var value: UInt16 = 0
        for _ in 0..<4 {
            guard let byte = current, let digit = Character(Unicode.Scalar(byte)).hexDigitValue else {
                throw failure("expected a hexadecimal digit")
            }
            value = value << 4 | UInt16(digit)
            position += 1
        }
        return value
    }
}
