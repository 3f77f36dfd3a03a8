import Glibc
import NIOCore

// How TCP sends again what is not acknowledged. By itself it waits twice as long after each try, so that data may lie
// around for seconds when an outage is over. The measurements are in the decision page 0017.

extension SocketOptionProvider {
    /// While few segments are on their way, the first six tries are the same time apart. Kernels know this since 2.6.34.
    func retryEvenly() {
        _ = unsafeSetSocketOption(
            level: .init(rawValue: CInt(IPPROTO_TCP)), name: .init(rawValue: TCP_THIN_LINEAR_TIMEOUTS), value: CInt(1))
    }

    /// No packet leaves, or comes in, by another interface from now on.
    func bind(to interface: String) -> EventLoopFuture<Void> {
        unsafeSetSocketOption(
            level: .init(rawValue: SOL_SOCKET), name: .init(rawValue: SO_BINDTODEVICE), value: InterfaceName(interface))
    }
}

extension Connection {
    /// The tries after those come soon as well: the time between two of them is limited, to what is surely longer than a
    /// round trip on this path. Kernels know this since 6.15; where they do not, the longer waits remain.
    func limitRetransmissionTimeout() {
        withSocket { socket in
            guard let roundTrip = TCPMeasurement(descriptor: socket)?.roundTrip else { return }
            var limit = Self.retransmissionLimit(roundTrip: roundTrip)
            setsockopt(
                socket, CInt(IPPROTO_TCP), TCP_RTO_MAX_MS, &limit, socklen_t(MemoryLayout<CInt>.size))
        }
    }

    /// In milliseconds, as far as the kernel takes it. A limit below the round-trip time would send everything twice, and a
    /// queue on the way can make that much longer than it was for the handshake.
    static func retransmissionLimit(roundTrip: Duration) -> CInt {
        CInt(min(max(roundTrip * 8 / .milliseconds(1), 1_000), 120_000))
    }
}

/// Of <linux/tcp.h>, and too new for the C library's header.
private let TCP_RTO_MAX_MS: CInt = 44
