import MQTT
import NIOCore

/// An MQTT session that outlives its connections, on one event loop: the pure machine, and its driver.
final class Session: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private var machine: MQTTClientMachine
    private var store = MemoryStore()
    private var inputs: [MQTTClientMachine.Input] = []
    private var isCarryingOut = false
    private var context: ChannelHandlerContext?
    private var nextPing: Scheduled<Void>?
    private let happened: (MQTTClientMachine.Event, Session) -> Void

    init(clientID: String, happened: @escaping (MQTTClientMachine.Event, Session) -> Void) {
        var configuration = MQTTClientMachine.Configuration(clientID: clientID)
        configuration.keepAlive = 10
        machine = MQTTClientMachine(configuration: configuration)
        self.happened = happened
    }

    /// Whether nothing waits for an answer.
    var isIdle: Bool { machine.counts.total == 0 }

    /// The time for the age and the expiry of messages. Nothing here outlives the process, so any clock will do.
    private var now: Timestamp { Timestamp(rawValue: Int64(NIODeadline.now().uptimeNanoseconds / 1_000_000)) }

    func channelActive(context: ChannelHandlerContext) {
        self.context = context
        handle(.connectionOpened(MQTTCredentials(), forceCleanStart: false))
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        handle(.received(unwrapInboundIn(data)))
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.context = nil
        nextPing?.cancel()
        handle(.connectionClosed)
    }

    func handle(_ input: MQTTClientMachine.Input) {
        inputs.append(input)
        if !isCarryingOut { carryOut([]) }
    }

    func publish(_ message: OutboundMessage) throws {
        var actions: [MQTTClientMachine.Action] = []
        _ = try machine.publish(message, at: now, into: &actions)
        carryOut(actions)
    }

    func subscribe(_ subscription: Subscription) throws {
        var actions: [MQTTClientMachine.Action] = []
        try machine.subscribe(subscription, at: now, into: &actions)
        carryOut(actions)
    }

    /// Carries out everything that an input led to before the machine is given the next input.
    private func carryOut(_ actions: [MQTTClientMachine.Action]) {
        isCarryingOut = true
        var actions = actions
        while true {
            for action in actions { carryOut(action) }
            guard !inputs.isEmpty else { break }
            actions = []
            machine.handle(inputs.removeFirst(), at: now, into: &actions)
        }
        isCarryingOut = false
    }

    private func carryOut(_ action: MQTTClientMachine.Action) {
        switch action {
        case .commit(let changes, let number):
            store.commit(changes)
            inputs.append(.committed(number))
        case .load(let after, let messages, let bytes):
            inputs.append(.loaded(store.load(after: after, messages: messages, bytes: bytes)))
        case .send(let bytes, let flush): send(bytes, flush)
        case .close: context?.close(promise: nil)
        case .event(let event):
            if case .connected(let connected) = event { ping(every: connected.keepAlive) }
            happened(event, self)
        }
    }

    private func send(_ bytes: ByteBuffer, _ flush: FlushNumber?) {
        let written = context?.writeAndFlush(wrapOutboundOut(bytes))
        if let flush { written?.assumeIsolated().whenSuccess { self.handle(.flushed(flush)) } }
    }

    /// Pings after every half of the keep-alive: the server may close the connection when it has heard nothing for one
    /// and a half times the keep-alive.
    private func ping(every seconds: UInt16) {
        guard seconds > 0, let loop = context?.eventLoop.assumeIsolated() else { return }
        nextPing = loop.scheduleTask(in: .milliseconds(Int64(seconds) * 500)) {
            self.handle(.ping)
            self.ping(every: seconds)
        }
    }
}
