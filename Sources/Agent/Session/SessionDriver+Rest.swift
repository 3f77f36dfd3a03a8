import Configuration
import MQTT
import NIOCore
import Session
import SessionCore
import Transport

// What keeps the session up, and the host's sleep; and the knocks at endpoints that the session does not use.

/// A bare look whether an endpoint answers.
struct Knock {
    let connection: DialID
    /// Whether it asks behind the proxy.
    let isBehindProxy: Bool
    var hasAnswered = false
}

extension SessionDriver {
    // MARK: Uses

    /// Whether anything depends on the uses: of a session that is always up, only when it goes back to its first endpoint.
    var notesUses: Bool { configuration.onDemand || configuration.endpoints.count > 1 }

    /// Tells the machine what uses the session began and ended since it was told last.
    func noteUses() {
        guard notesUses else { return }
        let counts = mqtt.counts
        note(.messages, counts.queued + counts.inFlight > 0 || publications.needsServer)
        note(.subscriptions, !consumers.isEmpty || durableConsumers.isAttached)
    }

    /// Looks at the uses, where nothing else is to be done.
    func usesChanged() { run([]) }

    private func note(_ use: Use, _ isUsed: Bool) {
        guard machine.isUsed(for: use) != isUsed else { return }
        tellSessionLater(isUsed ? .useBegan(use) : .useEnded(use))
    }

    // MARK: Sleep

    /// The host is about to sleep; returns when the session is down, if it goes down at all.
    func hostWillSleep() async {
        take(.hostWillSleep)
        await untilDown()
    }

    /// Returns when the session is not on its way down any more.
    func untilDown() async {
        await withCheckedContinuation { continuation in
            if machine.status.state == .disconnecting {
                stopWaiters.append(continuation)
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
        connections.letGo(of: knocks.removeValue(forKey: endpoint)?.connection, .abort)
        lastKnock += 1
        let number = lastKnock
        // A proxy answers for itself. Whether there is anything to return to shows only behind it.
        guard configuration.proxy.address != nil, machine.status.state == .connected else {
            openKnock(at: endpoint)
            return
        }
        guard let reference = configuration.proxy.password else {
            openKnock(at: endpoint, behindProxy: true)
            return
        }
        fetch(reference, for: .knock(endpoint, number: number))
    }

    func knockPrepared(_ endpoint: EndpointIndex, _ number: Int, proxyPassword: [UInt8]) {
        guard lastKnock == number, machine.wantsKnock(at: endpoint) else { return }
        openKnock(at: endpoint, behindProxy: true, proxyPassword: proxyPassword)
    }

    private func openKnock(
        at endpoint: EndpointIndex, behindProxy: Bool = false, proxyPassword: [UInt8]? = nil
    ) {
        let address = redirections.next(endpoint)
        var options = Connection.Options(configuration, for: address, proxyPassword: proxyPassword)
        options.stop = behindProxy ? .server : .firstHop
        if !behindProxy { options.dialTimeout = min(options.dialTimeout, Self.knockTimeout) }
        options.handshakeTimeout = configuration.timeouts.dial
        knocks[endpoint] = Knock(
            connection: dial(address, options, as: .knock(endpoint)), isBehindProxy: behindProxy)
    }

    func knockAnswered(_ endpoint: EndpointIndex, _ id: DialID) {
        guard knocks[endpoint]?.connection == id else { return }
        knocks[endpoint]?.hasAnswered = true
        take(.knocked(endpoint, .answered))
    }

    func knockClosed(_ endpoint: EndpointIndex, _ id: DialID, _ end: ConnectionEnd) {
        guard let knock = knocks[endpoint], knock.connection == id else { return }
        knocks[endpoint] = nil
        if !knock.hasAnswered { take(.knocked(endpoint, KnockAnswer(end))) }
    }

    /// The connection that the attempt goes on with; all others are of no use any more.
    func takeKnock(for attempt: Attempt) -> DialID? {
        guard attempt.continuesKnock, let knock = knocks[attempt.endpoint], knock.hasAnswered else { return nil }
        knocks[attempt.endpoint] = nil
        // The proxy's password is fetched for each attempt, and a knock at the proxy itself had none.
        guard configuration.proxy.username == nil || knock.isBehindProxy else {
            connections.letGo(of: knock.connection, .abort)
            return nil
        }
        return knock.connection
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
        for (endpoint, knock) in knocks where !machine.wantsKnock(at: endpoint) {
            knocks[endpoint] = nil
            connections.letGo(of: knock.connection, .abort)
        }
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
