import ArgumentParser
import ControlAPI
import HoldfastClient

struct PublishCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "publish",
        abstract: "Publish messages through a session.",
        discussion: """
            A message is accepted when it is committed to disk: from then on it will be delivered even if the network, \
            the daemon or the host fails in between. --wait delivered waits for the server's acknowledgement.

            A topic that begins with ~/ is relative to the session's room. Quote it, as in '~/chat': a shell replaces \
            an unquoted ~ by a home directory.
            """)

    @OptionGroup var common: CommonOptions
    @Argument(help: "The session.", completion: .sessions) var session: String
    @Argument(help: "The topic.", completion: .topics) var topic: String
    @Argument(help: "The message.") var message: String?
    @Option(
        help: ArgumentHelp("Publish the contents of a file; - is standard input.", valueName: "path"),
        completion: .file())
    var file: String?
    @Flag(help: "Publish every line of standard input as a separate message.") var lines = false
    @Option(help: "Quality of service: 0, 1 or 2.") var qos = QoS.atLeastOnce
    @Flag(help: "Have the server retain the message for later subscribers.") var retain = false
    @Option(
        help: ArgumentHelp(
            "Drop the message if it is not delivered within this time, like 24h.", valueName: "duration"))
    var expiry: SpanArgument?
    @Option(help: "The MIME type of the message.") var contentType: String?
    @Option(
        help: ArgumentHelp(
            "Publish the message only once, however often the command is repeated with this key: until the message is "
                + "delivered, and for 24 hours after that."))
    var key: String?
    @Option(help: "When to return: once it is accepted, or delivered.") var wait = MessagePublishMethod.Wait.accepted
    @Option(
        help: ArgumentHelp(
            "How long to wait for that, like 30s or never. Default: 30s for accepted, never for delivered.",
            valueName: "duration"))
    var timeout: SpanArgument?

    func validate() throws {
        let given = (message == nil ? 0 : 1) + (file == nil ? 0 : 1) + (lines ? 1 : 0)
        guard given == 1 else {
            throw ValidationError("give either a message, --file or --lines; -- precedes a message that begins with -")
        }
        if lines, key != nil { throw ValidationError("--key cannot be combined with --lines: it is for one message") }
        if let seconds = expiry?.seconds, seconds <= 0 { throw ValidationError("--expiry must be above 0") }
        if let seconds = timeout?.seconds, seconds <= 0 { throw ValidationError("--timeout must be above 0") }
    }

    func run() async throws {
        do {
            try await publish()
        } catch ClientError.timeout where wait == .accepted {
            throw Self.unanswered
        }
    }

    private func publish() async throws {
        let client = common.client(patience: timeout?.duration)
        let notice = wait == .delivered ? Task { await common.tellIfStopped(session, client) } : nil
        defer { notice?.cancel() }
        if lines {
            let message = parameters(MessagePayload(bytes: []))
            try await PublishLines(client: client, json: common.json, timeout: limit, message: message).run()
            return
        }
        let payload: MessagePayload =
            if let message {
                MessagePayload(text: message)
            } else {
                MessagePayload(bytes: try InputFile.read(file ?? "-"))
            }
        var parameters = parameters(payload)
        parameters.key = key
        let answer = try await client.publishUndecoded(parameters, timeout: limit)
        var result = try decode(MessagePublishMethod.Result.self, answer)
        // Without `--key`, it was this command that repeated the call.
        if key == nil { result.repeated = nil }
        let isMissing = wait == .delivered && !result.delivered
        if common.json || !isMissing { report(answer, result) }
        if isMissing {
            throw Self.undelivered(result, session, isStopped: await common.stopped(session, client) != nil)
        }
        if !result.delivered { await common.tellIfStopped(session, client) }
    }

    /// How long to wait for an answer. The daemon itself ends the wait for a delivery; its answer then says that the
    /// message is accepted.
    private var limit: Duration? {
        switch wait {
        case .accepted: timeout == nil ? CommonOptions.answerTimeout : timeout?.duration
        case .delivered: timeout?.duration.map { $0 + CommonOptions.answerTimeout }
        }
    }

    /// No other command lets the user choose how long the daemon may take to answer.
    static let unanswered = CommandFailure(
        .timeout, ClientError.timeout.description, advice: "wait longer with --timeout")

    /// - Parameter isStopped: whether the session does not connect on its own.
    static func undelivered(
        _ result: MessagePublishMethod.Result, _ session: String, isStopped: Bool = false
    ) -> CommandFailure {
        let sentence =
            result.repeated == true
            ? "message \(result.id) was already accepted with this key, so nothing new is published, and it is"
            : "message \(result.id) is accepted, but"
        let later = isStopped ? "once \(session) is connected: holdfastctl connect \(session)" : "later"
        return CommandFailure(
            .timeout, "\(sentence) not delivered yet",
            advice: "it will be delivered \(later); do not publish it again; see: holdfastctl queue list \(session)")
    }

    private func parameters(_ payload: MessagePayload) -> MessagePublishMethod.Parameters {
        .init(
            session: session, topic: topic, payload: payload, qos: qos, retain: retain, expiry: expiry?.seconds,
            properties: contentType.map { MessageProperties(contentType: $0) }, wait: wait,
            timeout: wait == .delivered ? timeout?.seconds : nil)
    }

    private func report(_ answer: JSONValue, _ result: MessagePublishMethod.Result) {
        var terminal = Terminal()
        terminal.done = "message \(result.id) is \(result.delivered ? "delivered" : "accepted")"
        if common.json { terminal.print(json: answer) } else { terminal.print(Self.sentence(result, qos)) }
    }

    static func sentence(_ result: MessagePublishMethod.Result, _ qos: QoS) -> String {
        if result.repeated == true {
            let delivered = result.delivered ? ", and is delivered" : ""
            return "Message \(result.id) was already accepted with this key\(delivered); nothing new is published."
        }
        guard result.delivered else { return "Message \(result.id) is accepted." }
        if qos == .atMostOnce { return "Message \(result.id) is sent; no server acknowledges QoS 0." }
        return "Message \(result.id) is delivered\(Self.note(result.reasonCode))."
    }

    /// Returns what else the server's acknowledgement says (MQTT 5, section 3.4.2.1).
    private static func note(_ reasonCode: Int?) -> String {
        switch reasonCode {
        case nil, 0: ""
        case 0x10: "; no subscribers"
        case let code?: "; the server's reason code is \(serverCode(code))"
        }
    }
}
