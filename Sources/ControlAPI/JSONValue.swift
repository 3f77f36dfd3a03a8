/// A JSON value (RFC 8259).
///
/// A number without a fraction or an exponent that fits into 64 bits is an ``integer(_:)``; every other one is a
/// ``number(_:)``.
public enum JSONValue: Hashable, Sendable {
    case null
    case bool(Bool)
    case integer(Int64)
    /// Always finite.
    case number(Double)
    case string(String)
    case array([JSONValue])
    case object([String: JSONValue])
}

extension JSONValue {
    /// The members, if this is an object.
    public var members: [String: JSONValue]? {
        if case .object(let members) = self { members } else { nil }
    }

    /// The text, if this is a string.
    public var text: String? {
        if case .string(let text) = self { text } else { nil }
    }

    /// The whole number, if this is one.
    public var wholeNumber: Int64? {
        switch self {
        case .integer(let value): value
        case .number(let value): Int64(exactly: value)
        default: nil
        }
    }

    /// The member of that name; `nil` if this is not an object or has no such member.
    public subscript(name: String) -> JSONValue? { members?[name] }

    /// How many values it consists of, itself included.
    public var valueCount: Int {
        switch self {
        case .null, .bool, .integer, .number, .string: 1
        case .array(let elements): elements.reduce(1) { $0 + $1.valueCount }
        case .object(let members): members.values.reduce(1) { $0 + $1.valueCount }
        }
    }

    /// The kind of value, in the words of error messages.
    var kind: String {
        switch self {
        case .null: "null"
        case .bool: "a Boolean"
        case .integer, .number: "a number"
        case .string: "a string"
        case .array: "an array"
        case .object: "an object"
        }
    }
}

extension JSONValue: Codable {
    /// Only a decoder of this module can read any value.
    public init(from decoder: any Decoder) throws {
        guard let own = decoder as? JSONValueDecoder else {
            throw DecodingError.typeMismatch(
                Self.self, .init(codingPath: decoder.codingPath, debugDescription: "must be read with init(parsing:)"))
        }
        self = own.value
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        switch self {
        case .null: try container.encodeNil()
        case .bool(let value): try container.encode(value)
        case .integer(let value): try container.encode(value)
        case .number(let value): try container.encode(value)
        case .string(let value): try container.encode(value)
        case .array(let value): try container.encode(value)
        case .object(let value): try container.encode(value)
        }
    }
}
