import ControlAPI
import MQTT
import NIOCore
import Session
import SessionCore
import Transport

/// A connection that `check.run` tries step by step, timing each one. A value without I/O: the driver moves the bytes.
///
///     dns ─▶ route ─▶ tcp ─▶ (proxy ─▶) (tls ─▶) (websocket ─▶) connect
struct EndpointCheck: Sendable {
    /// What the driver does next.
    enum Action: Hashable, Sendable {
        case proceed
        case send(ByteBuffer)
        /// The check is over.
        case finish
    }

    let endpoint: Endpoint
    private(set) var steps: [CheckedStep] = []

    private let last: CheckStep
    private let hasProxy: Bool
    /// Whether only some networks may be used.
    private let isBound: Bool
    /// `nil` if the login cannot be tried.
    private let greeting: Connect?
    private let version: ProtocolVersion
    private let remedies: Remedies
    private var decoder: PacketDecoder
    /// The step under way, and since when.
    private var step = CheckStep.dns
    private var since: Instant
    private(set) var isOver = false

    /// - Parameters:
    ///   - last: the last step to take.
    ///   - greeting: what the session would send, under another client identifier.
    init(
        endpoint: Endpoint, until last: CheckStep, hasProxy: Bool, isBound: Bool, greeting: Connect?,
        version: ProtocolVersion, maximumPacketSize: Int, remedies: Remedies, at now: Instant
    ) {
        self.endpoint = endpoint
        self.last = last
        self.hasProxy = hasProxy
        self.isBound = isBound
        self.greeting = greeting
        self.version = version
        self.remedies = remedies
        decoder = PacketDecoder(version: version, maximumPacketSize: maximumPacketSize)
        since = now
    }

    // MARK: What happens

    /// - Parameters:
    ///   - interface: the interface through which the first hop may be dialed; `nil` without such an interface.
    ///   - hasDetour: whether the kernel may find one all the same when it is tried.
    mutating func resolved(
        _ addresses: [SocketAddress], via interface: String?, hasDetour: Bool = false, at now: Instant
    ) -> Action? {
        let list = addresses.compactMap(\.ipAddress)
        guard pass(list.joined(separator: ", "), next: .route, at: now) else { return .finish }
        guard let interface else {
            if hasDetour {
                let detail = "via an interface without a carrier; the kernel may take another one"
                return pass(detail, next: .tcp, at: now) ? nil : .finish
            }
            let names = list.joined(separator: ", ")
            return fail(
                isBound
                    ? Reason(.networkNotAllowed, "no network that may be used leads to \(names)")
                    : Reason(.noPath, "there is no route to \(names)"), at: now)
        }
        return pass("via \(interface)", next: .tcp, at: now) ? nil : .finish
    }

    mutating func take(_ event: ConnectionEvent, at now: Instant) -> Action? {
        guard !isOver else { return nil }
        switch event {
        case .resolving, .resolved, .dialing, .addressesAvoided:
            return nil
        case .tlsFilesRejected(let failure):
            return fail(Reason(failure), at: now)
        case .reached(let address):
            // After a failed handshake with one address, TCP connects to the next one.
            guard step == .tcp else { return .proceed }
            guard pass(address.hostAndPort, next: stepAfterTCP, at: now) else { return .finish }
            return .proceed
        case .securing:
            if step == .proxy { _ = pass(endpoint.authority, next: .tls, at: now) }
            return isOver ? .finish : nil
        case .upgrading(let tlsVersion):
            if step != .webSocket { _ = pass(lower(tlsVersion), next: .webSocket, at: now) }
            return isOver ? .finish : nil
        case .opened(let opened):
            return self.opened(opened, at: now)
        case .received(let bytes):
            return received(bytes, at: now)
        case .closed(let end):
            var reason = Reason(end)
            // TCP may also be reset before the handshake has begun.
            if step == .tls, reason.code == .reset { reason.detail = .endedInHandshake }
            return fail(reason, at: now)
        }
    }

    /// The server has not answered CONNECT in time.
    mutating func timedOut(at now: Instant) -> Action? {
        isOver ? nil : fail(Reason(.authenticateTimeout), at: now)
    }

    /// Advice when the server ends the connection before it has said anything.
    private func hint(for reason: Reason) -> String? {
        guard step == .connect, !endpoint.scheme.isSecure, reason.code == .serverClosed || reason.code == .reset,
            reason.serverCode == nil
        else { return nil }
        return
            "check the endpoint's port and scheme: a server that expects TLS, mqtts:// or wss://, ends such a connection"
    }

    /// What the layer below MQTT, or below the WebSocket, is known by once it is set up.
    private func lower(_ tlsVersion: String?) -> String? { step == .proxy ? endpoint.authority : tlsVersion }

    private var stepAfterTCP: CheckStep {
        if hasProxy { return .proxy }
        return endpoint.scheme.isSecure ? .tls : endpoint.scheme.isWebSocket ? .webSocket : .connect
    }

    private mutating func opened(_ opened: Opened, at now: Instant) -> Action? {
        if step != .connect {
            let detail = step == .webSocket ? nil : lower(opened.tlsVersion)
            guard pass(detail, next: .connect, at: now) else { return .finish }
        }
        guard let greeting else {
            // Nothing failed, but nothing about the login is claimed either.
            isOver = true
            return .finish
        }
        return .send(Packet.connect(greeting).encoded(as: version))
    }

    private mutating func received(_ bytes: ByteBuffer, at now: Instant) -> Action? {
        if decoder.bufferedBytes == 0, let other = ForeignProtocol(beginning: bytes.readableBytesView) {
            return fail(Reason(other, at: steps.last { $0.step == .tcp }?.detail), at: now)
        }
        decoder.append(bytes)
        do throws(MalformedPacket) {
            guard let packet = try decoder.next() else { return nil }
            guard case .connack(let connack) = packet else {
                return fail(Reason(.wrongProtocol, "the server sent \(packet.kind) before CONNACK"), at: now)
            }
            guard !connack.reasonCode.isError else {
                let reason = Reason(
                    MQTTClientMachine.ServerReason(
                        code: connack.reasonCode, reasonString: connack.properties.reasonString,
                        serverReference: connack.properties.serverReference))
                return fail(reason, at: now)
            }
            _ = pass("MQTT \(version)", next: .connect, at: now)
            isOver = true
            return .finish
        } catch {
            return fail(Reason(.wrongProtocol, "what the server sends is not MQTT: \(error.message)"), at: now)
        }
    }

    // MARK: Steps

    /// - Returns: whether there is another step.
    private mutating func pass(_ detail: String?, next: CheckStep, at now: Instant) -> Bool {
        steps.append(CheckedStep(step: step, ok: true, duration: elapsed(at: now), detail: detail))
        // Not every endpoint has every step.
        isOver = step == last || next.isLater(than: last)
        since = now
        step = next
        return !isOver
    }

    private mutating func fail(_ reason: Reason, at now: Instant) -> Action {
        // Our own files are read while TCP is connected, and are none of its business.
        if reason.detail == .ownFilesUnusable { step = .tls }
        steps.append(
            CheckedStep(
                step: step, ok: false, duration: elapsed(at: now), detail: reason.message, code: reason.code.rawValue,
                hint: hint(for: reason) ?? remedies.hint(for: reason)))
        isOver = true
        return .finish
    }

    private func elapsed(at now: Instant) -> Double { max(0, since.duration(to: now).seconds) }

    /// What to send last, if the server accepted the login.
    var farewell: ByteBuffer? {
        guard let last = steps.last, last.step == .connect, last.ok else { return nil }
        return Packet.disconnect(Disconnect(reasonCode: .normalDisconnection)).encoded(as: version)
    }
}

extension CheckStep {
    fileprivate func isLater(than other: CheckStep) -> Bool {
        Self.allCases.drop { $0 != other }.dropFirst().contains(self)
    }
}
