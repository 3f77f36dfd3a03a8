/// The state machine that keeps one session connected. It decides when to try, where and in which mode, when to pause,
/// when a connection is dead and when to give up. It is a value without I/O or clocks: its owner feeds it inputs and
/// carries out the actions it returns.
///
/// The states, and what leads from one to the next:
///
///     disconnected ──connect──▶ connecting ──restored──▶ connected ──lost──▶ reconnecting ──restored──▶ connected
///
/// A terminal reason leads from connecting, connected and reconnecting to failed; so does reaching `giveUpAfter` or
/// `giveUpAttempts` while connecting or reconnecting. A command (connect, or reconnect by hand) leads out of failed,
/// and so does another credential if the old one was the reason. Disconnect leads from every state to disconnected;
/// from connected, and while a server that has accepted the session restores it, it first passes through disconnecting
/// to flush and say goodbye.
///
/// A session may also go down on its own, to rest: when nothing uses it (`idle`, with `on-demand`), and before the host
/// sleeps (`suspend`). The next use, or waking, then leads from disconnected to connecting, unless an explicit
/// disconnect comes in between.
///
/// There are no other transitions. In particular, nothing that completes late causes one, because each input about a
/// connection carries the generation of the attempt that opened it.
///
/// A rejected credential is not a state of its own: the session keeps connecting or starts to reconnect, and the next
/// attempt first finds out whether there is another credential. If there is none, the session fails with what the
/// server said.
///
/// While it tries, a session waits for the network (no path to any endpoint), waits for a delay from its table, or has
/// an attempt under way; these are the cases of `Trying.Activity`.
public struct SessionMachine: Sendable {
    let policy: ReconnectPolicy
    let timeouts: AttemptTimeouts
    package let heartbeatPolicy: HeartbeatPolicy
    let rest: RestPolicy

    /// How late a server may notice that a client is silent: mosquitto 2.0.11 looks only every few seconds.
    public static let serverLateness: Duration = .seconds(8)

    var state: State = .disconnected
    /// Why the present state was entered, or why the last attempt failed.
    public internal(set) var reason: Reason
    /// When the present state was entered.
    public internal(set) var since: Instant
    var endpoints: Endpoints
    var pacing: Pacing
    /// Decides when to look for other devices. Its owner sets its strategy, and whether there is a room to look into.
    public var rivalry = Rivalry()
    /// What the server may hold of the session if it does not hear the goodbye. Its owner sets what is public.
    public var remains = Remains()
    /// Whether something for the server waits until it is on disk. Set by its owner.
    public var awaitsStore = false
    var demand: Demand
    var handovers: HandoverPacing
    var escalation = Escalation.none
    var discards = Discards()
    /// How many endings that must not be repeated there were at each endpoint since the last stable connection.
    var refusals: [EndpointIndex: Int] = [:]
    var lastGeneration = Generation(rawValue: 0)
    /// Whether an earlier machine of the session has tried to connect since somebody asked for that, so that this one's
    /// first attempt is not the session's very first.
    var isContinued = false
    /// The life of the credential that the attempt or connection uses; `nil` if it is not known to expire.
    var credential: CredentialLife?
    /// Its owner restores what an earlier machine of the session had counted.
    public package(set) var counters = Counters()

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
        self.endpoints = Endpoints(paths: paths, isBound: isBound, policy, seed: seed)
        self.pacing = Pacing(policy, seed: seed)
        self.demand = Demand(idleTimeout: rest.idleTimeout, at: now)
        self.handovers = HandoverPacing(calm: policy.stableAfter)
        let isOnDemand = rest.idleTimeout != nil
        self.reason = Reason(isOnDemand ? .idle : .notStarted)
        self.since = now
    }

    /// Restores the state that an earlier run of the daemon left: the session had been disconnected by command, or had
    /// failed for a reason that trying again cannot change. Only for a machine that has not received any input yet.
    public mutating func restore(isFailed: Bool, reason: Reason) {
        precondition(state == .disconnected && lastGeneration.rawValue == 0, "only a new machine can take up a state")
        self.reason = reason
        isContinued = isFailed
        state = isFailed ? .failed : .disconnected
    }

    /// The outage that the session is in; `nil` also if the reconnect was planned.
    package var outage: Outage? {
        guard case .trying(let trying) = state, var outage = trying.outage, !outage.isPlanned else { return nil }
        outage.countsFrom = trying.startedAt
        return outage
    }

    /// What has happened to the session since the daemon knows it.
    public struct Counters: Hashable, Sendable {
        /// Attempts to connect, failed ones included.
        public var attempts = 0
        /// How often the session became connected.
        public var connects = 0
        /// How often it did so with the server's session resumed.
        public var resumes = 0
        /// How often the connection was lost; a planned reconnect counts only if its first attempt failed.
        public var outages = 0
        /// Zero until an outage has ended.
        public var longestOutage: Duration = .zero
    }
}

// MARK: - States

extension SessionMachine {
    enum State: Hashable, Sendable {
        /// Can transition to: trying (connect, reconnect; if it rests, also a use or waking).
        case disconnected
        /// Connecting or, with an outage, reconnecting. Can transition to: trying, connected, failed, disconnecting (if a
        /// server has accepted the attempt), disconnected.
        case trying(Trying)
        /// Can transition to: trying, failed, disconnecting.
        case connected(Connected)
        /// Can transition to: disconnected; trying if connect, reconnect, a use or waking comes first.
        case disconnecting(Disconnecting)
        /// Can transition to: trying (connect, reconnect, another credential), disconnected.
        case failed
    }

    struct Trying: Hashable, Sendable {
        enum Activity: Hashable, Sendable {
            /// No path to any endpoint; one safety attempt at the given time.
            case waitingForNetwork(safetyAttempt: Instant)
            /// `isHastened` if a network event or an answered knock brought the attempt forward, though not to the present moment.
            case waiting(until: Instant, isHastened: Bool)
            case attempting(Attempt, phase: Phase, deadline: Instant, established: Established?)
        }

        var activity: Activity
        /// Later than it really was by what the host has slept since.
        var startedAt: Instant
        /// When a sleep was last discounted.
        var discountedAt: Instant?
        /// Why the session connects, or why the connection was lost.
        var cause: Reason
        /// `nil` if the session has not been up since the last explicit connect.
        var outage: Outage?
        var rival: RivalSigns
        /// Whether the next attempt takes over from any other device: it is the very first one after somebody asked to
        /// connect, or that one has taken over and then failed. Having to wait for the network cancels this.
        var takesOver = false
        var attempts = 0
        /// How many attempts failed although there was a path. One that only helped to find a message or filter that
        /// the server objects to does not count.
        var failures = 0
        /// How many endings in a row belonged to such a search without finding anything.
        var searches = 0
        /// The endpoints where nothing listened.
        var refusedBy: Set<EndpointIndex> = []
        /// The endpoints whose servers have shown an invalid certificate.
        var unproven: Set<EndpointIndex> = []
        /// The endpoint that the session left to return to the first one.
        var returnsFrom: EndpointIndex?
        /// The endpoint of the last attempt, if the server there had a session other than the expected one.
        var mismatchedAt: EndpointIndex?
        var credential = CredentialTrial()
        /// The network event or command that started the present attempt early.
        var hasteReason: Reason?
        /// Why the last attempt failed, or there was no network for the next one; `nil` if none has.
        var lastFailure: Reason?
        /// Why the last attempt, or the connection, ended, whatever the network has done since; `nil` if none has, or if
        /// the network was the cause.
        var lastEnding: Reason?
        /// When the present attempt last sent something before the server accepted it: CONNECT, or what follows it.
        var lastSent: Instant?
    }

    /// What suggests that another device has displaced the session.
    struct RivalSigns: Hashable, Sendable {
        /// Whether a server has accepted an attempt since trying began, or since a person last asked. Only a session
        /// that was thrown out after that may have been displaced.
        var wasAccepted = false
        /// Whether what ended last was a connection that the server had accepted, and then closed without giving a
        /// reason.
        var followsSuddenClose = false
        /// The endpoints whose servers closed such a connection: that was another device's doing, as far as is known.
        /// A server that refuses connections afterwards was stopped, which explains its own close, but no other one's.
        /// `nil` is the endpoint of an earlier run of the daemon.
        var closedBy: Set<EndpointIndex?> = []
    }

    /// From the moment a connected session is lost until it is connected again.
    public struct Outage: Hashable, Sendable {
        package let since: Instant
        /// When `giveUpAfter` began to count: later than `since` by what the host has slept.
        var countsFrom: Instant
        /// The endpoint whose connection was lost; `nil` if it is not known.
        let endpoint: EndpointIndex?
        /// Whether the session left the connection on its own, or was asked to, and no attempt has failed yet: then it
        /// does not count as an outage.
        var isPlanned: Bool
        var isReportedLost = false

        init(since: Instant, endpoint: EndpointIndex?, isPlanned: Bool) {
            (self.since, self.endpoint, self.isPlanned) = (since, endpoint, isPlanned)
            countsFrom = since
        }

        /// An outage that an earlier run of the daemon was in.
        ///
        /// - Parameter countsFrom: since when it counts against `giveUpAfter`, if not from its beginning.
        package init(since: Instant, countsFrom: Instant? = nil) {
            self.init(since: since, endpoint: nil, isPlanned: false)
            self.countsFrom = countsFrom ?? since
        }
    }

    /// What has to be set up again. It only grows until a full reconnect has succeeded: a server that lost the session
    /// creates a new one at the first try, and would report the second try as resumed.
    enum Escalation: Int, Hashable, Sendable, Comparable {
        /// The server is expected to have the session.
        case none
        /// The server had lost the session.
        case full
        /// The server that accepts it must discard the session: a person asked for it while there was no connection.
        case discard
        /// The server has discarded the session, and the new one is not set up yet.
        case discarded

        static func < (left: Escalation, right: Escalation) -> Bool { left.rawValue < right.rawValue }
    }

    /// Which servers must not keep the session that they have.
    struct Discards: Sendable {
        /// The endpoints whose servers must discard it, since its state is unusable, or a person asked for it. At another
        /// endpoint, the session may be well, or an older copy of it may have messages that exist nowhere else.
        var sessions: Set<EndpointIndex> = []
        /// The endpoints that should have discarded the session when it continued at another one. If their servers share
        /// nothing with that one, they have an older copy, which is as unusable as it was.
        var olderCopies: Set<EndpointIndex> = []
    }

    /// What the server said when it accepted the session, kept until the session is restored.
    struct Established: Hashable, Sendable {
        var serverKeepAlive: Duration?
        /// The heartbeat while restoring, which may take longer than the keep-alive: a server that leaves one
        /// subscription unanswered is still alive, and would end the connection if it heard nothing.
        var heartbeat: Heartbeat
        var delivery: DeliveryWatch
        /// What was under way when the time to restore was over, or what was sent behind it once that has arrived; `nil`
        /// before.
        var ahead: BytesAhead?
    }

    struct Connected: Hashable, Sendable {
        let attempt: Attempt
        let resumed: Bool
        let since: Instant
        var heartbeat: Heartbeat
        var quality = QualityEstimator()
        /// The kernel's last measurement of the connection.
        var transport: TCPMeasurement?
        /// Set while the path is lost: the connection is kept until then.
        var heldUntil: Instant?
        /// The index of the interface to which the connection is bound.
        var boundTo: Int32?
        var delivery: DeliveryWatch
        /// `nil` while the first endpoint is in use.
        var returning: Returning?
        /// The endpoint that the session left to return to this one, the first.
        var returnedFrom: EndpointIndex?
        /// The path that the connection was made on; `nil` if the kernel had none.
        var path: Path?
        /// Set while the session is about to move to a connection on another path.
        var handover: Handover?
        /// When the server was last heard before the path moved, if the connection was in doubt by then.
        var doubtedSince: Instant?
        /// Whether a person simulates that nothing comes through.
        var isSilenced = false
    }

    struct Disconnecting: Hashable, Sendable {
        enum Step: Hashable, Sendable {
            case flushing, sayingGoodbye
        }

        let attempt: Attempt
        let step: Step
        let deadline: Instant
    }
}

// MARK: - Inputs

extension SessionMachine {
    /// Takes one input and appends the actions that follow.
    ///
    /// Visible changes are reported here and nowhere else, by comparing what people see before and after.
    public mutating func handle(_ input: Input, at now: Instant, into actions: inout [Action]) {
        let before = visible
        let qualityBefore = quality
        let sinceBefore = since
        let acceptedBefore = accepted
        transition(on: input, at: now, into: &actions)
        if acceptedBefore != nil, accepted != acceptedBefore { remains.connectionEnded = now }
        if let quality, quality != qualityBefore { actions.append(.report(.qualityChanged(quality))) }
        let after = visible
        guard after != before else { return }
        // The attempt under way continues in the other mode, and anyone who was told "quick" has to know.
        if before.mode == .quick, after.mode == .full { actions.append(.report(.reconnectStarted(.full))) }
        if after.state != before.state { since = now }
        actions.append(
            .report(.stateChanged(from: before.state, lasted: sinceBefore.duration(to: now))))
    }

    /// Notes that bytes were read from the connection: it was alive when they arrived.
    ///
    /// - Parameter arrival: when they arrived, if they have waited since then. What arrived before a question was asked
    ///   is no answer to it.
    public mutating func heard(_ generation: Generation, arrivedAt arrival: Instant? = nil, at now: Instant) {
        let arrival = arrival ?? now
        guard case .connected(var connected) = state, connected.attempt.generation == generation else {
            return whileRestoring(generation) {
                $0.heartbeat.heard(arrivedAt: arrival, at: now)
                $0.delivery.heard(arrivedAt: arrival)
            }
        }
        connected.heartbeat.heard(arrivedAt: arrival, at: now)
        connected.delivery.heard(arrivedAt: arrival)
        state = .connected(connected)
    }

    /// Notes that bytes were sent on the connection: the server knows that we are alive.
    public mutating func sent(_ generation: Generation, at now: Instant) {
        guard case .connected(var connected) = state, connected.attempt.generation == generation else {
            noteLogin(generation, sentAt: now)
            return whileRestoring(generation) {
                $0.heartbeat.sent(at: now)
                $0.delivery.sent(at: now, patience: DeliveryWatch.patience(roundTrip: nil, variation: nil))
            }
        }
        connected.heartbeat.sent(at: now)
        connected.delivery.sent(at: now, patience: connected.patience)
        state = .connected(connected)
    }

    private mutating func noteLogin(_ generation: Generation, sentAt now: Instant) {
        guard case .trying(var trying) = state,
            case .attempting(let attempt, .authenticating, _, nil) = trying.activity, attempt.generation == generation
        else { return }
        trying.lastSent = now
        state = .trying(trying)
    }

    /// Notes that the server waits for something of ours before it can answer a login: its time begins again.
    public mutating func isOurTurn(_ generation: Generation, at now: Instant) {
        guard case .trying(var trying) = state,
            case .attempting(let attempt, .authenticating, let deadline, nil) = trying.activity,
            attempt.generation == generation
        else { return }
        trying.activity = .attempting(
            attempt, phase: .authenticating, deadline: max(deadline, now.advanced(by: timeouts.authenticate)),
            established: nil)
        state = .trying(trying)
    }

    /// Changes what is known about an attempt that the server has accepted.
    mutating func whileRestoring(_ generation: Generation, _ change: (inout Established) -> Void) {
        guard case .trying(var trying) = state,
            case .attempting(let attempt, let phase, let deadline, var established?) = trying.activity,
            attempt.generation == generation
        else { return }
        change(&established)
        trying.activity = .attempting(attempt, phase: phase, deadline: deadline, established: established)
        state = .trying(trying)
    }
}
