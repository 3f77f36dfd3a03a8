import ControlAPI
import Glibc
import HoldfastClient
import Synchronization
import Vocabulary

/// `publish --lines`: publishes every line of standard input as a message, and reports how many were accepted or
/// delivered, even if it fails or is interrupted.
struct PublishLines: Sendable {
    let client: HoldfastClient
    let json: Bool
    /// How long to wait for each answer.
    let timeout: Duration?
    /// The parameters of each message, except its payload.
    let message: MessagePublishMethod.Parameters

    /// How many lines are sent before their answers are awaited: fewer than the 1024 calls of one connection that the
    /// daemon runs at once, so that it reads them all, and what follows them, without waiting for a delivery.
    static let window = 1000
    /// After an interruption: how long to wait for the daemon.
    private static let patience = Duration.seconds(5)

    func run() async throws {
        let interruption = Interruption()
        let work = Task { await publish(until: interruption) }
        let watch = Task {
            for await _ in interruption.raised {
                let areDurable = await awaitCommit()
                work.cancel()
                return areDurable
            }
            return false
        }
        var tally = await work.value
        guard let signal = interruption.signal else {
            watch.cancel()
            if let error = tally.error {
                Complaint(notice: tally.sentenceBeforeError).write(json: json)
                throw error
            }
            var terminal = Terminal()
            terminal.done = tally.sentence
            if !json { terminal.print("\(tally.sentence).") }
            return
        }
        if !tally.unanswered.isEmpty { tally.interrupted(areDurable: await watch.value) }
        let failure = CommandFailure(.failed, "interrupted: \(tally.sentenceAfterInterruption)")
        Complaint(Ending(failure), status: 128 + signal).write(json: json)
        endProcess(by: signal)
    }

    /// Waits until every message that was sent is on disk or refused.
    ///
    /// - Returns: whether it is, so that a message without an answer is accepted.
    private func awaitCommit() async -> Bool {
        guard let hello = try? await client.attach() else { return false }
        guard hello.roles.contains(.observe) else {
            // This user may not ask for it.
            if message.wait == .accepted { try? await Task.sleep(for: Self.patience) }
            return false
        }
        // The queue is listed once everything that was sent before is on disk.
        let queue = MessageQueueListMethod.Parameters(session: message.session, limit: 1)
        return (try? await client.call(MessageQueueListMethod.self, queue, timeout: Self.patience)) != nil
    }

    /// Sends the lines that one read of standard input brings in order, as many at once as the daemon takes, then
    /// awaits their answers, so that a fast writer is slowed down to what the daemon commits.
    private func publish(until interruption: Interruption) async -> LineTally {
        var terminal = Terminal()
        var input = InputLines()
        var tally = LineTally(wait: message.wait, session: message.session)
        let progress = LineProgress()
        // Lines that come from the keyboard need none.
        let drawing: Task<Void, Never>? =
            !json && terminal.canDraw && isatty(STDIN_FILENO) == 0
            ? Task { [terminal] in await progress.draw(on: terminal, hindrance: hindrance) } : nil
        do {
            while !tally.isAtEnd, tally.error == nil, let bytes = try interruption.readSome() {
                var lines = (bytes.isEmpty ? input.rest() : input.lines(bytes))[...]
                tally.read(lines.count, isAtEnd: bytes.isEmpty, hasBegunAnother: input.hasBegun)
                while !lines.isEmpty, tally.error == nil, interruption.signal == nil {
                    let messages = lines.prefix(Self.window).map { line in
                        var message = message
                        message.payload = MessagePayload(bytes: line)
                        return message
                    }
                    let lengths = lines.prefix(Self.window).map { $0.count + 1 }
                    lines = lines.dropFirst(messages.count)
                    let results = try await client.callInOrder(
                        MessagePublishMethod.self, messages, timeout: timeout
                    ) { progress.answered(lengths[$0], isSuccess: $1) }
                    for result in results { tally.take(result) }
                    (terminal.done, terminal.rest) = (tally.sentence, tally.remainder)
                    for case .success(let answer) in results where json { terminal.print(json: JSONText.value(answer)) }
                }
                if tally.error == nil, input.isTooLong {
                    throw CommandFailure(
                        .failed, "a line is longer than 16 MiB, the limit for a message", advice: "send it in parts")
                }
            }
        } catch {
            tally.error = error
        }
        drawing?.cancel()
        await drawing?.value
        return tally
    }

    /// Returns why no message is delivered at present, if that is because of the session and this user may know.
    private func hindrance() async -> String? {
        guard message.wait == .delivered, let hello = try? await client.attach(), hello.roles.contains(.observe),
            let status = try? await client.call(
                SessionStatusMethod.self, .init(session: message.session), timeout: .seconds(1)),
            status.state != .connected
        else { return nil }
        return "\(status.session) is \(status.state.rawValue)"
    }
}

/// What has become of the lines: every one that was read was accepted, delivered, refused, is in doubt, or was not sent.
///
/// Several lines are sent at once, so the daemon may refuse a line, for example because the outbox is full, and accept
/// later ones.
struct LineTally {
    let wait: MessagePublishMethod.Wait
    let session: String
    private(set) var accepted = 0
    private(set) var delivered = 0
    /// Accepted, and then rejected by the server or dropped.
    private(set) var undeliverable = 0
    /// The lines that were sent and have no answer, counted from 1.
    private(set) var unanswered = LineNumbers()
    /// Whether a line has no answer for another reason than that the command no longer waits for it.
    private var isInDoubt = false
    /// Whether the daemon has put the lines without an answer on disk.
    private var areDurable = false
    /// The first error.
    var error: (any Error)?
    /// Whether all lines have been read.
    private(set) var isAtEnd = false
    private var linesRead = 0
    /// Whether a part of one more line has been read.
    private var hasBegunAnother = false
    /// How many lines were sent, or could not be sent.
    private var taken = 0
    /// The lines that are certainly not accepted.
    private var refused = LineNumbers()
    /// How many messages were accepted before the first refusal.
    private var answeredBefore = 0
    /// Why the first of them was refused, if that is not what ``error`` says.
    private var refusal: String?

    init(wait: MessagePublishMethod.Wait, session: String) {
        self.wait = wait
        self.session = session
    }

    var answered: Int { accepted + delivered + undeliverable }

    mutating func read(_ lines: Int, isAtEnd: Bool, hasBegunAnother: Bool = false) {
        linesRead += lines
        (self.isAtEnd, self.hasBegunAnother) = (isAtEnd, hasBegunAnother)
    }

    mutating func take(_ result: Result<MessagePublishMethod.Result, ClientError>) {
        taken += 1
        switch result {
        case .success(let answer) where answer.delivered:
            delivered += 1
        case .success(let answer):
            accepted += 1
            if wait == .delivered { error = error ?? PublishCommand.undelivered(answer, session) }
        case .failure(let failure):
            switch failure {
            case .cancelled:
                unanswered.append(taken)
            case .connectionLost, .dismissed, .timeout, .invalidAnswer:
                unanswered.append(taken)
                isInDoubt = true
            case .refused(let error) where error.data?.id != nil: undeliverable += 1
            default:
                if refused.isEmpty {
                    answeredBefore = answered
                    if error != nil { refusal = CommandFailure(failure).sentence }
                }
                refused.append(taken)
            }
            error = error ?? failure
        }
    }

    /// - Parameter areDurable: whether the daemon has said that everything is on disk that it was sent on the connection.
    mutating func interrupted(areDurable: Bool) { self.areDurable = areDurable && !isInDoubt }

    /// What to say beside the error. Without the final full stop.
    var sentenceBeforeError: String {
        guard let first = refused.first else { return withRemainder("before the error, \(sentence)") }
        let places = [(answeredBefore, "before it"), (answered - answeredBefore, "behind it")]
        let parts = places.filter { $0.0 > 0 }.map { "\($0) \($0 == 1 ? "message" : "messages") \($1)" }
        var text = "line \(first) was refused\(refusal.map { ": \($0)" } ?? "")"
        if answered > 0 || unanswered.isEmpty {
            text += "; \(parts.isEmpty ? "no message" : parts.joined(separator: " and "))"
            text += " \(answered > 1 ? "are" : "is") accepted"
        }
        if undeliverable > 0 {
            text +=
                ", of which \(undeliverable) \(undeliverable == 1 ? "was" : "were") rejected or dropped"
                + " (holdfastctl queue list \(session))"
        }
        return withRemainder(text)
    }

    /// What to say when no more lines are read. Without the final full stop.
    var sentenceAfterInterruption: String { withRemainder(sentence) }

    private func withRemainder(_ text: String) -> String { remainder.map { "\(text); \($0)" } ?? text }

    /// The lines that were not accepted, including those that were not sent, and those that are in doubt; `nil` if there
    /// are none.
    var remainder: String? {
        var parts: [String] = []
        if !unanswered.isEmpty, !areDurable {
            parts.append(
                "\(unanswered.description) may or may not have been accepted: publishing \(unanswered.them) again may "
                    + "deliver \(unanswered.them) twice, and not doing so may lose \(unanswered.them)")
        }
        var lost = refused
        let next = lost.removeLast(endingAt: taken) ?? taken + 1
        let hasMore = next <= linesRead || hasBegunAnother
        // As long as the end has not been read, there may be more lines than were.
        let range = hasMore ? "from \(next) on" : isAtEnd ? nil : "from \(next) on, if there are any"
        switch (lost.isEmpty, range) {
        case (true, let range?): parts.append("to be published again: all lines \(range)")
        case (false, let range?): parts.append("to be published again: \(lost), and all \(range)")
        case (false, nil): parts.append("to be published again: \(lost)")
        case (true, nil): break
        }
        return parts.isEmpty ? nil : parts.joined(separator: "; ")
    }

    /// How many are accepted. Without the final full stop.
    var sentence: String {
        var parts: [String] = []
        func add(_ count: Int, _ one: String, _ several: String) {
            guard count > 0 else { return }
            let noun = parts.isEmpty ? (count == 1 ? " message" : " messages") : ""
            parts.append("\(count)\(noun) \(count == 1 ? one : several)")
        }
        let durable = areDurable ? unanswered.count : 0
        // A message of QoS 0 that is sent at once counts as delivered, whatever the command waits for.
        switch wait {
        case .accepted:
            add(answered + durable, "is accepted", "are accepted")
        case .delivered:
            add(delivered, "is delivered", "are delivered")
            add(accepted + durable, "is accepted and will be delivered", "are accepted and will be delivered")
            if durable > 0 { parts[parts.count - 1] += "; see: holdfastctl queue list \(session)" }
            add(undeliverable, "was rejected or dropped", "were rejected or dropped")
            if undeliverable > 0 { parts[parts.count - 1] += "; see: holdfastctl queue list \(session)" }
        }
        return parts.isEmpty ? "0 messages are \(wait.rawValue)" : parts.joined(separator: ", and ")
    }
}

/// Numbers of lines, in ascending order.
struct LineNumbers: CustomStringConvertible {
    private var ranges: [ClosedRange<Int>] = []

    var isEmpty: Bool { ranges.isEmpty }
    var first: Int? { ranges.first?.lowerBound }
    var count: Int { ranges.reduce(0) { $0 + $1.count } }
    var them: String { count == 1 ? "it" : "them" }

    mutating func append(_ number: Int) {
        if let last = ranges.last, last.upperBound == number - 1 {
            ranges[ranges.count - 1] = last.lowerBound...number
        } else {
            ranges.append(number...number)
        }
    }

    /// Removes the last range if it ends at this number.
    ///
    /// - Returns: its first number.
    mutating func removeLast(endingAt number: Int) -> Int? {
        ranges.last?.upperBound == number ? ranges.removeLast().lowerBound : nil
    }

    /// For example `lines 2, 5-7`.
    var description: String {
        let listed = ranges.map { $0.count == 1 ? "\($0.lowerBound)" : "\($0.lowerBound)-\($0.upperBound)" }
        return (count == 1 ? "line " : "lines ") + listed.joined(separator: ", ")
    }
}

/// The signals that end a command, including Control-C, caught so that the command can report something before it ends.
struct Interruption: Sendable {
    /// Yields one element as soon as a signal is caught.
    let raised: AsyncStream<Void>

    init() {
        let (stream, continuation) = AsyncStream.makeStream(of: Void.self)
        raised = stream
        CaughtSignals.catch([SIGINT, SIGTERM, SIGHUP])
        _ = startThread {
            // What the handler writes is never read, so that every poll notices it.
            var waiting = pollfd(fd: CaughtSignals.descriptor, events: Int16(POLLIN), revents: 0)
            while poll(&waiting, 1, -1) < 0, errno == EINTR {}
            continuation.yield()
            continuation.finish()
        }
    }

    /// The signal that was caught; `nil` if there was none.
    var signal: Int32? { CaughtSignals.last == 0 ? nil : CaughtSignals.last }

    /// Reads what standard input has now, waiting for at least one byte; returns no bytes at its end, and `nil` after
    /// an interruption.
    ///
    /// Blocks its thread, which is harmless: nothing else in this process needs it, and the client has its own.
    func readSome() throws(CommandFailure) -> [UInt8]? {
        var waiting = [
            pollfd(fd: STDIN_FILENO, events: Int16(POLLIN), revents: 0),
            pollfd(fd: CaughtSignals.descriptor, events: Int16(POLLIN), revents: 0),
        ]
        while poll(&waiting, 2, -1) < 0, errno == EINTR {}
        return signal == nil ? try InputFile.readSome() : nil
    }
}

/// How far a publish of lines has come, and how that is shown on a terminal when it takes long.
private final class LineProgress: Sendable {
    private let count = Atomic(0)
    private let bytes = Atomic(0)
    private let begin = ContinuousClock.now
    /// How many bytes standard input has, if it is a file; `nil` for a pipe.
    private let size: Int?

    init() {
        var status = stat()
        let isFile = fstat(STDIN_FILENO, &status) == 0 && status.st_mode & S_IFMT == S_IFREG
        // A part of the file may have been read before.
        size = isFile ? Int(status.st_size) - max(0, Int(lseek(STDIN_FILENO, 0, SEEK_CUR))) : nil
    }

    /// - Parameter length: that of the line, with its newline.
    func answered(_ length: Int, isSuccess: Bool) {
        if isSuccess { count.add(1, ordering: .relaxed) }
        bytes.add(length, ordering: .relaxed)
    }

    /// Shows the progress until the task is cancelled.
    ///
    /// - Parameter hindrance: returns why nothing is answered. Called only when nothing is.
    func draw(on terminal: Terminal, hindrance: () async -> String?) async {
        var lines = LiveLines(terminal)
        var shown: Int?
        while (try? await Task.sleep(for: .milliseconds(shown == nil ? 1000 : 500))) != nil {
            let count = count.load(ordering: .relaxed)
            let hindrance = count == shown ?? 0 ? await hindrance() : nil
            guard !Task.isCancelled else { break }
            lines.show([
                ProgressText.line(
                    count, after: (ContinuousClock.now - begin) / .seconds(1),
                    share: size.map { Double(bytes.load(ordering: .relaxed)) / Double(max($0, 1)) },
                    hindrance: hindrance)
            ])
            shown = count
        }
        if shown != nil { lines.show([]) }
    }
}

/// The progress of a long publish in words.
enum ProgressText {
    /// - Parameters:
    ///   - count: how many messages are answered.
    ///   - share: the fraction of the input that they are; `nil` if unknown.
    ///   - hindrance: why there are no more at present. Then a rate and a time that is left would be made up.
    static func line(_ count: Int, after seconds: Double, share: Double?, hindrance: String? = nil) -> String {
        var text = "\(count) messages"
        if hindrance == nil { text += ", \(Int(Double(count) / max(seconds, 0.001)))/s" }
        if let share, share > 0 {
            text += ", \(Int(min(share, 1) * 100)) %"
            if hindrance == nil { text += ", \(TimeText.duration(seconds / min(share, 1) - seconds)) left" }
        }
        return hindrance.map { "\(text); \($0)" } ?? text
    }
}

/// Cuts bytes into lines, without their newlines.
struct InputLines {
    private var begun: [UInt8] = []

    mutating func lines(_ bytes: [UInt8]) -> [[UInt8]] {
        var parts = bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).map { Array($0) }
        begun += parts[0]
        guard parts.count > 1 else { return [] }
        parts[0] = begun
        begun = parts.removeLast()
        return parts
    }

    /// Whether a part of a line was read, and not its end.
    var hasBegun: Bool { !begun.isEmpty }

    /// Whether the line that has begun is longer than a message can be.
    var isTooLong: Bool { begun.count > InputFile.maximumLength }

    /// Returns the last line, if it has no newline.
    mutating func rest() -> [[UInt8]] {
        defer { begun = [] }
        return begun.isEmpty ? [] : [begun]
    }
}
