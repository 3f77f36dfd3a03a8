import MQTT
import NIOCore
import Session
import SessionCore
import Transport
import Vocabulary

// The link: the attempt under way, and the connection that it becomes.

extension SessionDriver {
    /// The attempt under way and the connection that it becomes.
    struct Link {
        let attempt: Attempt
        /// Where the attempt leads: its endpoint, or the server that one was redirected to.
        let address: Endpoint
        /// Whether the endpoint itself has led there just now.
        var isRedirected = false
        var connection: DialID?
        var password: [UInt8]?
        var proxyPassword: [UInt8]?
        var credentialLife: CredentialLife?
        /// The credential of this attempt. From the beginning on, if it was fetched before.
        var fetched: SessionCredential?
        /// Whether something was opened to the address, be it only to look.
        var isDialed = false
        /// The connection of a knock that was answered, to go on with.
        var knock: DialID?
        /// A new credential on its way to the server, and when that takes too long.
        var renewal: (credential: SessionCredential, deadline: Instant)?
        var opened: Opened?
        /// Bytes that were given to the connection, and that the kernel has not taken.
        var unflushed = 0
        /// Whether the server is read, or has to wait.
        var isReading = true
        /// How the protocol ended it. The transport's own end follows from that, and says less.
        var ending: SessionMachine.Ending?
        /// The transport is gone, and some of what the server had sent is not read yet.
        var end: ConnectionEnd?
        /// Whether the rest of what the server has sent is about to be read.
        var readsOn = false

        var generation: Generation { attempt.generation }
    }

    // MARK: Its beginning

    func open(_ attempt: Attempt) {
        precondition(link == nil, "an attempt begins when the one before it is over")
        if successor?.generation == attempt.generation { endProtocol() }
        if goOnWithSuccessor(attempt) { return }
        let destination = session.servers.begin(attempt.endpoint)
        link = Link(
            attempt: attempt, address: destination.address, isRedirected: destination.isRedirected,
            fetched: session.credentials.takeRenewed(), knock: takeKnock(for: attempt))
        prepareRoom()
        prepare(.attempt(attempt))
    }

    /// The link is ready for CONNECT.
    func linkOpened(_ opened: Opened) {
        guard let link else { return }
        let generation = link.generation
        self.link?.opened = opened
        lastOpened = (link.address, link.password, link.proxyPassword)
        watchPath(of: link.attempt.endpoint, to: opened.peer)
        // The look at the path may have found that it moved, and the attempt is over.
        guard self.link?.generation == generation else { return }
        run(.session(.progressed(generation, .authenticating)))
        let discards = session.connecting(to: link.address, for: link.attempt)
        run(.onLink(generation, .connectionOpened(connectCredentials, forceCleanStart: discards)))
    }

    /// Gives the session machine the kernel's view of the connection.
    func measure() {
        guard let link, let measured = connections[link.connection]?.measure() else { return }
        work.append(
            .session(
                .measured(
                    link.generation,
                    TransportMeasurement(
                        roundTrip: measured.roundTrip, variation: measured.variation,
                        retransmissions: measured.retransmissions, unacknowledged: measured.unacknowledged,
                        retries: measured.retries, sinceAcknowledgement: measured.sinceAcknowledgement))))
    }

    // MARK: Its end

    /// Ends the connection because of what the server said or did; what the machine still sends goes out first.
    func protocolEnded(_ ending: SessionMachine.Ending) {
        guard let link else { return }
        var ending = ending
        if ending.reason.code.group == .auth, session.credentials.exists {
            ending.reason = namedByEnd(ending.reason)
            // The next attempt looks whether there is another one.
            ending.mayHaveNewCredential = true
            session.credentials.serverRejected(link.renewal?.credential.secret ?? link.password)
        }
        self.link?.ending = link.ending ?? ending
        work.append(.retire(link.generation, ending))
    }

    func linkClosed(_ end: ConnectionEnd, _ generation: Generation) {
        guard let link else { return }
        if end == .closedLocally { run(.session(.closed(generation))) }
        // What the server said before it closed comes first.
        guard !session.mqtt.isBehind else {
            self.link?.end = end
            return
        }
        retire(link, because: end)
    }

    private func retire(_ link: Link, because end: ConnectionEnd) {
        let ending = ending(end, of: link)
        run(.retire(link.generation, ending, ending.isByServer ? .connectionEnded(.byServer) : .connectionClosed))
    }

    /// A server that sends more than is worked on in one turn waits for the others: for a moment the loop looks at them.
    func readOn() {
        guard let link, !link.readsOn else { return }
        let generation = link.generation
        if session.mqtt.isBehind {
            self.link?.readsOn = true
            _ = eventLoop.scheduleTask(in: Self.othersTurn) { [weak self] in
                self?.assumeIsolated { driver in
                    guard driver.link?.generation == generation else { return }
                    driver.link?.readsOn = false
                    driver.run(.onLink(generation, .readOn))
                }
            }
        } else if let end = link.end {
            self.link?.end = nil
            retire(link, because: end)
        }
    }

    /// The loop runs everything that is due before it looks at its sockets, so this must not be due at once.
    private static let othersTurn = TimeAmount.microseconds(500)

    /// Drops the connection without a word, and lets the protocol know before anything happens but that another is dialed.
    func dropLink() {
        isFlushing = false
        guard let link else { return }
        stopLooking()
        self.link = nil
        // What this host does, or what happens to its paths, says nothing about the server.
        session.servers.ended(wasTried: link.isDialed && !session.machine.reason.code.isOurOwn)
        connections.letGo(of: link.connection, .abort)
        connections.letGo(of: link.knock, .abort)
        untoldEnd = session.machine.reason.code == .restoreTimeout ? .connectionEnded(.unanswered) : .connectionClosed
        if link.opened != nil { watchAllPaths(of: link.attempt.endpoint) }
    }

    /// The protocol machine hears that its link was dropped.
    func endProtocol() {
        guard let end = untoldEnd else { return }
        untoldEnd = nil
        handle(end)
    }
}
