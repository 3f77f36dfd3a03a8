import MQTT
import NIOCore
import SessionCore

// The link: the attempt under way, and the connection that it becomes. Also its successor, which is set up before the
// link is given up. The session machine says when; see SessionMachine+Handover.swift.

extension Session {
    // MARK: Its beginning

    mutating func open(_ attempt: Attempt) {
        precondition(link == nil, "an attempt begins when the one before it is over")
        if connections.successor?.generation == attempt.generation { endProtocol() }
        if continueWithSuccessor(attempt) { return }
        link = Link(attempt, to: servers.begin(attempt.endpoint), knock: takeKnock(for: attempt))
        let renewed = credentials.takeRenewed()
        link?.login.credential = renewed
        prepareConnect()
        prepare(.attempt(attempt))
    }

    /// Sets what CONNECT says about the room, before an attempt.
    private mutating func prepareConnect() {
        rooms.willConnect(
            as: rooms.newMark(clientID: clientID, at: wallClock),
            isFirst: state == .connecting && !machine.wasAccepted, at: wallClock)
        let will = rooms.nextWill
        mqtt.configuration.will = will
        mqtt.configuration.keepAlive = will == nil ? settings.keepAlive.alone : settings.keepAlive.inRoom
    }

    /// The transport is ready for CONNECT, unless its path has moved.
    mutating func linkOpened(_ connection: DialID, _ peer: LinkPeer) {
        guard let link else { return }
        self.link?.stage = .open(connection, peer)
        connections.lastOpened = (link.address, link.login)
        let endpoint = link.attempt.endpoint
        funnel.work.append(.lookUp(endpoint, addresses.connected(endpoint, to: peer.address)))
        funnel.work.append(.greet(link.generation))
    }

    mutating func greet(_ generation: Generation) {
        guard let link, link.generation == generation else { return }
        tellMachine(.progressed(generation, .authenticating))
        mqtt.configuration.version = servers.protocols.version(at: link.address)
        mqtt.configuration.isVersionTentative = servers.protocols.isTentative(at: link.address)
        // Servers that share the session have no older copy: what they have is in use.
        let hasOlderCopy = !servers.homes.isHome(link.address) && servers.homes.older(at: link.address) != nil
        // Another device of the user may be in the room. To find out first whether the server has a session would take two
        // connections, and displace that device twice. An older copy is known to be there.
        let takesPlace =
            rooms.membership != nil && !mqtt.hasSession && mqtt.configuration.version == .five && !hasOlderCopy
        let discards =
            link.attempt.discardsSession || takesPlace || link.attempt.discardsOlderCopy && hasOlderCopy
        let expected = servers.homes.expected(at: link.address, continuity(of: link))
        let opened = MQTTClientMachine.Input.connectionOpened(
            connectCredentials, forceCleanStart: discards, expecting: expected)
        funnel.work.append(.onLink(generation, opened))
        // How long the server's answer may take depends on how long its host's has taken.
        funnel.work.append(.measure)
    }

    private func continuity(of link: Link) -> MQTTClientMachine.Continuity {
        if link.isHandover { return .proven }
        return connections.serverMayHaveRestarted ? .doubtful : .likely
    }

    // MARK: Its end

    mutating func linkClosed(_ ending: SessionMachine.Ending) {
        guard let link else { return }
        if ending.reason.code == .userDisconnect { tellMachine(.closed(link.generation)) }
        // What the server said before it closed is handled first. What it said after our own goodbye is not handled at
        // all, and the machine, which has just been told of the end, may open another link at any time.
        guard !mqtt.isBehind || ending.reason.code == .userDisconnect else {
            self.link?.flow.end = ending
            return
        }
        retire(link, because: ending)
    }

    mutating func retire(_ link: Link, because ending: SessionMachine.Ending) {
        let (ending, end) = considered(ending, of: link)
        funnel.work.append(.retire(link.generation, ending, end))
    }

    /// Adds to what is known about the end of a transport. After CONNECT and before CONNACK, closing may be the
    /// server's way to refuse the version; after refusals, to say that it has no room.
    ///
    /// - Returns: that, and what the protocol machine is told.
    private mutating func considered(
        _ ending: SessionMachine.Ending, of link: Link
    ) -> (SessionMachine.Ending, MQTTClientMachine.Input) {
        var ending = ending
        ending.isElsewhere = link.destination.isRedirected
        if link.peer == nil, link.address != settings.endpoints[link.attempt.endpoint.rawValue] {
            ending.reason = Reason(ending.reason, redirectedTo: link.address)
        }
        guard ending.reason.code == .serverClosed || ending.reason.code == .reset else {
            return (ending, .connectionClosed)
        }
        if let refusal = mqtt.reasonIfEnded { return (.init(closedAfter: refusal), .connectionClosed) }
        if let finding = mqtt.findingIfEnded { return (ending.considering(finding), .connectionEnded(.byServer)) }
        guard mqtt.isAwaitingConnack, let other = servers.protocols.closed(mqtt.version, at: link.address) else {
            return (ending, .connectionEnded(.byServer))
        }
        ending.reason.message += "; the server may not speak MQTT \(mqtt.version), so MQTT \(other) is tried next"
        ending.pace = .otherWay
        return (ending, .connectionEnded(.byServer))
    }

    mutating func linkRetired(
        _ generation: Generation, _ ending: SessionMachine.Ending, _ end: MQTTClientMachine.Input
    ) {
        var ending = ending
        if let link, link.generation == generation {
            ending = link.ending ?? ending
            // Servers say only that they do not let us in, or nothing.
            if let expiry = link.peer?.expiry, !mqtt.isConnected, !ending.reason.message.contains(expiry) {
                ending.reason.message += "; \(expiry)"
            }
            noteEnd(ending.reason.code)
            ending.hasOtherAddress = servers.redirections.ended(wasTried: link.isDialed)
            letGo(link.connection, nil)
            letGo(link.knock, .abort)
            self.link = nil
            forgetVersion(at: link.address)
            handle(end)
            watchAllPaths(of: link)
        }
        tellMachine(.ended(generation, ending))
    }

    /// Drops the connection without a DISCONNECT, except to have a will discarded that must not be published. The
    /// protocol machine is told before anything else happens, except that another connection is dialed.
    mutating func dropLink() {
        guard let link else { return }
        stopLooking()
        if link.hasStaleWill { handle(.disconnect(.normalDisconnection)) }
        self.link = nil
        forgetVersion(at: link.address)
        noteEnd(machine.reason.code)
        // What this host does, or what happens to its paths, says nothing about the server.
        servers.redirections.ended(wasTried: link.isDialed && !machine.reason.code.isOurOwn)
        letGo(link.connection, link.hasStaleWill ? .afterFlush : .abort)
        letGo(link.knock, .abort)
        connections.untoldEnd = untoldEnd(of: link)
        watchAllPaths(of: link)
    }

    /// Without a connection, messages are accepted for MQTT 5, unless the server is known not to speak it.
    private mutating func forgetVersion(at address: Endpoint) {
        mqtt.configuration.version = servers.protocols.expected(at: address)
        mqtt.configuration.isVersionTentative = false
    }

    private mutating func noteEnd(_ code: Reason.Code) {
        if !code.isOfOwnPath { connections.serverMayHaveRestarted = true }
    }

    private func untoldEnd(of link: Link) -> MQTTClientMachine.Input {
        switch machine.reason.code {
        case .restoreTimeout: .connectionEnded(.unanswered)
        // A proxy acknowledges what the server may never get.
        case .heartbeatTimeout where settings.proxy == .none && wasListening(on: link): .connectionEnded(.silent)
        default: .connectionClosed
        }
    }

    /// Whether nothing that the server said is left unread.
    private func wasListening(on link: Link) -> Bool {
        let timeout = machine.heartbeatPolicy.timeout
        return link.flow.isReading && link.flow.resumedAt.map { $0.duration(to: now) >= timeout } ?? true
            && !mqtt.isBehind
    }

    /// Tells the protocol machine that its link was dropped.
    mutating func endProtocol() {
        guard let end = connections.untoldEnd else { return }
        connections.untoldEnd = nil
        handle(end)
    }

    private mutating func watchAllPaths(of link: Link) {
        guard link.peer != nil, let watch = addresses.disconnected(link.attempt.endpoint) else { return }
        funnel.work.append(.lookUp(link.attempt.endpoint, watch))
    }

    // MARK: Its successor

    /// Sets up everything before CONNECT, at the address in use, since that server has the session.
    mutating func prepareSuccessor(_ attempt: Attempt) {
        letGo(connections.successor?.connection, .abort)
        guard let link else { return }
        connections.successor = Link(attempt, to: .init(address: link.address, isRedirected: false))
        prepare(.successor(attempt))
    }

    mutating func successorFailed(_ generation: Generation, _ sentence: String) {
        act(.tell(.successorFailed(sentence)))
        tellMachine(.preparationFailed(generation))
    }

    /// Tells the server, after everything else sent on this connection, that the session leaves it. The session will be
    /// back in a moment, but the server must keep the will in case it is not.
    mutating func leave(_ generation: Generation) {
        guard let link, link.generation == generation else { return }
        // MQTT 3.1.1 has only one way to leave, and publishes the will at once when a connection is closed without it.
        let keepsWill = mqtt.version == .five && rooms.membership != nil
        handle(.disconnect(keepsWill ? .disconnectWithWill : .normalDisconnection))
        letGo(link.connection, .afterFlush)
        self.link = nil
        connections.successor?.isHandover = true
        handle(.connectionClosed)
    }

    /// Continues the attempt on the successor, if it was set up for this attempt.
    ///
    /// - Returns: `false` if there is no such successor.
    private mutating func continueWithSuccessor(_ attempt: Attempt) -> Bool {
        guard let successor = connections.successor, successor.generation == attempt.generation,
            let connection = successor.connection
        else { return false }
        connections.successor = nil
        link = successor
        // The old connection may have ended, and with it the use of a redirection.
        _ = servers.begin(attempt.endpoint)
        connections.change(connection, to: .attempt(attempt))
        prepareConnect()
        if let credential = successor.login.credential { noteCredential(credential) }
        if let peer = successor.peer { linkOpened(connection, peer) }
        return true
    }

    /// Drops a successor that the session machine no longer wants. Called after every input, so that the code that ends
    /// a hand-over need not do it.
    mutating func dropUnwantedSuccessor() {
        guard let successor = connections.successor, successor.generation != machine.successor else { return }
        connections.successor = nil
        letGo(successor.connection, .abort)
    }
}
