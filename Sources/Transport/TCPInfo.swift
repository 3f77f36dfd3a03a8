import Glibc
import Vocabulary

extension TCPMeasurement {
    /// - Returns: `nil` if the descriptor is not a TCP connection, or has no measurement yet.
    init?(descriptor: CInt) {
        var info = tcp_info()
        var length = socklen_t(MemoryLayout<tcp_info>.size)
        guard getsockopt(descriptor, CInt(IPPROTO_TCP), TCP_INFO, &info, &length) == 0, info.tcpi_rtt > 0 else {
            return nil
        }
        self.init(
            roundTrip: .microseconds(Int64(info.tcpi_rtt)), variation: .microseconds(Int64(info.tcpi_rttvar)),
            retransmissions: Int(info.tcpi_total_retrans), unacknowledged: Int(info.tcpi_unacked),
            retries: Int(info.tcpi_retransmits), sinceAcknowledgement: .milliseconds(Int64(info.tcpi_last_ack_recv)))
    }
}
