import Logging
import Systemd
import Vocabulary

/// Makes the log's entries: with fields if standard error is connected to the journal, and otherwise readable lines.
///
/// Metadata whose keys are names of journal fields (`HOLDFAST_SESSION`, `MESSAGE_ID`, …) becomes fields. Lines show
/// only the message, which says the same in words.
struct JournalLogHandler: LogHandler {
    var metadata: Logger.Metadata = [:]
    let writer: LogWriter

    /// The level of the whole daemon: all copies of a logger have the writer's.
    var logLevel: Logger.Level {
        get { writer.level }
        set { writer.level = newValue }
    }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    /// The most characters in one line or field. Text from outside is cut off long before.
    private static let longestText = 4000

    func log(event: LogEvent) {
        let line = "\(event.level): \(event.message.description.plain(atMost: Self.longestText))\n"
        writer.add(LogEntry(fields: writer.usesJournal ? fields(of: event) : [], line: Array(line.utf8)))
    }

    private func fields(of event: LogEvent) -> [JournalField] {
        var fields: [JournalField] = [
            .message(event.message.description.plain(atMost: Self.longestText)),
            .priority(JournalPriority(event.level)),
            JournalField(.identifier, "holdfastd"),
        ]
        fields += JournalField.code(file: event.file, line: event.line, function: event.function)
        for (key, value) in metadata.merging(event.metadata ?? [:], uniquingKeysWith: { $1 }) {
            if let name = JournalFieldName(key) {
                fields.append(JournalField(name, value.description.plain(atMost: Self.longestText)))
            }
        }
        return fields
    }
}

extension JournalPriority {
    init(_ level: Logger.Level) {
        switch level {
        case .trace, .debug: self = .debug
        case .info: self = .info
        case .notice: self = .notice
        case .warning: self = .warning
        case .error: self = .error
        case .critical: self = .critical
        }
    }
}
