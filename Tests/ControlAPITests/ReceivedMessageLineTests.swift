import Testing

@testable import ControlAPI

struct ReceivedMessageLineTests {
    /// Returns the line as the encoder writes it.
    private static func encoded(_ message: some ControlNotification) -> [UInt8]? { OutgoingLine.notification(message) }

    @Test func `marks that change the direction of text, and control characters, are escaped on every line`() throws {
        let text = "a\u{202E}b\u{2066}c\u{9B}d\u{061C}e\u{2028}Grüße"
        let line = try #require(OutgoingLine.encode([text]))
        #expect(String(decoding: line, as: UTF8.self) == #"["a\u202eb\u2066c\u009bd\u061ce\u2028Grüße"]"# + "\n")
        #expect(try JSONValue(parsing: line[...]) == .array([.string(text)]))
    }

    /// A client refuses a line of more than 32 MiB.
    @Test(arguments: ["\u{85}", "\u{202E}", "\"", "\u{1}", "ä", "a\u{9B}"])
    func `the length of a long payload bounds the length of its line`(text: String) throws {
        let payload = MessagePayload(text: String(repeating: text, count: 100_000))
        let message = ReceivedMessage(
            subscription: SubscriptionID(rawValue: "s-1"), session: "main", id: 1, topic: "a", payload: payload,
            qos: .atLeastOnce, retain: false, duplicate: false, properties: nil)
        let line = try #require(OutgoingLine.notification(message))
        #expect(line.count <= payload.bytes.count / 3 * 4 + 300)
    }

    private static let payloads = [
        "plain text, with braces": Array("plain text, with {\"braces\"}".utf8), "plain": Array("plain".utf8),
        "empty": [], "control characters": Array("line\nbreak\t\\".utf8), "umlauts": Array("Grüße".utf8), "DEL": [0x7F],
        "all kinds": Array("/\u{8}\u{C}\r\u{1B}é\u{9B}\u{61C}\u{200E}\u{2028}\u{2069}€😀 \u{7F}".utf8),
        "no UTF-8": [0xFF, 0x00], "cut short": [0x61, 0xE2, 0x80], "long": [UInt8](repeating: 0x61, count: 100_000),
        "long, all escaped": [UInt8](repeating: 0x22, count: 100_000),
        "long, some escaped": Array(String(repeating: "Grüße und \"€\"", count: 10_000).utf8),
        "long, zeros": [UInt8](repeating: 0, count: 100_000),
        "long, no UTF-8": [UInt8](repeating: 0x80, count: 100_000),
    ]

    /// Payloads are looked at eight bytes at a time.
    @Test(arguments: 0..<20)
    func `a byte that is not plain is found at any place`(place: Int) {
        for byte: UInt8 in [0x00, 0x1F, 0x20, 0x21, 0x22, 0x23, 0x5B, 0x5C, 0x5D, 0x7E, 0x7F, 0x80, 0xC3, 0xFF] {
            for neighbour: UInt8 in [0x20, 0x21, 0x61, 0x7F] {
                var payload = [UInt8](repeating: neighbour, count: 20)
                payload[place] = byte
                let message = ReceivedMessage(
                    subscription: SubscriptionID(rawValue: "s-1"), session: "main", id: 1, topic: "a",
                    payload: MessagePayload(bytes: payload), qos: .atLeastOnce, retain: false, duplicate: false,
                    properties: nil)
                #expect(OutgoingLine.notification(message) == Self.encoded(message))
            }
        }
    }

    private static let everyProperty = MessageProperties(
        contentType: "a\"b", responseTopic: "tab\t\u{8}\u{C}\r\u{1F}\u{0}", correlationData: [0, 1, 255],
        user: [.init(name: "", value: "\u{202E}ä€😀"), .init(name: "a/b", value: "\u{7F}\u{85}\u{2067}")])

    /// The line of a message is written by hand, so the tests of it must know each property.
    @Test func `a message with every property has every property`() throws {
        let line = try #require(OutgoingLine.encode(Self.everyProperty))
        let members = try #require(try JSONValue(parsing: line.dropLast()).members)
        #expect(Set(members.keys) == Set(MessageProperties.CodingKeys.allCases.map(\.rawValue)))
    }

    /// It is what a message counts in memory before its line is written.
    @Test func `the length of a message's content has every property`() throws {
        func length(_ value: JSONValue) -> Int {
            switch value {
            case .string(let text): text.utf8.count
            case .array(let values): values.reduce(0) { $0 + length($1) }
            case .object(let members): members.values.reduce(0) { $0 + length($1) }
            default: 8
            }
        }
        let line = try #require(OutgoingLine.encode(Self.everyProperty))
        let message = ReceivedMessage(
            subscription: SubscriptionID(rawValue: "s-1"), session: "main", id: 1, topic: "a",
            payload: MessagePayload(text: "text"), qos: .atLeastOnce, retain: false, duplicate: false,
            properties: Self.everyProperty)
        #expect(try message.contentLength == 4 + length(JSONValue(parsing: line.dropLast())))
    }

    @Test(arguments: payloads.keys.sorted(), ["a/b", "ä/\"quoted\"/\\", "tab\t", ""])
    func `a message is the line that the encoder writes`(payload: String, topic: String) throws {
        let payload = try #require(Self.payloads[payload])
        let variants: [(id: Int64, properties: MessageProperties?)] = [
            (1, nil), (.max, MessageProperties(contentType: "text/plain")), (-5, nil),
            (2, MessageProperties()), (3, MessageProperties(user: [])), (4, Self.everyProperty),
        ]
        for (id, properties) in variants {
            let message = ReceivedMessage(
                subscription: SubscriptionID(rawValue: "s-1"), session: "main", id: id, topic: topic,
                payload: MessagePayload(bytes: payload), qos: .exactlyOnce, retain: id == 1, duplicate: id != 1,
                properties: properties)
            #expect(OutgoingLine.notification(message) == Self.encoded(message))
        }
    }
}
