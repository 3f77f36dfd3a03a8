/// A normative statement of MQTT 5.0 (OASIS Standard, 7 March 2019; Appendix B lists all), in our words.
///
/// The comment above a test names the statements that it shows, as `[MQTT-3.1.0-1]`: the test fails if one of them is broken.
struct Statement: Sendable {
    enum Bound: Sendable {
        case client
        case both
        /// What a client can see of it, and does about a server that breaks it.
        case server
    }

    let number: String
    let bound: Bound
    let words: String

    private init(_ number: String, _ bound: Bound, _ words: String) {
        (self.number, self.bound, self.words) = (number, bound, words)
    }

    static func client(_ number: String, _ words: String) -> Statement { Statement(number, .client, words) }
    static func both(_ number: String, _ words: String) -> Statement { Statement(number, .both, words) }
    static func server(_ number: String, _ words: String) -> Statement { Statement(number, .server, words) }

    /// How the standard numbers them, section by section. Nothing has the number 2.2.1-1.
    static let sections: [(section: String, numbers: ClosedRange<Int>)] = [
        ("1.5.4", 1...3), ("1.5.5", 1...1), ("1.5.7", 1...1), ("2.1.3", 1...1), ("2.2.1", 2...6), ("2.2.2", 1...1),
        ("3.1.0", 1...2), ("3.1.2", 1...30), ("3.1.3", 1...12), ("3.1.4", 1...6), ("3.2.0", 1...2), ("3.2.2", 1...22),
        ("3.3.1", 1...13), ("3.3.2", 1...20), ("3.3.4", 1...10), ("3.4.2", 1...3), ("3.5.2", 1...3), ("3.6.1", 1...1),
        ("3.6.2", 1...3), ("3.7.2", 1...3), ("3.8.1", 1...1), ("3.8.3", 1...5), ("3.8.4", 1...8), ("3.9.2", 1...2),
        ("3.9.3", 1...2), ("3.10.1", 1...1), ("3.10.3", 1...2), ("3.10.4", 1...6), ("3.11.2", 1...2),
        ("3.11.3", 1...2), ("3.12.4", 1...1), ("3.14.0", 1...1), ("3.14.1", 1...1), ("3.14.2", 1...4),
        ("3.14.4", 1...3), ("3.15.1", 1...1), ("3.15.2", 1...3), ("4.1.0", 1...2), ("4.2.0", 1...1), ("4.3.1", 1...1),
        ("4.3.2", 1...5), ("4.3.3", 1...13), ("4.4.0", 1...2), ("4.5.0", 1...2), ("4.6.0", 1...6), ("4.7.0", 1...1),
        ("4.7.1", 1...2), ("4.7.2", 1...1), ("4.7.3", 1...4), ("4.8.2", 1...6), ("4.9.0", 1...3), ("4.12.0", 1...7),
        ("4.12.1", 1...2), ("4.13.1", 1...1), ("4.13.2", 1...1), ("6.0.0", 1...4),
    ]

    static var numbers: [String] { sections.flatMap { section, numbers in numbers.map { "\(section)-\($0)" } } }

    /// These bind a server alone, and a client cannot see whether it keeps them, or need not do anything about it.
    static let ofServersAlone: [(section: String, numbers: [Int])] = [
        ("3.1.0", [2]), ("3.1.2", [2, 3, 5, 6, 7, 8, 10, 14, 15, 22, 25, 28, 29]), ("3.1.3", [5, 6, 8, 9, 10]),
        ("3.1.4", Array(1...6)), ("3.2.2", [3, 6, 7, 9, 10, 12, 13, 19, 20, 22]), ("3.3.1", Array(5...13)),
        ("3.3.2", [3, 4, 5, 6, 12, 15, 16, 17, 18, 20]), ("3.3.4", [2, 3, 4, 5, 10]), ("3.8.3", [3]),
        ("3.8.4", [1, 3, 4, 5, 8]), ("3.9.2", [1, 2]), ("3.10.4", [1, 2, 3, 4, 6]), ("3.11.2", [1, 2]),
        ("3.14.4", [3]), ("4.1.0", [2]), ("4.5.0", [1]), ("4.6.0", [5, 6]), ("4.8.2", [3, 4, 5, 6]),
        ("4.12.0", [1, 4]),
    ]

    /// In the order of the standard.
    static let all = dataRepresentation + connecting + publishing + subscribing + leaving + operation

    private static let dataRepresentation: [Statement] = [
        .both("1.5.4-1", "A string is well-formed UTF-8 and contains no surrogate code points."),
        .both("1.5.4-2", "A string does not contain U+0000."),
        .both("1.5.4-3", "EF BB BF is U+FEFF wherever it stands, and is neither skipped nor removed."),
        .both("1.5.5-1", "A Variable Byte Integer takes as few bytes as possible."),
        .both("1.5.7-1", "Both strings of a pair are as 1.5.4 requires."),
        .both("2.1.3-1", "A flag that is reserved has the value that the standard lists."),
        .both("2.2.1-2", "A PUBLISH of QoS 0 has no Packet Identifier."),
        .client(
            "2.2.1-3",
            "A new SUBSCRIBE, UNSUBSCRIBE or PUBLISH of QoS 1 or 2 has an identifier that is unused and not 0."),
        .server(
            "2.2.1-4",
            "A PUBLISH of the server has an identifier that is not 0; one of 0 ends the connection with 0x82."),
        .both("2.2.1-5", "PUBACK, PUBREC, PUBREL and PUBCOMP have the identifier of their PUBLISH."),
        .server(
            "2.2.1-6", "SUBACK and UNSUBACK carry the identifier of their request; others are ignored."
        ),
        .both("2.2.2-1", "No properties are a Property Length of 0."),
    ]

    private static let connecting: [Statement] = [
        .client("3.1.0-1", "The first packet on a connection is CONNECT."),
        .both("3.1.2-1", "The protocol's name is MQTT."),
        .both("3.1.2-4", "With Clean Start 1 both sides discard the session that they have and begin a new one."),
        .client("3.1.2-9", "With the Will Flag, CONNECT has Will Properties, Will Topic and Will Payload."),
        .client("3.1.2-11", "Without the Will Flag, Will QoS is 0."),
        .client("3.1.2-12", "With the Will Flag, Will QoS is 0, 1 or 2."),
        .client("3.1.2-13", "Without the Will Flag, Will Retain is 0."),
        .client("3.1.2-16", "Without the User Name Flag there is no user name."),
        .client("3.1.2-17", "With the User Name Flag there is one."),
        .client("3.1.2-18", "Without the Password Flag there is no password."),
        .client("3.1.2-19", "With the Password Flag there is one."),
        .client("3.1.2-20", "With a Keep Alive, PINGREQ is sent when nothing else is."),
        .client("3.1.2-21", "The Server Keep Alive of CONNACK replaces the Keep Alive of CONNECT."),
        .both("3.1.2-23", "With a Session Expiry Interval, the session state outlives the connection."),
        .server(
            "3.1.2-24",
            "No packet is larger than the client's Maximum Packet Size; a larger one ends the connection with 0x95."),
        .server(
            "3.1.2-26",
            "No alias is above the client's Topic Alias Maximum; one above it ends the connection with 0x94."),
        .server("3.1.2-27", "Without a Topic Alias Maximum the server sends no aliases; the same."),
        .client(
            "3.1.2-30", "With an Authentication Method, only AUTH and DISCONNECT are sent until CONNACK has come."),
        .client(
            "3.1.3-1",
            "The payload of CONNECT has its fields in order: Client Identifier, Will Properties, Will Topic, Will Payload, User Name, Password."
        ),
        .both("3.1.3-2", "Session state belongs to a Client Identifier."),
        .client("3.1.3-3", "The Client Identifier is there, and the first of them."),
        .client("3.1.3-4", "The Client Identifier is a UTF-8 string."),
        .server(
            "3.1.3-7",
            "A client without an identifier is given one in CONNACK; if none comes, the connection is closed with 0x82."
        ),
        .client("3.1.3-11", "The Will Topic is a UTF-8 string."),
        .client("3.1.3-12", "The User Name is a UTF-8 string."),
        .server("3.2.0-1", "CONNACK comes before everything but AUTH; anything else ends the connection with 0x82."),
        .server("3.2.0-2", "CONNACK comes once; a second one ends the connection with 0x82."),
        .server("3.2.2-1", "Bits 7 to 1 of CONNACK's flags are 0; otherwise it is malformed, 0x81."),
        .server(
            "3.2.2-2", "After Clean Start 1, Session Present is 0; otherwise the connection is closed with 0x82."),
        .client("3.2.2-4", "Session Present 1 ends the connection if the client has no session."),
        .client("3.2.2-5", "With Session Present 0 the client discards the session state that it has."),
        .server(
            "3.2.2-8",
            "CONNACK has a code of the standard: one that is neither success nor an error ends the connection with 0x82."
        ),
        .client("3.2.2-11", "No PUBLISH has a higher QoS than the server's Maximum QoS."),
        .client("3.2.2-14", "With Retain Available 0 no PUBLISH has the RETAIN flag."),
        .client("3.2.2-15", "No packet is larger than the server's Maximum Packet Size."),
        .server(
            "3.2.2-16",
            "A Client Identifier that the server assigns is one; an empty one ends the connection with 0x82."),
        .client("3.2.2-17", "No alias is above the server's Topic Alias Maximum."),
        .client("3.2.2-18", "Without a Topic Alias Maximum, or with 0, there are no aliases."),
        .client("3.2.2-21", "As 3.1.2-21."),
    ]

    private static let publishing: [Statement] = [
        .both("3.3.1-1", "A PUBLISH that is sent again has DUP 1."),
        .both("3.3.1-2", "A PUBLISH of QoS 0 has DUP 0."),
        .both("3.3.1-3", "DUP says that this PUBLISH was sent before, and nothing else."),
        .both("3.3.1-4", "No PUBLISH has QoS 3; one ends the connection with 0x81."),
        .both("3.3.2-1", "The Topic Name is the first field of PUBLISH, a UTF-8 string."),
        .both("3.3.2-2", "A Topic Name does not contain wildcards."),
        .both("3.3.2-7", "A receiver forgets topic aliases with the connection."),
        .both("3.3.2-8", "No alias is 0; one ends the connection with 0x94."),
        .client("3.3.2-9", "As 3.2.2-17."),
        .client("3.3.2-10", "A client accepts every alias up to the maximum that it announced: ours announces none."),
        .server("3.3.2-11", "As 3.1.2-26."),
        .both("3.3.2-13", "The Response Topic is encoded as UTF-8."),
        .both("3.3.2-14", "The Response Topic does not contain wildcards."),
        .both("3.3.2-19", "The Content Type is encoded as UTF-8."),
        .both("3.3.4-1", "A PUBLISH is answered as its QoS asks: not at all, with PUBACK, with PUBREC."),
        .client("3.3.4-6", "A PUBLISH of a client has no Subscription Identifier."),
        .client(
            "3.3.4-7",
            "No more than the server's Receive Maximum of QoS 1 and 2 are sent ahead of their acknowledgements."),
        .client("3.3.4-8", "A full window delays PUBLISH and nothing else."),
        .server(
            "3.3.4-9", "The server keeps to the client's Receive Maximum; otherwise the connection is closed with 0x93."
        ),
        .both("3.4.2-1", "PUBACK has one of its reason codes."),
        .both("3.4.2-2", "A Reason String does not make PUBACK too large: ours has none."),
        .both("3.4.2-3", "User Properties do not make PUBACK too large: ours has none."),
        .both("3.5.2-1", "PUBREC has one of its reason codes."),
        .both("3.5.2-2", "A Reason String does not make PUBREC too large: ours has none."),
        .both("3.5.2-3", "User Properties do not make PUBREC too large: ours has none."),
        .both("3.6.1-1", "The flags of PUBREL are 0010; others are malformed, 0x81."),
        .both("3.6.2-1", "PUBREL has one of its reason codes."),
        .both("3.6.2-2", "A Reason String does not make PUBREL too large: ours has none."),
        .both("3.6.2-3", "User Properties do not make PUBREL too large: ours has none."),
        .both("3.7.2-1", "PUBCOMP has one of its reason codes."),
        .both("3.7.2-2", "A Reason String does not make PUBCOMP too large: ours has none."),
        .both("3.7.2-3", "User Properties do not make PUBCOMP too large: ours has none."),
    ]

    private static let subscribing: [Statement] = [
        .client("3.8.1-1", "The flags of SUBSCRIBE are 0010."),
        .client("3.8.3-1", "The Topic Filters of SUBSCRIBE are UTF-8 strings."),
        .client("3.8.3-2", "A SUBSCRIBE has at least one Topic Filter with its options."),
        .client("3.8.3-4", "A shared subscription has No Local 0."),
        .client("3.8.3-5", "The reserved bits of the Subscription Options are 0."),
        .server("3.8.4-2", "As 2.2.1-6."),
        .server(
            "3.8.4-6", "SUBACK has a code for each filter; another number of codes ends the connection with 0x82."),
        .server("3.8.4-7", "Each code grants a QoS or is an error; the client takes it as that filter's answer."),
        .server("3.9.3-1", "The codes of SUBACK are in the order of the filters; the client takes them so."),
        .server(
            "3.9.3-2", "SUBACK has codes of the standard; another one below 0x80 is taken as granted, with QoS 0."),
        .client("3.10.1-1", "The flags of UNSUBSCRIBE are 0010."),
        .client("3.10.3-1", "The Topic Filters of UNSUBSCRIBE are UTF-8 strings."),
        .client("3.10.3-2", "An UNSUBSCRIBE has at least one Topic Filter."),
        .server("3.10.4-5", "As 2.2.1-6."),
        .server(
            "3.11.3-1",
            "The codes of UNSUBACK are in the order of the filters; another number of codes ends the connection with 0x82."
        ),
        .server(
            "3.11.3-2", "UNSUBACK has codes of the standard; with another one below 0x80 the filter counts as gone."),
    ]

    private static let leaving: [Statement] = [
        .server("3.12.4-1", "PINGREQ is answered with PINGRESP; without an answer the connection is given up."),
        .server("3.14.0-1", "DISCONNECT comes after CONNACK; before it, it is taken as the refusal that it is."),
        .both("3.14.1-1", "The flags of DISCONNECT are 0; others end the connection with 0x81."),
        .both("3.14.2-1", "DISCONNECT has one of its reason codes."),
        .server(
            "3.14.2-2", "A server's DISCONNECT has no Session Expiry Interval; one with it is a protocol error, 0x82."),
        .both("3.14.2-3", "A Reason String does not make DISCONNECT too large: ours has none."),
        .both("3.14.2-4", "User Properties do not make DISCONNECT too large: ours has none."),
        .both("3.14.4-1", "Nothing is sent after DISCONNECT."),
        .both("3.14.4-2", "The side that sent DISCONNECT closes the connection."),
        .both("3.15.1-1", "The flags of AUTH are 0; others end the connection with 0x81."),
        .both("3.15.2-1", "AUTH has one of its reason codes."),
        .both("3.15.2-2", "A Reason String does not make AUTH too large: ours has none."),
        .both("3.15.2-3", "User Properties do not make AUTH too large: ours has none."),
    ]

    private static let operation: [Statement] = [
        .both("4.1.0-1", "Session state is kept while there is a connection."),
        .both("4.2.0-1", "The transport is an ordered, lossless stream of bytes in both directions."),
        .both("4.3.1-1", "A message of QoS 0 is a PUBLISH with QoS 0 and DUP 0."),
        .both("4.3.2-1", "A new message of QoS 1 has an unused identifier."),
        .both("4.3.2-2", "Its first PUBLISH has this identifier, QoS 1 and DUP 0."),
        .both("4.3.2-3", "It is unacknowledged until PUBACK."),
        .both("4.3.2-4", "A PUBLISH of QoS 1 is answered with PUBACK once the receiver owns the message."),
        .both("4.3.2-5", "After PUBACK a PUBLISH with the same identifier is a new message, whatever its DUP."),
        .both("4.3.3-1", "A new message of QoS 2 has an unused identifier."),
        .both("4.3.3-2", "Its first PUBLISH has this identifier, QoS 2 and DUP 0."),
        .both("4.3.3-3", "It is unacknowledged until PUBREC."),
        .both("4.3.3-4", "A PUBREC that is not an error is answered with PUBREL, with the same identifier."),
        .both("4.3.3-5", "PUBREL is unacknowledged until PUBCOMP."),
        .both("4.3.3-6", "After PUBREL the PUBLISH is not sent again."),
        .both("4.3.3-7", "A message does not expire once its PUBLISH was sent."),
        .both("4.3.3-8", "A PUBLISH of QoS 2 is answered with PUBREC once the receiver owns the message."),
        .both("4.3.3-9", "After a PUBREC that is an error the identifier is free: ours never is one."),
        .both(
            "4.3.3-10",
            "Until PUBREL, a PUBLISH with the same identifier is answered with PUBREC and not delivered again."),
        .both("4.3.3-11", "PUBREL is answered with PUBCOMP, with the same identifier."),
        .both("4.3.3-12", "After PUBCOMP a PUBLISH with the same identifier is a new message."),
        .both("4.3.3-13", "The exchange goes on even if the message has expired."),
        .both(
            "4.4.0-1",
            "When a session is resumed, unacknowledged PUBLISH and PUBREL are sent again with their identifiers; never otherwise."
        ),
        .both("4.4.0-2", "A PUBLISH that was answered with 0x80 or more is not sent again."),
        .client("4.5.0-2", "Every PUBLISH is acknowledged, even if its message cannot be used."),
        .client("4.6.0-1", "What is sent again is sent in the original order."),
        .client("4.6.0-2", "PUBACK packets are in the order of the PUBLISH packets."),
        .client("4.6.0-3", "PUBREC packets are in the order of the PUBLISH packets."),
        .client("4.6.0-4", "PUBREL packets are in the order of the PUBREC packets."),
        .both("4.7.0-1", "As 3.3.2-2."),
        .both("4.7.1-1", "# stands alone or behind a slash, and last."),
        .both("4.7.1-2", "+ takes a whole level."),
        .server(
            "4.7.2-1",
            "A filter that begins with a wildcard does not match $ topics: nor does it where we match ourselves."),
        .both("4.7.3-1", "Topic Names and Filters have at least one character."),
        .both("4.7.3-2", "Topic Names and Filters have no U+0000."),
        .both("4.7.3-3", "Topic Names and Filters have at most 65,535 bytes."),
        .server("4.7.3-4", "Topics are compared byte by byte, without normalization: as we do ourselves."),
        .both("4.8.2-1", "A shared filter begins with $share/ and a name of at least one character."),
        .both("4.8.2-2", "The name has no /, + or #, and is followed by / and a filter."),
        .both("4.9.0-1", "The send quota begins with a number from 1 to the peer's Receive Maximum."),
        .both("4.9.0-2", "With a quota of 0 no PUBLISH of QoS 1 or 2 is sent."),
        .both("4.9.0-3", "With a quota of 0 everything else goes on."),
        .server(
            "4.12.0-2",
            "The server asks for more with AUTH 0x18; another code before CONNACK ends the connection with 0x82."),
        .client("4.12.0-3", "The client answers AUTH with AUTH 0x18."),
        .both("4.12.0-5", "Every AUTH, and CONNACK, has the Authentication Method of CONNECT."),
        .server(
            "4.12.0-6",
            "Without an Authentication Method in CONNECT the server sends no AUTH; one ends the connection with 0x82."),
        .client("4.12.0-7", "Without an Authentication Method in CONNECT the client sends no AUTH."),
        .client("4.12.1-1", "Re-authentication has the method of CONNECT."),
        .both("4.12.1-2", "If it fails, the connection is closed, with DISCONNECT."),
        .server("4.13.1-1", "A malformed packet or protocol error closes the connection: here, too."),
        .both("4.13.2-1", "After 0x80 or more in CONNACK or DISCONNECT the connection is closed."),
        .both("6.0.0-1", "MQTT is in binary frames; a frame of text closes the connection."),
        .both("6.0.0-2", "Packets and frames need not begin or end together."),
        .client("6.0.0-3", "The client offers the subprotocol mqtt."),
        .server("6.0.0-4", "The server selects it; otherwise there is no connection."),
    ]
}
