import ControlAPI
import Logging
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

    nonisolated let channel: any Channel
    nonisolated var unownedExecutor: UnownedSerialExecutor { channel.eventLoop.executor.asUnownedSerialExecutor() }

    let peer: Peer?
    /// What the peer may do, settled when it connected.
    let roles: Set<Role>
    let daemon: Daemon
    let logger: Logger
    var watches: Set<WatchID> = []
    var subscriptions: [SubscriptionID: SessionName] = [:]
    private var lines = LineSplitter(maximumLength: RequestLine.maximumLineLength)
    private var calls = 0
    private var isReadingPaused = false
    private var isRefused = false
    /// The peer sends no more, as `nc -N` at the end of its input; it still wants its answers.
    private var isInputClosed = false
    private var unread = 0
    /// Notifications of watches and subscriptions whose answer is not written yet: the peer must know them first.
    private var held: [String: [Notification]] = [:]
    /// How many notifications were dropped, by watch or subscription, since the peer was last told.
    private var dropped: [String: Int] = [:]

    private enum Notification {
        case event(SessionEvent)
        case message(ReceivedMessage)
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

    private func run(_ bytes: [UInt8]) {
        switch RequestLine(parsing: bytes) {
        case .single(let call):
            begin(1)
            Task {
                if let answer = await answer(call) { write(answer) }
                releaseAll()
                ended(1)
            }
        case .batch(let batch):
            begin(batch.count)
            Task {
                var answers: [[UInt8]] = []
                for call in batch {
                    if let answer = await answer(call) { answers.append(answer) }
                }
                // A batch of notifications has no answer at all (JSON-RPC 2.0, section 6).
                if !answers.isEmpty { write(OutgoingLine.batch(answers)) }
                releaseAll()
                ended(batch.count)
            }
        }
    }

    private func begin(_ count: Int) {
        calls += count
    }

    private func ended(_ count: Int) {
        calls -= count
        readLines()
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
        guard isInputClosed, calls == 0, unread == 0, watches.isEmpty, subscriptions.isEmpty else { return }
        channel.close(promise: nil)
    }

    // MARK: Writing

    private func write(_ line: [UInt8]) {
        guard channel.isActive else { return }
        unread += line.count
        guard unread <= Self.maximumUnread else {
            channel.close(promise: nil)
            return
        }
        let count = line.count
        let written = channel.writeAndFlush(ByteBuffer(bytes: line))
        written.whenComplete { [weak self] _ in
            self?.assumeIsolated {
                $0.unread -= count
                $0.closeWhenDone()
            }
        }
    }

    func deliver(_ event: SessionEvent) {
        guard watches.contains(event.watch) else { return }
        notify(.event(event), of: event.watch.rawValue)
    }

    func deliver(_ message: ReceivedMessage) {
        guard subscriptions[message.subscription] != nil else { return }
        notify(.message(message), of: message.subscription.rawValue)
    }

    /// Keeps back what comes for a watch or subscription until its answer is written.
    func hold(_ id: String) {
        held[id] = []
    }

    /// Gives up what was held back.
    func release(_ id: String) {
        held[id] = nil
    }

    private func releaseAll() {
        let held = held
        self.held = [:]
        for (id, notifications) in held {
            for notification in notifications { notify(notification, of: id) }
        }
    }

    /// Writes a notification, unless the peer is too slow: then it is dropped and counted.
    private func notify(_ notification: Notification, of id: String) {
        if held[id] != nil, held[id, default: []].count < EventLog.capacity {
            held[id, default: []].append(notification)
        } else if channel.isWritable, dropped[id] == nil, let line = line(of: notification) {
            write(line)
        } else {
            dropped[id, default: 0] += 1
        }
    }

    private func line(of notification: Notification) -> [UInt8]? {
        switch notification {
        case .event(let event): OutgoingLine.notification(event)
        case .message(let message): OutgoingLine.notification(message)
        }
    }

    /// The peer has read enough: it is told how much it missed, and gets what comes from now on.
    func writabilityChanged() {
        guard channel.isWritable, !dropped.isEmpty else { return }
        let dropped = dropped
        self.dropped = [:]
        for (id, count) in dropped {
            let isMessage = subscriptions[SubscriptionID(rawValue: id)] != nil
            var event = SessionEvent(
                watch: WatchID(rawValue: id), sequence: 0, time: .now, session: nil,
                event: isMessage ? .messageDropped : .dropped)
            event.count = count
            if let line = OutgoingLine.notification(event) { write(line) }
        }
    }

    // MARK: The end

    /// Tells the peer why it is not served, and closes.
    func refuse(_ error: RPCError) {
        isRefused = true
        write(OutgoingLine.failure(.null, error))
        channel.close(promise: nil)
    }

    func close() {
        channel.close(promise: nil)
    }

    func closed() {
        let (registry, watches, subscriptions) = (registry, watches, subscriptions)
        self.watches = []
        self.subscriptions = [:]
        registry.assumeIsolated { registry in
            for watch in watches { registry.removeWatch(watch) }
            for (subscription, session) in subscriptions { registry.unsubscribe(subscription, from: session) }
        }
    }
}
