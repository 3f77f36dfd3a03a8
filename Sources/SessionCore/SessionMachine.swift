/// Keeps one session connected: decides when to try, where, in which mode, when to pause, when a connection is dead and
/// when to give up. A value without I/O and clocks; the driver feeds it and carries out what it answers.
///
/// The states, and what leads from one to the next:
///
///     disconnected ──connect──▶ connecting ──restored──▶ connected ──lost──▶ reconnecting ──restored──▶ connected
///
/// A terminal reason or the end of `giveUpAfter` leads from connecting, connected and reconnecting to failed. A command
/// (connect, or reconnect by hand) leads out of failed, and so does another credential where the old one was the
/// reason. Disconnect leads from every state to disconnected, through disconnecting where there is something to say
/// goodbye to.
///
/// A session may also go down on its own, to rest: when nothing uses it (`idle`, with `on-demand`), and before the host
/// sleeps (`suspend`). The next use, or waking, then leads from disconnected to connecting, unless an explicit
/// disconnect comes in between.
///
/// There are no other transitions. In particular, nothing that completes late causes one, because each input about a
/// connection carries the generation of the attempt that opened it.
///
/// A rejected credential is not a state of its own: the session is connecting or reconnecting at once, and the next
/// attempt finds out whether there is another credential before it does anything else. If not, it ends the session with
/// what the server said.
///
/// While it tries, a session waits for the network (no path to any endpoint), waits for a delay of its table, or has an
/// attempt under way; these are the cases of `Trying.Activity`.
public struct SessionMachine: Sendable {
    let policy: ReconnectPolicy
    let timeouts: AttemptTimeouts
    let heartbeatPolicy: HeartbeatPolicy
    let rest: RestPolicy

    var state: State = .disconnected
    /// Why the present state was entered, or why the last attempt failed.
    public internal(set) var reason: Reason
    /// When the present state was entered.
    public internal(set) var since: Instant
    /// The path to each endpoint; `nil` where the kernel has none.
    var paths: [Path?]
    /// The kernel's own path to each endpoint, where it is one that the session must not use.
    var excluded: [Path?]
    /// Whether connections are bound to the interface of their path.
    let isBound: Bool
    /// The endpoint that the next attempt starts with.
    var cursor = EndpointIndex(0)
    var backoff: Backoff
    var haste = HasteLimiter()
    /// The driver sets the strategy, and whether there is a room to look into.
    public var rivalry = Rivalry()
    /// If the session ends without a word, how long after its last sign of life others may still see it; `nil` when
    /// nobody sees it. Set by the driver.
    public var lingering: Duration?
    var demand: Demand
    var watch: EndpointWatch
    var returns: ReturnPacing
    var handovers: HandoverPacing
    var escalation = Escalation.none
    /// Until when the server asked to be left alone; no network event overrides it.
    var notBefore: Instant?
    /// Endings that may happen once only, since the last stable connection.
    var refusals = 0
    var lastGeneration = Generation(rawValue: 0)
    /// The credential of the attempt or connection, when it is known to end.
    var credential: CredentialLife?
    public internal(set) var counters = Counters()

    /// - Parameters:
    ///   - isBound: whether connections are bound to the interface of their path, and do not move with it.
    ///   - paths: the path to each endpoint, in the order of the session's list; at least one element.
    ///   - seed: for the random delays; the same seed gives the same run.
    public init(
        policy: ReconnectPolicy = .init(), timeouts: AttemptTimeouts = .init(), heartbeat: HeartbeatPolicy = .init(),
        rest: RestPolicy = .init(), isBound: Bool = false, paths: [Path?], seed: UInt64, at now: Instant
    ) {
        precondition(!paths.isEmpty, "a session has at least one endpoint")
        self.policy = policy
        self.timeouts = timeouts
        self.heartbeatPolicy = heartbeat
        self.rest = rest
        self.isBound = isBound
        self.paths = paths
        self.excluded = paths.map { _ in nil }
        self.backoff = Backoff(seed: seed)
        self.demand = Demand(idleTimeout: rest.idleTimeout, at: now)
        self.watch = EndpointWatch(interval: policy.watch, seed: seed &+ 1)
        self.returns = ReturnPacing(policy, seed: seed &+ 2)
        self.handovers = HandoverPacing(calm: policy.stableAfter)
        let isOnDemand = rest.idleTimeout != nil
        self.reason = isOnDemand ? Reason(.idle) : Reason(.userDisconnect, "the session was never connected")
        self.since = now
    }

    /// Takes up the state that an earlier run of the daemon left: the session had been disconnected by command, or had
    /// failed for a reason that trying again cannot change. Only for a machine that has been given no input yet.
    public mutating func restore(isFailed: Bool, reason: Reason) {
        precondition(state == .disconnected && lastGeneration.rawValue == 0, "only a new machine can take up a state")
        self.reason = reason
        state = isFailed ? .failed : .disconnected
    }

    /// What has happened since the machine was made.
    public struct Counters: Hashable, Sendable {
        public var attempts = 0
        public var connects = 0
        public var resumes = 0
        public var outages = 0
        public var longestOutage: Duration = .zero
    }
}

// MARK: - States

extension SessionMachine {
    enum State: Hashable, Sendable {
        /// Can transition to: trying (connect; where it rests, also a use or waking).
        case disconnected
        /// Connecting or, with an outage, reconnecting. Can transition to: trying, connected, failed, disconnected.
        case trying(Trying)
        /// Can transition to: trying, failed, disconnecting.
        case connected(Connected)
        /// Can transition to: disconnected, and to trying when connect, a use or waking comes meanwhile.
        case disconnecting(Disconnecting)
        /// Can transition to: trying (connect, another credential), disconnected.
        case failed
    }

    struct Trying: Hashable, Sendable {
        enum Activity: Hashable, Sendable {
            /// No path to any endpoint; one safety attempt at the given time.
            case waitingForNetwork(safetyAttempt: Instant)
            /// `isHastened` when a network event brought the attempt forward, but not to now.
            case waiting(until: Instant, isHastened: Bool)
            case attempting(Attempt, phase: Phase, deadline: Instant, established: Established?)
        }

        var activity: Activity
        let startedAt: Instant
        /// Why the session connects, or why the connection was lost.
        let cause: Reason
        /// `nil` while the session was not up since the last explicit connect.
        var outage: Outage?
        /// Whether a server has accepted a connection since. Only a session that was thrown out after that may have
        /// been displaced.
        var wasAccepted = false
        /// Whether the last thing that ended was a connection that the server had accepted, and closed without giving a
        /// reason.
        var followsSuddenClose: Bool
        /// Whether the next attempt is the very first one after somebody asked to connect: it takes over from any other
        /// device. Not when it has to wait for the network.
        var takesOver = false
        var attempts = 0
        /// The attempts that failed although there was a path. One that only helped to find a message or filter that
        /// the server objects to does not count.
        var failures = 0
        /// The ends in a row that were part of such a search, and have found nothing yet.
        var searches = 0
        /// The endpoint whose connection was lost.
        var lostAt: EndpointIndex?
        /// The endpoints where nothing listened.
        var refusedBy: Set<EndpointIndex> = []
        /// The endpoints whose servers could not prove that they are who they should be.
        var unproven: Set<EndpointIndex> = []
        /// The endpoint that served before the session left it for the first one.
        var returnsFrom: EndpointIndex?
        /// The endpoint whose server had a session other than the expected one, when the last attempt was made there.
        var mismatchedAt: EndpointIndex?
        /// Whether a rejected credential was already renewed since the last success.
        var hasRenewedCredential = false
        /// What the server said about the last credential, until the next attempt has another one.
        var rejection: Reason?
        /// The attempt under way must have its credential before it can do anything.
        var isAwaitingCredential = false
        /// The network event or command that started the present attempt early.
        var hasteReason: Reason?
        /// Why the last attempt failed; `nil` if none has.
        var lastFailure: Reason?
    }

    /// From the moment a connected session is lost until it is connected again.
    struct Outage: Hashable, Sendable {
        let since: Instant
        /// When the server was last heard.
        let lastHeard: Instant
        /// Whether somebody asked for it and the first attempt has not failed: then it is no outage.
        var isAskedFor: Bool
        var isReportedLost = false
    }

    /// What has to be set up again. It only grows until a full reconnect has succeeded: a server that lost the session
    /// has a new one after the first try, and would report the second one as resumed.
    enum Escalation: Int, Hashable, Sendable, Comparable {
        /// The server is expected to have the session.
        case none
        /// The server had lost the session.
        case full
        /// The server must discard the session: its state is unusable, or a person asked for it.
        case discard

        static func < (left: Escalation, right: Escalation) -> Bool { left.rawValue < right.rawValue }
    }

    /// What the server's acceptance said, kept until the session is restored.
    struct Established: Hashable, Sendable {
        var serverKeepAlive: Duration?
        /// Restoring may take longer than the keep-alive: a server that is silent about one subscription is alive, and
        /// would end the connection if it heard nothing.
        var heartbeat: Heartbeat
    }

    struct Connected: Hashable, Sendable {
        let attempt: Attempt
        let resumed: Bool
        let since: Instant
        var heartbeat: Heartbeat
        var quality = QualityEstimator()
        /// The kernel's last measurement of the connection.
        var transport: TransportMeasurement?
        /// Set while the path is lost: the connection is kept until then.
        var heldUntil: Instant?
        /// The index of the interface to which the connection is bound.
        var boundTo: Int32?
        var delivery = DeliveryWatch()
        /// `nil` while the first endpoint is in use.
        var returning: Returning?
        /// The path that the connection was made on; `nil` if the kernel had none.
        var path: Path?
        /// Set while the session is about to move to a connection on another path.
        var handover: Handover?
    }

    struct Disconnecting: Hashable, Sendable {
        enum Step: Hashable, Sendable {
            case flushing, sayingGoodbye
        }

        let attempt: Attempt
        let step: Step
        let deadline: Instant
        /// When the server was last heard.
        let lastHeard: Instant
    }
}

// MARK: - Inputs and actions

extension SessionMachine {
    public enum Input: Hashable, Sendable {
        /// Start, for example with reason `autoconnect` or `user-connect`.
        case connect(Reason)
        /// Stop; accepted in every state.
        case disconnect(Reason)
        /// Drop the connection and try now; `nil` lets the session choose the mode.
        case reconnect(ReconnectMode?)
        /// Replace the connection at once: something changed that the server can learn only from a new one.
        case renew(Reason)
        /// The path to an endpoint is now this one. For `movedSourceGone`, `from` has the address that has left the
        /// host: either the path until now (also meant by `nil`) or an earlier one, and then the path is what it was.
        case pathChanged(EndpointIndex, from: Path? = nil, to: Path?, PathClass)
        /// The kernel's own path to the endpoint, where the session must not use it; given before the change of the
        /// path itself.
        case pathExcluded(EndpointIndex, Path?)
        /// Something uses the session. A use that is known already may be reported again, and counts as a use of this
        /// moment.
        case useBegan(Use)
        case useEnded(Use)
        /// The host is about to sleep.
        case hostWillSleep
        /// The host is awake after having slept this long; zero if it did not sleep after all.
        case hostWoke(slept: Duration)
        /// The outcome of a knock.
        case knocked(EndpointIndex, KnockAnswer)
        /// The attempt has reached another phase.
        case progressed(Generation, Phase)
        /// The transport of the attempt beside the connection in use is ready for CONNECT.
        case prepared(Generation)
        /// It could not be set up, or is gone again.
        case preparationFailed(Generation)
        /// Nothing is in flight any more on a connection that is about to be left.
        case settled(Generation)
        /// The server accepted the session; `resumed` says whether it still had it.
        case established(Generation, resumed: Bool, serverKeepAlive: Duration?)
        /// Subscriptions are acknowledged: the session is as it was.
        case restored(Generation)
        /// The attempt failed, or the connection was lost.
        case ended(Generation, Ending)
        /// The server answered a heartbeat.
        case heartbeatAnswered(Generation)
        /// The kernel's measurement of the connection. Given when the session is connected, with every answer to a
        /// heartbeat, and right before `timeReached`.
        case measured(Generation, TransportMeasurement)
        /// The attempt has to fetch its credential before it does anything else.
        case credentialAwaited(Generation)
        /// The attempt has its credential, and knows when that expires if its source says so. Given again when the end
        /// moves because the host's clock was set.
        case credentialObtained(Generation, expiresAt: Instant?)
        /// A new credential is ready for the next attempt.
        case credentialRenewed(Generation, expiresAt: Instant?)
        /// The server has taken a new credential on the connection that is up.
        case credentialReplaced(Generation, expiresAt: Instant?)
        /// A new credential could not be fetched, or it was the same.
        case credentialRenewalFailed(Generation)
        /// The credential's file is no longer the one that was read.
        case credentialChanged
        /// Everything accepted was acknowledged, or there was nothing.
        case flushed(Generation)
        /// The connection is closed after goodbye.
        case closed(Generation)
        /// Time has passed; due when `nextDeadline` is reached.
        case timeReached
    }

    /// How an attempt or a connection ended.
    public struct Ending: Hashable, Sendable {
        public var reason: Reason
        /// How long the server asked to be left alone.
        public var retryAfter: Duration?
        /// Whether there may be a credential other than the rejected one: the next attempt finds out before it does
        /// anything else.
        public var mayHaveNewCredential: Bool
        /// When the next attempt is made.
        public var pace = Pace.byReason
        /// Whether a lost connection is continued at the next endpoint of the list. After a failed attempt that is
        /// always so.
        public var leavesEndpoint: Bool
        /// Whether a second ending like this, without a stable connection in between, is terminal.
        public var failsIfRepeated = false
        /// Whether the same endpoint is tried in another way at once: it leads to another server now, is spoken to in
        /// another version of the protocol, or has discarded the session. The driver limits how often.
        public var triesOtherWay = false
        /// Whether the server closed or reset the connection.
        public var isByServer = false
        /// Whether it is about a message that was sent, and so not about another device.
        public var isAboutMessage = false
        /// Whether the endpoint had redirected the attempt, and it was that other server: about the endpoint's own
        /// address it says only that it answered.
        public var isElsewhere = false

        /// What it means for the search for the one thing because of which the server ends connections.
        public var search = Search.none

        public enum Search: Hashable, Sendable {
            /// No search is under way.
            case none
            case continued
            /// The thing is set aside, and is not sent to the server again.
            case found
        }

        public enum Pace: Hashable, Sendable {
            /// As usual for the reason.
            case byReason
            /// Without a delay, unless the last attempt had none either: what was wrong has changed.
            case atOnce
            /// After the busy server's floor.
            case slow
            /// After the busy server's floor, which doubles each time.
            case floor
            /// The same with twice the floor.
            case doubledFloor
        }

        public init(_ reason: Reason, retryAfter: Duration? = nil, mayHaveNewCredential: Bool = false) {
            self.reason = reason
            self.retryAfter = retryAfter
            self.mayHaveNewCredential = mayHaveNewCredential
            leavesEndpoint = NextAttempt(after: reason.code).leavesEndpoint
        }
    }

    public enum Action: Hashable, Sendable {
        /// Open a connection for this attempt and report its progress.
        case open(Attempt)
        /// Drop the attempt or connection without a word.
        case abandon(Generation)
        /// Set up the transport of this attempt, everything before CONNECT, beside the connection in use, and report
        /// `prepared` or `preparationFailed`. It is kept as long as `successor` names it; `open` may follow at any time
        /// and continues with it.
        case prepare(Attempt)
        /// Give nothing new to this connection as long as `isSettling` says so, and report `settled` when everything
        /// begun on it is finished.
        case settle(Generation)
        /// Close the connection with a word to the server: the session continues elsewhere. Nothing is awaited.
        case leave(Generation)
        /// Wait until everything that was sent is acknowledged, then report `flushed`.
        case flush(Generation)
        /// Leave gracefully, then report `closed`.
        case sayGoodbye(Generation)
        case sendHeartbeat(Generation)
        /// Fetch a new credential, then report `credentialRenewed` or `credentialRenewalFailed`.
        case renewCredential(Generation)
        /// Open a TCP connection to the endpoint and nothing more, and report `knocked`. It replaces an earlier knock
        /// at the same endpoint. A connection that answered is kept as long as `wantsKnock` says.
        case knock(EndpointIndex)
        case report(Event)
    }

    /// What happened, for those who watch the session.
    public enum Event: Hashable, Sendable {
        /// The status differs from before; `from` is the previous state, which may be the same, and `lasted` is the
        /// time spent in it.
        case stateChanged(from: SessionState, lasted: Duration)
        case reconnectStarted(ReconnectMode)
        /// The outage is `nil` when somebody had asked for the reconnect and the first attempt succeeded.
        case reconnectCompleted(ReconnectMode, outage: Duration?)
        /// Once per outage, after `lostAfter`, while attempts go on.
        case connectionLost(outage: Duration)
        case qualityChanged(Quality)
        case pathChanged(PathClass, EndpointIndex, from: Path?, to: Path?)
        /// The credential in use expires soon; once for each credential.
        case credentialExpiring(at: Instant)
    }

    /// Takes one input and appends the actions that follow.
    ///
    /// Every visible change is reported from here, and nowhere else: what people see is compared before and after.
    public mutating func handle(_ input: Input, at now: Instant, into actions: inout [Action]) {
        let before = visible
        let qualityBefore = quality
        let sinceBefore = since
        transition(on: input, at: now, into: &actions)
        if let quality, quality != qualityBefore { actions.append(.report(.qualityChanged(quality))) }
        let after = visible
        guard after != before else { return }
        // The attempt under way continues in the other mode, and those who were told "quick" have to know.
        if before.mode == .quick, after.mode == .full { actions.append(.report(.reconnectStarted(.full))) }
        if after.state != before.state { since = now }
        actions.append(
            .report(.stateChanged(from: before.state, lasted: sinceBefore.duration(to: now))))
    }

    /// Bytes arrived on the connection: it is alive.
    public mutating func heard(_ generation: Generation, at now: Instant) {
        guard case .connected(var connected) = state, connected.attempt.generation == generation else {
            return whileRestoring(generation) { $0.heard(at: now) }
        }
        connected.heartbeat.heard(at: now)
        connected.delivery.heard()
        state = .connected(connected)
    }

    /// Bytes were sent on the connection: the server knows that we are alive.
    public mutating func sent(_ generation: Generation, at now: Instant) {
        guard case .connected(var connected) = state, connected.attempt.generation == generation else {
            return whileRestoring(generation) { $0.sent(at: now) }
        }
        connected.heartbeat.sent(at: now)
        connected.delivery.sent(at: now, patience: connected.patience)
        state = .connected(connected)
    }

    /// Changes the heartbeat of an attempt that the server has accepted.
    mutating func whileRestoring(_ generation: Generation, _ change: (inout Heartbeat) -> Void) {
        guard case .trying(var trying) = state,
            case .attempting(let attempt, let phase, let deadline, var established?) = trying.activity,
            attempt.generation == generation
        else { return }
        change(&established.heartbeat)
        trying.activity = .attempting(attempt, phase: phase, deadline: deadline, established: established)
        state = .trying(trying)
    }
}
