import Glibc
import NIOCore
import SessionCore
import Support
import Vocabulary

@testable import Agent
@testable import Transport

// The network between hosts and servers: TCP as both ends see it, and its faults.

extension Scenario {
    func put(_ item: Wire.Item, on id: Int, toServer: Bool) {
        guard let wire = wires[id] else { return }
        guard toServer else {
            wires[id]?.toHost.append(item)
            return arriveLater(on: id, .toHost)
        }
        var leavesAt = max(wire.leavesAt ?? now, now)
        for part in parts(of: item, atRate: uplinks[wire.host]?.rate) {
            if let rate = uplinks[wire.host]?.rate { leavesAt = leavesAt.advanced(by: .seconds(part.size) / rate) }
            wires[id]?.toServer.append(part)
            arriveLater(on: id, .toServer, after: .nanoseconds(now.duration(to: leavesAt).nanoseconds))
        }
        wires[id]?.leavesAt = leavesAt
    }

    /// What a slow uplink brings in a quarter of a second arrives together.
    private func parts(of item: Wire.Item, atRate rate: Int?) -> [Wire.Item] {
        guard let rate, case .bytes(var bytes) = item, bytes.readableBytes > 0 else { return [item] }
        var parts: [Wire.Item] = []
        while let part = bytes.readSlice(length: min(bytes.readableBytes, max(1, rate / 4))), part.readableBytes > 0 {
            parts.append(.bytes(part))
        }
        return parts
    }

    /// Makes a host's uplink as fast as this. If it is no longer slow, everything that waits leaves at once.
    func slowDown(_ host: Host, to rate: Int?) {
        uplinks[host.name]?.rate = rate
        guard rate == nil else { return }
        for id in wires.keys.sorted() where wires[id]?.host == host.name && wires[id]?.leavesAt ?? now > now {
            wires[id]?.leavesAt = nil
            for _ in wires[id]?.toServer ?? [] { arriveLater(on: id, .toServer) }
        }
    }

    func arriveLater(on id: Int, _ direction: Direction, after delay: TimeAmount = .zero) {
        var latency = wires[id].flatMap { $0.latency ?? uplinks[$0.host]?.latency } ?? Self.latency
        if id % 2 == 1, let host = wires[id]?.host, uplinks[host]?.reorders == true { latency = latency + Self.detour }
        _ = loop.scheduleTask(in: delay + latency) { [weak self] in
            self?.assumeIsolated { $0.arrive(on: id, direction) }
        }
    }

    /// Delivers the first item that is on its way.
    func arrive(on id: Int, _ direction: Direction) {
        guard var wire = wires[id], let uplink = uplinks[wire.host] else { return }
        guard uplink.carries(direction), !wire.isStranded else {
            wires[id]?.swallowed.append(direction)
            return
        }
        guard let first = direction == .toServer ? wire.toServer.first : wire.toHost.first else { return }
        if direction == .toServer { wire.toServer.removeFirst() } else { wire.toHost.removeFirst() }
        var item = first
        var breaks = false
        if direction == .toHost { wire.isCut = false }
        if case .bytes(var bytes) = item {
            let limit = min(uplink.piece ?? .max, uplink.resetAfter[direction] ?? .max)
            breaks = uplink.resetAfter[direction].map { $0 <= bytes.readableBytes } ?? false
            if !wire.isKnock, let left = uplink.resetAfter[direction] {
                uplinks[wire.host]?.resetAfter[direction] = breaks ? nil : left - min(limit, bytes.readableBytes)
            }
            if limit < bytes.readableBytes, let head = bytes.readSlice(length: limit) {
                item = .bytes(head)
                if direction == .toServer {
                    wire.toServer.insert(.bytes(bytes), at: 0)
                } else {
                    wire.toHost.insert(.bytes(bytes), at: 0)
                    wire.isCut = true
                }
                arriveLater(on: id, direction)
            }
        }
        if direction == .toServer {
            wire.acknowledgedBytes += item.size
            wire.acknowledgedAt = now
        }
        wires[id] = wire
        switch direction {
        case .toServer: arriveAtServer(item, on: id, wire)
        case .toHost: arriveAtHost(item, on: id, wire)
        }
        if breaks { reset(id) }
    }

    func arriveAtServer(_ item: Wire.Item, on id: Int, _ wire: Wire) {
        guard let connection = wire.broker, servers[wire.server]?.isUp == true else {
            // The server does not know the connection any more.
            put(.close, on: id, toServer: false)
            return
        }
        guard servers[wire.server]?.isHung == false else {
            servers[wire.server]?.unread.append((item, id))
            return
        }
        switch item {
        case .bytes(let bytes):
            digest.mix(1, bytes, at: now)
            with(wire.server) { broker, now in broker.received(bytes, from: connection, at: now) }
        case .close:
            wires[id]?.broker = nil
            with(wire.server) { broker, now in broker.closed(connection, at: now) }
            if wires[id]?.isOpenAtHost == false { wires[id] = nil } else { put(.close, on: id, toServer: false) }
        }
    }

    func arriveAtHost(_ item: Wire.Item, on id: Int, _ wire: Wire) {
        guard wire.isOpenAtHost else { return }
        if wire.isDripping, case .bytes = item { return }
        guard wire.isReading else {
            wires[id]?.unread.append(item)
            return
        }
        switch item {
        case .bytes(let bytes):
            guard bytes.readableBytes > 0 else { return }
            digest.mix(2, bytes, at: now)
            wires[id]?.heardAt = now
            wire.onEvent(.received(bytes))
            onArrival(wire.host, id, bytes)
        case .close:
            wires[id]?.isOpenAtHost = false
            if wires[id]?.broker == nil { wires[id] = nil }
            wire.onEvent(.closed(.closedByPeer))
        }
    }

    /// - Parameter tellingServer: whether the server is told; otherwise it finds out by its Keep Alive, or never.
    func forget(_ id: Int, tellingServer: Bool) {
        guard let wire = wires[id] else { return }
        wires[id]?.isOpenAtHost = false
        if uplinks[wire.host]?.abortLoses == true { wires[id]?.toServer = [] }
        if tellingServer, wire.broker != nil, uplinks[wire.host]?.works == true, !wire.isStranded {
            put(.close, on: id, toServer: true)
        } else {
            wires[id] = nil
        }
    }

    // MARK: What a daemon does with the network

    func dial(
        _ endpoint: Endpoint, from host: String, in life: Int, _ options: Connection.Options,
        onEvent: @escaping (ConnectionEvent) -> Void
    ) -> Int {
        lastWire += 1
        let id = lastWire
        let timeout = options.dialTimeout
        if options.stop != nil {
            knocks[host, default: []].append(now)
        } else {
            dials[host, default: []].append(now)
        }
        guard let server = ServerName.allCases.first(where: { $0.address == endpoint.host }) else {
            preconditionFailure("a scenario's endpoints are its servers")
        }
        wires[id] = Wire(
            host: host, life: life, server: server, isKnock: options.stop != nil,
            isAnsweredByProxy: options.stop == .firstHop && options.proxy != nil, path: uplinks[host]?.path,
            onEvent: onEvent)
        digest.mix(3, UInt64(id), at: now)
        onDial(host, options.stop != nil)
        tell(.dialing, on: id, after: .zero)
        guard let uplink = uplinks[host], uplink.path != nil else {
            fail(id, .unreachable, "no route to host", systemError: ENETUNREACH, after: .zero)
            return id
        }
        if let fault = uplink.dialFault {
            uplinks[host]?.dialFault = nil
            guard let code = fault.code else { return id }
            let isSlow = fault == .dialTimeout || fault == .tlsTimeout
            fail(id, code, "\(fault)", after: isSlow ? .nanoseconds(timeout.nanoseconds) : uplink.latency * 2)
            return id
        }
        guard uplink.works, uplink.dialing != .hangs else {
            fail(id, .dialTimeout, "no answer", after: .nanoseconds(timeout.nanoseconds))
            return id
        }
        let isAnswered = servers[server]?.isUp == true || wires[id]?.isAnsweredByProxy == true
        guard isAnswered, uplink.dialing == .works else {
            fail(id, .refused, "connection refused", after: uplink.latency * 2)
            return id
        }
        _ = loop.scheduleTask(in: uplink.latency * 2) { [weak self] in self?.assumeIsolated { $0.opened(id) } }
        return id
    }

    func opened(_ id: Int) {
        guard let wire = wires[id], wire.isOpenAtHost else { return }
        guard servers[wire.server]?.isUp == true || wire.isKnock && wire.isAnsweredByProxy else {
            fail(id, .refused, "connection refused", after: .zero)
            return
        }
        guard let peer = try? SocketAddress(ipAddress: wire.server.address, port: 1883) else {
            preconditionFailure("this is an address")
        }
        guard !wire.isKnock else {
            wire.onEvent(.reached(peer))
            return
        }
        wires[id]?.broker = with(wire.server) { broker, now in broker.opened(at: now) }
        wires[id]?.heardAt = now
        guard
            let local = try? SocketAddress(ipAddress: uplinks[wire.host]?.path?.source ?? "127.0.0.1", port: 40_000)
        else { preconditionFailure("these are addresses") }
        wire.onEvent(.opened(Opened(peer: peer, local: local, tlsVersion: nil)))
    }

    /// Turns the connection of a knock into that of an attempt.
    func proceed(_ id: Int, onEvent: @escaping (ConnectionEvent) -> Void) -> Bool {
        guard let wire = wires[id], wire.isKnock, wire.isOpenAtHost else { return false }
        dials[wire.host, default: []].append(now)
        onDial(wire.host, false)
        wires[id]?.isKnock = false
        wires[id]?.onEvent = onEvent
        loop.execute { [weak self] in self?.assumeIsolated { $0.opened(id) } }
        return true
    }

    func tell(_ event: ConnectionEvent, on id: Int, after delay: TimeAmount) {
        _ = loop.scheduleTask(in: delay) { [weak self] in
            self?.assumeIsolated { scenario in
                guard let wire = scenario.wires[id], wire.isOpenAtHost else { return }
                wire.onEvent(event)
            }
        }
    }

    func fail(
        _ id: Int, _ code: Reason.Code, _ message: String, systemError: Int32? = nil, after delay: TimeAmount
    ) {
        _ = loop.scheduleTask(in: delay) { [weak self] in
            self?.assumeIsolated { scenario in
                guard let wire = scenario.wires.removeValue(forKey: id), wire.isOpenAtHost else { return }
                wire.onEvent(.closed(.failed(TransportFailure(code, message, systemError: systemError))))
            }
        }
    }

    func send(_ bytes: ByteBuffer, on id: Int) {
        guard wires[id]?.isOpenAtHost == true else { return }
        put(.bytes(bytes), on: id, toServer: true)
    }

    /// Makes the host read its connection, or makes the server wait.
    func read(_ id: Int, _ isReading: Bool) {
        wires[id]?.isReading = isReading
        guard isReading, let unread = wires[id]?.unread, !unread.isEmpty else { return }
        wires[id]?.unread = []
        loop.execute { [weak self] in
            self?.assumeIsolated { scenario in
                for item in unread { if let wire = scenario.wires[id] { scenario.arriveAtHost(item, on: id, wire) } }
            }
        }
    }

    /// Whether the host reads what its servers send.
    func isReading(_ host: String) -> Bool {
        !wires.values.contains { $0.host == host && $0.isOpenAtHost && !$0.isReading }
    }

    /// Sends bytes to a host as if a server had sent them.
    func inject(_ bytes: ByteBuffer, to host: String) {
        guard let id = wires.first(where: { $0.value.host == host && !$0.value.isKnock && $0.value.isOpenAtHost })?.key
        else { return }
        put(.bytes(bytes), on: id, toServer: false)
    }

    /// Makes a host's connections bring nothing from now on but a packet that is never finished, one byte a second. A
    /// connection that has brought half of a packet is left alone.
    func drip(_ host: Host) {
        for id in wires.keys.sorted() {
            guard let wire = wires[id], wire.host == host.name, wire.isOpenAtHost, !wire.isKnock, !wire.isDripping,
                !wire.isCut, wire.unread.isEmpty
            else {
                continue
            }
            wires[id]?.isDripping = true
            // PUBLISH, with a Remaining Length of 16 KiB.
            for (second, byte) in ([0x30, 0xFF, 0x7F] as [UInt8]).enumerated() { drip(byte, on: id, in: second + 1) }
        }
    }

    private func drip(_ byte: UInt8, on id: Int, in seconds: Int) {
        _ = loop.scheduleTask(in: .seconds(Int64(seconds))) { [weak self] in
            self?.assumeIsolated { scenario in
                guard let wire = scenario.wires[id], wire.isOpenAtHost, wire.isReading else { return }
                // Only the first bytes differ; the content goes on forever.
                if byte == 0x7F || byte == 0x20 { scenario.drip(0x20, on: id, in: 1) }
                wire.onEvent(.received(ByteBuffer(bytes: [byte])))
            }
        }
    }

    func close(_ id: Int, _ mode: Closing) {
        guard wires[id]?.isOpenAtHost == true else { return }
        forget(id, tellingServer: true)
        guard mode == .afterFlush, let onEvent = wires[id]?.onEvent else { return }
        loop.execute(boxed { onEvent(.closed(.closedLocally)) })
    }

    /// Everything is on one loop, so what is not Sendable never leaves it.
    func boxed(_ action: @escaping () -> Void) -> @Sendable () -> Void {
        nonisolated(unsafe) let action = action
        return { action() }
    }

    /// Drops a host's connections: the kernel closes them if the daemon was killed, and nothing does if the power was
    /// lost.
    func dropConnections(of host: String, tellingServers: Bool) {
        for (id, wire) in wires.sorted(by: { $0.key < $1.key }) where wire.host == host {
            forget(id, tellingServer: tellingServers)
        }
    }

    // MARK: What can be looked at

    /// What the host's kernel has measured on a connection.
    func measure(_ id: Int) -> TCPMeasurement? {
        guard let wire = wires[id], let uplink = uplinks[wire.host], uplink.isMeasured else { return nil }
        let roundTrip = Duration.nanoseconds((wire.latency ?? uplink.latency).nanoseconds * 2)
        var measurement = TCPMeasurement(roundTrip: roundTrip, variation: roundTrip / 8)
        if wire.isStranded || !uplink.carries(.toServer) {
            measurement.unacknowledged = wire.toServer.count
            measurement.retries = 1
        }
        if isSending(wire) { measurement.unacknowledged = max(1, measurement.unacknowledged) }
        // Every segment of the server acknowledges.
        let last = [wire.heardAt, wire.acknowledgedAt].compactMap(\.self).max()
        measurement.sinceAcknowledgement = last?.duration(to: now)
        measurement.acknowledgedBytes = wire.acknowledgedBytes
        measurement.pendingBytes = wire.toServer.reduce(0) { $0 + $1.size }
        return measurement
    }

    /// Whether a part of what the host has sent is still in its send buffer.
    private func isSending(_ wire: Wire) -> Bool { wire.leavesAt.map { $0 > now } ?? false }

    /// Whether the host's last connection cannot have been answered yet only because its uplink is slow: the server
    /// reads and answers, a part of what the host has sent has just arrived, and the rest is on its way.
    ///
    /// - Parameter isAboutMessages: whether the answer may be one that the server withholds from some packets.
    func isOnlySlow(_ host: Host, isAboutMessages: Bool) -> Bool {
        let id = wires.filter { $0.value.host == host.name && !$0.value.isKnock }.keys.max()
        guard let id, let wire = wires[id], let uplink = uplinks[host.name], let server = servers[wire.server],
            let connection = wire.broker, let acknowledgedAt = wire.acknowledgedAt
        else { return false }
        let isAnswering =
            server.isUp && !server.isHung && server.broker.answersPings(on: connection) && wire.isReading
            && (!isAboutMessages || server.broker.answersMessages) && !wire.isDripping && wire.unread.isEmpty
        let isFast = (wire.latency ?? uplink.latency) <= .milliseconds(50) && !uplink.reorders
        return uplink.isMeasured && uplink.works && isFast && isAnswering && !wire.isStranded
            && isSending(wire) && acknowledgedAt.duration(to: now) < .seconds(2)
    }

    /// When anything was last heard on a connection, or acknowledged by the server's kernel if the host measures that: an
    /// answer cannot come before the question has arrived. `nil` if it is not open, or was never up.
    func heard(on id: Int) -> Instant? {
        guard let wire = wires[id], wire.isOpenAtHost, !wire.isKnock, let heardAt = wire.heardAt else { return nil }
        guard uplinks[wire.host]?.isMeasured == true, let acknowledgedAt = wire.acknowledgedAt else { return heardAt }
        return max(heardAt, acknowledgedAt)
    }

    /// Whether a host has any connection to a server, even if it only knocks.
    func hasConnection(_ host: String) -> Bool { wires.values.contains { $0.host == host && $0.isOpenAtHost } }
}
