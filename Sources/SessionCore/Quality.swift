/// What the kernel measured on the connection's own segments (`TCP_INFO`, tcp(7)).
public struct TransportMeasurement: Hashable, Sendable {
    /// The kernel's smoothed round-trip time.
    public var roundTrip: Duration
    /// Its mean deviation.
    public var variation: Duration
    /// Segments retransmitted since the connection was opened.
    public var retransmissions: Int
    /// Segments in flight that the server's kernel has not acknowledged.
    public var unacknowledged: Int
    /// How often the first of them has been retransmitted without an acknowledgement.
    public var retries: Int
    /// How long ago the server's kernel last acknowledged anything; `nil` if unknown.
    public var sinceAcknowledgement: Duration?

    /// - Parameters:
    ///   - roundTrip: the kernel's smoothed round-trip time.
    ///   - variation: its mean deviation.
    ///   - retransmissions: segments retransmitted since the connection was opened.
    ///   - unacknowledged: segments in flight.
    ///   - retries: how often the first of them has been retransmitted.
    ///   - sinceAcknowledgement: how long ago anything was last acknowledged.
    public init(
        roundTrip: Duration, variation: Duration, retransmissions: Int, unacknowledged: Int = 0, retries: Int = 0,
        sinceAcknowledgement: Duration? = nil
    ) {
        self.roundTrip = roundTrip
        self.variation = variation
        self.retransmissions = retransmissions
        self.unacknowledged = unacknowledged
        self.retries = retries
        self.sinceAcknowledgement = sinceAcknowledgement
    }
}

/// Grades a connection, with hysteresis: down at once, up only after several better measurements in a row, so that the
/// grade does not flicker at a boundary.
///
/// A leaf machine; the measurements are smoothed before they come here.
struct QualityEstimator: Hashable, Sendable {
    /// The most that a grade allows.
    struct Limits: Hashable, Sendable {
        var roundTrip: Duration
        var variation: Duration
        /// Retransmissions since the previous measurement.
        var retransmissions: Int
    }

    static let excellent = Limits(roundTrip: .milliseconds(150), variation: .milliseconds(30), retransmissions: 0)
    static let good = Limits(roundTrip: .milliseconds(400), variation: .milliseconds(100), retransmissions: 2)
    /// How many better measurements in a row raise the grade.
    static let patience = 3

    /// `nil` before the first measurement.
    private(set) var quality: Quality?
    private var betterInARow = 0
    private var retransmissions: Int?

    /// - Parameter total: retransmissions since the connection was opened; `nil` if unknown.
    mutating func measured(roundTrip: Duration, variation: Duration, retransmissions total: Int?) {
        // The first measurement has nothing to be compared with, and retransmissions of the handshake say little about
        // what follows.
        let fresh = total.map { max(0, $0 - (retransmissions ?? $0)) } ?? 0
        retransmissions = total ?? retransmissions
        adopt(Self.grade(roundTrip: roundTrip, variation: variation, retransmissions: fresh))
    }

    /// Lowers the grade to lost: the server is silent where it used to answer, or cannot be reached.
    mutating func nothingCameBack() {
        adopt(.lost)
    }

    private mutating func adopt(_ grade: Quality) {
        guard let quality, grade > quality else {
            quality = grade
            betterInARow = 0
            return
        }
        betterInARow += 1
        // A silence that ended is forgotten at once: only the grades above have to be earned slowly.
        guard betterInARow >= Self.patience || quality == .lost else { return }
        self.quality = quality == .lost ? min(grade, .poor) : grade
        betterInARow = 0
    }

    private static func grade(roundTrip: Duration, variation: Duration, retransmissions: Int) -> Quality {
        func isWithin(_ limits: Limits) -> Bool {
            roundTrip <= limits.roundTrip && variation <= limits.variation && retransmissions <= limits.retransmissions
        }
        return isWithin(excellent) ? .excellent : isWithin(good) ? .good : .poor
    }
}
