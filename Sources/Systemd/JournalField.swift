/// One field of a journal entry: systemd.journal-fields(7).
public struct JournalField: Hashable, Sendable {
    public let name: JournalFieldName
    /// The value as the journal keeps it: any bytes, newlines and NUL included.
    public let value: [UInt8]

    /// A field with text, which in Swift is always valid UTF-8.
    public init(_ name: JournalFieldName, _ value: String) {
        self.name = name
        self.value = Array(value.utf8)
    }

    /// A field with any bytes.
    public init(_ name: JournalFieldName, bytes: some Sequence<UInt8>) {
        self.name = name
        self.value = Array(bytes)
    }

    /// MESSAGE=: the line that people read.
    public static func message(_ text: String) -> JournalField { JournalField(.message, text) }

    /// PRIORITY=.
    public static func priority(_ priority: JournalPriority) -> JournalField {
        JournalField(.priority, String(priority.rawValue))
    }

    /// MESSAGE_ID=, which leads `journalctl -x` to the catalog's text.
    public static func messageID(_ id: MessageID) -> JournalField { JournalField(.messageID, id.description) }

    /// CODE_FILE=, CODE_LINE= and CODE_FUNC= of the caller.
    public static func code(file: String, line: UInt, function: String) -> [JournalField] {
        [
            JournalField(.codeFile, file), JournalField(.codeLine, String(line)),
            JournalField(.codeFunction, function),
        ]
    }
}

/// The name of a journal field: one to 64 of `A`–`Z`, `0`–`9` and `_`, the first of them a letter.
///
/// A leading underscore is refused because those fields are the journal's own; it would drop them silently.
public struct JournalFieldName: Hashable, Sendable, CustomStringConvertible {
    public let description: String

    /// - Returns: `nil` if the text is not a valid name.
    public init?(_ text: String) {
        let bytes = text.utf8
        guard (1...64).contains(bytes.count), let first = bytes.first else { return nil }
        guard (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(first) else { return nil }
        for byte in bytes {
            switch byte {
            case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"): break
            default: return nil
            }
        }
        description = text
    }

    private init(known text: String) {
        description = text
    }
}

extension JournalFieldName {
    public static let message = JournalFieldName(known: "MESSAGE")
    public static let messageID = JournalFieldName(known: "MESSAGE_ID")
    public static let priority = JournalFieldName(known: "PRIORITY")
    public static let identifier = JournalFieldName(known: "SYSLOG_IDENTIFIER")
    public static let codeFile = JournalFieldName(known: "CODE_FILE")
    public static let codeLine = JournalFieldName(known: "CODE_LINE")
    public static let codeFunction = JournalFieldName(known: "CODE_FUNC")
    public static let errno = JournalFieldName(known: "ERRNO")
    /// The network interface that the entry is about.
    public static let interface = JournalFieldName(known: "INTERFACE")
    public static let session = JournalFieldName(known: "HOLDFAST_SESSION")
    public static let state = JournalFieldName(known: "HOLDFAST_STATE")
    public static let previousState = JournalFieldName(known: "HOLDFAST_PREVIOUS_STATE")
    /// The stable code of the reason.
    public static let reason = JournalFieldName(known: "HOLDFAST_REASON")
    /// `quick` or `full`.
    public static let mode = JournalFieldName(known: "HOLDFAST_MODE")
    public static let endpoint = JournalFieldName(known: "HOLDFAST_ENDPOINT")
    /// The number of the attempt within the outage, from 1.
    public static let attempt = JournalFieldName(known: "HOLDFAST_ATTEMPT")
    /// Microseconds until the next attempt.
    public static let retry = JournalFieldName(known: "HOLDFAST_RETRY_USEC")
    /// How long the outage is or was, in microseconds.
    public static let outage = JournalFieldName(known: "HOLDFAST_OUTAGE_USEC")
    public static let pathClass = JournalFieldName(known: "HOLDFAST_PATH_CLASS")
    /// The user id of the local program that made the request.
    public static let peerUID = JournalFieldName(known: "HOLDFAST_PEER_UID")

    /// Every field that Holdfast writes. The catalog's texts may refer to these and no others.
    public static let all: [JournalFieldName] = [
        .message, .messageID, .priority, .identifier, .codeFile, .codeLine, .codeFunction, .errno, .interface,
        .session, .state, .previousState, .reason, .mode, .endpoint, .attempt, .retry, .outage, .pathClass, .peerUID,
    ]
}

/// The priorities of syslog(3).
public enum JournalPriority: UInt8, Sendable, CaseIterable, Comparable {
    case emergency, alert, critical, error, warning, notice, info, debug

    /// A less urgent priority is the greater one, as its number is.
    public static func < (left: JournalPriority, right: JournalPriority) -> Bool { left.rawValue < right.rawValue }
}
