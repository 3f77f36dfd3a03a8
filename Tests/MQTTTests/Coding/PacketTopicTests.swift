import MQTT
import Testing

struct PacketTopicTests {
    @Test(arguments: ["a", "/", "a/b", "a//b", " ", "$SYS/x", "$share/g/a", "a b/é"])
    func `a valid topic name is accepted`(_ name: String) throws {
        #expect(try TopicName(name).string == name)
    }

    /// [MQTT-3.3.2-2] [MQTT-4.7.0-1] [MQTT-4.7.3-1]
    @Test(arguments: [
        ("", InvalidTopic.empty), ("a/+", .wildcardInName), ("#", .wildcardInName), ("a+b", .wildcardInName),
    ])
    func `an invalid topic name is refused`(_ name: String, _ error: InvalidTopic) {
        #expect(throws: error) { try TopicName(name) }
    }

    @Test(arguments: [
        "a", "#", "+", "/", "a/#", "a/+", "+/a/#", "+/+", "/+", "a//#", "$SYS/#", "$share", "$shared/a/b",
        "$share/g/a", "$share/g/#", "$share/g//", "$share/g/+/b",
    ])
    func `a valid topic filter is accepted`(_ filter: String) throws {
        #expect(try TopicFilter(filter).string == filter)
    }

    /// [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.3-1] [MQTT-4.8.2-1] [MQTT-4.8.2-2]
    @Test(arguments: [
        ("", InvalidTopic.empty), ("a#", .misplacedWildcard), ("a/#/b", .misplacedWildcard),
        ("#/", .misplacedWildcard), ("##", .misplacedWildcard), ("a+", .misplacedWildcard),
        ("a/+b/c", .misplacedWildcard), ("++", .misplacedWildcard), ("+#", .misplacedWildcard),
        ("$share/", .invalidShare), ("$share/g", .invalidShare), ("$share/g/", .invalidShare),
        ("$share//a", .invalidShare), ("$share/g+/a", .invalidShare), ("$share/#/a", .invalidShare),
        ("$share/g/a#", .misplacedWildcard),
    ])
    func `an invalid topic filter is refused`(_ filter: String, _ error: InvalidTopic) {
        #expect(throws: error) { try TopicFilter(filter) }
    }

    /// [MQTT-4.7.3-2] [MQTT-4.7.3-3]
    @Test func `a topic has at most 65,535 UTF-8 bytes, not characters, and no U+0000`() throws {
        let longest = String(repeating: "é", count: 32_767) + "a"
        #expect(try TopicName(longest).string.utf8.count == 65_535)
        #expect(try TopicFilter(longest).matches(topic: longest))
        #expect(throws: InvalidTopic.tooLong) { try TopicName(longest + "a") }
        #expect(throws: InvalidTopic.tooLong) { try TopicFilter(longest + "a") }
        #expect(throws: InvalidTopic.containsNull) { try TopicName("a\0b") }
        #expect(throws: InvalidTopic.containsNull) { try TopicFilter("a\0/#") }
    }

    /// The examples of 4.7.1 and 4.7.2, and cases close to them.
    @Test(arguments: [
        ("sport/tennis/player1/#", "sport/tennis/player1"), ("sport/tennis/player1/#", "sport/tennis/player1/ranking"),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon"), ("sport/#", "sport"), ("sport/#", "sport/"),
        ("#", "a"), ("#", "/a/b"), ("#", "/"), ("sport/tennis/+", "sport/tennis/player1"), ("sport/+", "sport/"),
        ("+/+", "/finance"), ("/+", "/finance"), ("+", "finance"), ("+/tennis/#", "sport/tennis"), ("+/#", "a"),
        ("a/+/b", "a//b"), ("a", "a"), ("/", "/"), ("$SYS/#", "$SYS"), ("$SYS/#", "$SYS/a"),
        ("$SYS/monitor/+", "$SYS/monitor/Clients"), ("a/+", "a/$b"), ("a/#", "a/$b"), ("$share/g/a/+", "a/b"),
        ("$share/g/#", "a"), ("é", "é"),
    ])
    func `a filter matches these topics`(_ filter: String, _ topic: String) throws {
        #expect(try TopicFilter(filter).matches(topic: topic))
    }

    /// [MQTT-4.7.2-1] [MQTT-4.7.3-4]
    @Test(arguments: [
        ("sport/tennis/+", "sport/tennis/player1/ranking"), ("sport/+", "sport"), ("+", "/finance"), ("a", "A"),
        ("#", "$SYS/a"), ("+/monitor/Clients", "$SYS/monitor/Clients"), ("+", "$SYS"), ("#", "$"), ("a/b", "a"),
        ("a", "a/b"), ("a", "a/"), ("a/", "a"), ("/a", "a"), ("a/#", "ab"), ("a/#", "b/a"), ("a/+/#", "a"),
        ("$share/g/#", "$SYS/a"), ("$share/g/a", "$share/g/a"), ("$share/g/a", "g/a"), ("a", ""), ("#", ""),
        ("\u{E9}", "e\u{301}"),
    ])
    func `a filter does not match these topics`(_ filter: String, _ topic: String) throws {
        #expect(try !TopicFilter(filter).matches(topic: topic))
    }

    @Test(arguments: [
        ("a", "a"), ("a/+", "a/b"), ("a/+", "a/+"), ("a/#", "a/#"), ("a/#", "a"), ("a/#", "a/+/c"), ("#", "+/a/#"),
        ("+/#", "a/#"), ("+/+", "/a"), ("$SYS/#", "$SYS/+"), ("a/+", "$share/g/a/b"), ("#", "#"),
    ])
    func `a filter covers these filters`(_ filter: String, _ other: String) throws {
        #expect(try TopicFilter(filter).covers(TopicFilter(other)))
    }

    @Test(arguments: [
        ("a", "b"), ("a/b", "a/+"), ("a/+", "a/#"), ("a/+", "a/b/c"), ("a/+", "a"), ("+", "#"), ("+/#", "#"),
        ("a/#", "#"), ("a/#", "+/b"), ("#", "$SYS/a"), ("#", "$SYS/#"), ("a/b/#", "a"),
    ])
    func `a filter does not cover these filters`(_ filter: String, _ other: String) throws {
        #expect(try !TopicFilter(filter).covers(TopicFilter(other)))
    }

    @Test func `a filter knows whether it is shared, and whether it has wildcards`() throws {
        let shared = try TopicFilter("$share/group/a/#")
        #expect(shared.isShared && shared.hasWildcard)
        let plain = try TopicFilter("$shared/a")
        #expect(!plain.isShared && !plain.hasWildcard)
        #expect(try !TopicFilter("$share/g/a").hasWildcard)
    }

    /// [MQTT-4.7.3-4]
    @Test func `topics that look alike but differ in bytes are different`() throws {
        #expect(try TopicName("\u{E9}") != TopicName("e\u{301}"))
        #expect(try Set([TopicFilter("\u{E9}"), TopicFilter("e\u{301}"), TopicFilter("\u{E9}")]).count == 2)
    }
}

struct PacketReasonCodeTests {
    @Test func `all 43 codes of the standard have a name, others have their number`() {
        let named = (UInt8.min...UInt8.max).map(ReasonCode.init(rawValue:)).filter { !$0.name.contains("0x") }
        #expect(named.count == 43)
        #expect(ReasonCode.sessionTakenOver.description == "session taken over (0x8E)")
        #expect(ReasonCode(rawValue: 5).description == "reason code 0x05 (0x05)")
        #expect(ReasonCode(rawValue: 0x7F).isError == false)
        #expect(ReasonCode(rawValue: 0x80).isError)
    }

    @Test func `0 is not a packet identifier`() {
        #expect(PacketID(rawValue: 0) == nil)
        #expect(identifier(1) < identifier(65_535))
    }

    @Test(
        arguments: [
            (0x01, .containsControlCharacter), (0x85, .containsControlCharacter), (0xFFFE, .containsNonCharacter),
            (0xFDD0, .containsNonCharacter),
        ] as [(UInt32, InvalidTopic)])
    func `a character that servers may refuse is named`(_ code: UInt32, _ error: InvalidTopic) throws {
        let topic = "a\(Character(try #require(Unicode.Scalar(code))))"
        #expect(throws: error) { try TopicName(topic) }
        #expect(throws: error) { try TopicFilter(topic) }
    }
}
