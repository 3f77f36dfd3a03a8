/// The bytes that were given to a connection up to a question. The server's program cannot answer before all of them have
/// arrived, and as long as its kernel acknowledges some of them, the answer is late and the connection is not dead.
///
/// The first look at the connection after the question says how many bytes there are.
struct BytesAhead: Hashable, Sendable {
    /// How many bytes are acknowledged when all of these are; `nil` before the first look.
    private var end: Int?
    private var acknowledged = 0
    private var lookedAt: Instant

    init(at now: Instant) {
        lookedAt = now
    }

    /// Whether some had not arrived at the last look.
    var isUnderWay: Bool { end.map { acknowledged < $0 } ?? false }

    /// - Returns: when the last acknowledgement of them came, as far as is known; `nil` if there was none since the
    ///   last look.
    mutating func measured(_ measurement: TCPMeasurement, at now: Instant) -> Instant? {
        let wasUnderWay = isUnderWay
        let (acknowledgedBefore, lookedBefore) = (acknowledged, lookedAt)
        acknowledged = measurement.acknowledgedBytes
        lookedAt = now
        guard end != nil else {
            end = measurement.acknowledgedBytes + measurement.pendingBytes
            return nil
        }
        guard wasUnderWay, acknowledged > acknowledgedBefore else { return nil }
        return max(lookedBefore, now.advanced(by: .zero - (measurement.sinceAcknowledgement ?? .zero)))
    }
}
