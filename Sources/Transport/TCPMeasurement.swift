import Glibc

/// What the kernel measured on a connection's own segments: `TCP_INFO` of tcp(7).
public struct TCPMeasurement: Hashable, Sendable {
    /// Smoothed.
    public var roundTrip: Duration
    /// The mean deviation of the round-trip time.
    public var variation: Duration
    /// Segments that were sent again since the connection was opened.
    public var retransmissions: Int
    /// Segments that were sent and are not acknowledged yet.
    public var unacknowledged: Int
    /// How often the first of them was sent again without an acknowledgement.
    public var retries: Int
    /// The time since the peer's kernel last acknowledged anything.
    public var sinceAcknowledgement: Duration

    /// Creates the measurement of a connection that loses nothing.
    package init(roundTrip: Duration, variation: Duration) {
        self.roundTrip = roundTrip
        self.variation = variation
        retransmissions = 0
        unacknowledged = 0
        retries = 0
        sinceAcknowledgement = .zero
    }

    /// - Returns: `nil` if the descriptor is not a TCP connection, or has no measurement yet.
    init?(descriptor: CInt) {
        var info = tcp_info()
        var length = socklen_t(MemoryLayout<tcp_info>.size)
        guard getsockopt(descriptor, CInt(IPPROTO_TCP), TCP_INFO, &info, &length) == 0, info.tcpi_rtt > 0 else {
            return nil
        }
        roundTrip = .microseconds(Int64(info.tcpi_rtt))
        variation = .microseconds(Int64(info.tcpi_rttvar))
        retransmissions = Int(info.tcpi_total_retrans)
        unacknowledged = Int(info.tcpi_unacked)
        retries = Int(info.tcpi_retransmits)
        sinceAcknowledgement = .milliseconds(Int64(info.tcpi_last_ack_recv))
    }
}
