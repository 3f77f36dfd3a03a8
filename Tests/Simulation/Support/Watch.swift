import ControlAPI

@testable import SessionCore

/// What is observed of one session over time, to tell whether the session keeps to its policy.
struct Watch {
    private(set) var dials: [Instant] = []
    /// Since when there has been no path; `nil` while there is one.
    var offlineSince: Instant?
    /// The deadlines for which the session asked to be woken while it was offline.
    var deadlines: Set<Instant> = []
    var dialsOffline = 0
    /// When the session was to be woken, and since when that has been overdue; `nil` if it is not.
    var late: (deadline: Instant, since: Instant)?
    /// Whether the path was gained after a long time without one, and nothing has gone wrong since.
    var isFresh = false
    /// The first wait after that, in seconds.
    var firstWait: (seconds: Double, reason: String)?

    /// Failed attempts and connections since the session was last connected, without those that the server ended for
    /// something that it cannot bear.
    private(set) var otherEnds = 0

    /// The last reported state of each subscription.
    private(set) var subscriptions: [String: SessionStatus.Subscription.State] = [:]

    mutating func told(_ subscription: SessionStatus.Subscription) {
        subscriptions[subscription.filter] = subscription.state
    }

    /// - Parameter isKnock: whether it only knocks, which may happen as often as the policy says.
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

    /// Starts to count dials again, because something happened that the session may answer with attempts.
    mutating func disturbed() { dials.removeAll(keepingCapacity: true) }

    /// The number of dials in the time before now.
    func dials(within duration: Duration, of now: Instant) -> Int {
        dials.reversed().prefix { $0.duration(to: now) <= duration }.count
    }
}
