import Glibc
import MQTT
import NIOCore
import SessionCore
import Support
import Testing

@testable import Agent
@testable import Transport

/// Hosts with a daemon each, servers, and the network between them, all in virtual time.
///
///     host "A" ── session ──┐                      ┌── server "one" (192.0.2.1)
///     host "B" ── session ──┼── 5 ms each way ─────┤
///      …                    ┘                      └── server "two" (192.0.2.2)
///
/// The daemons are the real ones, from the configuration file to the disk: the same registry, drivers and machines. What
/// is a model is the server, the network and the clock. Everything runs on one virtual loop, this actor and the body of
/// the test as well, so that between two `await`s of a test nothing happens.
actor Scenario {
    nonisolated let loop: VirtualLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    /// One way.
    static let latency = TimeAmount.milliseconds(5)

    /// One TCP connection, as its two ends see it.
    private struct Wire {
        enum Item {
            case bytes(ByteBuffer)
            case close
        }

        let host: String
        let server: ServerName
        var broker: ModelBroker.ConnectionID?
        var isOpenAtHost = true
        /// What is on its way, each direction in order.
        var toServer: [Item] = []
        var toHost: [Item] = []
        /// How many arrivals the network swallowed: TCP sends again when it works.
        var swallowed: [Bool] = []
        /// A look: the connection stops where the server has answered.
        var isKnock = false
        /// One way, of the path that the connection was made on.
        var latency = Scenario.latency
        /// The network does not take its packets any more.
        var isStranded = false
        var onEvent: (ConnectionEvent) -> Void
    }

    /// Where a host's network is.
    struct Uplink {
        var path: Path?
        /// The path looks fine, and nothing gets through.
        var isSilent = false
        /// What becomes of new connections.
        var dialing = Dialing.works
        var latency = Scenario.latency

        enum Dialing {
            case works, hangs, refused
        }

        var works: Bool { path != nil && !isSilent }
    }

    enum ServerName: String, CaseIterable {
        case one, two

        var address: String { self == .one ? "192.0.2.1" : "192.0.2.2" }
        var endpoint: String { "mqtt://\(address):1883" }
    }

    struct Server {
        var broker = ModelBroker()
        var isUp = true
    }

    private(set) var servers: [ServerName: Server] = [.one: Server(), .two: Server()]
    private var uplinks: [String: Uplink] = [:]
    private var wires: [Int: Wire] = [:]
    private var lastWire = 0
    private var brokerTimers: [ServerName: Scheduled<Void>] = [:]
    /// When each host began an attempt's connection.
    private(set) var dials: [String: [Instant]] = [:]
    /// When each host looked whether a server answers.
    private(set) var knocks: [String: [Instant]] = [:]
    private var hosts: [Host] = []
    /// The paths that the daemons of these hosts believe in still.
    private var unnoticed: [String: Path] = [:]

    private init(loop: VirtualLoop) {
        self.loop = loop
    }

    /// Runs a story from its beginning to its end.
    static func run(_ body: @Sendable (isolated Scenario) async throws -> Void) async throws {
        let loop = VirtualLoop()
        defer { loop.stop() }
        let scenario = Scenario(loop: loop)
        try await withTaskExecutorPreference(loop) {
            try await scenario.perform(body)
        }
    }

    private func perform(_ body: @Sendable (isolated Scenario) async throws -> Void) async throws {
        let result: Result<Void, any Error>
        do {
            try await body(self)
            // The beginning, and nothing else: otherwise the run would depend on the machine's mood.
            #expect(loop.jobsFromOutside == 1)
            result = .success(())
        } catch {
            result = .failure(error)
        }
        for host in hosts { await host.end() }
        try result.get()
    }

    // MARK: Time

    nonisolated var now: Instant { Instant(nanoseconds: Int64(loop.now.uptimeNanoseconds)) }
    /// The model servers' clock.
    private var milliseconds: ModelBroker.Time { now.nanoseconds / 1_000_000 }

    func sleep(_ duration: Duration) async {
        await loop.sleep(until: loop.now + .nanoseconds(duration.nanoseconds))
    }

    // MARK: Hosts

    /// A host with a daemon that has the session `main`; more of the session's file in `extra`.
    func host(_ name: String, _ extra: String = "", endpoints: [ServerName] = [.one], user: String? = nil) async throws
        -> Host
    {
        let list = endpoints.map { "\"\($0.endpoint)\"" }.joined(separator: ", ")
        return try await host(
            name, sessions: ["main": "endpoints = [\(list)]\nuser = \"\(user ?? name.lowercased())\"\n\(extra)\n"])
    }

    /// A host whose sessions have these files.
    func host(_ name: String, sessions: [String: String]) async throws -> Host {
        uplinks[name] = Uplink(path: Self.path())
        let host = try Host(name, in: self)
        hosts.append(host)
        for (session, text) in sessions { try await host.write(session, text) }
        try await host.start()
        return host
    }

    static func path(interface: String = "wlan0", source: String = "198.51.100.7") -> Path {
        Path(
            interface: interface, interfaceIndex: interface == "wlan0" ? 3 : 2,
            type: interface == "wlan0" ? .wifi : .ethernet, source: source, gateway: "198.51.100.1", table: 254)
    }

    func path(of host: String) -> Path? { uplinks[host]?.path }

    // MARK: What happens to the network

    /// The kernel says that there is no path any more.
    func cut(_ host: Host) async {
        let old = uplinks[host.name]?.path
        uplinks[host.name]?.path = nil
        await host.pathChanged(.lost, from: old, to: nil)
    }

    /// The kernel says that there is a path again.
    func mend(_ host: Host) async {
        uplinks[host.name]?.path = Self.path()
        uplinks[host.name]?.dialing = .works
        sendAgain(of: host.name)
        await host.pathChanged(.gained, from: nil, to: Self.path())
    }

    /// From one network to another; the old address is gone, and with it all connections.
    func move(_ host: Host) async {
        let old = uplinks[host.name]?.path
        let new = Self.path(interface: old?.interface == "wlan0" ? "eth0" : "wlan0", source: "203.0.113.40")
        uplinks[host.name]?.path = new
        for (id, wire) in wires where wire.host == host.name { forget(id, tellingServer: false) }
        await host.pathChanged(.movedSourceGone, from: old, to: new)
    }

    /// The default route moves to another uplink, and the address that was used before stays.
    ///
    /// - Parameters:
    ///   - strands: the network there takes nothing from the old address, so what is connected is dead.
    ///   - dialing: what becomes of connections over the new path.
    func shift(
        _ host: Host, to interface: String? = nil, strands: Bool = false, _ dialing: Uplink.Dialing = .works,
        latency: TimeAmount = Scenario.latency
    ) async {
        let old = uplinks[host.name]?.path
        let interface = interface ?? (old?.interface == "wlan0" ? "eth0" : "wlan0")
        let sources = ["wlan0": "198.51.100.7", "eth0": "203.0.113.40", "wwan0": "192.0.2.99"]
        let new = Self.path(interface: interface, source: sources[interface] ?? "")
        uplinks[host.name]?.path = new
        uplinks[host.name]?.dialing = dialing
        uplinks[host.name]?.latency = latency
        for (id, wire) in wires where wire.host == host.name { wires[id]?.isStranded = strands }
        await host.pathChanged(.movedSourceKept, from: old, to: new)
    }

    /// The host's oldest connection is reset, by whatever is between it and the server.
    func reset(_ host: Host) {
        let open = wires.filter { $0.value.host == host.name && $0.value.isOpenAtHost && $0.value.broker != nil }
        guard let (id, wire) = open.min(by: { $0.key < $1.key }) else { return }
        put(.close, on: id, toServer: true)
        wires[id]?.isOpenAtHost = false
        wire.onEvent(.closed(.failed(TransportFailure(.reset, "reset"))))
    }

    /// From one network to another, and the daemon has not been told yet: the kernel's message is still to be read.
    func moveUnnoticed(_ host: Host) {
        let old = uplinks[host.name]?.path
        let new = Self.path(interface: old?.interface == "wlan0" ? "eth0" : "wlan0", source: "203.0.113.41")
        uplinks[host.name]?.path = new
        unnoticed[host.name] = old
    }

    func tellUnnoticed(_ host: String) {
        guard let old = unnoticed.removeValue(forKey: host), let told = hosts.first(where: { $0.name == host }) else {
            return
        }
        let new = uplinks[host]?.path
        told.assumeIsolated { $0.pathChanged(.movedSourceKept, from: old, to: new) }
    }

    /// Nothing gets through, and the kernel does not know.
    func silence(_ host: Host) {
        uplinks[host.name]?.isSilent = true
    }

    func unsilence(_ host: Host) {
        uplinks[host.name]?.isSilent = false
        uplinks[host.name]?.dialing = .works
        sendAgain(of: host.name)
    }

    private func sendAgain(of host: String) {
        for id in wires.keys.sorted() where wires[id]?.host == host {
            let swallowed = wires[id]?.swallowed ?? []
            wires[id]?.swallowed = []
            for isToServer in swallowed { arriveLater(on: id, toServer: isToServer) }
        }
    }

    // MARK: What happens to a server

    func with<Result: Sendable>(
        _ server: ServerName = .one, _ change: (inout ModelBroker, ModelBroker.Time) throws -> Result
    ) rethrows -> Result {
        var broker = servers[server]?.broker ?? ModelBroker()
        defer {
            servers[server]?.broker = broker
            carryOut(server)
        }
        return try change(&broker, milliseconds)
    }

    func broker(_ server: ServerName = .one) -> ModelBroker { servers[server]?.broker ?? ModelBroker() }

    /// Killed: its connections break, and nobody listens.
    func stop(_ server: ServerName = .one, keepingState: Bool = true) {
        servers[server]?.isUp = false
        servers[server]?.broker.crash(keepingState: keepingState, at: milliseconds)
        brokerTimers.removeValue(forKey: server)?.cancel()
        for id in wires.keys.sorted() where wires[id]?.server == server {
            wires[id]?.broker = nil
            put(.close, on: id, toServer: false)
        }
    }

    func start(_ server: ServerName = .one) {
        servers[server]?.isUp = true
        carryOut(server)
    }

    private func carryOut(_ server: ServerName) {
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
        guard servers[server]?.isUp == true, let deadline = servers[server]?.broker.nextDeadline else { return }
        let wait = max(0, deadline - milliseconds)
        brokerTimers[server] = loop.scheduleTask(in: .milliseconds(wait)) { [weak self] in
            self?.assumeIsolated { scenario in
                scenario.with(server) { broker, now in broker.timeReached(at: now) }
            }
        }
    }

    private func wire(of connection: ModelBroker.ConnectionID, at server: ServerName) -> Int? {
        wires.first { $0.value.server == server && $0.value.broker == connection }?.key
    }

    // MARK: The network

    private func put(_ item: Wire.Item, on id: Int, toServer: Bool) {
        if toServer { wires[id]?.toServer.append(item) } else { wires[id]?.toHost.append(item) }
        arriveLater(on: id, toServer: toServer)
    }

    private func arriveLater(on id: Int, toServer: Bool) {
        _ = loop.scheduleTask(in: wires[id]?.latency ?? Self.latency) { [weak self] in
            self?.assumeIsolated { $0.arrive(on: id, toServer: toServer) }
        }
    }

    /// The first of what is on its way.
    private func arrive(on id: Int, toServer: Bool) {
        guard let wire = wires[id] else { return }
        guard uplinks[wire.host]?.works == true, !wire.isStranded else {
            wires[id]?.swallowed.append(toServer)
            return
        }
        if toServer {
            guard let item = wire.toServer.first else { return }
            wires[id]?.toServer.removeFirst()
            arriveAtServer(item, on: id, wire)
        } else {
            guard let item = wire.toHost.first else { return }
            wires[id]?.toHost.removeFirst()
            arriveAtHost(item, on: id, wire)
        }
    }

    private func arriveAtServer(_ item: Wire.Item, on id: Int, _ wire: Wire) {
        guard let connection = wire.broker, servers[wire.server]?.isUp == true else {
            // Nobody knows the connection any more.
            put(.close, on: id, toServer: false)
            return
        }
        switch item {
        case .bytes(let bytes):
            with(wire.server) { broker, now in broker.received(bytes, from: connection, at: now) }
        case .close:
            wires[id]?.broker = nil
            with(wire.server) { broker, now in broker.closed(connection, at: now) }
            if wires[id]?.isOpenAtHost == false { wires[id] = nil } else { put(.close, on: id, toServer: false) }
        }
    }

    private func arriveAtHost(_ item: Wire.Item, on id: Int, _ wire: Wire) {
        guard wire.isOpenAtHost else { return }
        switch item {
        case .bytes(let bytes):
            wire.onEvent(.received(bytes))
        case .close:
            wires[id]?.isOpenAtHost = false
            if wires[id]?.broker == nil { wires[id] = nil }
            wire.onEvent(.closed(.closedByPeer))
        }
    }

    /// - Parameter tellingServer: otherwise the server finds out by its Keep Alive, or never.
    private func forget(_ id: Int, tellingServer: Bool) {
        guard let wire = wires[id] else { return }
        wires[id]?.isOpenAtHost = false
        if tellingServer, wire.broker != nil, uplinks[wire.host]?.works == true, !wire.isStranded {
            put(.close, on: id, toServer: true)
        } else {
            wires[id] = nil
        }
    }

    // MARK: What a daemon does with the network

    func dial(
        _ endpoint: Endpoint, from host: String, _ options: Connection.Options,
        onEvent: @escaping (ConnectionEvent) -> Void
    ) -> Int {
        lastWire += 1
        let id = lastWire
        let timeout = options.dialTimeout
        if options.stopsWhenReached {
            knocks[host, default: []].append(now)
        } else {
            dials[host, default: []].append(now)
        }
        guard let server = ServerName.allCases.first(where: { $0.address == endpoint.host }) else {
            preconditionFailure("a scenario's endpoints are its servers")
        }
        wires[id] = Wire(host: host, server: server, isKnock: options.stopsWhenReached, onEvent: onEvent)
        tell(.dialing, on: id, after: .zero)
        guard let uplink = uplinks[host], uplink.path != nil else {
            fail(id, .unreachable, "no route to host", after: .zero)
            return id
        }
        wires[id]?.latency = uplink.latency
        guard uplink.works, uplink.dialing != .hangs else {
            fail(id, .dialTimeout, "no answer", after: .nanoseconds(timeout.nanoseconds))
            return id
        }
        guard servers[server]?.isUp == true, uplink.dialing == .works else {
            fail(id, .refused, "connection refused", after: Self.latency * 2)
            return id
        }
        _ = loop.scheduleTask(in: uplink.latency * 2) { [weak self] in self?.assumeIsolated { $0.opened(id) } }
        return id
    }

    private func opened(_ id: Int) {
        guard let wire = wires[id], wire.isOpenAtHost else { return }
        guard let peer = try? SocketAddress(ipAddress: wire.server.address, port: 1883) else {
            preconditionFailure("this is an address")
        }
        guard !wire.isKnock else {
            wire.onEvent(.reached(peer))
            return
        }
        wires[id]?.broker = with(wire.server) { broker, now in broker.opened(at: now) }
        guard
            let local = try? SocketAddress(ipAddress: uplinks[wire.host]?.path?.source ?? "127.0.0.1", port: 40_000)
        else { preconditionFailure("these are addresses") }
        wire.onEvent(.opened(Opened(peer: peer, local: local, tlsVersion: nil)))
    }

    /// An attempt goes on with the connection of a look.
    func proceed(_ id: Int, onEvent: @escaping (ConnectionEvent) -> Void) -> Bool {
        guard let wire = wires[id], wire.isKnock, wire.isOpenAtHost else { return false }
        dials[wire.host, default: []].append(now)
        wires[id]?.isKnock = false
        wires[id]?.onEvent = onEvent
        loop.execute { [weak self] in self?.assumeIsolated { $0.opened(id) } }
        return true
    }

    private func tell(_ event: ConnectionEvent, on id: Int, after delay: TimeAmount) {
        _ = loop.scheduleTask(in: delay) { [weak self] in
            self?.assumeIsolated { scenario in
                guard let wire = scenario.wires[id], wire.isOpenAtHost else { return }
                wire.onEvent(event)
            }
        }
    }

    private func fail(_ id: Int, _ code: TransportFailure.Code, _ message: String, after delay: TimeAmount) {
        _ = loop.scheduleTask(in: delay) { [weak self] in
            self?.assumeIsolated { scenario in
                guard let wire = scenario.wires.removeValue(forKey: id), wire.isOpenAtHost else { return }
                wire.onEvent(.closed(.failed(TransportFailure(code, message))))
            }
        }
    }

    func send(_ bytes: ByteBuffer, on id: Int) {
        guard wires[id]?.isOpenAtHost == true else { return }
        put(.bytes(bytes), on: id, toServer: true)
    }

    func close(_ id: Int, _ mode: Connection.CloseMode) {
        guard wires[id]?.isOpenAtHost == true else { return }
        forget(id, tellingServer: true)
        guard mode == .afterFlush, let onEvent = wires[id]?.onEvent else { return }
        loop.execute(boxed { onEvent(.closed(.closedLocally)) })
    }

    /// Everything is on one loop: what is not Sendable never leaves it.
    private func boxed(_ action: @escaping () -> Void) -> @Sendable () -> Void {
        nonisolated(unsafe) let action = action
        return { action() }
    }

    /// The host lost its power, or the daemon was killed: the kernel closes its connections, or nobody does.
    func dropConnections(of host: String, tellingServers: Bool) {
        for (id, wire) in wires.sorted(by: { $0.key < $1.key }) where wire.host == host {
            forget(id, tellingServer: tellingServers)
        }
    }
}
