import Configuration
import ControlAPI
import MQTT
import NIOCore
import Session
import SessionCore
import Transport

// check.run: a connection beside the session's own, which does not affect it.

extension SessionDriver {
    /// Tries the endpoints one by one.
    func check(_ wanted: CheckRunMethod.Parameters) async throws(RPCError) -> CheckRunMethod.Result {
        // Without role control, a check gets no further than TCP, and does not block those that may do more.
        if wanted.role == .control {
            // Each of these checks logs in, and a server may lock a user out who does that too often.
            guard !programs.isChecking else {
                throw .tooManyRequests(
                    "session \(name) is already being checked", hint: "try again when that check has ended")
            }
            programs.isChecking = true
        } else {
            guard programs.checksWithoutLogin < 4 else {
                throw .tooManyRequests(
                    "four checks of session \(name) are already running", hint: "try again when one has ended")
            }
            programs.checksWithoutLogin += 1
        }
        defer { if wanted.role == .control { programs.isChecking = false } else { programs.checksWithoutLogin -= 1 } }
        var remedies = remedies
        remedies.occasion = .check
        // The endpoints are checked, and not where one of them had redirected the session.
        remedies.redirectedTo = nil
        let trial = EndpointTrial(
            session: name, configuration: configuration, clientID: session.clientID, username: session.username,
            token: session.credentials.given?.secret, remedies: remedies, surroundings: surroundings,
            tlsContexts: tlsContexts, protocols: session.servers.protocols)
        return try await trial.run(wanted)
    }
}

/// Tries the endpoints of a configuration: that of a running session, or of a file that is not installed yet.
struct EndpointTrial {
    /// The name under which the network watcher knows the endpoints.
    let session: SessionName
    let configuration: SessionConfiguration
    let clientID: String
    /// What a session would log in as.
    let username: String?
    /// A program's token, used instead of the configured password.
    let token: [UInt8]?
    let remedies: Remedies
    let surroundings: SessionDriver.Surroundings
    let tlsContexts: TLSContextCache
    /// What is known about the versions of MQTT that the servers speak.
    let protocols: ProtocolChoice

    func run(_ wanted: CheckRunMethod.Parameters) async throws(RPCError) -> CheckRunMethod.Result {
        var endpoints = configuration.endpoints
        if let name = wanted.endpoint {
            // The same endpoint may be written in several ways, as without its port.
            let named = try? Endpoint(name)
            endpoints = endpoints.filter { $0 == named }
            guard !endpoints.isEmpty else {
                throw .invalidParameters(
                    "session \(wanted.session) has no endpoint \(name)",
                    hint: "its endpoints are \(configuration.endpoints.map(\.description).joined(separator: ", "))")
            }
        }
        var checked: [CheckedEndpoint] = []
        for endpoint in endpoints { checked.append(await check(endpoint, until: wanted.until)) }
        return CheckRunMethod.Result(session: wanted.session, endpoints: checked)
    }

    private func check(_ endpoint: Endpoint, until last: CheckStep) async -> CheckedEndpoint {
        var steps: [CheckedStep] = []
        var secrets: (own: [UInt8]?, proxy: [UInt8]?) = (token, nil)
        let begin = now
        let needsPassword =
            token == nil && configuration.password != nil && (last == .connect || last == .credential)
        let proxyPassword = [.dns, .route, .tcp].contains(last) ? nil : configuration.proxy.password
        if needsPassword || proxyPassword != nil {
            var isProxys = proxyPassword != nil
            do throws(Credential.Failure) {
                if let reference = proxyPassword {
                    secrets.proxy = try await surroundings.credentials.fetch(reference) { _ in }.secret
                }
                isProxys = false
                if needsPassword, let reference = configuration.password {
                    secrets.own = try await surroundings.credentials.fetch(reference) { _ in }.secret
                }
                steps.append(CheckedStep(step: .credential, ok: true, duration: begin.duration(to: now).seconds))
            } catch {
                let whose = isProxys ? "the password for the proxy" : "the password"
                let reason = Reason(
                    .credentialUnreadable, "\(whose) cannot be read: \(error)", detail: .unreadable(ofProxy: isProxys))
                steps.append(
                    CheckedStep(
                        step: .credential, ok: false, duration: begin.duration(to: now).seconds,
                        detail: reason.message, code: reason.code.rawValue, hint: remedies.hint(for: reason)))
            }
        }
        if steps.allSatisfy(\.ok), last != .credential {
            var protocols = protocols
            let version = protocols.version(at: endpoint)
            let first = await connect(
                to: endpoint, as: version, until: last, secrets.own, proxyPassword: secrets.proxy)
            if let other = protocols.version(after: first.last, with: version, at: endpoint) {
                let second = await connect(
                    to: endpoint, as: other, until: last, secrets.own, proxyPassword: secrets.proxy)
                // That the server does not speak the other version says less than what it said about its own.
                steps += second.isVersionRefused && !first.isVersionRefused ? first : second
            } else {
                steps += first
            }
        }
        return CheckedEndpoint(endpoint: endpoint.description, steps: steps)
    }

    private func connect(
        to endpoint: Endpoint, as version: ProtocolVersion, until last: CheckStep, _ password: [UInt8]?,
        proxyPassword: [UInt8]?
    ) async -> [CheckedStep] {
        var options = Connection.Options(configuration, for: endpoint, proxyPassword: proxyPassword)
        options.stop = .firstHop
        options = surroundings.bound(options, by: configuration.network, of: session)
        // With SCRAM, CONNECT is only the beginning of an exchange.
        let greeting = Connect(
            clientID: Connect.clientID(clientID, to: .check), cleanStart: true,
            username: username,
            password: password.map { ByteBuffer(bytes: $0) })
        let check = EndpointCheck(
            endpoint: endpoint, until: last, hasProxy: options.proxy != nil,
            isBound: configuration.network.isBinding,
            greeting: configuration.mqtt.authentication == .scramSHA256 ? nil : greeting, version: version,
            maximumPacketSize: configuration.mqtt.maximumPacketSize, remedies: remedies, at: now)
        let index = configuration.endpoints.firstIndex(of: endpoint).map { EndpointIndex($0) }
        return await withCheckedContinuation { continuation in
            let run = CheckRun(
                check, of: index, limit: configuration.timeouts.authenticate, surroundings, session
            ) { continuation.resume(returning: $0) }
            run.connection = surroundings.dial(endpoint, options, tlsContexts) { run.take($0) }
        }
    }

    private var now: Instant { surroundings.clock.now() }
}

extension [CheckedStep] {
    fileprivate var isVersionRefused: Bool { last?.code == Reason.Code.unsupportedVersion.rawValue }
}

extension ProtocolChoice {
    /// Returns the version with which a session would try at once after a login that has failed; `nil` if it would not.
    fileprivate mutating func version(
        after step: CheckedStep?, with version: ProtocolVersion, at endpoint: Endpoint
    ) -> ProtocolVersion? {
        guard let step, step.step == .connect, !step.ok else { return nil }
        switch step.code.flatMap(Reason.Code.init) {
        case .unsupportedVersion: return refused(version, at: endpoint)
        case .serverClosed, .reset: return closed(version, at: endpoint)
        default: return nil
        }
    }
}

/// The I/O of a check. It belongs to its session's event loop, and lives as long as its connection.
private final class CheckRun {
    var connection: (any TransportConnection)?
    private var check: EndpointCheck
    private let endpoint: EndpointIndex?
    private let limit: Duration
    private let surroundings: SessionDriver.Surroundings
    private let session: SessionName
    private var finish: (([CheckedStep]) -> Void)?
    private var timer: Scheduled<Void>?

    init(
        _ check: EndpointCheck, of endpoint: EndpointIndex?, limit: Duration,
        _ surroundings: SessionDriver.Surroundings, _ session: SessionName,
        _ finish: @escaping ([CheckedStep]) -> Void
    ) {
        self.check = check
        self.endpoint = endpoint
        self.limit = limit
        self.surroundings = surroundings
        self.session = session
        self.finish = finish
    }

    func take(_ event: ConnectionEvent) {
        let now = surroundings.clock.now()
        if case .resolved(let addresses) = event {
            let way = surroundings.paths.way(to: addresses, of: session)
            let hasDetour = endpoint.map { surroundings.paths.hasDetour($0, of: session) } ?? false
            carryOut(check.resolved(addresses, via: way?.interface, hasDetour: hasDetour, at: now))
        } else {
            carryOut(check.take(event, at: now))
        }
    }

    private func carryOut(_ action: EndpointCheck.Action?) {
        switch action {
        case nil:
            break
        case .proceed?:
            if connection?.proceed(onEvent: { self.take($0) }) == false { take(.closed(.closedByPeer)) }
        case .send(let bytes)?:
            connection?.send(bytes)
            timer = surroundings.eventLoop.assumeIsolated().scheduleTask(in: .nanoseconds(limit.nanoseconds)) {
                self.carryOut(self.check.timedOut(at: self.surroundings.clock.now()))
            }
        case .finish?:
            timer?.cancel()
            if let farewell = check.farewell {
                connection?.send(farewell)
                connection?.close(.afterFlush)
            } else {
                connection?.close(.abort)
            }
            connection = nil
            finish?(check.steps)
            finish = nil
        }
    }
}
