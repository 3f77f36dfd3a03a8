import Glibc
import Vocabulary

extension TCPMeasurement {
    /// - Parameter buffered: bytes that the kernel has not taken yet.
    /// - Returns: `nil` if the descriptor is not a TCP connection, or has no measurement yet.
    init?(descriptor: CInt, buffered: Int = 0) {
        // The C library's struct ends before what kernels report since 4.1, and 4.18.
        var answer = (
            info: tcp_info(), pacingRates: (UInt64(0), UInt64(0)), acknowledgedBytes: UInt64(0),
            receivedBytes: UInt64(0), segments: (UInt64(0), UInt64(0), UInt64(0)),
            rateAndTimes: (UInt64(0), UInt64(0), UInt64(0), UInt64(0)), deliveredSegments: UInt32(0)
        )
        var length = socklen_t(MemoryLayout.size(ofValue: answer))
        let result = withUnsafeMutableBytes(of: &answer) {
            getsockopt(descriptor, CInt(IPPROTO_TCP), TCP_INFO, $0.baseAddress, &length)
        }
        let info = answer.info
        guard result == 0, info.tcpi_rtt > 0 else { return nil }
        // SIOCOUTQ (tcp(7)): written by us, not acknowledged by the peer.
        var queued: CInt = 0
        guard ioctl(descriptor, UInt(TIOCOUTQ), &queued) == 0 else { return nil }
        self.init(
            roundTrip: .microseconds(Int64(info.tcpi_rtt)), variation: .microseconds(Int64(info.tcpi_rttvar)),
            retransmissions: Int(info.tcpi_total_retrans), unacknowledged: Int(info.tcpi_unacked),
            retries: Int(info.tcpi_retransmits), sinceAcknowledgement: .milliseconds(Int64(info.tcpi_last_ack_recv)),
            deliveredSegments: Int(answer.deliveredSegments),
            acknowledgedBytes: Int(clamping: answer.acknowledgedBytes), pendingBytes: Int(queued) + buffered)
    }
}
