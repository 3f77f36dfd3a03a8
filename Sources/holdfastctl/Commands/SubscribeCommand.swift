import ArgumentParser
import ControlAPI
import HoldfastClient

struct SubscribeCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "subscribe",
        abstract: "Print messages as they are received.",
        discussion: """
            One line per message: the topic and the payload; with --json, one object per line. It continues when the \
            daemon is restarted, but messages sent in between are missed. With --consumer, nothing is missed: the daemon \
            also collects messages while this command is not running, and each is acknowledged when it has been printed.
            """)

    @OptionGroup var common: CommonOptions
    @Argument(help: "The session.", completion: .sessions) var session: String
    @Argument(help: "Topic filters; + matches one level, # all that follow.", completion: .filters)
    var filters: [String]
    @Option(help: "Highest quality of service: 0, 1 or 2.") var qos = QoS.atLeastOnce
    @Option(help: "Exit after this many messages.") var count: Int?
    @Option(
        help: "The durable consumer, which is created if it does not exist; it has one filter.", completion: .consumers)
    var consumer: String?

    func validate() throws {
        if consumer != nil, filters.count != 1 { throw ValidationError("a consumer has one filter") }
        if let count, count < 1 { throw ValidationError("--count must be at least 1") }
    }

    func run() async throws {
        let client = common.client()
        Terminal().endWithReader()
        let printer = MessagePrinter(terminal: Terminal(), json: common.json, remaining: count)
        if let consumer {
            return try await consume(consumer, client, printer)
        }
        var subscriptions: [MessageSubscription] = []
        for filter in filters {
            subscriptions.append(
                try await client.subscribe(.init(session: session, filter: filter, qos: qos)))
        }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for subscription in subscriptions {
                group.addTask {
                    // Each message is printed before the next one is taken, so a slow reader fills only the client's
                    // bounded buffers.
                    for try await element in subscription where await printer.take(element) { return }
                }
            }
            try await group.next()
            group.cancelAll()
        }
    }
}

extension SubscribeCommand {
    /// Prints each message, then acknowledges it: if the command is killed in between, the message is printed again.
    private func consume(_ consumer: String, _ client: HoldfastClient, _ printer: MessagePrinter) async throws {
        let isJSON = common.json
        let messages = try await client.consume(
            session: session, filter: filters[0], qos: qos, consumer: consumer,
            detached: { Complaint(detached: $0).write(json: isJSON) })
        reportMissed(messages.missed)
        for try await element in messages {
            reportMissed(element.missed)
            let isLast = await printer.take(.message(element.message))
            try await element.ack()
            if isLast { return }
        }
    }

    private func reportMissed(_ missed: Int) {
        guard missed > 0 else { return }
        let (count, them) = missed == 1 ? ("1 message was", "it") : ("\(missed) messages were", "them")
        common.complain(Complaint(notice: "\(count) dropped because the consumer was full and no program took \(them)"))
    }
}

struct UnsubscribeCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "unsubscribe",
        abstract: "Remove a durable consumer for good, with all messages waiting for it.")

    @OptionGroup var common: CommonOptions
    @Argument(help: "The session.", completion: .sessions) var session: String
    @Argument(help: "The name of the consumer.", completion: .consumers) var consumer: String

    func run() async throws {
        try await common.show(MessageUnsubscribeMethod.self, .init(session: session, consumer: consumer)) {
            _, terminal in
            terminal.print("\(consumer) is removed, with all messages waiting for it.")
        }
    }
}

/// Prints the messages of all subscriptions, one at a time.
private actor MessagePrinter {
    private let terminal: Terminal
    private let json: Bool
    /// `nil`: no limit.
    private var remaining: Int?

    init(terminal: Terminal, json: Bool, remaining: Int?) {
        self.terminal = terminal
        self.json = json
        self.remaining = remaining
    }

    /// - Returns: whether this was the last message wanted.
    func take(_ element: MessageSubscription.Element) -> Bool {
        guard remaining != 0 else { return true }
        switch element {
        case .subscribed: return false
        case .detached(let error):
            Complaint(detached: error).write(json: json)
            return false
        case .dropped(let count):
            Complaint(notice: "\(count) messages were dropped: this reader is too slow").write(json: json)
            return false
        case .message(let message):
            if json {
                terminal.print(json: JSONText.value(message))
            } else {
                terminal.write(Self.line(message, isTerminal: terminal.isTerminal))
            }
            if let count = remaining { remaining = count - 1 }
            return remaining == 0
        }
    }

    /// A pipe gets the payload unchanged; a terminal must not be controlled by it.
    private static func line(_ message: ReceivedMessage, isTerminal: Bool) -> [UInt8] {
        let payload = message.payload
        let shown =
            isTerminal
            ? Array((payload.text.map(printable) ?? "(\(payload.bytes.count) bytes)").utf8) : payload.bytes
        return Array(printable(message.topic).utf8) + [UInt8(ascii: " ")] + shown + [UInt8(ascii: "\n")]
    }
}
