import Configuration
import ControlAPI
import Logging
import NIOCore
import SessionCore

/// One peer on the control socket: splits what it sends into calls, runs those that the scheduler lets begin, and
/// writes answers and notifications.
///
/// It does not decide when anything happens: see ``ControlScheduler``, which counts what is read, run and written here.
/// This file has the path of a call from its line to its end. What each method does is in ControlMethods.swift;
/// publishing, writing, and watches and subscriptions are in the files ControlConnection+….swift.
actor ControlConnection {
    /// A longer line is parsed off the sessions' event loop.
    static let longParse = 64 << 10

    nonisolated let id: ConnectionID
    nonisolated let channel: any Channel
    nonisolated var unownedExecutor: UnownedSerialExecutor { channel.eventLoop.executor.asUnownedSerialExecutor() }

    let peer: Peer?
    /// What the peer calls itself in its `rpc.hello`.
    var client: String?
    /// What the peer may do, decided when it connected and whenever the configuration is read again.
    private(set) var roles: Set<Role>
    private var dismissal = Dismissal()
    let since = Timestamp.now
    let daemon: Daemon
    let logger: Logger
    let server: ControlServer

    /// Why the connection ends, though not before the peer knows what became of its reloads.
    private struct Dismissal {
        var error: RPCError?
        /// The calls with a reload that are not answered yet.
        var reloads: Set<Reload> = []
    }

    /// A reload that the peer asked for.
    private enum Reload: Hashable {
        case call(Int)
        /// It is answered with its batch.
        case batch(Int)

        init(_ call: RunningCall) { self = call.batch.map { .batch($0) } ?? .call(call.number) }
    }

    /// The stages of a connection.
    private enum Stage {
        case open
        /// The peer will send nothing more (as `nc -N` does at the end of its input), but still wants its answers.
        case inputClosed
        /// The connection was refused.
        case refused
        /// The peer is gone; calls that are still running must leave nothing behind.
        case closed
    }

    private var stage = Stage.open
    private var isReadingPaused = false
    private var incoming = IncomingCalls()
    var calls = RunningCalls()
    var deliveries = PendingDeliveries()
    var publishing = Publishing()
    var feeds = ControlFeeds()
    var output = ControlOutput()
    /// What `[topics]` of a session gives the peer, and the `[topics]` that it follows from.
    var topicRights: [SessionName: (topics: TopicConfiguration, rights: TopicRights)] = [:]

    init(
        id: ConnectionID, channel: any Channel, peer: Peer?, roles: Set<Role>, daemon: Daemon, server: ControlServer,
        logger: Logger
    ) {
        self.id = id
        self.channel = channel
        self.peer = peer
        self.roles = roles
        self.daemon = daemon
        self.server = server
        self.logger = logger
    }

    var registry: SessionRegistry { daemon.registry }
    var network: NetworkView { daemon.network }
    var isClosed: Bool { stage == .closed }

    func schedule<Value: Sendable>(_ change: @Sendable (inout ControlScheduler, Instant) -> Value) -> Value {
        server.assumeIsolated { $0.schedule(change) }
    }

    // MARK: Lines

    func received(_ bytes: ByteBuffer) {
        guard stage == .open || stage == .inputClosed else { return }
        incoming.append(bytes)
        adjustReading()
    }

    /// The peer will send nothing more. Its last line may end without a line feed.
    func inputClosed() {
        guard stage == .open else { return }
        stage = .inputClosed
        incoming.append(ByteBuffer(integer: UInt8(ascii: "\n")))
        adjustReading()
        closeWhenDone()
    }

    private func adjustReading(tookLine: Bool = false) {
        guard !isClosed else { return }
        let (id, bytes, parsed, hasLine) = (id, incoming.byteCount, incoming.parsedBytes, incoming.hasLine())
        let mayRead = schedule {
            $0.buffered(bytes, parsed: parsed, hasLine: hasLine, tookLine: tookLine, of: id, at: $1)
        }
        guard mayRead == isReadingPaused else { return }
        isReadingPaused = !mayRead
        channel.setOption(.autoRead, value: mayRead).whenFailure { _ in }
    }

    /// Takes some of what the peer has sent: it is this connection's turn.
    func takeTurn() {
        var tookLine = false
        taking: while !isClosed, !server.assumeIsolated({ $0.isTurnOver }) {
            switch incoming.next() {
            case .call(let call)?:
                guard begin(call) else { break taking }
                incoming.began()
            case .batched(let text, let batch)?:
                parse(text, in: batch)
            case .line(.tooLong)?:
                tookLine = true
                incoming.wait(for: WaitingCall(.invalid(.null, .lineTooLong), text: []))
            case .line(.empty(let bytes))?:
                schedule { [id] scheduler, _ in scheduler.skipped(bytes, of: id) }
            case .line(.line(let bytes))?:
                tookLine = true
                parse(bytes)
            case nil:
                break taking
            }
        }
        publishing.route = nil
        adjustReading(tookLine: tookLine)
        closeWhenDone()
    }

    /// What a line, or an element of a batch, is.
    private enum Parsed {
        case call(WaitingCall)
        case batch(BatchedCalls)

        /// - Parameter batch: the batch that the text is an element of; `nil` for a line.
        init(_ text: [UInt8], in batch: Int?) {
            // Nearly all lines are publishes.
            if let publish = PublishLine(scanning: text) {
                self = .call(WaitingCall(publish, bytes: text.count, batch: batch))
                return
            }
            switch batch == nil ? RequestLine(parsing: text) : .single(ClientCall(parsing: text)) {
            case .single(let call): self = .call(WaitingCall(call, text: text, batch: batch))
            case .batch(let calls): self = .batch(BatchedCalls(of: text, count: calls.count))
            }
        }
    }

    private func parse(_ text: [UInt8], in batch: Int? = nil) {
        guard text.count > Self.longParse else { return take(Parsed(text, in: batch)) }
        incoming.beginParsing(text.count)
        Task {
            let parsed = await Self.parsed(text, in: batch)
            incoming.endParsing()
            guard !isClosed else { return }
            take(parsed)
            adjustReading()
        }
    }

    /// Parses a long text off the event loop, because megabytes take a while.
    @concurrent private static func parsed(_ text: [UInt8], in batch: Int?) async -> Parsed { Parsed(text, in: batch) }

    /// Takes what was parsed. A batch runs like the same number of single lines; only its answers are combined.
    private func take(_ parsed: Parsed) {
        switch parsed {
        case .call(let call): incoming.wait(for: call)
        case .batch(let calls): incoming.wait(for: calls, of: self.calls.batches.begin(calls.count))
        }
    }

    // MARK: Calls

    /// - Returns: whether the call has begun.
    private func begin(_ waiting: WaitingCall) -> Bool {
        let isTooLong = waiting.batch.map(calls.batches.isTooLong) ?? false
        let (id, bytes) = (id, waiting.bytes)
        let needs = waiting.needs.resolved(length(of:))
        let isFull = needs.0 == .outcome && schedule { scheduler, _ in scheduler.isFull(.outcome, of: id) }
        // What is refused at once is not read, whatever it asks for.
        let (kind, answer) = isTooLong || isFull ? (.query, 0) : needs
        guard schedule({ scheduler, _ in scheduler.begin(kind, bytes: bytes, answer: answer, of: id) }) else {
            return false
        }
        let call = calls.begin(waiting, kind, answer: answer)
        if waiting.request.method == DaemonReloadMethod.name { dismissal.reloads.insert(Reload(call)) }
        if isTooLong {
            fail(
                call,
                .tooManyRequests("the answers to this batch are too long", hint: "send the calls on separate lines"))
            return true
        }
        if isFull {
            fail(
                call,
                .tooManyRequests(
                    "\(CallKind.outcome.limit) calls of this connection wait for the outcome of a command",
                    hint: "wait for one of them, or call without wait"))
            return true
        }
        switch waiting.request {
        case .invalid(_, let error):
            fail(call, error)
        case .request(_, MessagePublishMethod.name, _), .notification(MessagePublishMethod.name, _):
            if calls.tasksAhead > 0 { runInTask(call, waiting) } else { publish(call, waiting) }
        case .request(_, MessageAckMethod.name, _), .notification(MessageAckMethod.name, _):
            if !acknowledgeNow(call, waiting) { runInTask(call, waiting) }
        case .request, .notification:
            if kind == .read {
                calls.wait(call, waiting)
            } else {
                runInTask(call, waiting)
            }
        }
        return true
    }

    private func length(of list: CallNeeds.List) -> Int {
        switch list {
        case .sessions: registry.assumeIsolated { $0.listLength }
        case .participants(let session): registry.assumeIsolated { $0.participantsLength(session) }
        case .paths: network.statusLength
        }
    }

    private func runInTask(_ call: RunningCall, _ waiting: WaitingCall) {
        calls.tasksAhead += 1
        let task = Task {
            calls.tasksAhead -= 1
            if waiting.request.method == MessagePublishMethod.name {
                publish(call, waiting)
                publishing.route = nil
            } else {
                ended(call, await answer(waiting.complete))
            }
            calls.taskEnded(call)
        }
        calls.taskBegan(call, task)
    }

    /// Starts the read that waits first: there is room for its answer.
    func startRead() {
        guard let (call, waiting) = calls.nextRead() else { preconditionFailure("no read waits") }
        let task = Task {
            let reply = await answer(waiting.complete, isLong: true)
            calls.taskEnded(call)
            schedule { [id] scheduler, _ in scheduler.readEnded(answer: call.answer, of: id) }
            ended(call, reply)
        }
        calls.taskBegan(call, task)
    }

    func fail(_ call: RunningCall, _ error: RPCError) {
        ended(call, CallReply(line: OutgoingLine.failure(call.id ?? .null, error)))
    }

    /// Ends a call: its answer is written, alone or with its batch.
    func ended(_ call: RunningCall, _ reply: CallReply) {
        schedule { [id] scheduler, _ in scheduler.end(call.kind, bytes: call.bytes, answer: call.answer, of: id) }
        calls.answered()
        guard !isClosed else { return }
        let line = call.id == nil ? nil : reply.line
        if let batch = call.batch {
            if let line { holdBack(line.count) }
            if let answered = calls.batches.add(reply, line, of: call, to: batch) {
                release(answered.bytes)
                finish(answered.feeds, answered.line)
                dismissal.reloads.remove(.batch(batch))
            }
        } else {
            finish([reply], line)
            dismissal.reloads.remove(.call(call.number))
        }
        closeWhenDone()
    }

    /// Writes the answer, then what was held back until the peer had it.
    private func finish(_ replies: [CallReply], _ answer: [UInt8]?) {
        if let answer { write(answer) }
        for reply in replies {
            guard let feed = reply.feed else { continue }
            // The peer asked for these, and the log bounds them, so the limits for notifications do not apply.
            if !reply.missed.isEmpty { write(reply.missed) }
            release(feed)
        }
        reportDropped()
    }

    // MARK: What others are told

    /// What `daemon.clients` says; `nil` if the kernel did not say who connected.
    ///
    /// - Parameter unread: how many bytes wait for the peer to read them.
    func described(unread: Int) -> ConnectedClient? {
        guard let peer else { return nil }
        return ConnectedClient(
            pid: peer.pid, uid: peer.uid, client: client, roles: Role.allCases.filter(roles.contains), since: since,
            calls: .init(answered: calls.answeredSoFar, inFlight: calls.unanswered), watches: feeds.watches.count,
            sessions: feeds.sessions, unread: unread, dropped: feeds.droppedSoFar)
    }

    // MARK: The end

    /// Closes the connection if the peer will send nothing more, has all its answers, and has no watches or
    /// subscriptions.
    func closeWhenDone() {
        if dismissal.error != nil { return dismiss() }
        guard stage == .inputClosed, calls.unanswered == 0, incoming.isEmpty, output.isEmpty, feeds.isEmpty else {
            return
        }
        channel.close(promise: nil)
    }

    /// Tells the peer why it is refused, and closes the connection.
    func refuse(_ error: RPCError) {
        stage = .refused
        channel.writeAndFlush(ByteBuffer(bytes: OutgoingLine.failure(.null, error)), promise: nil)
        channel.close(promise: nil)
    }

    /// Decides again what the peer may do, since the configuration was read again. If it lost a role, or subscribes to
    /// what it no longer may, the connection ends: a program that connects again gets what it may still have, and learns
    /// what it may not.
    ///
    /// - Returns: whether the connection ends.
    func accessChanged() -> Bool {
        guard let peer, dismissal.error == nil, stage == .open || stage == .inputClosed else { return false }
        topicRights = [:]
        let former = roles
        roles = daemon.access.roles(of: peer)
        if let lost = Role.allCases.first(where: { former.contains($0) && !roles.contains($0) }) {
            dismissal.error = .roleLost(lost)
        } else if let subscription = feeds.subscriptions.values.first(where: { !mayKeep($0) }) {
            dismissal.error = .topicLost(subscription.filter, of: subscription.session.description)
        }
        guard dismissal.error != nil else { return false }
        dismiss()
        // A batch may have calls that take long.
        if dismissal.error != nil { endFeeds() }
        return true
    }

    private func mayKeep(_ subscription: ControlFeeds.Subscription) -> Bool {
        let driver = registry.assumeIsolated { try? $0.runningDriver(subscription.session.description) }
        return driver.map { mayUse(subscription.filter, to: .subscribe, in: $0) } ?? true
    }

    private func dismiss() {
        guard let error = dismissal.error, dismissal.reloads.isEmpty, !isClosed else { return }
        dismissal.error = nil
        // What is accepted will be delivered: the peer must not publish it again.
        for (call, message) in deliveries.takeAll() {
            leave(call, message)
            endUndelivered(call, message)
        }
        write(OutgoingLine.failure(.null, error))
        close()
    }

    /// Closes the connection, after writing as much of the answers as the kernel takes.
    func close() {
        pump()
        channel.close(promise: nil)
    }

    func closed() {
        stage = .closed
        // Not only with the channel's `closeFuture`: until then, a read that waits here could get its turn.
        schedule { [id] scheduler, _ in scheduler.disconnect(id) }
        incoming = IncomingCalls()
        calls.abandon()
        output.discard()
        for (call, message) in deliveries.takeAll() { leave(call, message) }
        endFeeds()
    }
}
