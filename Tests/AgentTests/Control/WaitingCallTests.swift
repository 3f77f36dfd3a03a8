import ControlAPI
import Testing

@testable import Agent

/// What a call is before it begins.
struct WaitingCallTests {
    private static func text(_ method: String, _ parameters: String) -> [UInt8] {
        Array(#"{"jsonrpc":"2.0","id":1,"method":"\#(method)","params":\#(parameters)}"#.utf8)
    }

    private static func waiting(_ text: [UInt8]) -> WaitingCall { WaitingCall(ClientCall(parsing: text), text: text) }

    @Test(arguments: ["{\"a\":1}", "[1]", "0"])
    func `a call of many values waits as its text, and is read again when it begins`(value: String) {
        let values = Array(repeating: value, count: 1000).joined(separator: ",")
        let text = Self.text("session.status", #"{"session":"main","x":[\#(values)]}"#)
        let call = Self.waiting(text)
        #expect(call.request == .request(.number(1), method: "session.status", parameters: nil))
        #expect(call.complete == ClientCall(parsing: text))
        #expect(call.bytes == text.count)
    }

    @Test(arguments: [
        #"{"session":"main"}"#, #"{"session":""# + String(repeating: "x", count: 1 << 20) + #""}"#,
    ])
    func `an ordinary call is read once, whatever its length`(parameters: String) {
        let call = Self.waiting(Self.text("session.status", parameters))
        #expect(call.request.parameters?["session"] != nil)
        #expect(call.complete == call.request)
    }

    @Test func `a publish waits as a message`() throws {
        let properties = Array(repeating: #"{"name":"a","value":"b"}"#, count: 1000).joined(separator: ",")
        let call = Self.waiting(
            Self.text(
                "message.publish",
                #"{"session":"main","topic":"t","payload":"x","properties":{"user":[\#(properties)]}}"#))
        #expect(call.request.parameters == nil)
        #expect(try call.message?.get().properties?.user?.count == 1000)
    }

    @Test func `what a call needs is known although its parameters are read later`() {
        let values = Array(repeating: "0", count: 1000).joined(separator: ",")
        let history = Self.waiting(Self.text("session.history", #"{"limit":1000,"x":[\#(values)]}"#))
        #expect(history.request.parameters == nil)
        #expect(history.needs == .known(.read, answer: 512_000))
    }

    @Test(arguments: ["session.list", "session.watch", "network.status", "room.participants"])
    func `a short list is answered at once, and a long one in turns`(method: String) {
        let needs = Self.waiting(Self.text(method, "{}")).needs
        #expect(needs.resolved { _ in 1000 } == (.query, 16 << 10))
        #expect(needs.resolved { _ in 600_000 } == (.read, 600_000))
        #expect(needs.resolved { _ in .max } == (.read, CallNeeds.longestAnswer), "it must fit some time")
    }

    @Test func `a watch of one session is answered at once`() {
        let needs = Self.waiting(Self.text("session.watch", #"{"session":"main"}"#)).needs
        #expect(needs == .known(.query, answer: CallNeeds.shortAnswer))
    }

    @Test func `the length of a list of sessions is reserved`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            for number in 1...20 {
                let consumer = number % 2 == 0 ? #","consumer":"c\#(number)""# : ""
                try await peer.call(
                    "message.subscribe", #"{"session":"main","filter":"plant/7/floor/\#(number)"\#(consumer)}"#)
            }
            let sessions = await SessionSnapshot(sessions: daemon.registry.statuses())
            let (length, reserved) = (OutgoingLine.encode(sessions)?.count ?? 0, await daemon.registry.listLength)
            #expect((length...length * 2).contains(reserved))
        }
    }

    @Test func `a long list is answered like a short one`() async throws {
        let away = """
            endpoints = ["mqtt://127.0.0.1:9"]
            user = "away"
            autoconnect = false
            """
        let files = Dictionary(uniqueKeysWithValues: (1...20).map { ("sessions.d/away\($0).toml", away) })
        try await DaemonUnderTest.run(autoconnect: false, files: files) { daemon in
            let peer = try await daemon.peer()
            let listed = try await peer.call("session.list")["sessions"]?.elements
            let watched = try await peer.call("session.watch")["snapshot"]?["sessions"]?.elements
            #expect(listed?.count == 21 && watched?.count == 21)
            #expect(Self.waiting(Self.text("session.list", "{}")).needs == .list(.sessions))
            let length = await daemon.registry.listLength
            #expect(length > CallNeeds.shortAnswer)
        }
    }
}
