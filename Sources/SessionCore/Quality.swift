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
