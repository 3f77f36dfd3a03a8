// What goes into the machine and what comes out.

extension SessionMachine {
    /// What happened, or what was asked.
    public enum Input: Hashable, Sendable {
        /// Start, for example with reason `autoconnect` or `user-connect`.
        case connect(Reason)
        /// Goes on where an earlier machine of the session has left off, in the outage that it was in, if there was one.
        /// The first attempt takes the session from no other device.
        case resume(Outage?, Reason)
        /// Stop; accepted in every state.
        case disconnect(Reason)
        /// Drop the connection and try now; `nil` lets the session choose the mode.
        case reconnect(ReconnectMode?)
        /// Replace the connection at once: something changed that the server can learn only from a new one.
        case renew(Reason)
        /// The path to an endpoint is now `to`. For `movedSourceGone`, `from` has the address that has left the host.
        /// It is either the previous path (as `nil` also says) or an earlier one; in the latter case the path itself
        /// has not changed.
        case pathChanged(EndpointIndex, from: Path? = nil, to: Path?, PathClass)
        /// The kernel's own path to the endpoint, if the session must not use it, else `nil`. Given before the change
        /// of the path itself.
        case pathExcluded(EndpointIndex, Path?)
        /// Whether the kernel may find a path to an endpoint that has none when it is tried, because another interface than
        /// the one that it names has a route too. Given before the change of the path itself.
        case detour(EndpointIndex, Bool)
        /// Something uses the session. Reporting a known use again changes nothing.
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
        /// The successor's transport is ready for CONNECT.
        case prepared(Generation)
        /// The successor's transport could not be set up, or has closed again.
        case preparationFailed(Generation)
        /// Nothing is in flight any more on a connection that is about to be left.
        case settled(Generation)
        /// The server accepted the session; `resumed` says whether it still had it.
        case established(Generation, resumed: Bool, serverKeepAlive: Duration?)
        /// The subscriptions are acknowledged: the session is as it was before.
        case restored(Generation)
        /// The attempt failed, or the connection was lost.
        case ended(Generation, Ending)
        /// The server answered a heartbeat.
        case heartbeatAnswered(Generation)
        /// The kernel's measurement of the connection. Given when the session is connected, with every answer to a
        /// heartbeat, and right before `timeReached`.
        case measured(Generation, TCPMeasurement)
        /// The attempt has to fetch its credential before it does anything else.
        case credentialAwaited(Generation)
        /// The credential's helper command cannot run yet. No limit counts until `credentialAwaited` is given again.
        case credentialQueued(Generation)
        /// The attempt has its credential, and knows when that expires if its source says so. Given again when the end
        /// moves because the host's clock was set.
        case credentialObtained(Generation, expiresAt: Instant?)
        /// A new credential is ready for the next attempt.
        case credentialRenewed(Generation, expiresAt: Instant?)
        /// The server has accepted a new credential on the existing connection.
        case credentialReplaced(Generation, expiresAt: Instant?)
        /// A new credential could not be fetched, or it was the same.
        case credentialRenewalFailed(Generation)
        /// From now on nothing comes through on the connection, because a person simulates that.
        case silenced(Generation)
        /// The credential's file, or that of the authorities, has changed since it was read.
        case credentialChanged
        /// Everything accepted has been acknowledged, or there was nothing to flush.
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
        /// Whether a lost connection is continued at another endpoint: the second one if the first was in use, else the
        /// first. Not used for failed attempts, which nearly always go on to the next endpoint.
        public var leavesEndpoint: Bool
        /// Whether a second ending like this, without a stable connection in between, is terminal once every endpoint has
        /// had one.
        public var failsIfRepeated = false
        /// Whether the endpoint had redirected the attempt, and the ending is about that other server. It then says
        /// about the endpoint's own address only that it answered.
        public var isElsewhere = false
        /// Whether the endpoint leads to another address now. The attempt after a failed one is then made there.
        public var hasOtherAddress = false

        /// What the ending means for the search for the one thing that makes the server end connections.
        public var search = Search.none

        /// How far a search for the one thing that makes the server end connections has come.
        public enum Search: Hashable, Sendable {
            /// No search is under way.
            case none
            /// The search begins, or goes on: what was sent may have caused the ending.
            case suspected
            /// The search goes on, and what was sent has caused the ending.
            case continued
            /// The thing is set aside, and is not sent to the server again.
            case found

            /// Whether a message that was sent has caused the ending, and so no other device has.
            var isAboutMessage: Bool { self == .continued || self == .found }
        }

        /// When the next attempt is made.
        public enum Pace: Hashable, Sendable {
            /// As usual for the reason.
            case byReason
            /// Without a delay, unless the last attempt had none either: what was wrong has changed.
            case atOnce
            /// After the floor for busy servers, which stays as it is.
            case slow
            /// After the floor for busy servers, which doubles each time.
            case floor
            /// Like `floor`, but starting at twice the floor.
            case doubledFloor
            /// At once at the same endpoint, in another way: it now leads to another server, is spoken to in another
            /// version of the protocol, or has discarded the session. Its owner limits how often.
            case otherWay
            /// As usual, but at the same endpoint, and within a few seconds: later, a rival would be back, and undo what
            /// was done.
            case soon
        }

        public init(_ reason: Reason, retryAfter: Duration? = nil, mayHaveNewCredential: Bool = false) {
            self.reason = reason
            self.retryAfter = retryAfter
            self.mayHaveNewCredential = mayHaveNewCredential
            leavesEndpoint = NextAttempt(after: reason.code).leavesEndpoint
        }
    }

    /// What its owner does, in this order.
    public enum Action: Hashable, Sendable {
        /// Open a connection for this attempt and report its progress.
        case open(Attempt)
        /// Drop the attempt or connection without a goodbye.
        case abandon(Generation)
        /// Set up the transport of this attempt, everything before CONNECT, beside the connection in use, and report
        /// `prepared` or `preparationFailed`. It is kept as long as `successor` names it; `open` may follow at any
        /// time, and continues on it.
        case prepare(Attempt)
        /// Start nothing new on this connection while `isSettling` is true, and report `settled` when everything begun
        /// on it is finished.
        case settle(Generation)
        /// Say goodbye and close the connection without waiting for anything: the session continues elsewhere.
        case leave(Generation)
        /// Wait until everything that was sent is acknowledged, then report `flushed`.
        case flush(Generation)
        /// Leave gracefully, then report `closed`.
        case sayGoodbye(Generation)
        case sendHeartbeat(Generation)
        /// Fetch a new credential, then report `credentialRenewed` or `credentialRenewalFailed`.
        case renewCredential(Generation)
        /// Open a TCP connection to the endpoint and nothing more, and report `knocked`. It replaces an earlier knock
        /// at the same endpoint. A connection that was answered is kept while `wantsKnock` is true.
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
}
