import ControlAPI
import MQTT
import NIOCore
import SessionCore
import Testing

@testable import Session

@Suite struct OwnPresenceTests {
    static func presence() -> OwnPresence {
        OwnPresence(
            identity: ParticipantsTests.me, session: "main", willDelay: .seconds(90), since: Timestamp(rawValue: 0))
    }

    static func at(_ seconds: Int64) -> Instant { Instant(nanoseconds: seconds * 1_000_000_000) }

    /// Published at 0 and heard last at 10.
    static var away: OwnPresence {
        var presence = presence()
        _ = presence.connected(resumed: true, at: at(0), time: Timestamp(rawValue: 0))
        presence.published(at: at(0))
        presence.heard(at: at(10))
        presence.connectionClosed()
        return presence
    }

    @Test(arguments: [
        // (resumed, seconds when connected, published again, since renewed)
        (true, 11, false, false), (true, 99, false, false), (true, 100, true, true), (true, 1000, true, true),
        (false, 11, true, false), (false, 1000, true, true),
    ])
    func `a presence is published again when the will may have fired or the session is lost`(
        resumed: Bool, seconds: Int64, isPublished: Bool, isRenewed: Bool
    ) {
        var presence = Self.away
        let time = Timestamp(rawValue: seconds * 1000)
        #expect(presence.connected(resumed: resumed, at: Self.at(seconds), time: time) == isPublished)
        #expect(presence.since == (isRenewed ? time : Timestamp(rawValue: 0)))
    }

    @Test func `a presence is published again after every outage when the will was not delayed`() {
        var presence = Self.presence()
        let time = Timestamp(rawValue: 11_000)
        _ = presence.connected(resumed: false, isWillDelayed: false, at: Self.at(0), time: time)
        presence.published(at: Self.at(0))
        presence.connectionClosed()
        // The will is that of the previous connection.
        #expect(presence.connected(resumed: true, isWillDelayed: true, at: Self.at(1), time: time) == true)
        #expect(presence.since == time)
        presence.published(at: Self.at(1))
        presence.connectionClosed()
        #expect(presence.connected(resumed: true, isWillDelayed: true, at: Self.at(2), time: time) == false)
    }

    @Test func `the latest times of our presence are remembered`() {
        func time(_ seconds: Int64) -> Timestamp { Timestamp(rawValue: seconds * 1000) }
        var presence = Self.away
        #expect(presence.said == [time(0)])
        _ = presence.connected(resumed: true, at: Self.at(1000), time: time(50))
        #expect(presence.said == [time(0), time(50)])
        func tell(_ time: Timestamp) {
            presence.begin(at: time)
            _ = presence.connected(resumed: false, at: Self.at(1000), time: time)
        }
        tell(time(20))
        tell(time(30))
        #expect(presence.said == [time(0), time(50), time(20), time(30)])
        // The daemon was restarted.
        presence = OwnPresence(
            identity: ParticipantsTests.me, session: "main", willDelay: .seconds(90), since: time(40),
            said: presence.said
        )
        #expect(presence.said == [time(0), time(50), time(20), time(30), time(40)])
        // Attempts that no server accepted have published nothing.
        for seconds in 1000...1100 { presence.begin(at: time(Int64(seconds))) }
        #expect(presence.said == [time(0), time(50), time(20), time(30), time(1100)])
        for seconds in (100...200).reversed() { tell(time(Int64(seconds))) }
        #expect(presence.since == time(100))
        #expect(presence.said == Set((170...200).map { time($0) } + [time(100)]), "the list has a limit")
    }

    @Test(arguments: [true, false])
    func `a presence is published again when the server's answer is not known`(resumed: Bool) {
        var presence = Self.presence()
        #expect(presence.connected(resumed: resumed, at: Self.at(1), time: Timestamp(rawValue: 30_000)) == true)
        // The connection was lost before the answer came.
        presence.connectionClosed()
        #expect(presence.connected(resumed: true, at: Self.at(2), time: Timestamp(rawValue: 30_000)) == true)
    }

    @Test func `a first connect makes the presence newer and publishes it`() {
        var presence = Self.away
        presence.begin(at: Timestamp(rawValue: 20_000))
        #expect(presence.since == Timestamp(rawValue: 20_000))
        #expect(presence.connected(resumed: true, at: Self.at(20), time: Timestamp(rawValue: 30_000)) == true)
    }

    /// A membership, and a message that says that it is offline.
    private static func contradicted() -> (RoomMembership, MQTTClientMachine.InboundMessage) {
        var membership = RoomMembership(RoomTopicsTests.room, presence: presence())
        membership.participants.beginSnapshot()
        let offline = MQTTClientMachine.InboundMessage(
            topic: membership.topic, payload: ByteBuffer(bytes: membership.presence.message(.offline).bytes),
            qos: .atLeastOnce, retain: false, duplicate: false, properties: .init())
        return (membership, offline)
    }

    @Test func `our late will is corrected, and our own leave is not`() {
        let (known, offline) = Self.contradicted()
        var membership = known
        #expect(membership.received(offline) == .mustCorrect)
        var retained = offline
        retained.retain = true
        #expect(membership.received(retained) == .changes([]), "a retained message is older than our next presence")
        membership.step = .leaving
        #expect(membership.received(offline) == .changes([]))
    }

    @Test func `a contradiction during a correction causes one more correction`() {
        let (known, offline) = Self.contradicted()
        var membership = known
        #expect(membership.received(offline) == .mustCorrect)
        #expect(membership.presenceAnswered(.success, at: Self.at(1)) == false)
        #expect(membership.received(offline) == .mustCorrect)
        #expect(membership.received(offline) == .changes([]))
        #expect(membership.presenceAnswered(.success, at: Self.at(2)) == true)
        #expect(membership.presenceAnswered(.success, at: Self.at(3)) == false)
    }

    /// Anyone who may publish in the room could make it announce itself as often as they like.
    @Test func `a presence that was refused is not corrected, but announced again later`() {
        let (known, offline) = Self.contradicted()
        var membership = known
        #expect(membership.received(offline) == .mustCorrect)
        #expect(membership.received(offline) == .changes([]))
        #expect(membership.presenceAnswered(.notAuthorized, at: Self.at(1)) == false)
        #expect(membership.received(offline) == .changes([]))
        #expect(membership.takeRefusal(at: Self.at(600)) == false)
        #expect(membership.takeRefusal(at: Self.at(700)) == true)
        #expect(membership.received(offline) == .mustCorrect)
    }

    private static func message(
        _ identity: Participant.Identity, _ state: PresenceMessage.State = .online, on mark: ConnectionMark? = nil
    ) -> MQTTClientMachine.InboundMessage {
        let message = PresenceMessage(
            identity: identity, state: state, since: Timestamp(rawValue: 5), session: "main", connection: mark)
        return MQTTClientMachine.InboundMessage(
            topic: RoomTopicsTests.room.presenceTopic(of: identity), payload: ByteBuffer(bytes: message.bytes),
            qos: .atLeastOnce, retain: false, duplicate: false, properties: .init())
    }

    @Test func `the others come and go, and nothing is corrected because of them`() {
        var (membership, _) = Self.contradicted()
        #expect(membership.received(Self.message(ParticipantsTests.ann)) == .changes([.joined(ParticipantsTests.ann)]))
        #expect(
            membership.received(Self.message(ParticipantsTests.ann, .offline))
                == .changes([.left(ParticipantsTests.ann, .lost)]))
        var other = Self.message(ParticipantsTests.ann)
        other.topic = "holdfast/rooms/plant/north/temperature"
        #expect(membership.received(other) == nil)
    }

    @Test func `a twin's presence is not corrected, nor anything before ours is answered`() {
        var (membership, offline) = Self.contradicted()
        #expect(membership.received(Self.message(ParticipantsTests.me)) == .changes([]), "it is online")
        for step in [RoomMembership.Step.mustAnnounce, .announcing] {
            membership.step = step
            #expect(membership.received(offline) == .changes([]), "ours comes after it")
        }
        membership.step = .done
        #expect(membership.received(offline) == .mustCorrect)
    }

    @Test func `a connection of the same user is noted when it is seen, and another user's is not`() {
        var (membership, _) = Self.contradicted()
        membership.presence.willConnect(as: ConnectionMark(clientID: "c", time: Timestamp(rawValue: 1), random: 1))
        let devices = [Participant.Identity(user: "me", device: "there"), ParticipantsTests.ann]
        for (number, identity) in devices.enumerated() {
            let mark = ConnectionMark(clientID: "c", time: Timestamp(rawValue: 2), random: UInt64(number))
            let message = Self.message(identity, on: mark)
            guard let content = PresenceMessage(message.payload.readableBytesView, of: identity) else {
                Issue.record("the message is a presence")
                continue
            }
            #expect(membership.presence.isRivalUnseen(content))
            _ = membership.received(message)
            #expect(membership.presence.isRivalUnseen(content) == (identity.user != "me"))
        }
    }

    @Test func `our own message marks the end of the retained ones`() {
        var membership = RoomMembership(RoomTopicsTests.room, presence: Self.presence())
        membership.participants.beginSnapshot()
        var own = MQTTClientMachine.InboundMessage(
            topic: membership.topic, payload: membership.online.payload, qos: .atLeastOnce, retain: true,
            duplicate: false, properties: .init())
        #expect(membership.received(own) == .changes([]))
        #expect(!membership.participants.isKnown)
        own.retain = false
        #expect(membership.received(own) == .changes([]))
        #expect(membership.participants.isKnown)
    }

    @Test func `each connection has its own mark, and the will has none`() {
        var presence = Self.presence()
        let marks = [1, 1, 2].map { ConnectionMark(clientID: "c", time: Timestamp(rawValue: $0), random: 7) }
        #expect(marks[0] == marks[1] && marks[0] != marks[2])
        #expect(ConnectionMark(clientID: "c", time: Timestamp(rawValue: 255), random: 31).number == "ff1f")
        #expect(ConnectionMark("1-f")?.number == "f")
        presence.willConnect(as: marks[0])
        let first = presence.message(.online)
        #expect(PresenceMessage(first.bytes, of: ParticipantsTests.me)?.connection == marks[0])
        #expect(presence.isOwn(first))
        presence.willConnect(as: marks[2])
        #expect(!presence.isOwn(first), "it was published on the previous connection")
        #expect(presence.wasOwn(first))
        #expect(presence.message(.offline).connection == nil)
    }

    @Test(arguments: ["", "1", "x-1", "1-", "-1", "123456789-1", "1-2-3", "1-" + String(repeating: "a", count: 65)])
    func `text of another form is not a mark`(text: String) {
        #expect(ConnectionMark(text) == nil)
    }

    @Test func `the will says offline after the will delay`() {
        let will = RoomMembership(RoomTopicsTests.room, presence: Self.presence()).will
        #expect(will.topic == "holdfast/rooms/plant/north/presence/me/here")
        #expect(will.retain && will.qos == .atLeastOnce)
        #expect(will.properties.willDelay == 90)
        #expect(String(buffer: will.payload).contains(#""state":"offline""#))
    }

    @Test func `of the times since the last connection, only the latest is remembered`() {
        var presence = Self.away
        // Attempts that no server accepted.
        for time: Int64 in 1...3 { presence.begin(at: Timestamp(rawValue: time)) }
        #expect(presence.said == [Timestamp(rawValue: 0), Timestamp(rawValue: 3)])
    }
}
