import Testing
import Vocabulary

@testable import ControlAPI

/// The fast parser must read the same as the general one, and must read all the lines that it is meant for.
struct PublishLineTests {
    /// Returns the request as the general parser reads it; `nil` when it is not a valid `message.publish` with an id.
    private func general(_ line: [UInt8]) -> PublishLine? {
        guard case .single(.request(let id, MessagePublishMethod.name, let parameters)) = RequestLine(parsing: line),
            let decoded = try? ParameterDecoder.decode(MessagePublishMethod.Parameters.self, from: parameters)
        else { return nil }
        return PublishLine(id: id, parameters: decoded)
    }

    private static func line(_ parameters: String, id: String = "7") -> String {
        #"{"jsonrpc":"2.0","id":\#(id),"method":"message.publish","params":{\#(parameters)}}"#
    }

    private static let plain = [
        line(#""session":"main","topic":"a/b","payload":"hello""#),
        line(#""session":"main","topic":"a/b","payload":"","qos":0,"retain":true,"wait":"delivered""#),
        line(#""session":"main","topic":"a/b","payload":"","qos":2,"retain":false,"wait":"accepted""#),
        line(#""payload":"{\"a\":\"b\\c\"}\n\t\r\b\f\/","topic":"./x","session":"main""#, id: #""seven""#),
        line(#""session":"main","topic":"t","payload":"Grüße, 世界 🌍""#, id: "0"),
        line(#""session":"main","topic":"t","payloadBase64":"AAEC\/w==""#, id: #""""#),
        #" { "params" : { "topic" : "t" , "session" : "main" , "payload" : "x" } , "id" : 1 , "jsonrpc" : "2.0" , "method" : "message.publish" } "#,
    ]

    @Test(arguments: plain) func `a plain line is read as the general parser reads it`(_ text: String) throws {
        let line = Array(text.utf8)
        let scanned = try #require(PublishLine(scanning: line))
        #expect(scanned == general(line))
    }

    @Test func `a payload has at most 16 MiB, whichever parser reads it`() throws {
        let longest = MessagePayload.maximumLength
        func line(_ count: Int) -> [UInt8] {
            let text = Self.line(#""session":"main","topic":"t","payload":"|""#)
            let parts = text.utf8.split(separator: UInt8(ascii: "|"))
            return parts[0] + [UInt8](repeating: UInt8(ascii: "x"), count: count) + parts[1]
        }
        func parameters(_ count: Int) throws -> MessagePublishMethod.Parameters {
            try ParameterDecoder.decode(
                MessagePublishMethod.Parameters.self,
                from: .object([
                    "session": .string("main"), "topic": .string("t"),
                    "payload": .string(String(repeating: "x", count: count)),
                ]))
        }
        #expect(PublishLine(scanning: line(longest))?.parameters.payload.bytes.count == longest)
        #expect(PublishLine(scanning: line(longest + 1)) == nil)
        #expect(try parameters(longest).payload.bytes.count == longest)
        #expect {
            try parameters(longest + 1)
        } throws: { "\($0)".contains("has 16777217 bytes, but the maximum is 16777216") }
    }

    @Test(arguments: [
        #"{"jsonrpc":"2.0","id":1,"method":"session.list"}"#, "[]", "", "{}", "7",
        line(#""session":"main","topic":"a/b""#), line(#""session":"main","topic":"a/b","payload":5"#),
        line(#""session":"main","topic":"a/b","payload":"x","qos":3"#),
        line(#""session":"main","topic":"a/b","payload":"x","qos":1.5"#),
        line(#""session":"main","topic":"a/b","payload":"x","qos":01"#),
        line(#""session":"main","topic":"a/b","payload":"x","payloadBase64":"eA==""#),
        line(#""session":"main","topic":"a/b","payload":"x","payload":"y""#),
        line(#""session":"main","topic":"a/b","payloadBase64":"x""#),
        line(#""session":"main","topic":"a/b","payload":"x","wait":"never""#),
        line(#""session":"main","topic":"a/b","payload":"x","unknown":1"#),
        line(#""session":"main","topic":"a/b","payload":"x\q""#),
        line(#""session":"main","topic":"a/b","payload":"x"# + "\u{1}\""),
        line(#""session":"main","topic":"a/b","payload":"x","#),
        line(#""session":"main","topic":"a/b","payload":"x""#) + "}",
        line(#""session":"main","topic":"a/b","payload":"x""#, id: "1.5"),
        line(#""session":"main","topic":"a/b","payload":"x""#, id: "[]"),
        #"{"jsonrpc":"2.0","method":"message.publish","params":{"session":"main","topic":"t","payload":"x"}}"#,
        #"{"jsonrpc":"1.0","id":1,"method":"message.publish","params":{"session":"main","topic":"t","payload":"x"}}"#,
        #"{"jsonrpc":"2.0","id":1,"id":2,"method":"message.publish","params":{"session":"main","topic":"t","payload":"x"}}"#,
    ])
    func `a wrong line, or another call, is left to the general parser`(_ text: String) {
        #expect(PublishLine(scanning: Array(text.utf8)) == nil)
    }

    @Test(arguments: [
        line(#""session":"main","topic":"t","payload":"\u00e4""#),
        line(#""session":"main","topic":"t","payload":"x","expiry":1.5"#),
        line(#""session":"main","topic":"t","payload":"x","properties":{"contentType":"text/plain"}"#),
        line(#""session":"main","topic":"\u0074","payload":"x""#), line(#""session":"main","topic":"ä","payload":"x""#),
        line(#""session":"main","topic":"t","payload":"x""#, id: "null"),
        line(#""session":"main","topic":"t","payload":"x""#, id: "-1"),
    ])
    func `a rare form is left to the general parser, which reads it`(_ text: String) {
        let line = Array(text.utf8)
        #expect(PublishLine(scanning: line) == nil)
        #expect(general(line) != nil)
    }

    /// Text is skipped eight bytes at a time.
    @Test(arguments: 0..<17) func `no special byte is overlooked, wherever it is`(place: Int) throws {
        let line = Self.line(#""session":"main","topic":"t","payload":"""#)
        let before = Array(line.utf8.dropLast(3))
        for byte in UInt8.min...UInt8.max {
            var payload = [UInt8](repeating: UInt8(ascii: "a"), count: 17)
            payload[place] = byte
            let line = before + payload + Array(line.utf8.suffix(3))
            let scanned = PublishLine(scanning: line)
            #expect(scanned == general(line))
            let isPlain = (0x20..<0x80).contains(byte) && byte != UInt8(ascii: "\"") && byte != UInt8(ascii: "\\")
            #expect(isPlain == (scanned?.parameters.payload.bytes == payload))
        }
    }

    @Test func `a payload longer than other lines may be is also read by the fast parser`() throws {
        let text = String(repeating: "long ", count: RequestLine.maximumLineLength / 4)
        let line = Array(Self.line(#""session":"main","topic":"t","payload":"\#(text)""#).utf8)
        #expect(try #require(PublishLine(scanning: line)).parameters.payload.text == text)
    }

    @Test(arguments: 0..<20) func `a line with random damage is never read as a different call`(_ seed: UInt64) {
        var random = SplitMix64(seed: seed)
        var count = 0
        for text in Self.plain {
            for _ in 0..<200 {
                var line = Array(text.utf8)
                for _ in 0...Int(random.next() % 3) {
                    let index = Int(random.next() % UInt64(line.count))
                    switch random.next() % 3 {
                    case 0: line[index] = UInt8(truncatingIfNeeded: random.next())
                    case 1: line.remove(at: index)
                    default: line.insert(line[Int(random.next() % UInt64(line.count))], at: index)
                    }
                }
                guard let scanned = PublishLine(scanning: line) else { continue }
                count += 1
                #expect(scanned == general(line))
            }
        }
        #expect(count > 0)
    }

    @Test(arguments: [
        RequestID.null, .number(0), .number(.min), .number(.max), .number(-17), .string(""), .string("plain / text"),
        .string("\"quoted\""), .string("back\\slash"), .string("Grüße\n"), .string("\u{7F}"),
    ])
    func `an answer is the line that the encoder writes`(_ id: RequestID) throws {
        for result in [
            MessagePublishMethod.Result(id: 5, accepted: true, delivered: false, reasonCode: nil),
            MessagePublishMethod.Result(id: .max, accepted: true, delivered: true, reasonCode: 16),
            MessagePublishMethod.Result(id: 0, accepted: false, delivered: false, reasonCode: 0),
        ] {
            let line = OutgoingLine.answer(id, result: result)
            #expect(line == OutgoingLine.encode(Answer(id: id, result: result)))
        }
        for count in [0, 1, Int.max] {
            let result = MessageAckMethod.Result(acknowledged: count)
            var line: [UInt8] = []
            OutgoingLine.write(id, result, into: &line)
            #expect(line == OutgoingLine.encode(Answer(id: id, result: result)))
        }
    }

    private struct Answer<Result: Encodable>: Encodable {
        var jsonrpc = "2.0"
        var id: RequestID
        var result: Result
    }
}
