/// Describes what a type reads from JSON, as a JSON Schema (2020-12).
///
/// Nothing is declared twice: the type decodes itself from a decoder that only notes what it is asked for. What a type
/// checks beyond that (bounds, or that exactly one of two members is given) is not in the schema.
package enum JSONSchema {
    /// Returns the names of a type's members, also those of objects in it, as in `outbox.queued`.
    package static func paths(of type: any Decodable.Type) -> [String] { paths(in: of(type)) }

    private static func paths(in schema: JSONValue) -> [String] {
        (schema["properties"]?.members ?? [:]).flatMap { name, schema in
            [name] + paths(in: schema).map { "\(name).\($0)" }
        }
    }

    static func of(_ type: any Decodable.Type) -> JSONValue {
        known(type) ?? Notes(on: type).schema
    }

    /// Returns the names of the members that a type reads, in the order in which it first asks for them.
    static func members(of type: any Decodable.Type) -> [String] { Notes(on: type).names }

    private static func known(_ type: any Decodable.Type) -> JSONValue? {
        switch type {
        case is String.Type: return .object(["type": .string("string")])
        case is Bool.Type: return .object(["type": .string("boolean")])
        case is Double.Type: return .object(["type": .string("number")])
        case is any FixedWidthInteger.Type: return .object(["type": .string("integer")])
        case is Timestamp.Type: return .object(["type": .string("string"), "format": .string("date-time")])
        case is JSONValue.Type: return .object([:])
        case let list as any DescribedList.Type: return .object(["type": .string("array"), "items": of(list.element)])
        case let table as any DescribedTable.Type:
            return .object(["type": .string("object"), "additionalProperties": of(table.value)])
        case let wrapped as any DescribedOptional.Type: return orNull(of(wrapped.wrapped))
        case let choice as any CaseIterable.Type: return choices(choice)
        default: return nil
        }
    }

    static func orNull(_ schema: JSONValue) -> JSONValue {
        guard var members = schema.members, let type = members["type"], case .string = type else { return schema }
        members["type"] = .array([type, .string("null")])
        if case .array(let values)? = members["enum"] { members["enum"] = .array(values + [.null]) }
        return .object(members)
    }

    private static func choices<Choice: CaseIterable>(_ type: Choice.Type) -> JSONValue? {
        let values = type.allCases.compactMap { choice -> JSONValue? in
            switch choice {
            case let text as any RawRepresentable<String>: .string(text.rawValue)
            case let number as any RawRepresentable<UInt8>: .integer(Int64(number.rawValue))
            default: nil
            }
        }
        guard let first = values.first else { return nil }
        let kind = if case .string = first { "string" } else { "integer" }
        return .object(["type": .string(kind), "enum": .array(values)])
    }

    /// Returns any value of the type, so that decoding continues and asks for the next member.
    fileprivate static func anything<Value: Decodable>(_ type: Value.Type) throws -> Value {
        if let choices = type as? any CaseIterable.Type, let value = first(choices) as? Value { return value }
        if let value = Timestamp(rawValue: 0) as? Value { return value }
        if let value = JSONValue.null as? Value { return value }
        return try type.init(from: NotingDecoder(notes: Notes()))
    }

    private static func first<Choice: CaseIterable>(_ type: Choice.Type) -> Any? { type.allCases.first }

    /// What a type asked for.
    final class Notes {
        private(set) var names: [String] = []
        private var single: JSONValue?
        private var properties: [String: JSONValue] = [:]
        private var required: Set<String> = []
        private var isObject = false
        private(set) var optional: Set<String> = []
        /// Members that are treated as absent in this pass.
        private(set) var absent: Set<String> = []

        init() {}

        init(on type: any Decodable.Type) {
            take(type, without: [])
            // What the type asks for may depend on which members are present.
            for key in optional.sorted() { take(type, without: [key]) }
        }

        /// Decodes the type with all members except those in `absent` and those whose values the type rejects.
        private func take(_ type: any Decodable.Type, without absent: Set<String>) {
            self.absent = absent
            while true {
                do {
                    _ = try type.init(from: NotingDecoder(notes: self))
                    return
                } catch DecodingError.dataCorrupted(let context) {
                    guard let key = context.codingPath.last?.stringValue, optional.contains(key),
                        self.absent.insert(key).inserted
                    else { return }
                } catch {
                    return
                }
            }
        }

        func note(single schema: JSONValue) { single = schema }
        func noteObject() { isObject = true }

        func note(_ key: String, _ schema: JSONValue) {
            noteName(key)
            if properties[key] == nil { required.insert(key) }
            properties[key] = schema
        }

        /// Notes a member that may be absent or `null`.
        func noteOptional(_ key: String) {
            noteName(key)
            required.remove(key)
            optional.insert(key)
        }

        private func noteName(_ key: String) {
            if !names.contains(key) { names.append(key) }
        }

        var schema: JSONValue {
            if let single { return single }
            guard isObject else { return .object([:]) }
            var members: [String: JSONValue] = ["type": .string("object")]
            members["properties"] = .object(
                Dictionary(
                    uniqueKeysWithValues: properties.map { key, schema in
                        (key, optional.contains(key) ? JSONSchema.orNull(schema) : schema)
                    }))
            let names = required.subtracting(optional).sorted()
            if !names.isEmpty { members["required"] = .array(names.map(JSONValue.string)) }
            return .object(members)
        }
    }
}

private protocol DescribedList { static var element: any Decodable.Type { get } }
extension Array: DescribedList where Element: Decodable { static var element: any Decodable.Type { Element.self } }

private protocol DescribedTable { static var value: any Decodable.Type { get } }
extension Dictionary: DescribedTable where Key == String, Value: Decodable {
    static var value: any Decodable.Type { Value.self }
}

private protocol DescribedOptional { static var wrapped: any Decodable.Type { get } }
extension Optional: DescribedOptional where Wrapped: Decodable {
    static var wrapped: any Decodable.Type { Wrapped.self }
}

private struct NotingDecoder: Decoder {
    let notes: JSONSchema.Notes
    var codingPath: [any CodingKey] { [] }
    var userInfo: [CodingUserInfoKey: Any] { [:] }

    func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedDecodingContainer<Key> {
        notes.noteObject()
        return KeyedDecodingContainer(NotingContainer<Key>(notes: notes))
    }

    func unkeyedContainer() throws -> any UnkeyedDecodingContainer {
        throw DecodingError.dataCorrupted(.init(codingPath: [], debugDescription: "lists describe themselves"))
    }

    func singleValueContainer() -> any SingleValueDecodingContainer { NotingValue(notes: notes) }
}

private struct NotingValue: SingleValueDecodingContainer {
    let notes: JSONSchema.Notes
    var codingPath: [any CodingKey] { [] }

    func decodeNil() -> Bool { false }

    func decode<Value: Decodable>(_ type: Value.Type) throws -> Value {
        notes.note(single: JSONSchema.of(type))
        return try primitive(type) ?? JSONSchema.anything(type)
    }
}

private struct NotingContainer<Key: CodingKey>: KeyedDecodingContainerProtocol {
    let notes: JSONSchema.Notes
    var codingPath: [any CodingKey] { [] }
    var allKeys: [Key] { [] }

    func contains(_ key: Key) -> Bool {
        notes.noteOptional(key.stringValue)
        return !notes.absent.contains(key.stringValue)
    }

    func decodeNil(forKey key: Key) -> Bool { false }

    func decode<Value: Decodable>(_ type: Value.Type, forKey key: Key) throws -> Value {
        notes.note(key.stringValue, JSONSchema.of(type))
        return try primitive(type) ?? JSONSchema.anything(type)
    }

    func nestedContainer<Nested: CodingKey>(
        keyedBy type: Nested.Type, forKey key: Key
    ) -> KeyedDecodingContainer<Nested> {
        let nested = JSONSchema.Notes()
        notes.note(key.stringValue, .object(["type": .string("object")]))
        return KeyedDecodingContainer(NotingContainer<Nested>(notes: nested))
    }

    func nestedUnkeyedContainer(forKey key: Key) throws -> any UnkeyedDecodingContainer {
        try NotingDecoder(notes: notes).unkeyedContainer()
    }

    func superDecoder() -> any Decoder { NotingDecoder(notes: notes) }
    func superDecoder(forKey key: Key) -> any Decoder { NotingDecoder(notes: notes) }
}

/// Returns a value of a type that is not an object and needs no decoder; `nil` for any other type.
private func primitive<Value>(_ type: Value.Type) -> Value? {
    switch type {
    // Not empty, and valid base64.
    case is String.Type: "text" as? Value
    case is Bool.Type: false as? Value
    case is Double.Type: 0.0 as? Value
    case let integer as any FixedWidthInteger.Type: zero(integer) as? Value
    case let list as any EmptyInit.Type: list.init() as? Value
    default: nil
    }
}

private func zero<Number: FixedWidthInteger>(_ type: Number.Type) -> Number { 0 }

private protocol EmptyInit { init() }
extension Array: EmptyInit {}
extension Dictionary: EmptyInit {}
