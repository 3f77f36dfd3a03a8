import Configuration
import MQTT
import NIOCore
import Session
import SessionCore
import Transport

// What keeps the session up, and the host's sleep; and the knocks at endpoints that the session does not use.

extension SessionDriver {
    // MARK: Uses

    /// Whether anything depends on the uses: of a session that is always up, only when it goes back to its first endpoint.
    var notesUses: Bool { configuration.onDemand || configuration.endpoints.count > 1 }

    /// Tells the machine what uses the session began and ended since it was told last.
    func noteUses() {
        guard notesUses else { return }
        for use in session.changedUses { tellSessionLater(use) }
    }

    /// Looks at the uses, where nothing else is to be done.
    func usesChanged() { run([]) }

    // MARK: Sleep

    /// The host is about to sleep; returns when the session is down, if it goes down at all.
    func hostWillSleep() async {
        take(.hostWillSleep)
        await untilDown()
    }

    /// Returns when the session is not on its way down any more.
    func untilDown() async {
        await withCheckedContinuation { continuation in
            if session.machine.status.state == .disconnecting {
                _ = programs.leaving.add { continuation.resume() }
            } else {
                continuation.resume()
            }
        }
    }

    /// The host is awake.
    ///
    /// - Parameter slept: for how long it was not; zero when it did not come to that.
    func hostWoke(slept: Duration) {
        guard !isStopping else { return }
        take(.hostWoke(slept: slept))
        rearm()
    }

    /// The host's clock was set.
    func clockStepped() {
        if !isStopping { checkCredentialEnd() }
    }

    // MARK: Knocks

    /// How long a knock waits for its answer: until TCP would ask a second time.
    private static let knockTimeout: Duration = .seconds(1)

    func knock(at endpoint: EndpointIndex) {
        let (number, replaced) = session.knocks.begin(at: endpoint)
        connections.letGo(of: replaced, .abort)
        // A proxy answers for itself. Whether there is anything to return to shows only behind it.
        guard configuration.proxy.address != nil, session.machine.status.state == .connected else {
            openKnock(at: endpoint)
            return
        }
        guard let reference = configuration.proxy.password else {
            openKnock(at: endpoint, behindProxy: true)
            return
        }
        fetch(reference, for: .knock(endpoint, number))
    }

    func knockPrepared(_ endpoint: EndpointIndex, _ number: Knocks.Number, proxyPassword: [UInt8]) {
        guard session.knocks.isLast(number), session.machine.wantsKnock(at: endpoint) else { return }
        openKnock(at: endpoint, behindProxy: true, proxyPassword: proxyPassword)
    }

    private func openKnock(
        at endpoint: EndpointIndex, behindProxy: Bool = false, proxyPassword: [UInt8]? = nil
    ) {
        let address = session.servers.next(endpoint)
        var options = Connection.Options(configuration, for: address, proxyPassword: proxyPassword)
        options.stop = behindProxy ? .server : .firstHop
        if !behindProxy { options.dialTimeout = min(options.dialTimeout, Self.knockTimeout) }
        options.handshakeTimeout = configuration.timeouts.dial
        session.knocks.dialed(dial(address, options, as: .knock(endpoint)), at: endpoint, isBehindProxy: behindProxy)
    }

    func knockAnswered(_ endpoint: EndpointIndex, _ id: DialID) {
        if session.knocks.answered(endpoint, on: id) { take(.knocked(endpoint, .answered)) }
    }

    func knockClosed(_ endpoint: EndpointIndex, _ id: DialID, _ end: ConnectionEnd) {
        if session.knocks.closed(endpoint, on: id) { take(.knocked(endpoint, KnockAnswer(end))) }
    }

    /// The connection that the attempt goes on with; all others are of no use any more.
    func takeKnock(for attempt: Attempt) -> DialID? {
        switch session.knocks.take(for: attempt, needsLogin: configuration.proxy.username != nil) {
        case .none: return nil
        case .with(let connection): return connection
        case .without(let connection):
            connections.letGo(of: connection, .abort)
            return nil
        }
    }

    /// - Returns: `false` if there is no connection to go on with.
    func goOnWithKnock(_ role: DialRole) -> Bool {
        guard case .attempt(let attempt) = role, let id = link?.knock else { return false }
        link?.knock = nil
        // It may be over by now: the credential took its time, and the server has closed it.
        guard let connection = connections[id], connection.proceed(onEvent: events(of: id)) else {
            connections.letGo(of: id)
            return false
        }
        connections.change(id, to: role)
        link?.connection = id
        progressed(attempt.generation, .dialing)
        return true
    }

    func dropUnwantedKnocks() {
        for connection in session.dropUnwantedKnocks() { connections.letGo(of: connection, .abort) }
    }
}

extension KnockAnswer {
    /// Of an endpoint that was not reached.
    init(_ end: ConnectionEnd) {
        if case .failed(let failure) = end, failure.code == .refused {
            self = .refused
        } else {
            self = .silent
        }
    }
}
