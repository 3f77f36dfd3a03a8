import MQTT
import NIOCore
import SessionCore

// Dialing for all purposes, and the one place where the events of connections are handled. Also knocks, at endpoints
// that the session does not use.

extension Session {
    /// Begins to connect.
    mutating func dial(_ dialed: DialTarget, as role: DialRole) -> DialID {
        if let knock = dialed.knock { _ = connections.remove(knock) }
        let id = connections.add(as: role)
        act(.dial(id, dialed))
        return id
    }

    mutating func letGo(_ id: DialID?, _ closing: Closing?) {
        if let id, connections.remove(id) { act(.letGo(id, closing)) }
    }

    mutating func take(_ event: DialEvent, of id: DialID) {
        guard let role = connections.role(of: id) else { return }
        switch (event, role) {
        case (.resolved(let resolved), .attempt(let attempt)), (.resolved(let resolved), .look(let attempt?)):
            guard let watch = addresses.dialing(attempt.endpoint, resolved) else { return }
            funnel.work.append(.lookUp(attempt.endpoint, watch))
        case (.reached, .knock(let endpoint)):
            if knocks.answered(endpoint, on: id) { tellMachine(.knocked(endpoint, .answered)) }
        case (.dialing, _):
            if let attempt = role.attempt { tellMachine(.progressed(attempt.generation, .dialing)) }
        case (.securing, _):
            if let attempt = role.attempt { tellMachine(.progressed(attempt.generation, .securing)) }

        case (.opened(let peer), .attempt):
            linkOpened(id, peer)
        case (.opened(let peer), .successor(let attempt)):
            connections.successor?.stage = .open(id, peer)
            tellMachine(.prepared(attempt.generation))
        case (.opened, .look):
            lookOpened()

        case (.received(let bytes), .attempt):
            handle(.received(bytes))
        case (.received, .successor(let attempt)):
            successorFailed(attempt.generation, "the server sent data before CONNECT")
        case (.received(let bytes), .look):
            lookReceived(bytes)

        case (.closed(let reason, let retryAfter), .attempt):
            linkClosed(.init(reason, retryAfter: retryAfter))
        case (.closed(let reason, _), .successor(let attempt)):
            letGo(id, nil)
            connections.successor?.stage = .preparing(knock: nil)
            successorFailed(attempt.generation, reason.message)
        case (.closed(let reason, let retryAfter), .look):
            lookClosed(.init(reason, retryAfter: retryAfter))
        case (.closed(let reason, _), .knock(let endpoint)):
            letGo(id, nil)
            guard knocks.closed(endpoint, on: id) else { return }
            if state == .connected { servers.redirections.notAnswered(endpoint) }
            tellMachine(.knocked(endpoint, reason.code == .refused ? .refused : .silent))

        case (.resolved, _), (.reached, _), (.opened, .knock), (.received, .knock):
            break
        }
    }

    // MARK: Knocks

    mutating func knock(at endpoint: EndpointIndex) {
        let (number, replaced) = knocks.begin(at: endpoint)
        letGo(replaced, .abort)
        // A proxy answers for itself. Only the server behind it shows whether there is anything to return to.
        guard case .some(_, let hasPassword) = settings.proxy, state == .connected else {
            openKnock(at: endpoint)
            return
        }
        if hasPassword {
            act(.fetch(.knock(endpoint, number)))
        } else {
            openKnock(at: endpoint, behindProxy: true)
        }
    }

    mutating func knockPrepared(_ endpoint: EndpointIndex, _ number: Knocks.Number, proxyPassword: [UInt8]) {
        guard wants(.knock(endpoint, number)) else { return }
        openKnock(at: endpoint, behindProxy: true, proxyPassword: proxyPassword)
    }

    /// How long a knock waits for the answer of the first hop: until TCP would send its second SYN.
    private static let firstHopTimeout = Duration.seconds(1)

    private mutating func openKnock(
        at endpoint: EndpointIndex, behindProxy: Bool = false, proxyPassword: [UInt8]? = nil
    ) {
        let limit = behindProxy ? settings.timeouts.dial : min(settings.timeouts.dial, Self.firstHopTimeout)
        let dialed = DialTarget(
            address: servers.redirections.next(endpoint), goal: .knock(isBehindProxy: behindProxy, within: limit),
            proxyPassword: proxyPassword)
        knocks.dialed(dial(dialed, as: .knock(endpoint)), at: endpoint, isBehindProxy: behindProxy)
    }

    /// Returns the connection of the knock that the attempt continues on, if any. ``dropUnwantedKnocks()`` closes one that
    /// it cannot use.
    mutating func takeKnock(for attempt: Attempt) -> DialID? {
        var needsLogin = false
        if case .some(true, _) = settings.proxy { needsLogin = true }
        return knocks.take(for: attempt, needsLogin: needsLogin)
    }

    /// Drops the knocks that the session machine no longer wants: nearly every change of its state ends some.
    mutating func dropUnwantedKnocks() {
        guard !knocks.isEmpty else { return }
        for connection in knocks.drop(unless: machine.wantsKnock) { letGo(connection, .abort) }
    }
}
