import Glibc
import MQTT
import NIOCore
import SessionCore
import Support

@testable import Agent
@testable import Transport

/// Hosts with a daemon each, servers, and the network between them, all in virtual time.
///
///     host "A" ── session ──┐                      ┌── server "one" (192.0.2.1)
///     host "B" ── session ──┼── 5 ms each way ─────┤
///      …                    ┘                      └── server "two" (192.0.2.2)
///
/// The daemons are the real ones, from the configuration file to the disk: the same registry, drivers and machines. The
/// servers, the network and the clock are models. Everything runs on one virtual loop, including this actor and the
/// body of the test, so nothing happens between two `await`s of a test.
actor Scenario {
    nonisolated let loop: VirtualLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    /// The latency in one direction.
    static let latency = TimeAmount.milliseconds(5)

    /// By how much every other connection is slower if a network reorders.
    static let detour = TimeAmount.milliseconds(130)

    /// One TCP connection, as its two ends see it.
    struct Wire {
        enum Item {
            case bytes(ByteBuffer)
            case close

            var size: Int { if case .bytes(let bytes) = self { bytes.readableBytes } else { 0 } }
        }

        let host: String
        /// Which of the host's daemons dialed.
        let life: Int
        let server: ServerName
        var broker: ModelBroker.ConnectionID?
        var isOpenAtHost = true
        /// What is on its way, in order for each direction.
        var toServer: [Item] = []
        var toHost: [Item] = []
        /// Whether the first item on its way to the host is the rest of one that has arrived in part.
        var isCut = false
        /// How many bytes have arrived at the server's host.
        var acknowledgedBytes = 0
        /// When any last did.
        var acknowledgedAt: Instant?
        /// When the last byte that the host has sent leaves its send buffer.
        var leavesAt: Instant?
        /// When anything last arrived at the host.
        var heardAt: Instant?
        /// The arrivals that the network swallowed: TCP sends again when it works.
        var swallowed: [Direction] = []
        /// A knock: the connection stops where the server has answered.
        var isKnock = false
        /// Whether the proxy answers the knock, wherever the server is.
        var isAnsweredByProxy = false
        /// The latency in one direction, if the host has left the path that the connection was made on.
        var latency: TimeAmount?
        /// The path that it was made on; `nil` if the host had none.
        var path: Path?
        /// Whether the host reads; what it does not read waits in `unread`.
        var isReading = true
        var unread: [Item] = []
        /// Whether the server sends nothing more but a packet that is never finished, byte by byte.
        var isDripping = false
        /// Whether the network no longer accepts its packets.
        var isStranded = false
        var onEvent: (ConnectionEvent) -> Void
    }

    enum Direction: CaseIterable {
        case toServer, toHost
    }

    /// Where a host's network is, and what is wrong with it.
    struct Uplink {
        var path: Path?
        /// Earlier paths whose addresses the host still has, the oldest first.
        var left: [Path] = []
        /// The directions in which nothing gets through although the path looks fine.
        var swallows: Set<Direction> = []
        /// The latency in one direction.
        var latency = Scenario.latency
        /// Whether the host's kernel measures its connections.
        var isMeasured = false
        /// The most bytes that TCP delivers at once.
        var piece: Int?
        /// How many bytes a connection brings to the server in a second; the rest waits in the host's send buffer. `nil`
        /// if that takes no time.
        var rate: Int?
        /// After how many bytes the connection that carries them is reset.
        var resetAfter: [Direction: Int] = [:]
        /// What happens to the next dial.
        var dialFault: DialFault?
        /// What happens to all dials.
        var dialing = Dialing.works
        /// Whether what was sent before an abort is lost with the connection.
        var abortLoses = false
        /// Whether events of a connection may be known later than those of a younger one.
        var reorders = false

        var works: Bool { path != nil && swallows.isEmpty }
        func carries(_ direction: Direction) -> Bool { path != nil && !swallows.contains(direction) }
    }

    enum Dialing {
        case works, hangs, refused
    }

    enum DialFault: Int, CaseIterable {
        case dnsFailed, unreachable, refused, reset, dialTimeout, tlsTimeout, tlsFailed
        /// Nothing is ever heard of the dial.
        case none
        case certificateExpired, certificateInvalid, proxyFailed, webSocketFailed, ioError
        /// The endpoint is one that the transport cannot dial.
        case unsupported

        var code: Reason.Code? {
            switch self {
            case .dnsFailed: .dnsFailed
            case .unreachable, .ioError: .unreachable
            case .refused: .refused
            case .reset: .reset
            case .dialTimeout: .dialTimeout
            case .tlsTimeout: .tlsTimeout
            case .tlsFailed, .certificateExpired: .tlsFailed
            case .none: nil
            case .certificateInvalid: .certificateInvalid
            case .proxyFailed: .proxyFailed
            case .webSocketFailed: .webSocketFailed
            case .unsupported: .badEndpoint
            }
        }
    }

    enum ServerName: String, CaseIterable {
        case one, two

        var address: String { self == .one ? "192.0.2.1" : "192.0.2.2" }
        var endpoint: String { "mqtt://\(address):1883" }
    }

    struct Server {
        var broker = ModelBroker()
        var isUp = true
        /// Whether it takes bytes and does nothing with them, until `goOn`.
        var isHung = false
        var unread: [(item: Wire.Item, wire: Int)] = []
    }

    var servers: [ServerName: Server] = [.one: Server(), .two: Server()]
    var uplinks: [String: Uplink] = [:]
    var wires: [Int: Wire] = [:]
    var lastWire = 0
    var brokerTimers: [ServerName: Scheduled<Void>] = [:]
    /// When each host dialed for an attempt.
    var dials: [String: [Instant]] = [:]
    /// When each host knocked.
    var knocks: [String: [Instant]] = [:]
    var hosts: [Host] = []
    /// Called with what a server did and heard.
    var onFact: (ServerName, ModelBroker.Fact) -> Void = { _, _ in }
    /// Whether hosts are not told, until this is over, that what they sent was flushed.
    var holdsFlushes = false {
        didSet {
            guard !holdsFlushes else { return }
            for callback in heldFlushes { loop.execute(callback) }
            heldFlushes = []
        }
    }
    var heldFlushes: [@Sendable () -> Void] = []
    /// Called with a host, its connection, and bytes that have arrived, once their immediate effects are done.
    var onArrival: (String, Int, ByteBuffer) -> Void = { _, _, _ in }
    /// Called with the name of a host that dials, and whether it only knocks.
    var onDial: (String, Bool) -> Void = { _, _ in }
    /// Everything that happened, in one number.
    var digest = Digest()

    private init(loop: VirtualLoop) {
        self.loop = loop
    }

    /// Each scenario has its own thread, which never waits.
    private static let capacity = Capacity(Capacity.processors)

    /// Runs a scenario from beginning to end, as soon as there is a processor for it.
    static func run<Value: Sendable>(
        _ body: @Sendable (isolated Scenario) async throws -> Value
    ) async throws -> Value {
        try await capacity.withShare {
            let loop = VirtualLoop()
            defer { loop.stop() }
            let scenario = Scenario(loop: loop)
            return try await withTaskExecutorPreference(loop) {
                try await scenario.perform(body)
            }
        }
    }

    private func perform<Value: Sendable>(
        _ body: @Sendable (isolated Scenario) async throws -> Value
    ) async throws -> Value {
        let result: Result<Value, any Error>
        do {
            let value = try await body(self)
            // Only the start may come from outside; otherwise the run would depend on how busy the machine is.
            guard loop.jobsFromOutside == 1 else {
                throw Host.Failure(description: "\(loop.jobsFromOutside - 1) jobs came from other threads")
            }
            result = .success(value)
        } catch {
            result = .failure(error)
        }
        for host in hosts { await host.end() }
        // These refer to the scenario, and would keep it forever.
        hosts = []
        wires = [:]
        (onFact, onDial, onArrival) = ({ _, _ in }, { _, _ in }, { _, _, _ in })
        return try result.get()
    }

    // MARK: Time

    nonisolated var now: Instant { Instant(nanoseconds: Int64(loop.now.uptimeNanoseconds)) }
    /// The model servers' clock.
    private var milliseconds: ModelBroker.Time { now.nanoseconds / 1_000_000 }

    func sleep(_ duration: Duration) async {
        await loop.sleep(until: loop.now + .nanoseconds(duration.nanoseconds))
    }

    // MARK: Hosts

    /// Adds a host with a daemon that has the session `main`; `extra` is appended to the session's file.
    func host(_ name: String, _ extra: String = "", endpoints: [ServerName] = [.one], user: String? = nil) async throws
        -> Host
    {
        let list = endpoints.map { "\"\($0.endpoint)\"" }.joined(separator: ", ")
        return try await host(
            name, sessions: ["main": "endpoints = [\(list)]\nuser = \"\(user ?? name.lowercased())\"\n\(extra)\n"])
    }

    /// Adds a host whose sessions have these files.
    func host(_ name: String, sessions: [String: String]) async throws -> Host {
        let host = try addHost(name)
        for (session, text) in sessions { try await host.write(session, text) }
        try await host.start()
        return host
    }

    /// Adds a host whose daemon is not started yet.
    func addHost(_ name: String, modelsDisk: Bool = false) throws -> Host {
        uplinks[name] = Uplink(path: Self.path())
        let host = try Host(name, in: self, modelsDisk: modelsDisk)
        hosts.append(host)
        return host
    }

    static func path(interface: String = "wlan0", source: String = "198.51.100.7") -> Path {
        Path(
            interface: interface, interfaceIndex: interface == "wlan0" ? 3 : 2,
            type: interface == "wlan0" ? .wifi : .ethernet, source: source, gateway: "198.51.100.1", table: 254)
    }

    func path(of host: String) -> Path? { uplinks[host]?.path }

    // MARK: What happens to the network; to paths: see Scenario+Paths.swift

    /// Lets nothing through, without the kernel's knowing.
    func silence(_ host: Host, _ directions: Set<Direction> = Set(Direction.allCases)) {
        uplinks[host.name]?.swallows.formUnion(directions)
    }

    func unsilence(_ host: Host) {
        uplinks[host.name]?.swallows = []
        uplinks[host.name]?.dialing = .works
        sendAgain(of: host.name)
    }

    func withUplink(_ host: Host, _ change: (inout Uplink) -> Void) {
        guard var uplink = uplinks[host.name] else { return }
        change(&uplink)
        uplinks[host.name] = uplink
    }

    func uplink(_ host: Host) -> Uplink { uplinks[host.name] ?? Uplink() }

    /// Breaks the present connections of a host; both sides are told.
    func reset(_ host: Host) {
        for id in wires.keys.sorted() where wires[id]?.host == host.name { reset(id) }
    }

    /// Resets the host's oldest connection, as something between it and the server does.
    func resetOldest(_ host: Host) {
        let open = wires.filter { $0.value.host == host.name && $0.value.isOpenAtHost && $0.value.broker != nil }
        guard let (id, wire) = open.min(by: { $0.key < $1.key }) else { return }
        put(.close, on: id, toServer: true)
        wires[id]?.isOpenAtHost = false
        wire.onEvent(.closed(.failed(TransportFailure(.reset, "reset"))))
    }

    func reset(_ id: Int) {
        guard let wire = wires.removeValue(forKey: id) else { return }
        if let connection = wire.broker, servers[wire.server]?.isUp == true {
            with(wire.server) { broker, now in broker.closed(connection, at: now) }
        }
        guard wire.isOpenAtHost else { return }
        wire.onEvent(.closed(.failed(TransportFailure(.reset, "connection reset by peer"))))
    }

    func sendAgain(of host: String) {
        for id in wires.keys.sorted() where wires[id]?.host == host {
            let swallowed = wires[id]?.swallowed ?? []
            wires[id]?.swallowed = []
            for direction in swallowed { arriveLater(on: id, direction) }
        }
    }

    // MARK: What happens to a server

    func with<Result: Sendable>(
        _ server: ServerName = .one, _ change: (inout ModelBroker, ModelBroker.Time) throws -> Result
    ) rethrows -> Result {
        defer { carryOut(server) }
        // In place: a copy would copy everything that the server has ever been sent.
        return try change(&servers[server, default: Server()].broker, milliseconds)
    }

    func broker(_ server: ServerName = .one) -> ModelBroker { servers[server]?.broker ?? ModelBroker() }

    /// Kills a server: its connections break, and nothing listens.
    ///
    /// - Returns: the sessions that it will have in an older state.
    @discardableResult
    func stop(
        _ server: ServerName = .one, remembering memory: ModelBroker.Memory = .everything
    ) -> [ModelBroker.Restored] {
        servers[server]?.isUp = false
        servers[server]?.isHung = false
        servers[server]?.unread = []
        let restored = servers[server]?.broker.crash(remembering: memory, at: milliseconds)
        brokerTimers.removeValue(forKey: server)?.cancel()
        for id in wires.keys.sorted() where wires[id]?.server == server {
            wires[id]?.broker = nil
            put(.close, on: id, toServer: false)
        }
        return restored ?? []
    }

    func start(_ server: ServerName = .one) {
        servers[server]?.isUp = true
        carryOut(server)
    }

    func isUp(_ server: ServerName) -> Bool { servers[server]?.isUp ?? false }

    /// Makes a server do nothing any more; its connections stay open.
    func hang(_ server: ServerName) {
        guard servers[server]?.isUp == true else { return }
        servers[server]?.isHung = true
        brokerTimers.removeValue(forKey: server)?.cancel()
    }

    func resume(_ server: ServerName) {
        guard servers[server]?.isHung == true else { return }
        servers[server]?.isHung = false
        let unread = servers[server]?.unread ?? []
        servers[server]?.unread = []
        for (item, id) in unread {
            guard let wire = wires[id] else { continue }
            arriveAtServer(item, on: id, wire)
        }
        carryOut(server)
    }

    /// Makes all hosts sleep, with nothing running on them; for the servers, time continues.
    func freeze(for amount: TimeAmount) {
        loop.sleepThrough(amount)
        for server in ServerName.allCases { carryOut(server) }
    }

    func carryOut(_ server: ServerName) {
        for fact in servers[server]?.broker.takeFacts() ?? [] { onFact(server, fact) }
        for action in servers[server]?.broker.takeActions() ?? [] {
            switch action {
            case .send(let connection, let bytes):
                if let id = wire(of: connection, at: server) { put(.bytes(bytes), on: id, toServer: false) }
            case .close(let connection):
                guard let id = wire(of: connection, at: server) else { break }
                wires[id]?.broker = nil
                put(.close, on: id, toServer: false)
            }
        }
        brokerTimers.removeValue(forKey: server)?.cancel()
        guard servers[server]?.isUp == true, servers[server]?.isHung == false,
            let deadline = servers[server]?.broker.nextDeadline
        else { return }
        let wait = max(0, deadline - milliseconds)
        brokerTimers[server] = loop.scheduleTask(in: .milliseconds(wait)) { [weak self] in
            self?.assumeIsolated { scenario in
                scenario.with(server) { broker, now in broker.timeReached(at: now) }
            }
        }
    }

    /// Returns the host that the connection belongs to; `nil` if it is not a modelled one, or has given the connection
    /// up.
    func host(of connection: ModelBroker.ConnectionID, at server: ServerName) -> String? {
        guard let id = wire(of: connection, at: server), let wire = wires[id], wire.isOpenAtHost else { return nil }
        return wire.host
    }

    func wire(of connection: ModelBroker.ConnectionID, at server: ServerName) -> Int? {
        wires.first { $0.value.server == server && $0.value.broker == connection }?.key
    }
}
