import Testing

@testable import Session

@Suite struct RoomTopicsTests {
    static let room = Room(prefix: "holdfast/rooms", name: "plant/north")

    @Test(arguments: [
        ("~/chat", "holdfast/rooms/plant/north/chat"), ("~/#", "holdfast/rooms/plant/north/#"),
        ("~/+/a", "holdfast/rooms/plant/north/+/a"), ("~//", "holdfast/rooms/plant/north//"),
        ("$share/group/~/jobs", "$share/group/holdfast/rooms/plant/north/jobs"),
    ])
    func `a relative topic is resolved in the room`(text: String, expected: String) throws {
        #expect(try Room.resolve(text, in: Self.room) == expected)
        #expect(Room.isRelative(text))
        #expect(throws: Room.Unresolved.noRoom) { try Room.resolve(text, in: nil) }
    }

    @Test(arguments: ["chat", "a/~/b", "~chat", "/~/a", "$share/~/a", "$share/group/a", "$share/", ""])
    func `any other topic stays as it is, with or without a room`(text: String) throws {
        #expect(try Room.resolve(text, in: Self.room) == text)
        #expect(try Room.resolve(text, in: nil) == text)
        #expect(!Room.isRelative(text))
    }

    @Test(arguments: ["~", "~/", "$share/group/~/"])
    func `a relative topic without levels after the room is refused`(text: String) {
        #expect(throws: Room.Unresolved.empty) { try Room.resolve(text, in: Self.room) }
    }

    @Test func `each device has its own presence topic`() {
        let identity = Participant.Identity(user: "ann", device: "phone")
        #expect(Self.room.presenceTopic(of: identity) == "holdfast/rooms/plant/north/presence/ann/phone")
        #expect(Self.room.participant(ofPresence: Self.room.presenceTopic(of: identity)) == identity)
        #expect(Self.room.presenceFilter == "holdfast/rooms/plant/north/presence/+/+")
    }

    @Test(arguments: [
        "holdfast/rooms/plant/north/presence/ann", "holdfast/rooms/plant/north/presence/ann/phone/x",
        "holdfast/rooms/plant/north/presence/ann/", "holdfast/rooms/plant/north/presence//phone",
        "holdfast/rooms/plant/north/chat", "holdfast/rooms/plant/presence/ann/phone", "",
    ])
    func `other topics are not presence topics`(topic: String) {
        #expect(Self.room.participant(ofPresence: topic) == nil)
    }

    @Test(arguments: [
        ("plant", true), ("plant/north", true), ("plänt", true), ("", false), ("/plant", false), ("plant/", false),
        ("a//b", false), ("a/+/b", false), ("#", false), ("a\0b", false),
    ])
    func `a room name is one or more levels of a topic`(text: String, isValid: Bool) {
        #expect(Room.isValid(text) == isValid)
    }

    @Test(arguments: [("ann", true), ("a/b", false), ("+", false), ("", false)])
    func `a user name is one level of a topic`(text: String, isLevel: Bool) {
        #expect(Room.isLevel(text) == isLevel)
    }
}
