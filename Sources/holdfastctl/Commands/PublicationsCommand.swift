import ArgumentParser
import ControlAPI
import HoldfastClient

struct PublicationsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "publications",
        abstract: "Show and change the retained messages that a session owns.",
        discussion: """
            A publication is state that a session owns: the server keeps the message until the session is disconnected \
            with a command; if the server loses the message, the session sends it again. A topic that begins with ~/ is \
            relative to the session's room.
            """,
        subcommands: [List.self, Put.self, Remove.self], defaultSubcommand: List.self)

    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(abstract: "List the publications. This is the default.")

        @OptionGroup var common: CommonOptions
        @Argument(help: "The session.", completion: .sessions) var session: String
        @Flag(name: [.short, .long], help: "Show dates instead of durations.") var verbose = false
        @OptionGroup var selection: FieldOptions

        func validate() throws { try selection.check(with: common) }

        func run() async throws {
            try await common.show(PublicationListMethod.self, .init(session: session), selection, of: "publications") {
                result, terminal in
                let times = Terminal.times(isAbsolute: verbose)
                terminal.print(
                    table: PublicationText.lines(
                        for: result, of: session, times: times, width: terminal.wrap, isColoured: terminal.isColoured))
            }
        }
    }

    struct Put: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Add a publication, or replace its message.",
            discussion: """
                Returns when the publication is on disk. The server gets it as soon as the session is connected, and again \
                if the server loses it.
                """)

        @OptionGroup var common: CommonOptions
        @Argument(help: "The session.", completion: .sessions) var session: String
        @Argument(
            help: "The topic, without wildcards; ~/… is relative to the session's room.", completion: .publications)
        var topic: String
        @Argument(help: "The message, unless --file is given.") var message: String?
        @Option(
            help: ArgumentHelp("Take the message from a file; - is standard input.", valueName: "path"),
            completion: .file())
        var file: String?
        @Option(help: "Quality of service. Receiving the same state twice does no harm, so there is no 2.")
        var qos = PublicationQoS.atLeastOnce
        @Option(help: "The MIME type of the message.") var contentType: String?

        func validate() throws {
            guard (message == nil) != (file == nil) else {
                throw ValidationError("give either a message or --file; -- precedes a message that begins with -")
            }
        }

        func run() async throws {
            let bytes: [UInt8] = if let message { Array(message.utf8) } else { try InputFile.read(file ?? "-") }
            let publication = PublicationPutMethod.Parameters(
                session: session, topic: topic, payload: MessagePayload(bytes: bytes), qos: qos.value,
                properties: contentType.map { MessageProperties(contentType: $0) })
            try await common.show(PublicationPutMethod.self, publication) { result, terminal in
                terminal.print(printable(PublicationText.sentence(topic, result.state)))
            }
        }
    }

    struct Remove: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Remove a publication.",
            discussion: """
                Returns when the removal is on disk. If the session is not connected, the server learns of it with the \
                next connection.
                """)

        @OptionGroup var common: CommonOptions
        @Argument(help: "The session.", completion: .sessions) var session: String
        @Argument(help: "The topic, as it was put.", completion: .publications) var topic: String

        func run() async throws {
            try await common.show(PublicationRemoveMethod.self, .init(session: session, topic: topic)) {
                result, terminal in
                terminal.print(printable(PublicationText.sentence(topic, result.state)))
            }
        }
    }
}

/// `publications` in words.
enum PublicationText {
    static func sentence(_ topic: String, _ state: PublicationState) -> String {
        switch state {
        case .pending: "\(topic) is accepted; it is sent now, or when the session is connected again."
        case .published: "\(topic) is published."
        case .refused: "\(topic) is accepted, but not published: it is refused; see holdfastctl publications."
        case .removing: "\(topic) is removed; the server is told now, or when the session is connected again."
        case .removed: "\(topic) is removed."
        default: "\(topic): \(state.rawValue)."
        }
    }

    private static func mark(_ state: PublicationState) -> Mark {
        switch state {
        case .published: .good
        case .refused: .bad
        case .removed: .off
        default: .trouble
        }
    }

    /// - Parameter width: that of the terminal; `nil` if the table is not cut.
    static func lines(
        for result: PublicationListMethod.Result, of session: String, times: TimeText, width: Int? = nil,
        isColoured: Bool = false
    ) -> [String] {
        let count = result.publications.count
        let overview = "\(session): \(count) publication\(count == 1 ? "" : "s")\(count == 0 ? "." : ":")"
        guard count > 0 else { return [printable(overview)] }
        let rows = result.publications.map { publication in
            [
                publication.topic,
                publication.state.rawValue + (publication.message.map { " (\($0))" } ?? ""),
                publication.qos.map { String($0.rawValue) } ?? "-",
                publication.payload.map { TimeText.size(Int64($0.bytes.count)) } ?? "-",
                publication.since.map { times.moment($0) } ?? "-",
            ]
        }
        return [printable(overview), ""]
            + Columns.table(
                ["TOPIC", "STATE", "QOS", "SIZE", "SINCE"], rows, width: width,
                marks: isColoured ? result.publications.map { mark($0.state).rawValue } : nil)
    }
}

/// The qualities of service that a publication can have.
enum PublicationQoS: UInt8, CaseIterable, ExpressibleByArgument {
    case atMostOnce, atLeastOnce

    var value: QoS { self == .atMostOnce ? .atMostOnce : .atLeastOnce }
}
