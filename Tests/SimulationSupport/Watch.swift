import ControlAPI

@testable import SessionCore

/// What is seen of one session over time, as far as it tells whether the session keeps to its policy.
struct Watch {
    private(set) var dials: [Instant] = []
    /// Since when there has been no path; `nil` while there is one.
    var offlineSince: Instant?
    /// The deadlines for which the session asked to be woken while it was offline.
    var deadlines: Set<Instant> = []
    var dialsOffline = 0
    /// Since when it has been seen that the session was not woken in time.
    var isLateSince: Instant?
    /// The path was gained after a long time without one, and nothing has gone wrong since.
    var isFresh = false
    /// The first wait after that, in seconds.
    var firstWait: (seconds: Double, reason: String)?

    /// Ends since the session was connected last that had another reason than something that the server cannot bear.
    private(set) var otherEnds = 0

    /// What was told of each subscription last.
    private(set) var subscriptions: [String: SessionStatus.Subscription.State] = [:]

    mutating func told(_ subscription: SessionStatus.Subscription) {
        subscriptions[subscription.filter] = subscription.state
    }

    /// - Parameter isKnock: it was only to look whether a server answers, which may be done as often as the policy says.
    mutating func dialed(at now: Instant, isKnock: Bool) {
        if !isKnock { dials.append(now) }
        if offlineSince != nil { dialsOffline += 1 }
    }

    mutating func changed(_ event: SessionEvent, isGrudge: (String) -> Bool) {
        if event.state == .connected {
            otherEnds = 0
        } else if event.state != .failed, let reason = event.reason, !isGrudge(reason.message) {
            otherEnds += 1
        }
        guard isFresh else { return }
        if event.state == .connected || event.state == .disconnected || event.state == .failed { isFresh = false }
        guard event.phase == .waiting, let retryIn = event.retryIn else { return }
        isFresh = false
        firstWait = (retryIn, event.reason?.code ?? "")
    }

    /// Since something happened that the session may answer with attempts.
    mutating func disturbed() { dials.removeAll(keepingCapacity: true) }

    /// How many dials there were in the time before now.
    func dials(within duration: Duration, of now: Instant) -> Int {
        dials.reversed().prefix { $0.duration(to: now) <= duration }.count
    }
}
