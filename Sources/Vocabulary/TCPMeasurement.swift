/// What the kernel measured on a connection's own segments (`TCP_INFO`, tcp(7)).
public struct TCPMeasurement: Hashable, Sendable {
    /// Smoothed.
    public var roundTrip: Duration
    /// The mean deviation of the round-trip time.
    public var variation: Duration
    /// Segments retransmitted since the connection was opened.
    public var retransmissions: Int
    /// Segments in flight that the peer's kernel has not acknowledged.
    public var unacknowledged: Int
    /// How often the first of them has been retransmitted without an acknowledgement.
    public var retries: Int
    /// How long ago the peer's kernel last sent an acknowledgement, even one of nothing new, as with whatever it sends
    /// again; `nil` if unknown.
    public var sinceAcknowledgement: Duration?
    /// Segments that the peer's kernel has acknowledged since the connection was opened, those behind a gap included; `nil`
    /// if unknown.
    public var deliveredSegments: Int?
    /// Bytes that the peer's kernel has acknowledged since the connection was opened.
    public var acknowledgedBytes: Int
    /// Bytes that were given to the connection and are not acknowledged: in our queue, in the kernel's, or on the way.
    public var pendingBytes: Int

    /// Without other values: the measurement of a connection that loses nothing.
    public init(
        roundTrip: Duration, variation: Duration, retransmissions: Int = 0, unacknowledged: Int = 0, retries: Int = 0,
        sinceAcknowledgement: Duration? = nil, deliveredSegments: Int? = nil, acknowledgedBytes: Int = 0,
        pendingBytes: Int = 0
    ) {
        self.roundTrip = roundTrip
        self.variation = variation
        self.retransmissions = retransmissions
        self.unacknowledged = unacknowledged
        self.retries = retries
        self.sinceAcknowledgement = sinceAcknowledgement
        self.deliveredSegments = deliveredSegments
        self.acknowledgedBytes = acknowledgedBytes
        self.pendingBytes = pendingBytes
    }
}
