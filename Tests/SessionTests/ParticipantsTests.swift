import ControlAPI
import SessionCore
import Testing

@testable import Session

@Suite struct ParticipantsTests {
    static let me = Participant.Identity(user: "me", device: "here")
    static let ann = Participant.Identity(user: "ann", device: "phone")
    static let bob = Participant.Identity(user: "bob", device: "desk")

    static func message(
        _ identity: Participant.Identity, _ state: PresenceMessage.State = .online, since: Int64 = 0
    ) -> PresenceMessage {
        PresenceMessage(
            identity: identity, state: state, since: Timestamp(rawValue: since), session: "main")
    }

    /// Ann and this session are in the room.
    static var filled: Participants {
        var participants = Participants(own: me)
        participants.beginSnapshot()
        _ = participants.received(message(ann), of: ann, isRetained: true)
        _ = participants.received(message(me), of: me, isRetained: false)
        _ = participants.endSnapshot()
        return participants
    }

    @Test func `a flood of invented participants fills the list, but not the memory`() {
        var participants = Self.filled
        for number in 0..<(Participants.maximumCount + 100) {
            let identity = Participant.Identity(user: "u\(number)", device: "d")
            _ = participants.received(Self.message(identity), of: identity, isRetained: false)
        }
        #expect(participants.list.count == Participants.maximumCount)
        #expect(!participants.isComplete)
        // Listed participants can still leave.
        #expect(participants.received(nil, of: Self.ann, isRetained: false) == .left(Self.ann, .left))
    }

    @Test func `participants with long names fill no more memory than many with short ones`() {
        var participants = Self.filled
        for number in 0..<1000 {
            let identity = Participant.Identity(user: String(repeating: "u", count: 4000), device: "d\(number)")
            _ = participants.received(Self.message(identity), of: identity, isRetained: false)
        }
        let bytes = participants.list.map { $0.identity.user.utf8.count + $0.identity.device.utf8.count }
        #expect((900 << 10...1 << 20).contains(bytes.reduce(0, +)))
        #expect(!participants.isComplete)
        // Who leaves makes room.
        let first = Participant.Identity(user: String(repeating: "u", count: 4000), device: "d0")
        #expect(participants.received(nil, of: first, isRetained: false) == .left(first, .left))
        #expect(participants.received(Self.message(Self.bob), of: Self.bob, isRetained: false) == .joined(Self.bob))
    }

    @Test func `names that look the same are different participants`() {
        let composed = Participant.Identity(user: String(repeating: "\u{E9}", count: 1000), device: "d")
        let decomposed = Participant.Identity(user: String(repeating: "e\u{301}", count: 1000), device: "d")
        var participants = Self.filled
        for _ in 1...2 * Participants.maximumBytes / 1000 {
            _ = participants.received(Self.message(decomposed), of: decomposed, isRetained: false)
            #expect(participants.received(nil, of: composed, isRetained: false) == nil)
            #expect(participants.received(nil, of: decomposed, isRetained: false) == .left(decomposed, .left))
        }
        for identity in [composed, decomposed] {
            #expect(
                participants.received(Self.message(identity), of: identity, isRetained: false) == .joined(identity))
        }
        #expect(participants.received(nil, of: decomposed, isRetained: false) == .left(decomposed, .left))
        #expect(participants.list.contains { $0.identity == composed })
        #expect(participants.isComplete)
    }

    @Test func `participants of the first snapshot are listed without being reported`() {
        var participants = Participants(own: Self.me)
        #expect(!participants.isKnown)
        participants.beginSnapshot()
        #expect(participants.received(Self.message(Self.bob), of: Self.bob, isRetained: true) == nil)
        #expect(participants.received(Self.message(Self.ann), of: Self.ann, isRetained: true) == nil)
        #expect(participants.endSnapshot().isEmpty)
        #expect(participants.isKnown)
        #expect(participants.list.map(\.identity) == [Self.ann, Self.bob])
    }

    @Test func `a later join or loss is reported once`() {
        var participants = Self.filled
        #expect(participants.received(Self.message(Self.bob), of: Self.bob, isRetained: false) == .joined(Self.bob))
        #expect(participants.received(Self.message(Self.bob), of: Self.bob, isRetained: false) == nil)
        #expect(
            participants.received(Self.message(Self.bob, .offline), of: Self.bob, isRetained: false)
                == .left(Self.bob, .lost))
        #expect(participants.received(Self.message(Self.bob, .offline), of: Self.bob, isRetained: false) == nil)
        #expect(participants.list.map(\.identity) == [Self.ann, Self.me])
    }

    @Test func `a participant's quality is listed, and each change is reported once`() {
        var participants = Self.filled
        var message = Self.message(Self.ann)
        for (quality, isNews) in [(Quality.good, true), (.good, false), (.poor, true)] {
            message.quality = quality
            let read = PresenceMessage(message.bytes, of: Self.ann)
            let change = participants.received(read, of: Self.ann, isRetained: false)
            #expect(change == (isNews ? .changed(Self.ann, quality) : nil))
            #expect(participants.list.first?.quality == quality)
        }
    }

    @Test(arguments: [true, false])
    func `a participant that is missing has left, unless the server has lost our presence as well`(hasOurs: Bool) {
        var participants = Self.filled
        participants.beginSnapshot()
        if hasOurs { _ = participants.received(Self.message(Self.me), of: Self.me, isRetained: true) }
        // This session announces itself again.
        _ = participants.received(Self.message(Self.me), of: Self.me, isRetained: false)
        #expect(participants.endSnapshot() == [.left(Self.ann, hasOurs ? .left : .lost)])
        #expect(participants.list.map(\.identity) == [Self.me])
    }

    @Test func `a cleared presence is a leave`() {
        var participants = Self.filled
        #expect(participants.received(nil, of: Self.ann, isRetained: false) == .left(Self.ann, .left))
    }

    @Test func `a return before the will fires is not reported, but its new time is listed`() {
        var participants = Self.filled
        #expect(
            participants.received(Self.message(Self.ann, since: 5000), of: Self.ann, isRetained: false) == nil)
        #expect(participants.list.first?.since == Timestamp(rawValue: 5000))
    }

    @Test func `our own presence is listed but never reported`() {
        var participants = Self.filled
        #expect(participants.list.contains { $0.identity == Self.me })
        #expect(participants.received(nil, of: Self.me, isRetained: false) == nil)
        #expect(!participants.list.contains { $0.identity == Self.me })
        #expect(participants.received(Self.message(Self.me), of: Self.me, isRetained: false) == nil)
    }

    @Test func `changes while the session was away are reported when found`() {
        var participants = Self.filled
        participants.beginSnapshot()
        #expect(participants.received(Self.message(Self.bob), of: Self.bob, isRetained: true) == .joined(Self.bob))
        #expect(participants.received(Self.message(Self.me), of: Self.me, isRetained: true) == nil)
        #expect(participants.received(Self.message(Self.me), of: Self.me, isRetained: false) == nil)
        #expect(participants.endSnapshot() == [.left(Self.ann, .left)])
        #expect(participants.list.map(\.identity) == [Self.bob, Self.me])
    }

    @Test func `an interrupted first snapshot reports no participant`() {
        var participants = Participants(own: Self.me)
        participants.beginSnapshot()
        _ = participants.received(Self.message(Self.ann), of: Self.ann, isRetained: true)
        participants.beginSnapshot()
        #expect(participants.received(Self.message(Self.bob), of: Self.bob, isRetained: true) == nil)
        _ = participants.received(Self.message(Self.ann), of: Self.ann, isRetained: true)
        #expect(participants.endSnapshot().isEmpty)
    }
}

@Suite struct PresenceMessageTests {
    @Test func `a presence message is the JSON that the manual shows`() {
        let message = ParticipantsTests.message(ParticipantsTests.ann)
        #expect(
            String(decoding: message.bytes, as: UTF8.self)
                == #"{"device":"phone","session":"main","since":"1970-01-01T00:00:00.000Z","#
                + #""state":"online","user":"ann"}"#)
        #expect(PresenceMessage(message.bytes, of: ParticipantsTests.ann) == message)
    }

    @Test(arguments: [
        "", "online", "{}", "[1]", #"{"state":"busy"}"#, #"{"state":1}"#, "{\"state\":\"online\"", "\u{1}",
    ])
    func `other text is not a presence message`(text: String) {
        #expect(PresenceMessage(Array(text.utf8), of: ParticipantsTests.ann) == nil)
    }

    @Test(arguments: [
        #"{"state":"online","x":["# + Array(repeating: "0", count: 100).joined(separator: ",") + "]}",
        #"{"state":"online","x":""# + String(repeating: "x", count: 64 << 10) + #""}"#,
    ])
    func `a message that only takes time to read is not a presence message`(text: String) {
        #expect(PresenceMessage(Array(text.utf8), of: ParticipantsTests.ann) == nil)
    }

    @Test func `a presence message of the longest names is read`() {
        let name = String(repeating: "\u{85}", count: Room.maximumLength / 2)
        let identity = Participant.Identity(user: name, device: name)
        let message = ParticipantsTests.message(identity)
        #expect(PresenceMessage(message.bytes, of: identity) == message)
    }

    @Test func `a presence message takes the identity from the topic and ignores other members`() {
        let text = #"{"state":"offline","user":"mallory","device":"x","since":"yesterday","mood":"fine"}"#
        let message = PresenceMessage(Array(text.utf8), of: ParticipantsTests.ann)
        #expect(message?.identity == ParticipantsTests.ann)
        #expect(message?.state == .offline)
        #expect(message?.since == nil)
    }
}
