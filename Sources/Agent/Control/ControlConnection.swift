import ControlAPI
import Logging
import MQTT
import NIOCore
import SessionCore

/// One peer on the control socket: reads its lines, runs its calls, writes the answers and what it watches.
actor ControlConnection {
    /// Beyond the high mark notifications are dropped and counted, until the peer has read down to the low one.
    static let waterMark = ChannelOptions.Types.WriteBufferWaterMark(low: 64 << 10, high: 1 << 20)
    /// How many calls run at once; then nothing more is read until some are answered.
    static let maximumCalls = 1024
    /// How many bytes of answers a peer that does not read may leave here before it is cut off.
    static let maximumUnread = 16 << 20
    /// How many watches and subscriptions a peer may have.
    static let maximumFeeds = 1024
    /// How many bytes are kept back of what comes for a watch or subscription before its answer is written.
    static let maximumHeld = 1 << 20

    nonisolated let channel: any Channel
    nonisolated var unownedExecutor: UnownedSerialExecutor { channel.eventLoop.executor.asUnownedSerialExecutor() }

    let peer: Peer?
    /// What the peer may do, settled when it connected.
    let roles: Set<Role>
    let daemon: Daemon
    let logger: Logger
    var watches: Set<WatchID> = []
    var subscriptions: [SubscriptionID: HeldSubscription] = [:]
    private var lines = LineSplitter(maximumLength: RequestLine.maximumLineLength)
    private var calls = 0
    private var isReadingPaused = false
    private var isReadingSoon = false
    private var batches: [Int: Batch] = [:]
    private var lastBatch = 0
    private var isRefused = false
    /// The peer is gone; calls that are still carried out must leave nothing behind.
    private(set) var isClosed = false
    /// The peer sends no more, as `nc -N` at the end of its input; it still wants its answers.
    private var isInputClosed = false
    private var unread = 0
    private var output = Output()
    /// Of messages of durable consumers: how many there are is bounded by what is acknowledged.
    private var unreadDurable = 0
    /// Notifications of watches and subscriptions whose answer is not written yet: the peer must know them first.
    private var held: [String: Held] = [:]
    /// What was dropped, by watch or subscription, since the peer was last told.
    private var dropped: [String: Dropped] = [:]

    struct HeldSubscription {
        var session: SessionName
        /// Of a durable one.
        var consumer: ConsumerName?
    }

    private struct Held {
        var lines: [[UInt8]] = []
        var bytes = 0
    }

    /// Lines that are not given to the channel yet.
    private struct Output {
        var bytes = ByteBuffer()
        /// How many of the bytes count in `unread`; the others do in `unreadDurable`.
        var counted = 0
    }

    private struct Dropped {
        var count = 0
        /// The number of the last event; 0 for messages.
        var sequence: Int64 = 0
    }

    /// Calls that are answered together, and what they have come to until now.
    private struct Batch {
        var count: Int
        var replies: [Reply] = []
    }

    /// What a call came to.
    struct Reply {
        /// `nil` for a notification, which has no answer.
        var line: [UInt8]?
        /// The watch or subscription that begins with this answer.
        var feed: String?
        /// Events from before the watch.
        var missed: [SessionEvent] = []
    }

    init(channel: any Channel, peer: Peer?, roles: Set<Role>, daemon: Daemon, logger: Logger) {
        self.channel = channel
        self.peer = peer
        self.roles = roles
        self.daemon = daemon
        self.logger = logger
    }

    var registry: SessionRegistry { daemon.registry }
    var network: NetworkView { daemon.network }

    // MARK: Reading

    func received(_ bytes: ByteBuffer) {
        guard !isRefused else { return }
        lines.append(bytes)
        readLines()
    }

    private func readLines() {
        while calls < Self.maximumCalls, let line = lines.next() {
            switch line {
            case .tooLong: write(OutgoingLine.failure(.null, .lineTooLong))
            case .line(let bytes): run(bytes)
            }
        }
        let shouldPause = calls >= Self.maximumCalls
        if shouldPause != isReadingPaused {
            isReadingPaused = shouldPause
            channel.setOption(.autoRead, value: !shouldPause).whenFailure { _ in }
        }
    }

    /// Messages are published at once, in the order of the lines; any other call is a task.
    private func run(_ bytes: [UInt8]) {
        if let call = PublishLine(scanning: bytes) {
            begin(1)
            if publish(call.parameters, under: call.id, answer: { $0.finish($1) }) { return }
            calls -= 1
        }
        switch RequestLine(parsing: bytes) {
        case .single(let call):
            begin(1)
            if publish(call, answer: { $0.finish($1) }) { return }
            Task { finish(await answer(call)) }
        case .batch(let batch):
            begin(batch.count)
            run(batch)
        }
    }

    /// Runs the calls as if each were a line of its own, but answers them together.
    private func run(_ batch: [ClientCall]) {
        lastBatch += 1
        let number = lastBatch
        batches[number] = Batch(count: batch.count)
        let others = batch.filter { call in !publish(call, answer: { $0.finish($1, ofBatch: number) }) }
        guard !others.isEmpty else { return }
        Task { for call in others { finish(await answer(call), ofBatch: number) } }
    }

    private func finish(_ reply: Reply, ofBatch number: Int) {
        batches[number]?.replies.append(reply)
        guard let batch = batches[number], batch.replies.count == batch.count else { return }
        batches[number] = nil
        let answers = batch.replies.compactMap(\.line)
        // A batch of notifications has no answer at all (JSON-RPC 2.0, section 6).
        finish(batch.replies, answers.isEmpty ? nil : OutgoingLine.batch(answers))
        ended(batch.count)
    }

    private func finish(_ reply: Reply) {
        finish([reply], reply.line)
        ended(1)
    }

    /// Writes the answer, and then lets go what waited for it.
    private func finish(_ replies: [Reply], _ answer: [UInt8]?) {
        if let answer { write(answer) }
        for reply in replies {
            guard let feed = reply.feed else { continue }
            // Asked for and bounded by the log, so not subject to the marks for what comes unasked.
            for event in reply.missed { OutgoingLine.notification(event).map(write) }
            let isDurable = subscriptions[SubscriptionID(rawValue: feed)]?.consumer != nil
            for line in held.removeValue(forKey: feed)?.lines ?? [] {
                if isDurable { writeDurably(line) } else { write(line) }
            }
        }
        tellDropped()
    }

    private func begin(_ count: Int) {
        calls += count
    }

    /// May be called while a session carries out its actions, which must not be asked for anything then: what waits to be
    /// read is read in a turn of its own.
    private func ended(_ count: Int) {
        calls -= count
        if isReadingPaused, !isReadingSoon {
            isReadingSoon = true
            channel.eventLoop.execute { [weak self] in
                self?.assumeIsolated {
                    $0.isReadingSoon = false
                    $0.readLines()
                }
            }
        }
        closeWhenDone()
    }

    /// The last line may do without its end.
    func inputClosed() {
        isInputClosed = true
        lines.append(ByteBuffer(integer: UInt8(ascii: "\n")))
        readLines()
        closeWhenDone()
    }

    /// Closes when a peer that sends no more has all its answers, and neither watches nor subscribes.
    private func closeWhenDone() {
        guard isInputClosed, calls == 0, unread + unreadDurable == 0, watches.isEmpty, subscriptions.isEmpty else {
            return
        }
        channel.close(promise: nil)
    }

    // MARK: Writing

    private func write(_ line: [UInt8]) {
        guard channel.isActive else { return }
        unread += line.count
        // A single line of any length is written.
        guard unread <= Self.maximumUnread || unread == line.count else {
            channel.close(promise: nil)
            return
        }
        output.counted += line.count
        append(line)
    }

    /// Does not count for what a peer may leave unread: one message may be all of that, and the peer has to be answered when
    /// it acknowledges the one before.
    private func writeDurably(_ line: [UInt8]) {
        guard channel.isActive else { return }
        unreadDurable += line.count
        append(line)
    }

    /// Lines of one turn of the loop leave with one write.
    private func append(_ line: [UInt8]) {
        if output.bytes.readableBytes == 0 {
            channel.eventLoop.execute { [weak self] in self?.assumeIsolated { $0.flush() } }
        }
        output.bytes.writeBytes(line)
        // Whether the channel is writable must be known soon enough for notifications to be dropped.
        if output.bytes.readableBytes >= Self.waterMark.low { flush() }
    }

    private func flush() {
        guard output.bytes.readableBytes > 0 else { return }
        let (bytes, counted) = (output.bytes, output.counted)
        output = Output()
        channel.writeAndFlush(bytes).whenComplete { [weak self] _ in
            self?.assumeIsolated {
                $0.unread -= counted
                $0.unreadDurable -= bytes.readableBytes - counted
                $0.closeWhenDone()
            }
        }
    }

    func deliver(_ event: SessionEvent) {
        guard watches.contains(event.watch) else { return }
        notify(OutgoingLine.notification(event), of: event.watch.rawValue, sequence: event.sequence)
    }

    func deliver(_ message: ReceivedMessage) {
        guard subscriptions[message.subscription] != nil else { return }
        notify(OutgoingLine.notification(message), of: message.subscription.rawValue)
    }

    /// A message of a durable consumer is never dropped: how many there are is bounded by what is acknowledged.
    func deliverDurably(_ message: ReceivedMessage) {
        guard subscriptions[message.subscription] != nil, let line = OutgoingLine.notification(message) else { return }
        let feed = message.subscription.rawValue
        if held[feed] != nil { held[feed]?.lines.append(line) } else { writeDurably(line) }
    }

    /// The durable consumer of a subscription is another program's now, or gone.
    func takenOver(_ id: SubscriptionID) {
        guard let subscription = subscriptions.removeValue(forKey: id) else { return }
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

    /// Gives up what is kept of a watch or subscription that is none.
    func forget(_ feed: String) {
        held[feed] = nil
        dropped[feed] = nil
    }

    /// Writes a notification, unless the peer is too slow: then it is dropped and counted.
    private func notify(_ line: [UInt8]?, of feed: String, sequence: Int64 = 0) {
        guard let line else { return }
        if dropped[feed] == nil, let held = held[feed], held.bytes + line.count <= Self.maximumHeld {
            self.held[feed]?.lines.append(line)
            self.held[feed]?.bytes += line.count
        } else if dropped[feed] == nil, held[feed] == nil, channel.isWritable {
            write(line)
        } else {
            dropped[feed, default: Dropped()].count += 1
            dropped[feed]?.sequence = sequence
        }
    }

    /// Once the peer has read enough, it is told how much it missed, and gets what comes from now on.
    func tellDropped() {
        for (feed, dropped) in dropped where channel.isWritable && held[feed] == nil {
            self.dropped[feed] = nil
            let isMessage = subscriptions[SubscriptionID(rawValue: feed)] != nil
            var event = SessionEvent(
                watch: WatchID(rawValue: feed), sequence: dropped.sequence, time: .now, session: nil,
                event: isMessage ? .messageDropped : .dropped)
            event.count = dropped.count
            OutgoingLine.notification(event).map(write)
        }
    }

    // MARK: The end

    /// Tells the peer why it is not served, and closes.
    func refuse(_ error: RPCError) {
        isRefused = true
        write(OutgoingLine.failure(.null, error))
        close()
    }

    func close() {
        flush()
        channel.close(promise: nil)
    }

    func closed() {
        let (registry, watches, subscriptions) = (registry, watches, subscriptions)
        isClosed = true
        self.watches = []
        self.subscriptions = [:]
        held = [:]
        dropped = [:]
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
