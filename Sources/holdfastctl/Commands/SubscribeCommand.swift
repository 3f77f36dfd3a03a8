import ArgumentParser
import ControlAPI
import HoldfastClient

struct SubscribeCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "subscribe",
        abstract: "Print messages as they are received.",
        discussion: """
            One line per message: the topic, a space and the payload; with --json, one object per line. Elsewhere than \
            on a terminal, a payload with line breaks begins with a backslash and is escaped, and a space in a topic is \
            written \\x20: see holdfastctl(1). It continues when the daemon is restarted, but messages sent in between are \
            missed. With --consumer, nothing is missed: the daemon also collects messages while this command is not \
            running, and each is acknowledged when it has been printed.

            Quote filters, as in 'a/#' and '~/chat': # and ~ mean something to a shell.
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
    @Flag(help: "Let the consumer have this filter instead of the one it has; what it has collected stays.")
    var replaceFilter = false

    func validate() throws {
        if replaceFilter, consumer == nil { throw ValidationError("--replace-filter needs --consumer") }
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
        await common.tellIfStopped(session, client)
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
    /// Prints each message, then acknowledges it: if the command is killed in between, the message is printed again. What
    /// is printed while the daemon commits an acknowledgement to disk is acknowledged together.
    private func consume(_ consumer: String, _ client: HoldfastClient, _ printer: MessagePrinter) async throws {
        let isJSON = common.json
        if !replaceFilter { try await checkFilter(of: consumer, client) }
        let messages = try await client.consume(
            session: session, filter: filters[0], qos: qos, consumer: consumer,
            detached: { Complaint(detached: $0).write(json: isJSON) })
        reportMissed(messages.missed)
        await common.tellIfStopped(session, client)
        let (printed, feed) = AsyncStream.makeStream(
            of: DurableSubscription.Element.self, bufferingPolicy: .bufferingNewest(1))
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                defer { feed.finish() }
                for try await element in messages {
                    reportMissed(element.missed)
                    let isLast = await printer.take(.message(element.message))
                    feed.yield(element)
                    if isLast { return }
                }
            }
            group.addTask {
                for await element in printed { try await element.ackUpToHere() }
            }
            while try await group.next() != nil {}
        }
    }

    /// A consumer that is given another filter by mistake would no longer collect what it was created for.
    private func checkFilter(of consumer: String, _ client: HoldfastClient) async throws {
        guard try await client.attach().roles.contains(.observe) else { return }
        let status = try await client.call(
            SessionStatusMethod.self, .init(session: session), timeout: CommonOptions.answerTimeout)
        guard let known = status.inbox.consumers.first(where: { $0.name == consumer }), known.filter != filters[0]
        else {
            return
        }
        throw Self.otherFilter(known, session)
    }

    static func otherFilter(_ known: SessionStatus.Inbox.Consumer, _ session: String) -> CommandFailure {
        CommandFailure(
            .failed, "the consumer \(known.name) of session \(session) has the filter \(known.filter)",
            advice: "subscribe to that; --replace-filter changes it")
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
            Complaint(
                notice: "\(count) \(count == 1 ? "message was" : "messages were") dropped because too much was unread"
            ).write(json: json)
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

    private static func line(_ message: ReceivedMessage, isTerminal: Bool) -> [UInt8] {
        let payload = message.payload
        guard isTerminal else { return MessageLine.bytes(topic: message.topic, payload: payload.bytes) }
        let shown = payload.text.map(printable) ?? "(\(payload.bytes.count) bytes)"
        return Array("\(printable(message.topic)) \(shown)\n".utf8)
    }
}

/// A message as programs read it from a pipe: one line, in which the first space ends the topic. No payload can look like
/// another one or another message, and no topic like another one. A payload of one line is unchanged, JSON with its
/// backslashes for example. Any other is escaped, which a backslash in front of it shows.
enum MessageLine {
    static func bytes(topic: String, payload: [UInt8]) -> [UInt8] {
        var line = topic.unicodeScalars.flatMap { scalar -> [UInt8] in
            let bytes = UTF8.encode(scalar).map(Array.init) ?? []
            return isPlain(scalar)
                ? bytes
                : bytes.flatMap { Array("\\x\($0 < 16 ? "0" : "")\(String($0, radix: 16, uppercase: true))".utf8) }
        }
        line.append(UInt8(ascii: " "))
        line.reserveCapacity(line.count + payload.count + 1)
        let backslash = UInt8(ascii: "\\")
        let hasBreak = payload.contains { $0 == UInt8(ascii: "\n") || $0 == UInt8(ascii: "\r") }
        guard hasBreak || payload.first == backslash else { return line + payload + [UInt8(ascii: "\n")] }
        line.append(backslash)
        for byte in payload {
            switch byte {
            case backslash: line += [backslash, backslash]
            case UInt8(ascii: "\n"): line += [backslash, UInt8(ascii: "n")]
            case UInt8(ascii: "\r"): line += [backslash, UInt8(ascii: "r")]
            default: line.append(byte)
            }
        }
        return line + [UInt8(ascii: "\n")]
    }

    /// Whether a character of a topic is written as it is.
    private static func isPlain(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator, .spaceSeparator: false
        default: scalar != "\\"
        }
    }
}
