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
            identity: identity, state: state, since: RFC3339(milliseconds: since), session: "main")
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

    @Test func `somebody who invents participants fills a list, and not the memory`() {
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

    @Test func `those who are there at first are in the list and no news`() {
        var participants = Participants(own: Self.me)
        #expect(!participants.isKnown)
        participants.beginSnapshot()
        #expect(participants.received(Self.message(Self.bob), of: Self.bob, isRetained: true) == nil)
        #expect(participants.received(Self.message(Self.ann), of: Self.ann, isRetained: true) == nil)
        #expect(participants.endSnapshot().isEmpty)
        #expect(participants.isKnown)
        #expect(participants.list.map(\.identity) == [Self.ann, Self.bob])
    }

    @Test func `who comes and goes afterwards is news, once`() {
        var participants = Self.filled
        #expect(participants.received(Self.message(Self.bob), of: Self.bob, isRetained: false) == .joined(Self.bob))
        #expect(participants.received(Self.message(Self.bob), of: Self.bob, isRetained: false) == nil)
        #expect(
            participants.received(Self.message(Self.bob, .offline), of: Self.bob, isRetained: false)
                == .left(Self.bob, .lost))
        #expect(participants.received(Self.message(Self.bob, .offline), of: Self.bob, isRetained: false) == nil)
        #expect(participants.list.map(\.identity) == [Self.ann, Self.me])
    }

    @Test func `what a participant says of its connection is in the list, and a change is news, once`() {
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

    @Test func `a cleared presence is a leave`() {
        var participants = Self.filled
        #expect(participants.received(nil, of: Self.ann, isRetained: false) == .left(Self.ann, .left))
    }

    @Test func `coming back before the will is no news, but the new time is known`() {
        var participants = Self.filled
        #expect(
            participants.received(Self.message(Self.ann, since: 5000), of: Self.ann, isRetained: false) == nil)
        #expect(participants.list.first?.since == RFC3339(milliseconds: 5000))
    }

    @Test func `we ourselves are in the list and never news`() {
        var participants = Self.filled
        #expect(participants.list.contains { $0.identity == Self.me })
        #expect(participants.received(nil, of: Self.me, isRetained: false) == nil)
        #expect(!participants.list.contains { $0.identity == Self.me })
        #expect(participants.received(Self.message(Self.me), of: Self.me, isRetained: false) == nil)
    }

    @Test func `what changed while we were away is news when it is found`() {
        var participants = Self.filled
        participants.beginSnapshot()
        #expect(participants.received(Self.message(Self.bob), of: Self.bob, isRetained: true) == .joined(Self.bob))
        #expect(participants.received(Self.message(Self.me), of: Self.me, isRetained: false) == nil)
        #expect(participants.endSnapshot() == [.left(Self.ann, .left)])
        #expect(participants.list.map(\.identity) == [Self.bob, Self.me])
    }

    @Test func `an interrupted first snapshot makes nobody news`() {
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
    @Test func `is the JSON of the manual`() {
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
    func `anything else is no presence`(text: String) {
        #expect(PresenceMessage(Array(text.utf8), of: ParticipantsTests.ann) == nil)
    }

    @Test func `the topic says whose it is, and more members do not matter`() {
        let text = #"{"state":"offline","user":"mallory","device":"x","since":"yesterday","mood":"fine"}"#
        let message = PresenceMessage(Array(text.utf8), of: ParticipantsTests.ann)
        #expect(message?.identity == ParticipantsTests.ann)
        #expect(message?.state == .offline)
        #expect(message?.since == nil)
    }
}
