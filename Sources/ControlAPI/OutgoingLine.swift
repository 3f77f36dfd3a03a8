import FoundationEssentials
import Vocabulary

/// Writes the lines of the control socket: one JSON text and a newline each.
///
/// Members are in alphabetical order, so that the same value always gives the same line. A result that JSON cannot
/// express (a number that is not finite) becomes an internal error; it never traps.
public enum OutgoingLine {
    /// Returns an answer with a result.
    public static func answer(_ id: RequestID, result: some Encodable) -> [UInt8] {
        encode(result).map { answer(id, encoded: $0) }
            ?? failure(id, .internalError("the result cannot be written as JSON"))
    }

    /// Returns an answer with a result that was written by ``encode(_:)``.
    public static func answer(_ id: RequestID, encoded result: [UInt8]) -> [UInt8] {
        var line: [UInt8] = []
        line.reserveCapacity(result.count + 64)
        begin(answerTo: id, &line)
        line += result.last == UInt8(ascii: "\n") ? result.dropLast() : result[...]
        line += "}\n".utf8
        return line
    }

    private static func begin(answerTo id: RequestID, _ line: inout [UInt8]) {
        line += #"{"id":"#.utf8
        switch id {
        case .null: line += "null".utf8
        case .number(let number): append(number, to: &line)
        case .string(let text): append(text, to: &line)
        }
        line += #","jsonrpc":"2.0","result":"#.utf8
    }

    /// Returns the answer to `message.publish`. It is the same line, written without the encoder, which would take most
    /// of the time of accepting a message.
    public static func answer(_ id: RequestID, result: MessagePublishMethod.Result) -> [UInt8] {
        var line: [UInt8] = []
        line.reserveCapacity(128)
        write(id, result, into: &line)
        return line
    }

    /// Appends the answer to `message.publish` to other lines.
    public static func write(_ id: RequestID, _ result: MessagePublishMethod.Result, into line: inout [UInt8]) {
        begin(answerTo: id, &line)
        line += #"{"accepted":"#.utf8
        line += (result.accepted ? "true" : "false").utf8
        line += #","delivered":"#.utf8
        line += (result.delivered ? "true" : "false").utf8
        line += #","id":"#.utf8
        append(result.id, to: &line)
        line += #","reasonCode":"#.utf8
        if let code = result.reasonCode { append(Int64(code), to: &line) } else { line += "null".utf8 }
        if let repeated = result.repeated { line += (repeated ? #","repeated":true"# : #","repeated":false"#).utf8 }
        line += "}}\n".utf8
    }

    /// Appends the answer to `message.ack`.
    public static func write(_ id: RequestID, _ result: MessageAckMethod.Result, into line: inout [UInt8]) {
        begin(answerTo: id, &line)
        line += #"{"acknowledged":"#.utf8
        append(Int64(result.acknowledged), to: &line)
        line += "}}\n".utf8
    }

    /// Returns the notification of a received message. It is the same line as any notification, but is written without
    /// the encoder, which would take most of the time.
    public static func notification(_ message: ReceivedMessage) -> [UInt8]? {
        SharedMessageLine(message).text(for: message.subscription)
    }

    /// Whether a byte can be written between quotes in JSON as it is.
    private static func isPlain(_ byte: UInt8) -> Bool {
        (0x20..<0x80).contains(byte) && byte != UInt8(ascii: "\"") && byte != UInt8(ascii: "\\")
    }

    fileprivate static func append(_ text: String, to line: inout [UInt8]) {
        line.append(UInt8(ascii: "\""))
        var text = text
        text.withUTF8 { append(escaped: UnsafeRawBufferPointer($0), to: &line) }
        line.append(UInt8(ascii: "\""))
    }

    /// Appends a text of valid UTF-8 as it stands between quotes.
    fileprivate static func append(escaped text: UnsafeRawBufferPointer, to line: inout [UInt8]) {
        var (written, position) = (0, 0)
        while true {
            position = text.skippingPlainBytes(from: position)
            guard position < text.count else { break }
            let byte = text[position]
            if isPlain(byte) {
                position += 1
                continue
            }
            let scalar = scalar(at: position, of: text)
            if let escape = escape(scalar) {
                line += text[written..<position]
                line += escape.utf8
                written = position + UTF8.width(scalar)
            }
            position += UTF8.width(scalar)
        }
        line += text[written...]
    }

    private static func scalar(at position: Int, of text: UnsafeRawBufferPointer) -> Unicode.Scalar {
        var bytes = text[position...].makeIterator()
        var decoder = UTF8()
        guard case .scalarValue(let scalar) = decoder.decode(&bytes) else {
            preconditionFailure("the text is valid UTF-8")
        }
        return scalar
    }

    /// - Returns: what stands for a scalar between quotes; `nil` if it stands for itself.
    private static func escape(_ scalar: Unicode.Scalar) -> String? {
        switch scalar {
        case "\"": return "\\\""
        case "\\": return "\\\\"
        case "\u{8}": return "\\b"
        case "\t": return "\\t"
        case "\n": return "\\n"
        case "\u{C}": return "\\f"
        case "\r": return "\\r"
        case _ where scalar.value < 0x20 || !isShown(scalar):
            // All of them have one UTF-16 unit.
            let digits = String(scalar.value, radix: 16)
            return "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
        default: return nil
        }
    }

    fileprivate static func append(_ number: Int64, to line: inout [UInt8]) {
        let start = line.count
        var rest = number.magnitude
        repeat {
            line.append(UInt8(ascii: "0") + UInt8(rest % 10))
            rest /= 10
        } while rest > 0
        if number < 0 { line.append(UInt8(ascii: "-")) }
        line[start...].reverse()
    }

    /// Returns an answer with an error.
    public static func failure(_ id: RequestID, _ error: RPCError) -> [UInt8] {
        encode(Failure(id: id, error: error)) ?? []
    }

    /// Returns a notification, or `nil` when it cannot be written as JSON.
    public static func notification<Notification: ControlNotification>(_ notification: Notification) -> [UInt8]? {
        encode(Call<Notification>(id: nil, method: Notification.name, params: notification))
    }

    /// Returns a request, or `nil` when the parameters cannot be written as JSON.
    public static func request<Method: ControlMethod>(
        _ method: Method.Type, _ parameters: Method.Parameters, id: RequestID
    ) -> [UInt8]? {
        encode(Call(id: id, method: Method.name, params: parameters))
    }

    /// Returns the answer to a batch, made of answers as the functions above return them.
    public static func batch(_ lines: [[UInt8]]) -> [UInt8] {
        var joined: [UInt8] = [UInt8(ascii: "[")]
        for line in lines {
            if joined.count > 1 { joined.append(UInt8(ascii: ",")) }
            joined.append(contentsOf: line.last == UInt8(ascii: "\n") ? line.dropLast() : line[...])
        }
        joined.append(contentsOf: [UInt8(ascii: "]"), UInt8(ascii: "\n")])
        return joined
    }

    /// Returns an answer whose result has one member: a list that was written in pages by ``elements(_:)``. A list of
    /// thousands of elements is then not copied once more to be encoded.
    public static func answer(_ id: RequestID, list name: String, pages: [[UInt8]]) -> [UInt8] {
        var line: [UInt8] = []
        line.reserveCapacity(pages.reduce(128 + name.utf8.count) { $0 + $1.count + 1 })
        begin(answerTo: id, &line)
        line += #"{"\#(name)":["#.utf8
        var isFirst = true
        for page in pages where !page.isEmpty {
            if !isFirst { line.append(UInt8(ascii: ",")) }
            isFirst = false
            line += page
        }
        line += "]}}\n".utf8
        return line
    }

    /// Returns the values as they are written between the brackets of a list.
    public static func elements(_ values: [some Encodable]) -> [UInt8] {
        guard let list = encode(values), list.count > 3 else { return [] }
        return Array(list[1..<(list.count - 2)])
    }

    /// Returns any value as one line, or `nil` when it cannot be written as JSON.
    public static func encode(_ value: some Encodable) -> [UInt8]? {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        guard let data = try? encoder.encode(value) else { return nil }
        var line = escapingMarks(Array(data))
        line.append(UInt8(ascii: "\n"))
        return line
    }

    /// Returns the same JSON with control characters and the marks that change the direction of text escaped. JSON allows
    /// them in strings, and what comes from outside has them: a reader that prints a line must not be led astray.
    private static func escapingMarks(_ line: [UInt8]) -> [UInt8] {
        guard line.contains(where: { $0 >= 0x80 }) else { return line }
        let text = String(decoding: line, as: UTF8.self)
        guard !text.unicodeScalars.allSatisfy(isShown) else { return line }
        var escaped = ""
        for scalar in text.unicodeScalars {
            if !isShown(scalar), let escape = escape(scalar) {
                escaped += escape
            } else {
                escaped.unicodeScalars.append(scalar)
            }
        }
        return Array(escaped.utf8)
    }

    /// Whether a scalar stands for itself once the encoder has escaped those of ASCII that need it.
    private static func isShown(_ scalar: Unicode.Scalar) -> Bool { scalar.isASCII || scalar.isPlain }

    /// Returns how many bytes a scalar takes in a string of a line, at most.
    static func escapedLength(_ scalar: Unicode.Scalar) -> Int {
        switch scalar {
        case "\"", "\\": 2
        case _ where scalar.value < 0x20 || !isShown(scalar): 6
        default: UTF8.width(scalar)
        }
    }

    private struct Failure: Encodable {
        var jsonrpc = "2.0"
        var id: RequestID
        var error: RPCError
    }

    private struct Call<Value: Encodable>: Encodable {
        var jsonrpc = "2.0"
        var id: RequestID?
        var method: String
        var params: Value
    }
}

/// The notification of one event to several watches. It is encoded once: the lines differ only in their last member.
public struct SharedEventLine: Sendable {
    /// The line up to the name of the watch.
    private let beginning: [UInt8]
    private static let end = "}}\n"

    /// - Parameter event: whatever its watch is. The result is `nil` if it cannot be written as JSON.
    public init?(_ event: SessionEvent) {
        var event = event
        event.watch = WatchID(rawValue: "")
        guard let line = OutgoingLine.notification(event) else { return nil }
        let end = #""watch":""\#(Self.end)"#.utf8
        precondition(line.suffix(end.count).elementsEqual(end), "the watch is the last member of an event")
        beginning = line.dropLast(Self.end.utf8.count + 2)
    }

    /// Returns the same line as ``OutgoingLine/notification(_:)`` for the event of this watch.
    public func text(for watch: WatchID) -> [UInt8] {
        var line = beginning
        OutgoingLine.append(watch.rawValue, to: &line)
        line += Self.end.utf8
        return line
    }
}

/// The notification of one message to several subscriptions. It is written once: the lines differ only in the name of the
/// subscription.
public struct SharedMessageLine: Sendable {
    /// The line up to the name of the subscription, and after it.
    private let beginning: [UInt8]
    private let end: [UInt8]

    /// - Parameter message: whatever its subscription is.
    public init(_ message: ReceivedMessage) {
        var line: [UInt8] = []
        line.reserveCapacity(message.payload.bytes.count + 256)
        line += #"{"jsonrpc":"2.0","method":"message.received","params":{"duplicate":"#.utf8
        line += (message.duplicate ? "true" : "false").utf8
        line += #","id":"#.utf8
        OutgoingLine.append(message.id, to: &line)
        line += ",".utf8
        message.payload.write(to: &line)
        line += #","properties":"#.utf8
        if let properties = message.properties { Self.write(properties, to: &line) } else { line += "null".utf8 }
        line += #","qos":"#.utf8
        OutgoingLine.append(Int64(message.qos.rawValue), to: &line)
        line += #","retain":"#.utf8
        line += (message.retain ? "true" : "false").utf8
        line += #","session":"#.utf8
        OutgoingLine.append(message.session, to: &line)
        line += #","subscription":"#.utf8
        beginning = line
        line = Array(#","topic":"#.utf8)
        OutgoingLine.append(message.topic, to: &line)
        line += "}}\n".utf8
        end = line
    }

    /// Without the name of the subscription, in bytes.
    public var length: Int { beginning.count + end.count }

    /// Returns the line for this subscription.
    public func text(for subscription: SubscriptionID) -> [UInt8] {
        var line: [UInt8] = []
        line.reserveCapacity(beginning.count + subscription.rawValue.utf8.count + 2 + end.count)
        line += beginning
        OutgoingLine.append(subscription.rawValue, to: &line)
        line += end
        return line
    }

    private static func write(_ properties: MessageProperties, to line: inout [UInt8]) {
        line += "{".utf8
        var isFirst = true
        func name(_ name: String) {
            line += (isFirst ? #""\#(name)":"# : #","\#(name)":"#).utf8
            isFirst = false
        }
        let texts = [
            ("contentType", properties.contentType), ("correlationDataBase64", properties.correlationDataBase64),
            ("responseTopic", properties.responseTopic),
        ]
        for case (let member, let text?) in texts {
            name(member)
            OutgoingLine.append(text, to: &line)
        }
        if let user = properties.user {
            name("user")
            line += "[".utf8
            for (index, property) in user.enumerated() {
                line += (index == 0 ? #"{"name":"# : #",{"name":"#).utf8
                OutgoingLine.append(property.name, to: &line)
                line += #","value":"#.utf8
                OutgoingLine.append(property.value, to: &line)
                line += "}".utf8
            }
            line += "]".utf8
        }
        line += "}".utf8
    }
}

extension MessagePayload {
    /// Writes the member of a JSON object that has the payload.
    fileprivate func write(to line: inout [UInt8]) {
        let start = line.count
        if text != nil {
            line += #""payload":""#.utf8
            let text = line.count
            bytes.withUnsafeBytes { OutgoingLine.append(escaped: $0, to: &line) }
            line.append(UInt8(ascii: "\""))
            if bytes.count <= Self.longText || line.count - text - 1 <= Self.lengthInBase64(bytes.count) { return }
            line.removeSubrange(start...)
        }
        line += #""payloadBase64":""#.utf8
        line += Data(bytes).base64EncodedString().utf8
        line.append(UInt8(ascii: "\""))
    }
}
