import Testing

@testable import ControlAPI

struct ParameterDecoderTests {
    private func value(_ text: String) throws -> JSONValue { try JSONValue(parsing: Array(text.utf8)[...]) }

    private func refusal<Parameters: ClosedObject>(_ type: Parameters.Type, _ text: String) throws -> RPCError {
        let value = try value(text)
        return try #require(throws: RPCError.self) { try ParameterDecoder.decode(type, from: value) }
    }

    @Test(
        arguments: [
            (#"{"sesion":"a","topic":"t","payload":"x"}"#, #"unknown member "sesion""#, "did you mean session?"),
            (#"{"session":"a","topic":"t"}"#, "payload is missing", nil),
            (#"{"topic":"t","payload":"x"}"#, "session is missing", nil),
            (#"{"session":7,"topic":"t","payload":"x"}"#, "session must be a string, not a number", nil),
            (#"{"session":"a","topic":"t","payload":"x","qos":3}"#, "qos must be 0, 1 or 2, not 3", nil),
            (#"{"session":"a","topic":"t","payload":"x","qos":"1"}"#, "qos must be a whole number, not a string", nil),
            (#"{"session":"a","topic":"t","payload":"x","qos":1.5}"#, "qos must be 0, 1 or 2, not 1.5", nil),
            (
                #"{"session":"a","topic":"t","payload":"x","wait":"sent"}"#,
                #"wait must be accepted or delivered, not "sent""#, nil
            ),
            (
                #"{"session":"a","topic":"t","payload":"x","retain":1}"#, "retain must be true or false, not a number",
                nil
            ),
            (
                #"{"session":"a","topic":"t","payload":"x","expiry":0}"#, "expiry must be a number of seconds above 0",
                nil
            ),
            (#"{"session":"a","topic":"t","payloadBase64":"!"}"#, "payloadBase64 must be base64 text", nil),
            // Padding without a byte, too much of it, and bits that belong to no byte.
            (#"{"session":"a","topic":"t","payloadBase64":"===="}"#, "payloadBase64 must be base64 text", nil),
            (#"{"session":"a","topic":"t","payloadBase64":"YQ==="}"#, "payloadBase64 must be base64 text", nil),
            (#"{"session":"a","topic":"t","payloadBase64":"YR=="}"#, "payloadBase64 must be base64 text", nil),
            (
                #"{"session":"a","topic":"t","payload":"x","payloadBase64":""}"#,
                "payloadBase64 cannot be given together with payload", nil
            ),
            (
                #"{"session":"a","topic":"t","payload":"x","properties":{"contenttype":"x"}}"#,
                #"unknown member "properties.contenttype""#, "did you mean contentType?"
            ),
            (
                #"{"session":"a","topic":"t","payload":"x","properties":{"user":[{"name":"n"}]}}"#,
                "properties.user.0.value is missing", nil
            ),
            ("[]", "params must be an object, not an array", nil),
        ] as [(String, String, String?)])
    func `an error in the parameters of a publish is named`(_ text: String, _ message: String, _ hint: String?) throws {
        let error = try refusal(MessagePublishMethod.Parameters.self, text)
        #expect(error.known == .invalidParameters)
        #expect(error.message == message)
        if let hint { #expect(error.data?.hint == hint) }
    }

    @Test func `defaults are those of the contract`() throws {
        let publish = try ParameterDecoder.decode(
            MessagePublishMethod.Parameters.self, from: try value(#"{"session":"a","topic":"t","payload":""}"#))
        #expect(publish == .init(session: "a", topic: "t", payload: .init(bytes: [])))
        #expect(publish.qos == .atLeastOnce)
        #expect(!publish.retain)
        #expect(publish.wait == .accepted)
        let reconnect = try ParameterDecoder.decode(
            SessionReconnectMethod.Parameters.self, from: try value(#"{"session":"a","mode":null}"#))
        #expect(reconnect.mode == .auto)
        let subscribe = try ParameterDecoder.decode(
            MessageSubscribeMethod.Parameters.self, from: try value(#"{"session":"a","filter":"a/+"}"#))
        #expect(subscribe.qos == .atLeastOnce)
        #expect(subscribe.consumer == nil)
    }

    @Test func `a consumer that is named cannot be kept`() throws {
        typealias Parameters = MessageUnsubscribeMethod.Parameters
        let error = try refusal(Parameters.self, #"{"session":"main","consumer":"c","keep":true}"#)
        #expect(error.message.hasPrefix("keep cannot be combined with consumer"))
        let own = try ParameterDecoder.decode(Parameters.self, from: try value(#"{"subscription":"s","keep":true}"#))
        #expect(own.what == .subscription(SubscriptionID(rawValue: "s"), keep: true))
        let named = try ParameterDecoder.decode(
            Parameters.self, from: try value(#"{"session":"main","consumer":"c","keep":false}"#))
        #expect(named.what == .consumer("c", session: "main"))
    }

    @Test func `a publication has QoS 0 or 1`() throws {
        let error = try refusal(
            PublicationPutMethod.Parameters.self, #"{"session":"main","topic":"t","payload":"x","qos":2}"#)
        #expect(error.message.contains("qos must be 0 or 1"), "\(error.message)")
    }

    @Test func `a method without parameters accepts none`() throws {
        #expect(throws: Never.self) { try ParameterDecoder.decode(NoParameters.self, from: nil) }
        #expect(throws: Never.self) { try ParameterDecoder.decode(NoParameters.self, from: .object([:])) }
        let error = try refusal(NoParameters.self, #"{"session":"main"}"#)
        #expect(error.data?.hint == "this method has no parameters")
    }

    @Test func `an unknown member without a near one lists the valid ones`() throws {
        let error = try refusal(SessionWatchMethod.Parameters.self, #"{"zzzzzz":1}"#)
        #expect(error.data?.hint == "the members are session, since, epoch")
    }

    @Test func `unknown methods and sessions are answered with the nearest names`() {
        #expect(RPCError.unknownMethod("sesion.list").data?.hint == "did you mean session.list?")
        #expect(RPCError.unknownSession("mian", among: ["main", "edge-1"]).data?.hint == "did you mean main?")
        #expect(RPCError.unknownSession("x", among: ["main", "edge-1"]).data?.hint == "the sessions are edge-1, main")
        #expect(RPCError.unknownSession("x", among: []).data?.hint?.contains("no session is configured") == true)
    }

    @Test func `a name from the wire cannot forge lines of a log`() {
        let error = RPCError.unknownMethod("a\nb\u{1B}[2J" + String(repeating: "x", count: 1000))
        #expect(!error.message.contains("\n"))
        #expect(!error.message.contains("\u{1B}"))
        #expect(error.message.count < 120)
    }

    @Test func `error codes and names are unique`() {
        #expect(Set(RPCError.Code.allCases.map(\.name)).count == RPCError.Code.allCases.count)
        #expect(RPCError.storeFull.code == -32021)
        #expect(RPCError.storeFull.data?.code == "store-full")
    }
}

struct TimestampTests {
    @Test(arguments: [
        ("1970-01-01T00:00:00.000Z", 0), ("2026-11-20T09:12:44.120Z", 1_795_165_964_120),
        ("2000-02-29T23:59:59.999Z", 951_868_799_999), ("1969-12-31T23:59:59.999Z", -1),
        ("0000-01-01T00:00:00.000Z", -62_167_219_200_000), ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ("1900-03-01T00:00:00.000Z", -2_203_891_200_000),
    ])
    func `a time is written and read`(_ text: String, _ milliseconds: Int64) {
        #expect(Timestamp(rawValue: milliseconds).description == text)
        #expect(Timestamp(text)?.rawValue == milliseconds)
    }

    @Test(arguments: [
        ("2026-11-20T10:12:44.12+01:00", 1_795_165_964_120), ("2026-11-20t09:12:44z", 1_795_165_964_000),
        ("2026-11-20T09:12:44.1209999Z", 1_795_165_964_120),
    ])
    func `a time in another form of the standard is read`(_ text: String, _ milliseconds: Int64) {
        #expect(Timestamp(text)?.rawValue == milliseconds)
    }

    @Test(arguments: [
        "", "2026-11-20", "2026-11-20T09:12:44", "2026-13-20T09:12:44Z", "2026-02-29T09:12:44Z",
        "2026-11-20T24:12:44Z", "2026-11-20T09:60:44Z", "2026-11-20T09:12:44.Z", "2026-11-20T09:12:44Zx",
        "2026-11-20T09:12:44+1:00", "+026-11-20T09:12:44Z", "1900-02-29T00:00:00Z",
    ])
    func `text that is not a time is refused`(_ text: String) {
        #expect(Timestamp(text) == nil)
    }

    @Test func `a time beyond four-digit years is written as the nearest one inside`() {
        #expect(Timestamp(rawValue: .max).description == "9999-12-31T23:59:59.999Z")
        #expect(Timestamp(rawValue: .min).description == "0000-01-01T00:00:00.000Z")
        #expect(Timestamp(seconds: .max, nanoseconds: 0).description.hasPrefix("9999-12-31"))
    }

    @Test func `a clock ahead of UTC shows its own date`() {
        let time = Timestamp(rawValue: 1_795_165_964_120)
        #expect(time.date(offset: 15 * 3600) == "2026-11-21")
        #expect(time.time(offset: -3600) == "08:12:44.120")
    }
}
