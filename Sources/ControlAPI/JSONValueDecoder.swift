/// Reads `Codable` types from a ``JSONValue``.
///
/// It is used instead of Foundation's decoder because it refuses unknown members (``ClosedObject``) when a request is
/// read, and because its errors name the member in the words of the protocol.
struct JSONValueDecoder: Decoder {
    let value: JSONValue
    let strictly: Bool
    let codingPath: [any CodingKey]
    var userInfo: [CodingUserInfoKey: Any] { [:] }

    static func decode<Value: Decodable>(
        _ type: Value.Type, from value: JSONValue, strictly: Bool
    ) throws(RPCError) -> Value {
        do {
            return try JSONValueDecoder(value: value, strictly: strictly, codingPath: []).decode(type)
        } catch let error as RPCError {
            throw error
        } catch let error as DecodingError {
            throw describe(error)
        } catch {
            throw .invalidParameters("the parameters cannot be read")
        }
    }

    func decode<Value: Decodable>(_ type: Value.Type) throws -> Value {
        if strictly, let closed = type as? any ClosedObject.Type { try refuseUnknownMembers(closed.members) }
        do {
            return try Value(from: self)
        } catch let error as DecodingError {
            // An enum's own message shows the Swift type; people need the allowed words.
            if case .dataCorrupted(let context) = error, context.codingPath.count == codingPath.count,
                let names = names(of: type)
            {
                throw corrupted("must be \(names), not \(shown)")
            }
            throw error
        }
    }

    func container<Key: CodingKey>(keyedBy type: Key.Type) throws -> KeyedDecodingContainer<Key> {
        guard case .object(let members) = value else { throw mismatch("an object") }
        return KeyedDecodingContainer(KeyedContainer<Key>(members: members, decoder: self))
    }

    func unkeyedContainer() throws -> any UnkeyedDecodingContainer {
        guard case .array(let elements) = value else { throw mismatch("an array") }
        return UnkeyedContainer(elements: elements, decoder: self)
    }

    func singleValueContainer() throws -> any SingleValueDecodingContainer {
        SingleValueContainer(decoder: self)
    }

    func at(_ key: any CodingKey, _ value: JSONValue) -> JSONValueDecoder {
        JSONValueDecoder(value: value, strictly: strictly, codingPath: codingPath + [key])
    }
}

// What is wrong, in the words of the protocol.
extension JSONValueDecoder {
    func mismatch(_ expected: String) -> DecodingError {
        .typeMismatch(
            JSONValue.self,
            .init(codingPath: codingPath, debugDescription: "must be \(expected), not \(value.kind)"))
    }

    func corrupted(_ problem: String) -> DecodingError {
        .dataCorrupted(.init(codingPath: codingPath, debugDescription: problem))
    }

    private var shown: String {
        switch value {
        case .string(let text): quoted(text)
        case .integer(let number): String(number)
        case .number(let number): String(number)
        default: value.kind
        }
    }

    private func refuseUnknownMembers(_ known: [String]) throws(RPCError) {
        guard case .object(let members) = value,
            let unknown = members.keys.filter({ !known.contains($0) }).min()
        else { return }
        let path = (codingPath.map(\.stringValue) + [unknown]).joined(separator: ".")
        let hint =
            didYouMean(nearest(to: unknown, among: known))
            ?? (known.isEmpty ? "this method has no parameters" : "the members are \(ParameterDecoder.list(known))")
        throw .invalidParameters("unknown member \(quoted(path))", hint: hint)
    }

    private func names<Value>(of type: Value.Type) -> String? {
        guard let enumeration = type as? any (CaseIterable & RawRepresentable).Type else { return nil }
        let names = Self.rawValues(enumeration)
        guard let last = names.last, names.count > 1 else { return nil }
        return names.dropLast().joined(separator: ", ") + " or " + last
    }

    private static func rawValues<Value: CaseIterable & RawRepresentable>(_ type: Value.Type) -> [String] {
        type.allCases.map { "\($0.rawValue)" }
    }

    private static func describe(_ error: DecodingError) -> RPCError {
        func path(_ context: DecodingError.Context, _ last: (any CodingKey)? = nil) -> String {
            var keys = context.codingPath
            if let last { keys.append(last) }
            return keys.isEmpty ? "the object" : keys.map(\.stringValue).joined(separator: ".")
        }
        return switch error {
        case .keyNotFound(let key, let context):
            .invalidParameters("\(path(context, key)) is missing")
        case .typeMismatch(_, let context), .valueNotFound(_, let context), .dataCorrupted(let context):
            .invalidParameters("\(path(context)) \(context.debugDescription)")
        @unknown default:
            .invalidParameters("the parameters cannot be read")
        }
    }
}

extension KeyedDecodingContainer {
    /// Returns an error that says what is wrong with a member. The problem continues the member's name.
    func refusal(of key: Key, _ problem: String) -> DecodingError {
        .dataCorruptedError(forKey: key, in: self, debugDescription: problem)
    }
}

private struct ElementKey: CodingKey {
    var index: Int
    var stringValue: String { String(index) }
    var intValue: Int? { index }

    init(_ index: Int) { self.index = index }
    init?(stringValue: String) { nil }
    init?(intValue: Int) { self.index = intValue }
}

private struct KeyedContainer<Key: CodingKey>: KeyedDecodingContainerProtocol {
    let members: [String: JSONValue]
    let decoder: JSONValueDecoder

    var codingPath: [any CodingKey] { decoder.codingPath }
    var allKeys: [Key] { members.keys.sorted().compactMap { Key(stringValue: $0) } }

    func contains(_ key: Key) -> Bool { members[key.stringValue] != nil }

    private func member(_ key: any CodingKey) throws -> JSONValueDecoder {
        guard let value = members[key.stringValue] else {
            throw DecodingError.keyNotFound(key, .init(codingPath: codingPath, debugDescription: "is missing"))
        }
        return decoder.at(key, value)
    }

    func decodeNil(forKey key: Key) throws -> Bool { try member(key).value == .null }
    func decode<T: Decodable>(_ type: T.Type, forKey key: Key) throws -> T { try member(key).decode(type) }

    func nestedContainer<Nested: CodingKey>(
        keyedBy type: Nested.Type, forKey key: Key
    ) throws -> KeyedDecodingContainer<Nested> {
        try member(key).container(keyedBy: type)
    }

    func nestedUnkeyedContainer(forKey key: Key) throws -> any UnkeyedDecodingContainer {
        try member(key).unkeyedContainer()
    }

    // No type of this module has superclasses; the value itself is what a superclass would read.
    func superDecoder() throws -> any Decoder { decoder }
    func superDecoder(forKey key: Key) throws -> any Decoder { try member(key) }
}

private struct UnkeyedContainer: UnkeyedDecodingContainer {
    let elements: [JSONValue]
    let decoder: JSONValueDecoder
    var currentIndex = 0

    var codingPath: [any CodingKey] { decoder.codingPath }
    var count: Int? { elements.count }
    var isAtEnd: Bool { currentIndex >= elements.count }

    private mutating func next() throws -> JSONValueDecoder {
        guard !isAtEnd else { throw decoder.corrupted("has too few elements") }
        currentIndex += 1
        return decoder.at(ElementKey(currentIndex - 1), elements[currentIndex - 1])
    }

    mutating func decodeNil() throws -> Bool {
        guard !isAtEnd, elements[currentIndex] == .null else { return false }
        currentIndex += 1
        return true
    }

    mutating func decode<T: Decodable>(_ type: T.Type) throws -> T { try next().decode(type) }

    mutating func nestedContainer<Nested: CodingKey>(
        keyedBy type: Nested.Type
    ) throws -> KeyedDecodingContainer<Nested> {
        try next().container(keyedBy: type)
    }

    mutating func nestedUnkeyedContainer() throws -> any UnkeyedDecodingContainer { try next().unkeyedContainer() }
    mutating func superDecoder() throws -> any Decoder { try next() }
}

private struct SingleValueContainer: SingleValueDecodingContainer {
    let decoder: JSONValueDecoder

    var codingPath: [any CodingKey] { decoder.codingPath }

    func decodeNil() -> Bool { decoder.value == .null }
    func decode(_ type: Bool.Type) throws -> Bool { try decoder.bool() }
    func decode(_ type: String.Type) throws -> String { try decoder.string() }
    func decode(_ type: Double.Type) throws -> Double { try decoder.double() }
    func decode(_ type: Float.Type) throws -> Float { Float(try decoder.double()) }
    func decode(_ type: Int.Type) throws -> Int { try decoder.integer() }
    func decode(_ type: Int8.Type) throws -> Int8 { try decoder.integer() }
    func decode(_ type: Int16.Type) throws -> Int16 { try decoder.integer() }
    func decode(_ type: Int32.Type) throws -> Int32 { try decoder.integer() }
    func decode(_ type: Int64.Type) throws -> Int64 { try decoder.integer() }
    func decode(_ type: UInt.Type) throws -> UInt { try decoder.integer() }
    func decode(_ type: UInt8.Type) throws -> UInt8 { try decoder.integer() }
    func decode(_ type: UInt16.Type) throws -> UInt16 { try decoder.integer() }
    func decode(_ type: UInt32.Type) throws -> UInt32 { try decoder.integer() }
    func decode(_ type: UInt64.Type) throws -> UInt64 { try decoder.integer() }
    func decode<T: Decodable>(_ type: T.Type) throws -> T { try decoder.decode(type) }
}

extension JSONValueDecoder {
    fileprivate func bool() throws -> Bool {
        guard case .bool(let value) = value else { throw mismatch("true or false") }
        return value
    }

    fileprivate func string() throws -> String {
        guard case .string(let value) = value else { throw mismatch("a string") }
        return value
    }

    fileprivate func double() throws -> Double {
        switch value {
        case .integer(let value): return Double(value)
        case .number(let value): return value
        default: throw mismatch("a number")
        }
    }

    fileprivate func integer<Value: FixedWidthInteger>() throws -> Value {
        switch value {
        case .integer(let number):
            guard let value = Value(exactly: number) else { throw corrupted("is out of range") }
            return value
        case .number(let number):
            guard let value = Value(exactly: number) else { throw corrupted("must be a whole number in range") }
            return value
        default: throw mismatch("a whole number")
        }
    }
}
