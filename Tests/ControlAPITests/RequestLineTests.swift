import Testing

@testable import ControlAPI

struct RequestLineTests {
    private func parse(_ text: String) -> RequestLine { RequestLine(parsing: Array(text.utf8)) }

    private func code(_ line: RequestLine) -> RPCError.Code? {
        if case .single(.invalid(_, let error)) = line { error.known } else { nil }
    }

    @Test func `a request typed by hand is read`() {
        #expect(
            parse(#"{"jsonrpc":"2.0","id":1,"method":"session.list"}"#)
                == .single(.request(.number(1), method: "session.list", parameters: nil)))
        #expect(
            parse(#" {"id":"x","params":{"session":"main"},"method":"session.status","jsonrpc":"2.0"} "#)
                == .single(
                    .request(
                        .string("x"), method: "session.status", parameters: .object(["session": .string("main")]))))
    }

    @Test func `a call without id is a notification and one with null is not`() {
        #expect(parse(#"{"jsonrpc":"2.0","method":"a"}"#) == .single(.notification(method: "a", parameters: nil)))
        #expect(
            parse(#"{"jsonrpc":"2.0","id":null,"method":"a"}"#)
                == .single(.request(.null, method: "a", parameters: nil)))
    }

    @Test func `a batch keeps its order and its invalid members`() throws {
        let line = parse(#"[{"jsonrpc":"2.0","id":1,"method":"a"},5,{"jsonrpc":"2.0","method":"b"}]"#)
        guard case .batch(let calls) = line else {
            Issue.record("not a batch: \(line)")
            return
        }
        try #require(calls.count == 3)
        #expect(calls[0] == .request(.number(1), method: "a", parameters: nil))
        guard case .invalid(.null, let error) = calls[1] else {
            Issue.record("5 is no request")
            return
        }
        #expect(error.known == .invalidRequest)
        #expect(calls[2] == .notification(method: "b", parameters: nil))
    }

    @Test(arguments: [
        #"[{"jsonrpc":"2.0","id":1,"method":"a"},5,{"jsonrpc":"2.0","method":"b"}]"#,
        #" [ [1,[2]] , "],{\"" , {"jsonrpc":"2.0","id":"\\","method":"a","params":{"x":["]",{}]}},null ] "#,
        "[1]", "[[]]",
        #"[""# + String(repeating: "x", count: 1000) + #"",""# + String(repeating: ",", count: 10) + #"",7]"#,
    ])
    func `the calls of a batch are read one by one`(_ text: String) throws {
        let line = parse(text)
        guard case .batch(let calls) = line else {
            Issue.record("not a batch: \(line)")
            return
        }
        var batch = BatchedCalls(of: Array(text.utf8), count: calls.count)
        var read: [ClientCall] = []
        while let call = batch.next() { read.append(ClientCall(parsing: call)) }
        #expect(read == calls)
        #expect(batch.byteCount == 0)
    }

    @Test func `a call has as many values as a message with user properties can have, and no more`() throws {
        func call(_ properties: Int) -> String {
            let user = Array(repeating: #"{"name":"a","value":"b"}"#, count: properties).joined(separator: ",")
            return #"{"jsonrpc":"2.0","id":1,"method":"message.publish","params":{"session":"main","topic":"t","#
                + #""payload":"x","properties":{"user":[\#(user)]}}}"#
        }
        guard case .single(.request(_, _, let parameters?)) = parse(call(4096)) else {
            Issue.record("4096 properties are refused")
            return
        }
        #expect(parameters.valueCount > 3 * 4096)
        #expect(code(parse(call(6000))) == .parseError)
        guard case .invalid(.null, let error) = ClientCall(parsing: Array(call(6000).utf8)) else {
            Issue.record("6000 properties are accepted")
            return
        }
        #expect(error.known == .parseError)
    }

    @Test(arguments: [
        "", "{", "}", "[", "nul", "nulll", "tru", "{\"a\":1,}", "[1,]", "[1 2]", "{\"a\" 1}", "{a:1}", "01", "-", "1.",
        "1e", "1e999", ".5", "+1", "\"a", "\"\\x\"", "\"\\u12\"", "\"\\ud800\"", "\"\\ud800\\u0041\"", "\"\u{1}\"",
        "{} {}", "{\"a\":1,\"a\":2}", "\u{FEFF}{}",
    ])
    func `text that is not JSON is a parse error`(_ text: String) {
        #expect(code(parse(text)) == .parseError)
    }

    @Test(arguments: [
        "1", "\"x\"", "null", "[]", "{}", #"{"jsonrpc":"2.0"}"#, #"{"jsonrpc":"1.0","id":1,"method":"a"}"#,
        #"{"jsonrpc":2.0,"id":1,"method":"a"}"#, #"{"jsonrpc":"2.0","id":1,"method":7}"#,
        #"{"jsonrpc":"2.0","id":1.5,"method":"a"}"#, #"{"jsonrpc":"2.0","id":[],"method":"a"}"#,
        #"{"jsonrpc":"2.0","id":1,"method":"a","params":5}"#, #"{"jsonrpc":"2.0","id":1,"method":"a","param":{}}"#,
        #"{"jsonrpc":"2.0","id":1,"method":"a","params":null}"#,
    ])
    func `JSON that is not a request is an invalid request`(_ text: String) {
        #expect(code(parse(text)) == .invalidRequest)
    }

    @Test func `an invalid request is answered with its id`() {
        guard case .single(.invalid(let id, _)) = parse(#"{"jsonrpc":"1.0","id":"q","method":"a"}"#) else {
            Issue.record("version 1.0 was accepted")
            return
        }
        #expect(id == .string("q"))
    }

    @Test(arguments: ["[", "{\"a\":", "[{\"a\":"])
    func `endless nesting is a parse error`(_ opening: String) {
        let text = String(repeating: opening, count: 100_000)
        guard case .single(.invalid(.null, let error)) = parse(text) else {
            Issue.record("accepted")
            return
        }
        #expect(error.message.contains("nested too deeply"))
    }

    @Test func `brackets in strings do not count as nesting, and the limit itself is allowed`() throws {
        let text = "[\"" + String(repeating: "[", count: 100_000) + "\"]"
        #expect(throws: Never.self) { try JSONValue(parsing: Array(text.utf8)[...]) }
        let deep = String(repeating: "[", count: 512) + String(repeating: "]", count: 512)
        #expect(throws: Never.self) { try JSONValue(parsing: Array(deep.utf8)[...]) }
        #expect(throws: JSONParseError.self) { try JSONValue(parsing: Array("[\(deep)]".utf8)[...]) }
    }

    @Test func `bytes that are not UTF-8 are a parse error that says where`() {
        #expect(throws: JSONParseError(problem: "not UTF-8", offset: 2)) {
            try JSONValue(parsing: [0x22, 0x41, 0xFF, 0x22])
        }
    }

    @Test func `a line or a batch over the limit is refused`() {
        let longest = [UInt8](repeating: 0x20, count: RequestLine.maximumPayloadLineLength + 1)
        #expect(RequestLine(parsing: longest) == .single(.invalid(.null, .lineTooLong)))
        let padding = String(repeating: "x", count: RequestLine.maximumLineLength)
        let list = #"{"jsonrpc":"2.0","id":7,"method":"session.list","params":{"x":"\#(padding)"}}"#
        #expect(parse(list) == .single(.invalid(.number(7), .lineTooLong)))
        let publish = list.replacing("session.list", with: "message.publish")
        guard case .single(.request(.number(7), "message.publish", _)) = parse(publish) else {
            Issue.record("a long message is refused")
            return
        }
        let values = "[" + Array(repeating: "1", count: 100_001).joined(separator: ",") + "]"
        #expect(code(parse(values)) == .parseError)
        let many = "[" + Array(repeating: "1", count: 1001).joined(separator: ",") + "]"
        #expect(code(parse(many)) == .invalidRequest)
    }

    @Test func `a request with any truncation or changed byte does not trap`() {
        let bytes = Array(#"{"jsonrpc":"2.0","id":-12,"method":"\u00e9\ud83d\ude00","params":{"a":[1.5e3,true]}}"#.utf8)
        for end in bytes.indices { _ = RequestLine(parsing: bytes[..<end]) }
        for index in bytes.indices {
            for value in UInt8.min...UInt8.max {
                var changed = bytes
                changed[index] = value
                _ = RequestLine(parsing: changed)
            }
        }
        #expect(code(RequestLine(parsing: bytes)) == nil)
    }

    @Test(arguments: [
        ("0", JSONValue.integer(0)), ("-0", .integer(0)), ("9223372036854775807", .integer(.max)),
        ("-0.0", .number(0)), ("-0e5", .number(0)),
        ("9223372036854775808", .number(9_223_372_036_854_775_808)), ("1.0", .number(1)), ("-2.5E-1", .number(-0.25)),
        (#""\u0041\/\ud83d\ude00""#, .string("A/😀")), (" [ ] ", .array([])), ("{ }", .object([:])),
    ])
    func `a JSON value is read`(_ text: String, _ value: JSONValue) throws {
        let read = try JSONValue(parsing: Array(text.utf8)[...])
        #expect(read == value)
        let written = try #require(OutgoingLine.encode(read))
        #expect(OutgoingLine.encode(try JSONValue(parsing: written[...])) == written)
    }
}

struct OutgoingLineTests {
    private func text(_ line: [UInt8]?) -> String { String(decoding: line ?? [], as: UTF8.self) }

    @Test func `answers, errors and notifications are single lines`() {
        #expect(
            text(OutgoingLine.answer(.number(3), result: SessionStateResult(state: .connecting)))
                == #"{"id":3,"jsonrpc":"2.0","result":{"state":"connecting"}}"# + "\n")
        #expect(
            text(OutgoingLine.answer(.string("a\"b"), encoded: Array("[1]\n".utf8)))
                == #"{"id":"a\"b","jsonrpc":"2.0","result":[1]}"# + "\n")
        #expect(
            text(OutgoingLine.failure(.null, RPCError(.wrongState, "no")))
                == #"{"error":{"code":-32011,"data":{"code":"wrong-state","hint":null},"message":"no"},"#
                + #""id":null,"jsonrpc":"2.0"}"# + "\n")
        let message = ReceivedMessage(
            subscription: .init(rawValue: "s1"), session: "m", id: 1, topic: "a\nb", payload: .init(text: "x\ny"),
            qos: .atMostOnce, retain: false, duplicate: false)
        let line = text(OutgoingLine.notification(message))
        #expect(line.filter { $0 == "\n" }.count == 1)
        #expect(line.contains(#""method":"message.received""#))
    }

    @Test func `a number that JSON cannot express is an internal error`() {
        let line = text(OutgoingLine.answer(.number(1), result: ["rtt": Double.nan]))
        #expect(line.contains("-32603"))
    }

    @Test func `an event that is encoded once gives each watch its own line`() throws {
        var event = SessionEvent(
            sequence: 7, time: Timestamp(rawValue: 0), session: "main", event: .publicationChanged)
        event.user = "\u{202E}\"watch\":\"\"}}"
        event.topic = "t/1"
        let shared = try #require(SharedEventLine(event))
        for watch in [WatchID(rawValue: "w1"), WatchID(rawValue: "w234"), WatchID(rawValue: "\"")] {
            event.watch = watch
            #expect(text(shared.text(for: watch)) == text(OutgoingLine.notification(event)))
        }
    }

    @Test func `a batch of answers is one line`() {
        let batch = OutgoingLine.batch([
            OutgoingLine.failure(.number(1), .storeFull), OutgoingLine.failure(.number(2), .shuttingDown),
        ])
        guard let line = try? ServerLine(parsing: batch.dropLast()), case .batch(let answers) = line else {
            Issue.record("not a batch: \(text(batch))")
            return
        }
        #expect(answers == [.answer(.number(1), .failure(.storeFull)), .answer(.number(2), .failure(.shuttingDown))])
    }

    @Test func `a request is read as it was written`() throws {
        let line = try #require(
            OutgoingLine.request(
                SessionReconnectMethod.self, .init(session: "main", mode: .full), id: .number(9)))
        guard
            case .single(.request(.number(9), "session.reconnect", let parameters)) = RequestLine(
                parsing: line.dropLast())
        else {
            Issue.record("not the request: \(text(line))")
            return
        }
        let read = try ParameterDecoder.decode(SessionReconnectMethod.Parameters.self, from: parameters)
        #expect(read == .init(session: "main", mode: .full))
    }
}
