import ControlAPI
import Logging
import MQTT
import NIOCore
import Session
import SessionCore

/// One peer on the control socket: cuts what it sends into calls, runs those that the scheduler lets begin, and writes the
/// answers and what it watches.
///
/// It decides nothing about when: see ``ControlScheduler``. What it reads, runs and writes is accounted for there.
actor ControlConnection {
    /// How many lines or calls are taken in one turn.
    static let turn = 16
    /// How many watches and subscriptions a peer may have on one connection.
    static let maximumFeeds = 1024
    /// How many bytes are kept back of what comes for a watch or subscription before its answer is written.
    static let maximumHeld = 1 << 20
    /// A longer line is not parsed on the loop of the sessions.
    static let longParse = 64 << 10

    nonisolated let id: ConnectionID
    nonisolated let channel: any Channel
    nonisolated var unownedExecutor: UnownedSerialExecutor { channel.eventLoop.executor.asUnownedSerialExecutor() }

    let peer: Peer?
    /// What the peer may do, settled when it connected.
    let roles: Set<Role>
    let daemon: Daemon
    let logger: Logger
    let server: ControlServer
    var watches: Set<WatchID> = []
    var subscriptions: [SubscriptionID: HeldSubscription] = [:]

    /// What the calls of one turn have in common. Nothing else happens during a turn.
    private var route: (session: String, driver: SessionDriver)?

    private var lines = LineSplitter(maximumLength: RequestLine.maximumPayloadLineLength)
    /// Taken from a line, and not begun.
    private var waiting = CircularBuffer<WaitingCall>()
    private var waitingBytes = 0
    /// Of a line that is being parsed elsewhere; nothing behind it is looked at meanwhile.
    private var parsing: Int?
    /// Reads that wait for their turn.
    private var reads = CircularBuffer<(call: RunningCall, request: ClientCall)>()
    private var runningReads: [Int: Task<Void, Never>] = [:]
    /// How many calls are not answered.
    private var calls = 0
    private var lastCall = 0
    /// How many tasks of calls have not come to their turn; what begins later must not pass them.
    private var tasksAhead = 0
    private var deliveries: [Int: Delivery] = [:]
    private var batches: [Int: Batch] = [:]
    private var lastBatch = 0
    private var isReadingPaused = false
    private var isRefused = false
    /// The peer is gone; calls that are still carried out must leave nothing behind.
    private(set) var isClosed = false
    /// The peer sends no more, as `nc -N` at the end of its input; it still wants its answers.
    private var isInputClosed = false

    private var answered = Answered()
    private var outgoing = OutgoingBytes(pieceLength: 64 << 10)
    private var isWriting = false
    private var isPumping = false
    private var isFlushPlanned = false
    /// Notifications of watches and subscriptions whose answer is not written yet: the peer must know them first.
    private var held: [String: Held] = [:]
    /// What was dropped, by watch or subscription, since the peer was last told.
    private var dropped: [String: Dropped] = [:]
    /// Messages of durable consumers wait for the peer to read.
    private var areConsumersPaused = false

    struct HeldSubscription {
        var session: SessionName
        /// Of a durable one.
        var consumer: ConsumerName?
    }

    /// A call that was read and has not begun.
    private struct WaitingCall {
        var request: ClientCall
        /// Of a long line: decoded with it.
        var message: Result<MessagePublishMethod.Parameters, RPCError>?
        var bytes: Int
        var batch: Int?
    }

    /// A call that has begun, without what it asked for.
    struct RunningCall {
        var number: Int
        /// `nil` for a notification, which has no answer.
        var id: RequestID?
        var kind: CallKind
        /// With these it is accounted for.
        var bytes: Int
        var answer: Int
        var batch: Int?
        var waitsForDelivery = false
    }

    /// A message whose delivery the peer waits for.
    private struct Delivery {
        var timer: Scheduled<Void>?
        /// Once it is accepted.
        var sequence: MessageSequence?
        /// Its time is over.
        var isLate = false
    }

    /// What of a batch is answered.
    private struct Batch {
        var missing: Int
        /// With the numbers of their calls.
        var answers: [(call: Int, line: [UInt8])] = []
        var bytes = 0
        var feeds: [Reply] = []
    }

    /// Calls whose answers are among what waits to be written, and of which the scheduler does not know that they are over.
    private struct Answered {
        var count = 0
        var bytes = 0
        /// What was set aside for their answers, and how long these are.
        var reserved = 0
        var written = 0
    }

    private struct Held {
        var lines: [[UInt8]] = []
        var bytes = 0
    }

    private struct Dropped {
        var count = 0
        /// The number of the last event; 0 for messages.
        var sequence: Int64 = 0
    }

    /// What a call came to.
    struct Reply {
        /// `nil` for a notification, which has no answer.
        var line: [UInt8]?
        /// The watch or subscription that begins with this answer.
        var feed: String?
        /// Lines about events from before the watch.
        var missed: [UInt8] = []
    }

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

    private func schedule<Value: Sendable>(_ change: @Sendable (inout ControlScheduler, Instant) -> Value) -> Value {
        server.assumeIsolated { $0.schedule(change) }
    }

    // MARK: Reading

    func received(_ bytes: ByteBuffer) {
        guard !isRefused, !isClosed else { return }
        lines.append(bytes)
        adjustReading()
    }

    /// The last line may do without its end.
    func inputClosed() {
        isInputClosed = true
        lines.append(ByteBuffer(integer: UInt8(ascii: "\n")))
        adjustReading()
        closeWhenDone()
    }

    private func adjustReading(tookLine: Bool = false) {
        guard !isClosed else { return }
        let bytes = lines.byteCount + waitingBytes + (parsing ?? 0)
        let hasLine = parsing != nil || !waiting.isEmpty || lines.hasLine()
        let id = id
        let mayRead = schedule { $0.buffered(bytes, hasLine: hasLine, tookLine: tookLine, of: id, at: $1) }
        guard mayRead == isReadingPaused else { return }
        isReadingPaused = !mayRead
        channel.setOption(.autoRead, value: mayRead).whenFailure { _ in }
    }

    /// It is this connection's turn: takes some of what the peer has sent.
    func takeTurn() {
        var (left, tookLine) = (Self.turn, false)
        while left > 0, parsing == nil, !isClosed {
            if let call = waiting.first {
                guard begin(call) else { break }
                waiting.removeFirst()
                waitingBytes -= call.bytes
                left -= 1
            } else if let line = lines.next() {
                tookLine = true
                switch line {
                case .tooLong: wait(for: .invalid(.null, .lineTooLong), bytes: 0)
                case .line(let bytes): parse(bytes)
                }
            } else {
                break
            }
        }
        route = nil
        adjustReading(tookLine: tookLine)
        closeWhenDone()
    }

    private func parse(_ bytes: [UInt8]) {
        guard bytes.count > Self.longParse else {
            if let line = PublishLine(scanning: bytes) {
                return wait(
                    for: .request(line.id, method: MessagePublishMethod.name, parameters: nil),
                    .success(line.parameters), bytes: bytes.count)
            }
            return take(RequestLine(parsing: bytes), bytes: bytes.count)
        }
        parsing = bytes.count
        Task {
            let (line, message) = await Self.parsed(bytes)
            parsing = nil
            guard !isClosed else { return }
            take(line, message, bytes: bytes.count)
            adjustReading()
        }
    }

    /// Megabytes take a while, and the sessions must not wait for it.
    @concurrent private static func parsed(
        _ bytes: [UInt8]
    ) async -> (RequestLine, Result<MessagePublishMethod.Parameters, RPCError>?) {
        let line = RequestLine(parsing: bytes)
        switch line {
        case .single(.request(let id, MessagePublishMethod.name, let parameters)):
            // Without the parameters, which would be kept a second time.
            return (.single(.request(id, method: MessagePublishMethod.name, parameters: nil)), message(parameters))
        case .single(.notification(MessagePublishMethod.name, let parameters)):
            return (.single(.notification(method: MessagePublishMethod.name, parameters: nil)), message(parameters))
        default:
            return (line, nil)
        }
    }

    private static func message(_ parameters: JSONValue?) -> Result<MessagePublishMethod.Parameters, RPCError> {
        Result { () throws(RPCError) in
            try ParameterDecoder.decode(MessagePublishMethod.Parameters.self, from: parameters)
        }
    }

    /// A batch runs like as many single lines; only its answers are put together.
    private func take(
        _ line: RequestLine, _ message: Result<MessagePublishMethod.Parameters, RPCError>? = nil, bytes: Int
    ) {
        switch line {
        case .single(let request):
            wait(for: request, message, bytes: bytes)
        case .batch(let requests):
            lastBatch += 1
            batches[lastBatch] = Batch(missing: requests.count)
            for request in requests { wait(for: request, bytes: bytes / requests.count, batch: lastBatch) }
        }
    }

    private func wait(
        for request: ClientCall, _ message: Result<MessagePublishMethod.Parameters, RPCError>? = nil, bytes: Int,
        batch: Int? = nil
    ) {
        waiting.append(WaitingCall(request: request, message: message, bytes: bytes, batch: batch))
        waitingBytes += bytes
    }

    // MARK: Calls

    /// - Returns: whether it has begun.
    private func begin(_ waiting: WaitingCall) -> Bool {
        let (kind, answer) = Self.needs(of: waiting.request)
        let (id, bytes) = (id, waiting.bytes)
        guard schedule({ scheduler, _ in scheduler.begin(kind, bytes: bytes, answer: answer, of: id) }) else {
            return false
        }
        calls += 1
        lastCall += 1
        let call = RunningCall(
            number: lastCall, id: waiting.request.id, kind: kind, bytes: bytes, answer: answer, batch: waiting.batch)
        if let batch = waiting.batch, batches[batch].map({ $0.bytes > RequestLine.maximumLineLength }) == true {
            ended(
                call,
                Reply(
                    line: OutgoingLine.failure(
                        call.id ?? .null,
                        .tooManyRequests("the answers to this batch are longer than they may be; send single lines"))))
            return true
        }
        switch waiting.request {
        case .invalid(let id, let error):
            ended(call, Reply(line: OutgoingLine.failure(id, error)))
        case .request(_, MessagePublishMethod.name, _), .notification(MessagePublishMethod.name, _):
            if tasksAhead > 0 || !publish(call, waiting.request, waiting.message) {
                runInTask(call, waiting.request, waiting.message)
            }
        case .request, .notification:
            if kind == .read {
                reads.append((call, waiting.request))
            } else {
                runInTask(call, waiting.request, nil)
            }
        }
        return true
    }

    private func runInTask(
        _ call: RunningCall, _ request: ClientCall, _ message: Result<MessagePublishMethod.Parameters, RPCError>?
    ) {
        tasksAhead += 1
        Task {
            tasksAhead -= 1
            if call.kind == .message, request.method == MessagePublishMethod.name {
                // The session may be about to be started again.
                await publishWhenPossible(call, request, message)
            } else {
                ended(call, await answer(request))
            }
        }
    }

    /// There is room for the answer of the read that waits first.
    func startRead() {
        guard let (call, request) = reads.popFirst() else { return }
        runningReads[call.number] = Task {
            let reply = await answer(request)
            readEnded(call)
            ended(call, reply)
        }
    }

    private func readEnded(_ call: RunningCall) {
        runningReads[call.number] = nil
        let id = id
        schedule { scheduler, _ in scheduler.readEnded(answer: call.answer, of: id) }
    }

    /// A call is over: it is answered, alone or with its batch.
    private func ended(_ call: RunningCall, _ reply: Reply) {
        let id = id
        schedule { scheduler, _ in scheduler.end(call.kind, bytes: call.bytes, answer: call.answer, of: id) }
        calls -= 1
        guard !isClosed else { return }
        let line = call.id == nil ? nil : reply.line
        if let number = call.batch {
            endedInBatch(number, call.number, reply, line)
        } else {
            finish([reply], line)
        }
        closeWhenDone()
    }

    private func endedInBatch(_ number: Int, _ call: Int, _ reply: Reply, _ line: [UInt8]?) {
        guard var batch = batches.removeValue(forKey: number) else { return }
        batch.missing -= 1
        if let line {
            batch.answers.append((call, line))
            batch.bytes += line.count
            let id = id
            schedule { scheduler, _ in scheduler.collected(line.count, of: id) }
        }
        if reply.feed != nil { batch.feeds.append(reply) }
        guard batch.missing == 0 else {
            batches[number] = batch
            return
        }
        let (id, bytes) = (id, batch.bytes)
        schedule { scheduler, _ in scheduler.released(bytes, of: id) }
        // A batch of notifications has no answer at all (JSON-RPC 2.0, section 6).
        let answers = batch.answers.sorted { $0.call < $1.call }.map(\.line)
        finish(batch.feeds, answers.isEmpty ? nil : OutgoingLine.batch(answers))
    }

    /// Writes the answer, and then lets go what waited for it.
    private func finish(_ replies: [Reply], _ answer: [UInt8]?) {
        if let answer { write(answer) }
        for reply in replies {
            guard let feed = reply.feed else { continue }
            // Asked for and bounded by the log, so not subject to the marks for what comes unasked.
            if !reply.missed.isEmpty { write(reply.missed) }
            guard let held = held.removeValue(forKey: feed) else { continue }
            unaccount(held.bytes)
            for line in held.lines { write(line) }
        }
        tellDropped()
    }

    /// Closes when a peer that sends no more has all its answers, and neither watches nor subscribes.
    private func closeWhenDone() {
        guard isInputClosed, calls == 0, answered.count == 0, parsing == nil, waiting.isEmpty, !isClosed,
            outgoing.isEmpty, !isWriting,
            watches.isEmpty, subscriptions.isEmpty, lines.byteCount == 0
        else { return }
        channel.close(promise: nil)
    }
}

// What most calls are, without a task for each.
extension ControlConnection {
    /// - Returns: `false` if the session has to be waited for.
    private func publish(
        _ call: RunningCall, _ request: ClientCall, _ message: Result<MessagePublishMethod.Parameters, RPCError>?
    ) -> Bool {
        do throws(RPCError) {
            let parameters = try take(MessagePublishMethod.self, request.parameters, message)
            guard let driver = try settledDriver(parameters.session) else { return false }
            publish(parameters, on: driver, for: call)
        } catch {
            ended(call, Reply(line: OutgoingLine.failure(call.id ?? .null, error)))
        }
        return true
    }

    private func settledDriver(_ session: String) throws(RPCError) -> SessionDriver? {
        if let route, route.session == session { return route.driver }
        let found = registry.assumeIsolated { registry in
            Result { () throws(RPCError) in try registry.settledDriver(session) }
        }
        let driver = try found.get()
        route = driver.map { (session, $0) }
        return driver
    }

    private func publishWhenPossible(
        _ call: RunningCall, _ request: ClientCall, _ message: Result<MessagePublishMethod.Parameters, RPCError>?
    ) async {
        do throws(RPCError) {
            let parameters = try take(MessagePublishMethod.self, request.parameters, message)
            publish(parameters, on: try await registry.driver(parameters.session), for: call)
        } catch {
            ended(call, Reply(line: OutgoingLine.failure(call.id ?? .null, error)))
        }
    }

    private func publish(
        _ parameters: MessagePublishMethod.Parameters, on driver: SessionDriver, for call: RunningCall
    ) {
        var call = call
        call.waitsForDelivery = parameters.wait == .delivered
        if call.waitsForDelivery {
            let timer = parameters.timeout.map { [call] timeout in
                channel.eventLoop.scheduleTask(in: .nanoseconds(Int64(min(timeout * 1e9, 1e18)))) { [weak self] in
                    _ = self?.assumeIsolated { $0.deliveryIsLate(call) }
                }
            }
            deliveries[call.number] = Delivery(timer: timer)
        }
        driver.assumeIsolated { [call] driver in
            driver.publish(parameters) { [weak self] step in self?.assumeIsolated { $0.published(call, step) } }
        }
    }

    private func published(_ call: RunningCall, _ step: SessionDriver.PublishStep) {
        switch step {
        case .accepted(let sequence):
            guard deliveries[call.number] != nil else { return }
            deliveries[call.number]?.sequence = sequence
            let id = id
            schedule { scheduler, _ in scheduler.accepted(bytes: call.bytes, of: id) }
            if deliveries[call.number]?.isLate == true { endLate(call) }
        case .ended(let result):
            var call = call
            if call.waitsForDelivery {
                // Without one it was answered when its time was over.
                guard let delivery = deliveries.removeValue(forKey: call.number) else { return }
                delivery.timer?.cancel()
                if delivery.sequence != nil { call.kind = .delivery }
            }
            switch result {
            case .success(let result): answered(call, result)
            case .failure(let error): ended(call, Reply(line: OutgoingLine.failure(call.id ?? .null, error)))
            }
        }
    }

    /// What most calls come to: one commit ends many. Their lines are written at once, and what they held is given back with
    /// the flush at the end of this turn of the loop.
    private func answered(_ call: RunningCall, _ result: MessagePublishMethod.Result) {
        guard !isClosed, call.kind == .message, call.batch == nil else {
            return ended(call, Reply(line: OutgoingLine.answer(call.id ?? .null, result: result)))
        }
        calls -= 1
        answered.count += 1
        answered.bytes += call.bytes
        answered.reserved += call.answer
        if let id = call.id, channel.isActive {
            answered.written += outgoing.append { OutgoingLine.write(id, result, into: &$0) }
        }
        planFlush()
    }

    /// Gives back what calls that were answered held.
    private func settleAnswered() {
        guard answered.count > 0 else { return }
        let (id, answered) = (id, answered)
        self.answered = Answered()
        schedule { scheduler, now in
            scheduler.end(
                .message, count: answered.count, bytes: answered.bytes, answer: answered.reserved, of: id)
            scheduler.wrote(answered.written, to: id, at: now)
        }
        tellDropped()
        closeWhenDone()
    }

    /// The peer does not wait for the delivery any longer. It is always told that the message is accepted, so an answer
    /// waits for the disk.
    private func deliveryIsLate(_ call: RunningCall) {
        deliveries[call.number]?.isLate = true
        if deliveries[call.number]?.sequence != nil { endLate(call) }
    }

    private func endLate(_ call: RunningCall) {
        guard let sequence = deliveries.removeValue(forKey: call.number)?.sequence else { return }
        var call = call
        call.kind = .delivery
        let result = MessagePublishMethod.Result(
            id: sequence.rawValue, accepted: true, delivered: false, reasonCode: nil)
        ended(call, Reply(line: OutgoingLine.answer(call.id ?? .null, result: result)))
    }

    /// What a call needs, as far as it can be told before it runs, and what its answer may come to.
    private static func needs(of request: ClientCall) -> (CallKind, answer: Int) {
        switch request.method {
        case MessagePublishMethod.name?, MessageAckMethod.name?, PublicationPutMethod.name?,
            PublicationRemoveMethod.name?:
            return (.message, 256)
        case SessionHistoryMethod.name?:
            let limit = request.parameters?["limit"]?.wholeNumber ?? 100
            return (.read, min(max(Int(clamping: limit), 1), SessionHistoryMethod.Parameters.limits.upperBound) * 512)
        case MessageQueueListMethod.name?, PublicationListMethod.name?:
            return (.read, 1 << 20)
        case SessionWatchMethod.name? where request.parameters?["since"] != nil:
            return (.read, 2 << 20)
        case nil, RPCHelloMethod.name?, DaemonStatusMethod.name?, SessionListMethod.name?, SessionStatusMethod.name?,
            SessionWatchMethod.name?, SessionUnwatchMethod.name?, RoomParticipantsMethod.name?,
            NetworkStatusMethod.name?:
            return (.look, 16 << 10)
        default:
            return (.command, 4 << 10)
        }
    }
}

// Writing.
extension ControlConnection {
    private func account(_ bytes: Int) {
        let id = id
        schedule { $0.wrote(bytes, to: id, at: $1) }
    }

    private func unaccount(_ bytes: Int) {
        let id = id
        schedule { $0.read(bytes, by: id, at: $1) }
    }

    private func write(_ line: [UInt8]) {
        guard channel.isActive, !line.isEmpty else { return }
        account(line.count)
        outgoing.append(line)
        planFlush()
    }

    private func planFlush() {
        guard !isFlushPlanned else { return }
        isFlushPlanned = true
        // Once for all that is answered at the same time, as by one commit.
        channel.eventLoop.execute { self.assumeIsolated { $0.flush() } }
    }

    private func flush() {
        isFlushPlanned = false
        pump()
    }

    /// Gives the kernel the next piece when it has taken the one before.
    private func pump() {
        guard !isPumping else { return }
        isPumping = true
        defer { isPumping = false }
        settleAnswered()
        while !isWriting, channel.isActive, let buffer = outgoing.next() {
            isWriting = true
            let count = buffer.readableBytes
            channel.writeAndFlush(buffer).whenComplete { [weak self] _ in
                self?.assumeIsolated { $0.written(count) }
            }
        }
    }

    private func written(_ bytes: Int) {
        isWriting = false
        guard !isClosed else { return }
        unaccount(bytes)
        tellDropped()
        resumeConsumers()
        pump()
        closeWhenDone()
    }

    func deliver(_ event: SessionEvent) {
        guard watches.contains(event.watch) else { return }
        notify(event.watch.rawValue, sequence: event.sequence, atLeast: 200) { OutgoingLine.notification(event) }
    }

    func deliver(_ message: ReceivedMessage) {
        guard subscriptions[message.subscription] != nil else { return }
        notify(message.subscription.rawValue, atLeast: message.payload.bytes.count) {
            OutgoingLine.notification(message)
        }
    }

    /// A message of a durable consumer is never dropped: how many there are is bounded by what is acknowledged, and the next
    /// are read from the store when the peer has read.
    func deliverDurably(_ message: ReceivedMessage) {
        guard subscriptions[message.subscription] != nil, let line = OutgoingLine.notification(message) else { return }
        let feed = message.subscription.rawValue
        if held[feed] != nil { keep(line, for: feed) } else { write(line) }
    }

    /// Whether messages of a durable consumer are to be read from the store for this peer. It says so when that changes.
    func hasRoomForConsumers() -> Bool {
        let id = id
        let hasRoom = schedule { scheduler, _ in scheduler.mayGive(DurableConsumers.windowBytes, to: id) }
        if !hasRoom { areConsumersPaused = true }
        return hasRoom
    }

    private func resumeConsumers() {
        guard areConsumersPaused else { return }
        let id = id
        guard schedule({ scheduler, _ in scheduler.hasRead(id) }) else { return }
        areConsumersPaused = false
        for session in Set(subscriptions.values.filter { $0.consumer != nil }.map(\.session)) {
            registry.assumeIsolated { $0.loadConsumers(of: session) }
        }
    }

    /// The durable consumer of a subscription is another program's now, or gone.
    func takenOver(_ id: SubscriptionID) {
        guard let subscription = subscriptions.removeValue(forKey: id) else { return }
        removedFeed(.subscription)
        var event = SessionEvent(
            watch: WatchID(rawValue: id.rawValue), sequence: 0, time: .now, session: subscription.session.description,
            event: .consumerEnded)
        event.consumer = subscription.consumer?.description
        forget(id.rawValue)
        OutgoingLine.notification(event).map(write)
        closeWhenDone()
    }

    /// Keeps back what comes for a watch or subscription until its answer is written.
    func hold(_ feed: String) {
        held[feed] = Held()
    }

    private func keep(_ line: [UInt8], for feed: String) {
        held[feed]?.lines.append(line)
        held[feed]?.bytes += line.count
        account(line.count)
    }

    /// Discards what is kept of a watch or subscription that has ended, or never began.
    func forget(_ feed: String) {
        if let held = held.removeValue(forKey: feed) { unaccount(held.bytes) }
        dropped[feed] = nil
    }

    /// Writes a notification, unless the peer is too slow: then it is dropped and counted.
    ///
    /// - Parameter atLeast: how long the line will be, at least: one that will be dropped is not made.
    private func notify(_ feed: String, sequence: Int64 = 0, atLeast: Int, _ line: () -> [UInt8]?) {
        let id = id
        func mayNotify(_ bytes: Int) -> Bool { schedule { scheduler, _ in scheduler.mayNotify(bytes, to: id) } }
        if dropped[feed] == nil, mayNotify(atLeast) {
            guard let line = line() else { return }
            if mayNotify(line.count) {
                guard let held = held[feed] else { return write(line) }
                if held.bytes + line.count <= Self.maximumHeld { return keep(line, for: feed) }
            }
        }
        dropped[feed, default: Dropped()].count += 1
        dropped[feed]?.sequence = sequence
        // Otherwise it is told when it has read.
        if outgoing.isEmpty, !isWriting { tellDropped() }
    }

    /// Once the peer has read enough, it is told how much it missed, and gets what comes from now on.
    private func tellDropped() {
        guard !dropped.isEmpty else { return }
        let id = id
        guard schedule({ scheduler, _ in scheduler.hasRead(id) }) else { return }
        for (feed, dropped) in dropped where held[feed] == nil {
            self.dropped[feed] = nil
            let isMessage = subscriptions[SubscriptionID(rawValue: feed)] != nil
            var event = SessionEvent(
                watch: WatchID(rawValue: feed), sequence: dropped.sequence, time: .now, session: nil,
                event: isMessage ? .messageDropped : .dropped)
            event.count = dropped.count
            OutgoingLine.notification(event).map(write)
        }
    }
}

// Watches and subscriptions, and the end.
extension ControlConnection {
    /// Checks that the peer may have one more watch or subscription, and is there to have it.
    func addFeed(_ kind: ControlScheduler.FeedKind) throws(RPCError) {
        guard !isClosed else { throw .shuttingDown }
        guard watches.count + subscriptions.count < Self.maximumFeeds else {
            throw .tooManyRequests("you have \(Self.maximumFeeds) watches and subscriptions on this connection")
        }
        let id = id
        if case .tooManyOfUser(let count)? = schedule({ scheduler, _ in scheduler.addFeed(kind, of: id) }) {
            throw .tooManyRequests(
                "your programs have \(count) \(kind == .watch ? "watches" : "subscriptions") together, and may have no more"
            )
        }
    }

    func removedFeed(_ kind: ControlScheduler.FeedKind) {
        let id = id
        schedule { scheduler, _ in scheduler.removeFeed(kind, of: id) }
    }

    /// Tells the peer why it is not served, and closes.
    func refuse(_ error: RPCError) {
        isRefused = true
        channel.writeAndFlush(ByteBuffer(bytes: OutgoingLine.failure(.null, error)), promise: nil)
        channel.close(promise: nil)
    }

    /// Closes; what the kernel takes of the answers is written first.
    func close() {
        pump()
        channel.close(promise: nil)
    }

    func closed() {
        let (registry, watches, subscriptions) = (registry, watches, subscriptions)
        isClosed = true
        self.watches = []
        self.subscriptions = [:]
        held = [:]
        dropped = [:]
        outgoing = OutgoingBytes(pieceLength: outgoing.pieceLength)
        answered = Answered()
        waiting = []
        batches = [:]
        for delivery in deliveries.values { delivery.timer?.cancel() }
        deliveries = [:]
        reads = []
        for task in runningReads.values { task.cancel() }
        registry.assumeIsolated { registry in
            for watch in watches { registry.removeWatch(watch) }
            for (id, subscription) in subscriptions {
                if subscription.consumer == nil {
                    registry.unsubscribe(id, from: subscription.session)
                } else {
                    registry.detach(id, from: subscription.session)
                }
            }
        }
    }
}

extension ClientCall {
    /// `nil` for a notification.
    fileprivate var id: RequestID? {
        switch self {
        case .request(let id, _, _), .invalid(let id, _): id
        case .notification: nil
        }
    }

    fileprivate var method: String? {
        switch self {
        case .request(_, let method, _), .notification(let method, _): method
        case .invalid: nil
        }
    }

    fileprivate var parameters: JSONValue? {
        switch self {
        case .request(_, _, let parameters), .notification(_, let parameters): parameters
        case .invalid: nil
        }
    }
}
