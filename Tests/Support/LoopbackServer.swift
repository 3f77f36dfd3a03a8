import Glibc
public import MQTT
public import NIOCore
import NIOPosix

/// A small MQTT 5 and 3.1.1 server on a port of 127.0.0.1, for tests that need real connections and exact control over
/// what the server says. It keeps one session, answers as its behaviour says, and reports everything that it receives.
public actor LoopbackServer {
    /// How the server answers.
    public struct Behaviour: Sendable {
        /// Session Present is filled in.
        public var connack = Connack()
        /// Whether PUBLISH, and PUBREL, are answered.
        public var answersMessages = true
        /// Whether SUBSCRIBE is answered.
        public var answersSubscribe = true
        /// What PUBACK and PUBREC answer to messages of these topics.
        public var refusedTopics: [String: ReasonCode] = [:]
        /// How the connection ends when a message of these topics arrives: with this code, or without a word.
        public var endings: [String: ReasonCode?] = [:]
        /// After a message of one of these topics, or a SUBSCRIBE for one of these filters, nothing on the connection is
        /// answered, and it stays open.
        public var mutes: Set<String> = []
        /// The connection is reset when these bytes arrive, wherever they occur.
        public var poison: ByteBuffer?
        /// What SUBACK answers to these filters; all others are granted what they ask for.
        public var refusedFilters: [String: ReasonCode] = [:]
        /// Everybody's password; clients must then authenticate by SCRAM-SHA-256.
        public var scramPassword: String?
        /// The password from the first login on.
        public var nextSCRAMPassword: String?
        /// Whether the server's own proof is wrong.
        public var spoilsProof = false
        /// Whether AUTH is answered.
        public var answersAuth = true
        /// Sent instead of CONNACK.
        public var greeting: ByteBuffer?
        /// What the server does with versions of MQTT that it does not speak.
        public var refusals: [ProtocolVersion: Refusal] = [:]

        public enum Refusal: Sendable {
            /// CONNACK with return code 1, as the MQTT 3.1.1 standard requires.
            case inWords
            /// The connection is closed.
            case bySilence
        }

        public init() {}
    }

    public enum Event: Sendable {
        case opened
        case packet(Packet)
        case closed
    }

    public nonisolated let eventLoop: any EventLoop
    public nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    /// 0 before the first start; the same afterwards.
    public private(set) var port = 0
    public private(set) var hasSession = false
    public let events: Arrivals<Event>
    /// The version of the present connection, or of the last one.
    public private(set) var version = ProtocolVersion.five
    private var behaviour = Behaviour()
    private var listener: (any Channel)?
    /// Keeps the port from everybody else while the server is stopped.
    private var place: TakenPort?
    private var channel: (any Channel)?
    /// The connection that is not answered any more.
    private var muted: (any Channel)?
    private var lastID: UInt16 = 0
    private var exchange: SCRAMServer?
    /// The CONNECT that is being authenticated.
    private var greeted: Connect?

    public init(eventLoop: any EventLoop) {
        self.eventLoop = eventLoop
        events = Arrivals(eventLoop: eventLoop)
    }

    /// Starts to listen, on the same port as the last time if there was one.
    public func start() async throws {
        let place = try self.place ?? TakenPort()
        self.place = place
        port = place.port
        listener = try await ServerBootstrap(group: eventLoop)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .serverChannelOption(.socketOption(.init(rawValue: SO_REUSEPORT)), value: 1)
            .childChannelOption(.maxMessagesPerRead, value: 1)
            .childChannelInitializer { [weak self] channel in
                channel.eventLoop.makeCompletedFuture {
                    guard let self else { throw ChannelError.ioOnClosedChannel }
                    try channel.pipeline.syncOperations.addHandler(PacketHandler(self))
                }
            }
            .bind(host: "127.0.0.1", port: port)
            .get()
    }

    /// Stops listening and drops the present connection.
    public func stop() async throws {
        try await listener?.close()
        listener = nil
        drop()
    }

    public func set(_ change: @Sendable (inout Behaviour) -> Void) {
        change(&behaviour)
    }

    /// Makes the server have a session before the client connects.
    public func beginSession() {
        hasSession = true
    }

    /// Forgets the session, like a server that has lost its disk.
    public func loseSession() {
        hasSession = false
    }

    /// Closes the connection without a word.
    public func drop() {
        channel?.close(promise: nil)
        channel = nil
    }

    /// Leaves what the client sends in the socket. If the connection is closed after that, it is reset.
    public func stopReading() {
        channel?.setOption(.autoRead, value: false).whenComplete { _ in }
    }

    public func send(_ packet: Packet) {
        send(encoded(packet, in: version))
    }

    public func send(_ bytes: ByteBuffer) {
        channel?.writeAndFlush(bytes, promise: nil)
    }

    /// Ends the connection and says why; with MQTT 3.1.1 a server cannot.
    public func disconnect(_ code: ReasonCode, _ properties: Disconnect.Properties = .init()) {
        if version == .five { send(.disconnect(Disconnect(reasonCode: code, properties: properties))) }
        drop()
    }

    public func publish(_ topic: String, _ payload: String, qos: QoS = .atMostOnce) {
        var publish = Publish(topic: topic, payload: ByteBuffer(string: payload), qos: qos)
        if qos != .atMostOnce {
            lastID += 1
            publish.packetID = PacketID(rawValue: lastID)
        }
        send(.publish(publish))
    }

    /// Waits for the next packet from the client that `match` accepts.
    public nonisolated func packet<Value: Sendable>(
        _ match: @escaping @Sendable (Packet) -> Value?
    ) async throws -> Value {
        try await events.first { event in
            if case .packet(let packet) = event { match(packet) } else { nil }
        }
    }

    public nonisolated func connect() async throws -> Connect {
        try await packet { if case .connect(let connect) = $0 { connect } else { nil } }
    }

    /// Waits for the next message from the client.
    public nonisolated func message() async throws -> Publish {
        try await packet { if case .publish(let publish) = $0 { publish } else { nil } }
    }

    public nonisolated func closed() async throws {
        _ = try await events.first { event -> Bool? in if case .closed = event { true } else { nil } }
    }

    // MARK: The connection

    fileprivate func opened(_ channel: any Channel) {
        self.channel = channel
        note(.opened)
    }

    fileprivate func closed(_ channel: any Channel) {
        if self.channel === channel { self.channel = nil }
        note(.closed)
    }

    /// Whether the bytes contain those that make the server reset the connection.
    fileprivate func isPoisoned(_ bytes: ByteBuffer) -> Bool {
        guard let poison = behaviour.poison else { return false }
        return bytes.readableBytesView.firstRange(of: poison.readableBytesView) != nil
    }

    /// Answers on the connection that the packet came from. What a test sends goes to the latest connection.
    fileprivate func received(_ packet: Packet, _ version: ProtocolVersion, on channel: any Channel) {
        self.version = version
        let present = self.channel
        self.channel = channel
        answer(packet)
        if let present, present !== channel { self.channel = present }
        note(.packet(packet))
    }

    private func note(_ event: Event) {
        events.assumeIsolated { $0.append(event) }
    }

    private func answer(_ packet: Packet) {
        guard muted == nil || muted !== channel else { return }
        if packet.topics.contains(where: behaviour.mutes.contains) {
            muted = channel
            return
        }
        switch packet {
        case .connect(let connect):
            if let greeting = behaviour.greeting { return send(greeting) }
            if let refusal = behaviour.refusals[version] {
                if case .inWords = refusal { send(ByteBuffer(bytes: [0x20, 0x02, 0x00, 0x01])) }
                return drop()
            }
            if behaviour.scramPassword != nil {
                guard connect.properties.authenticationMethod == SCRAMClient.method else {
                    send(.connack(Connack(reasonCode: .badAuthenticationMethod)))
                    return drop()
                }
                greeted = connect
                return challenge(connect.properties.authenticationData)
            }
            accept(connect)
        case .auth(let auth): answer(auth)
        case .publish(let publish):
            if let code = behaviour.endings[publish.topic] {
                if let code { disconnect(code) } else { drop() }
                return
            }
            guard behaviour.answersMessages, let id = publish.packetID else { return }
            let code = behaviour.refusedTopics[publish.topic] ?? .success
            let answer = Acknowledgement(packetID: id, reasonCode: code)
            send(publish.qos == .atLeastOnce ? .puback(answer) : .pubrec(answer))
        case .pubrel(let answer):
            if behaviour.answersMessages { send(.pubcomp(Acknowledgement(packetID: answer.packetID))) }
        case .pubrec(let answer):
            send(.pubrel(Acknowledgement(packetID: answer.packetID)))
        case .subscribe(let subscribe):
            guard behaviour.answersSubscribe else { return }
            let codes = subscribe.subscriptions.map {
                behaviour.refusedFilters[$0.filter] ?? ReasonCode(rawValue: $0.qos.rawValue)
            }
            send(.suback(Suback(packetID: subscribe.packetID, reasonCodes: codes)))
        case .unsubscribe(let unsubscribe):
            send(
                .unsuback(
                    Unsuback(
                        packetID: unsubscribe.packetID,
                        reasonCodes: [ReasonCode](repeating: .success, count: unsubscribe.filters.count))))
        case .pingreq: send(.pingresp)
        case .disconnect: drop()
        default: break
        }
    }
}

extension Packet {
    /// The topic of a message, or the filters of a SUBSCRIBE.
    fileprivate var topics: [String] {
        switch self {
        case .publish(let publish): [publish.topic]
        case .subscribe(let subscribe): subscribe.subscriptions.map(\.filter)
        default: []
        }
    }
}

// MARK: Enhanced authentication

extension LoopbackServer {
    private func accept(_ connect: Connect, proof: String? = nil) {
        var connack = behaviour.connack
        if !connack.reasonCode.isError {
            connack.sessionPresent = hasSession && !connect.cleanStart
            // In MQTT 3.1.1 a clean session ends with its connection.
            hasSession = version == .five || !connect.cleanStart
        }
        if let proof {
            if let next = behaviour.nextSCRAMPassword { behaviour.scramPassword = next }
            connack.properties.authenticationMethod = SCRAMClient.method
            connack.properties.authenticationData = ByteBuffer(string: proof)
        }
        send(.connack(connack))
        if connack.reasonCode.isError { drop() }
    }

    private func challenge(_ data: ByteBuffer?) {
        exchange = SCRAMServer(password: behaviour.scramPassword ?? "")
        let serverFirst = exchange?.greet(data.map { String(buffer: $0) } ?? "") ?? ""
        send(.continueAuthentication, serverFirst)
    }

    private func answer(_ auth: Auth) {
        guard behaviour.answersAuth else { return }
        let data = auth.properties.authenticationData
        guard auth.reasonCode == .continueAuthentication else { return challenge(data) }
        let proof = exchange?.finish(data.map { String(buffer: $0) } ?? "").map {
            behaviour.spoilsProof ? "v=" + $0.dropFirst(6) : $0
        }
        exchange = nil
        let connect = greeted
        greeted = nil
        switch (connect, proof) {
        case (let connect?, let proof?): accept(connect, proof: proof)
        case (_?, nil):
            send(.connack(Connack(reasonCode: .notAuthorized)))
            drop()
        case (nil, let proof?): send(.success, proof)
        case (nil, nil): disconnect(.notAuthorized)
        }
    }

    private func send(_ code: ReasonCode, _ data: String) {
        send(
            .auth(
                Auth(
                    reasonCode: code,
                    properties: Auth.Properties(
                        authenticationMethod: SCRAMClient.method, authenticationData: ByteBuffer(string: data)))))
    }
}

private final class PacketHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private let server: LoopbackServer
    private var decoder = PeerDecoder(adoptsVersion: true)

    init(_ server: LoopbackServer) {
        self.server = server
    }

    func channelActive(context: ChannelHandlerContext) {
        let channel = context.channel
        server.assumeIsolated { $0.opened(channel) }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let bytes = unwrapInboundIn(data)
        guard !server.assumeIsolated({ $0.isPoisoned(bytes) }) else {
            // Unread bytes make the close a reset; with a linger of zero it is one in any case.
            (context.channel as? any SocketOptionProvider)?.setSoLinger(linger(l_onoff: 1, l_linger: 0))
                .whenComplete { _ in }
            return context.close(promise: nil)
        }
        decoder.append(bytes)
        do {
            while let packet = try decoder.next() {
                let (version, channel) = (decoder.version, context.channel)
                server.assumeIsolated { $0.received(packet, version, on: channel) }
            }
        } catch {
            context.close(promise: nil)
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        let channel = context.channel
        server.assumeIsolated { $0.closed(channel) }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }
}
