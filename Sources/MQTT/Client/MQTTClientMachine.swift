import NIOCore

/// The client's side of MQTT 5 or 3.1.1 for one session: packets, packet identifiers, QoS 1 and 2 exchanges, flow
/// control, subscriptions, resume. A value without I/O and clocks; `MQTTClientMachineAction.swift` defines its inputs
/// and actions.
///
/// One rule makes it safe to be killed at any point: *nothing is sent before everything decided before it is durable*.
/// A packet that follows from state waits in `commits` for the commit of what was decided up to then; commits complete in
/// order, so the packets leave in order too. So a packet identifier is durable before its PUBLISH leaves, PUBREC's
/// effect before the PUBREL, an inbound identifier before the PUBREC, its removal before the PUBCOMP, and the
/// subscription before the SUBSCRIBE. Only PINGREQ and DISCONNECT, which carry no state, do not wait. Waiting packets
/// are discarded with their connection, so an acknowledgement can never be sent on the next one.
///
///     handle ─▶ mutate ─▶ pump: let messages through ─▶ drain: send what is durable ─▶ commit, load, send, close
///
/// Files: this one is the funnel; `+Connection` opens and ends connections; `+Discarding` begins a new session in MQTT
/// 3.1.1; `+Remedies` says how to react to the server's reason for ending a connection, `Suspicion` to an end without a
/// reason, `AnswerWatch` to an answer that does not come, and `+Quota` to what the server refuses for lack of room;
/// `+Outbound` and `+Inbound` are the two directions of messages, and `Outbox`, `ReadAhead` and `TransportBacklog` hold
/// what is on its way out; `+Limits` is what the outbox does not keep;
/// `+Subscriptions` restores what is wanted; `+Collecting` is what durable consumers get; `+Settling` prepares a
/// connection for being left, and `+Returning` continues at a server that was left before.
public struct MQTTClientMachine: Sendable {
    /// May be changed at any time; changes to what CONNECT announces take effect with the next one.
    public var configuration: Configuration

    /// The version of the present connection, or of the last one.
    public internal(set) var version: ProtocolVersion
    /// Seconds, 0 is off: the keep-alive of the present connection, or of the last one.
    public internal(set) var keepAlive: UInt16 = 0
    /// Grows with each input that shows that the server is alive: a whole packet, or a further 16 KiB of a large one.
    /// Single bytes do not count: a server that never finishes its packet never answers.
    public internal(set) var signsOfLife: UInt64 = 0

    var connection = ConnectionState.closed
    var link = Link()
    var claim: SessionClaim
    var lessons = Lessons()
    var outbox: Outbox
    var inbox: InboundExchanges
    var intake: InboxIntake
    var subscriptions: Subscriptions
    var announcements = Announcements()
    var identifiers: Identifiers
    var commits: CommitLine
    var isolation = Isolation()
    var suspicions = Suspicions()
    var patience = Patience()
    var quota = Quota()

    /// - Parameter durable: what the store had; an empty one for a new session.
    public init(configuration: Configuration, restoring durable: DurableSession = DurableSession()) {
        self.configuration = configuration
        version = configuration.version
        claim = SessionClaim(durable, clientID: configuration.clientID)
        outbox = Outbox(durable)
        inbox = InboundExchanges(durable.inboundIDs)
        intake = InboxIntake(durable)
        subscriptions = Subscriptions(remembered: durable.rememberedSubscriptions)
        identifiers = Identifiers(durable, inUse: outbox.identifiersInOrder)
        commits = CommitLine(hasKeys: durable.hasKeys)
    }

    /// Takes one input and appends the actions that follow.
    public mutating func handle(_ input: Input, at now: Timestamp, into actions: inout [Action]) {
        step(at: now, into: &actions) { machine, step in
            switch input {
            case .connectionOpened(let credentials, let forceCleanStart, let expected):
                machine.connectionOpened(credentials, forceCleanStart: forceCleanStart, expected, &step)
            case .received(let bytes): machine.received(bytes, &step)
            case .readOn: machine.readOn(&step)
            case .connectionClosed: machine.connectionClosed()
            case .connectionEnded(let end): machine.connectionEnded(end, &step)
            case .ping: machine.ping(.heartbeat, &step)
            case .settle: machine.settle()
            case .stopSettling: machine.stopSettling(&step)
            case .disconnect(let code): machine.disconnect(code, &step)
            case .unsubscribe(let filter): machine.unsubscribe(filter, &step)
            case .committed(let number): machine.committed(number, &step)
            case .committedWithoutInserts(let number): machine.committedWithoutInserts(number, &step)
            case .loaded(let messages):
                machine.outbox.loaded(messages)
                step.looksAtTimes = true
            case .timePassed:
                step.looksAtTimes = true
                machine.askAgain(&step)
                machine.checkAnswers(&step)
            case .clockStepped(let milliseconds, let range): machine.clockStepped(milliseconds, range, &step)
            case .flushed(let number): machine.flushed(number, &step)
            case .keyDerived(let key): machine.respond(with: key, &step)
            case .reauthenticate(let exchange): machine.reauthenticate(exchange, &step)
            case .consumer(let name, let input): machine.handle(input, of: name, &step)
            case .resumeCollecting: machine.intake.isPaused = false
            case .forgetSession: machine.forgetSession(&step)
            }
        }
    }

    /// How many messages there are, and in which state.
    public var counts: Counts { outbox.counts }

    /// Bytes of messages that were given to the driver, or are just about to be, and are not flushed.
    public var unflushedMessageBytes: Int { outbox.backlog.bytes }

    /// Whether a CONNACK with success was received and the connection was not ended since.
    public var isConnected: Bool {
        if case .connected = connection { true } else { false }
    }

    /// What the server granted on the present connection; `nil` without one.
    public var grant: Connected? {
        if case .connected(let session) = connection { session } else { nil }
    }

    /// Whether whole packets may have arrived that were not processed, because there were more than one input's share.
    /// They wait for `readOn`, and the driver should not read more from the transport until then.
    public var isBehind: Bool { link.isBehind }

    /// Whether CONNECT was sent and the server has not answered it.
    public var isAwaitingConnack: Bool {
        if case .connecting(let connecting) = connection { connecting.isSent } else { false }
    }

    /// The client identifier that is used; empty until the server has assigned one.
    public var clientID: String {
        configuration.clientID.isEmpty ? claim.assignedClientID ?? "" : configuration.clientID
    }
}

// MARK: The funnel

extension MQTTClientMachine {
    /// Something to be sent when its commit is durable. Small, since there can be as many as the windows allow.
    enum Work: Sendable {
        case connect
        /// The PUBLISH of a message in flight.
        case publish(MessageSequence, PacketID)
        /// The next of the QoS 0 messages that were let through.
        case publishUnacknowledged
        case puback(PacketID)
        case pubrec(PacketID)
        case pubrel(PacketID, ReasonCode)
        case pubcomp(PacketID, ReasonCode)
        /// The SUBSCRIBE or UNSUBSCRIBE with this identifier.
        case request(PacketID)
        case announce(PacketID)
        /// The next of the announcements of QoS 0 that were let through.
        case announceUnacknowledged
    }

    /// What waits for commits. They complete in order.
    struct CommitLine: Sendable {
        /// What to send, in order, each when its commit is durable.
        var work = CircularBuffer<PendingWork>(initialCapacity: 1)
        /// Messages that were accepted since the last step: the next one commits them before its own changes.
        var accepted: [DurableChange] = []
        /// Inserts that are not durable yet, in order.
        var acceptances = CircularBuffer<Acceptance>(initialCapacity: 1)
        var issued = CommitNumber(rawValue: 0)
        var completed = CommitNumber(rawValue: 0)
        var lastFlush = FlushNumber(rawValue: 0)
        /// Whether a message was published with a key that is still remembered, and needs its outcome.
        var hasKeys: Bool
    }

    struct PendingWork: Sendable {
        var commit: CommitNumber
        var work: Work
    }

    /// A message whose row is not durable yet.
    struct Acceptance: Sendable {
        var commit: CommitNumber
        var sequence: MessageSequence
        var size: Int
        /// The identifier that it was inserted with.
        var packetID: PacketID?
        /// Whether it needs no room in the store, because it is there already, under another sequence.
        var isRetry = false
    }

    /// What one input led to.
    struct Step: Sendable {
        let now: Timestamp
        var version: ProtocolVersion
        var actions: [Action] = []
        var changes: [DurableChange] = []
        var output = Output()
        /// Bytes of messages in `output`.
        var messageBytes = 0
        var closes = false
        /// Whether the head of the queue is looked at although there is no connection.
        var looksAtTimes = false

        mutating func emit(_ event: Event) {
            actions.append(.event(event))
        }

        mutating func write(_ packet: Packet) {
            output.append(packet, as: version)
        }
    }

    /// Packets to be sent, in one buffer; except that a large payload is a buffer of its own, so that it is not copied.
    struct Output: Sendable {
        /// The last buffer, and what is sent before it.
        private(set) var last = ByteBuffer()
        private(set) var earlier: [ByteBuffer] = []
        private var endsWithPayload = false

        /// From how many bytes on a payload is not copied: for fewer, a copy takes less time than a write of their own.
        private static let leastUncopied = 64 << 10

        mutating func append(_ packet: Packet, as version: ProtocolVersion) {
            if endsWithPayload { begin(ByteBuffer(), isPayload: false) }
            guard case .publish(let publish) = packet, publish.payload.readableBytes >= Self.leastUncopied else {
                return packet.encode(into: &last, as: version)
            }
            packet.encodeHead(into: &last, as: version)
            begin(publish.payload, isPayload: true)
        }

        private mutating func begin(_ next: ByteBuffer, isPayload: Bool) {
            earlier.append(last)
            last = next
            endsWithPayload = isPayload
        }
    }

    /// Every way into the machine: mutates it, and appends the actions in their fixed order.
    mutating func step<Result>(
        at now: Timestamp, into actions: inout [Action],
        _ body: (inout MQTTClientMachine, inout Step) -> Result
    ) -> Result {
        var step = Step(now: now, version: version)
        swap(&step.actions, &actions)
        swap(&step.changes, &commits.accepted)
        let result = body(&self, &step)
        collectWaiting(&step)
        if step.looksAtTimes { dropOverdue(&step) }
        dropOldest(&step)
        // A message that turns out to be expired or refused makes room for the next one.
        repeat {
            pumpAnnouncements(&step)
            pump(&step)
            issueHeldRequests(&step)
        } while drain(&step)
        noteSettled(&step)
        fetchLeftOut(&step)
        proveIsolated(&step)
        if !step.changes.isEmpty {
            commits.issued = nextCommit(step)
            step.actions.append(.commit(step.changes, commits.issued))
        }
        if let load = nextLoad(step) { step.actions.append(load) }
        if step.output.last.readableBytes > 0 {
            var flush: FlushNumber?
            if step.messageBytes > 0 {
                commits.lastFlush = FlushNumber(rawValue: commits.lastFlush.rawValue + 1)
                outbox.backlog.assign(commits.lastFlush, bytes: step.messageBytes)
                flush = commits.lastFlush
            }
            for bytes in step.output.earlier { step.actions.append(.send(bytes, flush: nil)) }
            step.actions.append(.send(step.output.last, flush: flush))
        }
        if step.closes { step.actions.append(.close) }
        swap(&step.actions, &actions)
        return result
    }

    /// Whether something for the server waits until it is durable.
    public var awaitsStore: Bool { !commits.work.isEmpty }

    /// The commit that makes everything decided up to now durable.
    func nextCommit(_ step: Step) -> CommitNumber {
        step.changes.isEmpty ? commits.issued : CommitNumber(rawValue: commits.issued.rawValue + 1)
    }

    /// Sends this as soon as everything decided up to now is durable.
    mutating func enqueue(_ item: Work, _ step: Step) {
        commits.work.append(PendingWork(commit: nextCommit(step), work: item))
    }

    /// Sends what is durable, in order. Returns whether that made room in the window.
    private mutating func drain(_ step: inout Step) -> Bool {
        var madeRoom = false
        while let next = commits.work.first, next.commit <= commits.completed {
            commits.work.removeFirst()
            switch next.work {
            case .connect: sendConnect(&step)
            case .publish(let sequence, let id):
                if !sendPublish(sequence, id, &step) { madeRoom = true }
            case .publishUnacknowledged: sendUnacknowledged(&step)
            case .puback(let id):
                inbox.outstanding.remove(id)
                step.write(.puback(Acknowledgement(packetID: id)))
            case .pubrec(let id): step.write(.pubrec(Acknowledgement(packetID: id)))
            case .pubrel(let id, let code):
                let isOurs =
                    outbox.inFlight[id]?.isReleased == true || outbox.abandoned[id] != nil || identifiers.isAsked(id)
                // PUBREC again is no answer to a PUBREL.
                if isOurs, !patience.exchanges.awaits(id) { patience.exchanges.sent(id, at: step.now) }
                step.write(.pubrel(Acknowledgement(packetID: id, reasonCode: code)))
            case .pubcomp(let id, let code):
                inbox.outstanding.remove(id)
                step.write(.pubcomp(Acknowledgement(packetID: id, reasonCode: code)))
            case .request(let id): sendRequest(id, &step)
            case .announce(let id): sendAnnouncement(id, &step)
            case .announceUnacknowledged: sendUnacknowledgedAnnouncement(&step)
            }
        }
        return madeRoom
    }

    private mutating func committed(_ number: CommitNumber, _ step: inout Step) {
        precondition(number <= commits.issued, "only commits that were issued complete")
        commits.completed = max(commits.completed, number)
        collected(number, &step)
        while let acceptance = commits.acceptances.first, acceptance.commit <= number {
            commits.acceptances.removeFirst()
            outbox.durableThrough = acceptance.sequence
            step.emit(acceptance.isRetry ? .requeued(acceptance.sequence) : .accepted(acceptance.sequence))
        }
    }

    private mutating func committedWithoutInserts(_ number: CommitNumber, _ step: inout Step) {
        precondition(number.rawValue > 0, "commits are numbered from 1")
        committed(CommitNumber(rawValue: number.rawValue - 1), &step)
        notCollected(number, &step)
        while let acceptance = commits.acceptances.first, acceptance.commit <= number {
            commits.acceptances.removeFirst()
            outbox.durableThrough = acceptance.sequence
            if acceptance.isRetry {
                step.emit(.requeued(acceptance.sequence))
                continue
            }
            let id = outbox.forget(acceptance.sequence, size: acceptance.size, packetID: acceptance.packetID)
            if let id { identifiers.free(id) }
            step.emit(.notAccepted(acceptance.sequence))
        }
        committed(number, &step)
    }
}
