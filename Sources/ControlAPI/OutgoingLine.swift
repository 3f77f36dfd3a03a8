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

    /// Returns the notification of a received message. It is the same line as any notification, but is written without
    /// the encoder if the message has no properties and its payload is plain text.
    public static func notification(_ message: ReceivedMessage) -> [UInt8]? {
        guard message.properties == nil, isPlain(message.payload.bytes) else {
            return encode(Call<ReceivedMessage>(id: nil, method: ReceivedMessage.name, params: message))
        }
        var line: [UInt8] = []
        line.reserveCapacity(message.payload.bytes.count + message.topic.utf8.count + 256)
        line += #"{"jsonrpc":"2.0","method":"message.received","params":{"duplicate":"#.utf8
        line += (message.duplicate ? "true" : "false").utf8
        line += #","id":"#.utf8
        append(message.id, to: &line)
        line += #","payload":""#.utf8
        line += message.payload.bytes
        line += #"","properties":null,"qos":"#.utf8
        append(Int64(message.qos.rawValue), to: &line)
        line += #","retain":"#.utf8
        line += (message.retain ? "true" : "false").utf8
        line += #","session":"#.utf8
        append(message.session, to: &line)
        line += #","subscription":"#.utf8
        append(message.subscription.rawValue, to: &line)
        line += #","topic":"#.utf8
        append(message.topic, to: &line)
        line += "}}\n".utf8
        return line
    }

    /// Whether the bytes can be written between quotes in JSON as they are.
    private static func isPlain(_ bytes: some Sequence<UInt8>) -> Bool {
        bytes.withContiguousStorageIfAvailable { isPlain(UnsafeRawBufferPointer($0)) } ?? bytes.allSatisfy(isPlain)
    }

    private static func isPlain(_ bytes: UnsafeRawBufferPointer) -> Bool {
        bytes[bytes.skippingPlainBytes(from: 0)...].allSatisfy(isPlain)
    }

    private static func isPlain(_ byte: UInt8) -> Bool {
        (0x20..<0x80).contains(byte) && byte != UInt8(ascii: "\"") && byte != UInt8(ascii: "\\")
    }

    fileprivate static func append(_ text: String, to line: inout [UInt8]) {
        guard isPlain(text.utf8) else {
            // Without the newline. Any text can be written as JSON.
            line += (encode(text) ?? []).dropLast()
            return
        }
        line.append(UInt8(ascii: "\""))
        line += text.utf8
        line.append(UInt8(ascii: "\""))
    }

    private static func append(_ number: Int64, to line: inout [UInt8]) {
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
            if isShown(scalar) {
                escaped.unicodeScalars.append(scalar)
            } else {
                // All of them have one UTF-16 unit.
                let digits = String(scalar.value, radix: 16)
                escaped += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
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
