import Vocabulary

/// A `message.publish` request, read straight from its line.
///
/// Programs publish thousands of times a second, and nearly all of these lines have the same few members. They are read
/// here without building a ``JSONValue`` first. For any other line, and for a line with an error, the initializer
/// returns `nil`; ``RequestLine`` and ``ParameterDecoder`` then read the line and report the error. What is read here
/// is equal to what they would read.
public struct PublishLine: Hashable, Sendable {
    public var id: RequestID
    public var parameters: MessagePublishMethod.Parameters

    /// Reads a line, without its newline.
    public init?(scanning line: ArraySlice<UInt8>) {
        guard line.count <= RequestLine.maximumPayloadLineLength else { return nil }
        let scanned = line.withUnsafeBufferPointer { bytes in
            var scanner = PublishScanner(bytes: bytes)
            return scanner.request()
        }
        guard let scanned else { return nil }
        self = scanned
    }

    /// Reads a line, without its newline.
    public init?(scanning line: [UInt8]) {
        self.init(scanning: line[...])
    }

    init(id: RequestID, parameters: MessagePublishMethod.Parameters) {
        self.id = id
        self.parameters = parameters
    }
}

/// Every method returns `nil` for anything less plain than expected; the whole line is then read the general way.
private struct PublishScanner {
    let bytes: UnsafeBufferPointer<UInt8>
    private var position = 0

    init(bytes: UnsafeBufferPointer<UInt8>) {
        self.bytes = bytes
    }

    /// A string between its quotes.
    private struct Text {
        var range: Range<Int>
        var isASCII: Bool
        var hasEscapes: Bool
    }

    mutating func request() -> PublishLine? {
        var id: RequestID?
        var parameters: MessagePublishMethod.Parameters?
        var (isVersion2, isPublish) = (false, false)
        skipSpace()
        guard begin() else { return nil }
        repeat {
            guard let name = name() else { return nil }
            if matches(name, "params"), parameters == nil {
                guard let members = self.parameters() else { return nil }
                parameters = members
            } else if matches(name, "id"), id == nil {
                guard let value = identifier() else { return nil }
                id = value
            } else if matches(name, "method"), !isPublish {
                guard let method = plainText(), matches(method, "message.publish") else { return nil }
                isPublish = true
            } else if matches(name, "jsonrpc"), !isVersion2 {
                guard let version = plainText(), matches(version, "2.0") else { return nil }
                isVersion2 = true
            } else {
                return nil
            }
        } while takeComma()
        guard end(), position == bytes.count, isVersion2, isPublish, let id, let parameters else { return nil }
        return PublishLine(id: id, parameters: parameters)
    }

    private mutating func parameters() -> MessagePublishMethod.Parameters? {
        var (session, topic): (String?, String?)
        var payload: MessagePayload?
        var qos: QoS?
        var retain: Bool?
        var wait: MessagePublishMethod.Wait?
        guard begin() else { return nil }
        repeat {
            guard let name = name() else { return nil }
            if matches(name, "session"), session == nil {
                guard let text = plainText().flatMap(string) else { return nil }
                session = text
            } else if matches(name, "topic"), topic == nil {
                guard let text = plainText().flatMap(string) else { return nil }
                topic = text
            } else if matches(name, "payload"), payload == nil {
                guard let text = text(), let content = content(of: text) else { return nil }
                payload = MessagePayload(bytes: content)
            } else if matches(name, "payloadBase64"), payload == nil {
                guard let text = text(), let content = content(of: text), let decoded = Base64.decode(utf8: content)
                else { return nil }
                payload = MessagePayload(bytes: decoded)
            } else if matches(name, "qos"), qos == nil {
                guard let value = number().flatMap({ UInt8(exactly: $0).flatMap(QoS.init) }) else { return nil }
                qos = value
            } else if matches(name, "retain"), retain == nil {
                guard let value = boolean() else { return nil }
                retain = value
            } else if matches(name, "wait"), wait == nil {
                guard let value = plainText() else { return nil }
                if matches(value, "accepted") {
                    wait = .accepted
                } else if matches(value, "delivered") {
                    wait = .delivered
                } else {
                    return nil
                }
            } else {
                return nil
            }
        } while takeComma()
        guard end(), let session, let topic, let payload, payload.bytes.count <= MessagePayload.maximumLength else {
            return nil
        }
        return MessagePublishMethod.Parameters(
            session: session, topic: topic, payload: payload, qos: qos ?? .atLeastOnce, retain: retain ?? false,
            wait: wait ?? .accepted)
    }

    // MARK: Structure

    private mutating func skipSpace() {
        while position < bytes.count, [0x20, 0x09, 0x0D, 0x0A].contains(bytes[position]) { position += 1 }
    }

    private mutating func take(_ byte: UInt8) -> Bool {
        guard position < bytes.count, bytes[position] == byte else { return false }
        position += 1
        return true
    }

    /// Takes the beginning of an object that has members.
    private mutating func begin() -> Bool {
        guard take(UInt8(ascii: "{")) else { return false }
        skipSpace()
        return true
    }

    /// Takes the end of an object and the space after it.
    private mutating func end() -> Bool {
        guard take(UInt8(ascii: "}")) else { return false }
        skipSpace()
        return true
    }

    /// Takes a comma and the space around it. Returns whether there was one, so that another member follows.
    private mutating func takeComma() -> Bool {
        skipSpace()
        guard take(UInt8(ascii: ",")) else { return false }
        skipSpace()
        return true
    }

    /// Reads the name of a member, and everything up to its value.
    private mutating func name() -> Range<Int>? {
        guard let name = plainText() else { return nil }
        skipSpace()
        guard take(UInt8(ascii: ":")) else { return nil }
        skipSpace()
        return name
    }

    // MARK: Values

    /// Reads a string of ASCII characters without escapes.
    private mutating func plainText() -> Range<Int>? {
        guard let text = text(), text.isASCII, !text.hasEscapes else { return nil }
        return text.range
    }

    private mutating func text() -> Text? {
        guard take(UInt8(ascii: "\"")) else { return nil }
        let start = position
        var (isASCII, hasEscapes) = (true, false)
        while true {
            position = UnsafeRawBufferPointer(bytes).skippingPlainBytes(from: position)
            guard position < bytes.count else { return nil }
            let byte = bytes[position]
            if byte == UInt8(ascii: "\"") {
                defer { position += 1 }
                return Text(range: start..<position, isASCII: isASCII, hasEscapes: hasEscapes)
            }
            if byte == UInt8(ascii: "\\") {
                hasEscapes = true
                position += 1
            } else if byte < 0x20 {
                return nil
            } else if byte >= 0x80 {
                isASCII = false
            }
            position += 1
        }
    }

    /// Returns the bytes that a string stands for.
    private func content(of text: Text) -> [UInt8]? {
        let slice = UnsafeBufferPointer(rebasing: bytes[text.range])
        if !text.isASCII, String(validating: slice, as: UTF8.self) == nil { return nil }
        guard text.hasEscapes else { return Array(slice) }
        var content: [UInt8] = []
        content.reserveCapacity(slice.count)
        var index = 0
        while index < slice.count {
            var byte = slice[index]
            if byte == UInt8(ascii: "\\") {
                index += 1
                switch slice[index] {
                case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): byte = slice[index]
                case UInt8(ascii: "b"): byte = 0x08
                case UInt8(ascii: "f"): byte = 0x0C
                case UInt8(ascii: "n"): byte = 0x0A
                case UInt8(ascii: "r"): byte = 0x0D
                case UInt8(ascii: "t"): byte = 0x09
                default: return nil
                }
            }
            content.append(byte)
            index += 1
        }
        return content
    }

    private func string(_ range: Range<Int>) -> String {
        String(decoding: UnsafeBufferPointer(rebasing: bytes[range]), as: UTF8.self)
    }

    private mutating func identifier() -> RequestID? {
        if position < bytes.count, bytes[position] == UInt8(ascii: "\"") {
            return plainText().map { .string(string($0)) }
        }
        return number().map { .number($0) }
    }

    /// Reads a whole number of at most 15 digits, without a sign.
    private mutating func number() -> Int64? {
        let start = position
        var value: Int64 = 0
        while position < bytes.count, (0x30...0x39).contains(bytes[position]) {
            value = value * 10 + Int64(bytes[position] - 0x30)
            position += 1
            guard position - start <= 15 else { return nil }
        }
        guard position > start, bytes[start] != 0x30 || position == start + 1 else { return nil }
        // A fraction or an exponent would make it another number.
        guard position < bytes.count, ![0x2E, 0x45, 0x65].contains(bytes[position]) else { return nil }
        return value
    }

    private mutating func boolean() -> Bool? {
        for (word, value) in [("true", true), ("false", false)] as [(StaticString, Bool)] {
            let end = position + word.utf8CodeUnitCount
            if end <= bytes.count, matches(position..<end, word) {
                position = end
                return value
            }
        }
        return nil
    }

    private func matches(_ range: Range<Int>, _ word: StaticString) -> Bool {
        guard range.count == word.utf8CodeUnitCount else { return false }
        return word.withUTF8Buffer { $0.elementsEqual(bytes[range]) }
    }
}
