import Glibc
import NIOCore
import Vocabulary

// How TCP sends again what is not acknowledged. By default it doubles the wait after each try, so that data may still
// wait for seconds after an outage has ended. The measurements are in the decision page 0017; it also says why there is no
// TCP_USER_TIMEOUT.

extension SocketOptionProvider {
    /// Sets when the kernel sends again, and when it probes an idle connection.
    func set(_ options: Connection.Options) {
        retryEvenly()
        let idle = options.keepAlive
        set(TCP_KEEPIDLE, Self.seconds(idle))
        set(TCP_KEEPINTVL, Self.seconds(idle / 4))
        set(TCP_KEEPCNT, 4)
        _ = unsafeSetSocketOption(level: .socket, name: .so_keepalive, value: CInt(1))
    }

    private func set(_ option: CInt, _ value: CInt) {
        _ = unsafeSetSocketOption(level: .tcp, name: .init(rawValue: option), value: value)
    }

    /// Whole seconds, rounded up, within the kernel's range 1...32767.
    private static func seconds(_ duration: Duration) -> CInt {
        let (seconds, fraction) = duration.components
        return CInt(min(max(seconds + (fraction > 0 ? 1 : 0), 1), 32_767))
    }

    /// While few segments are unacknowledged, makes the first six tries evenly spaced. Kernels know this since 2.6.34.
    private func retryEvenly() {
        set(TCP_THIN_LINEAR_TIMEOUTS, 1)
    }

    /// Binds the socket to an interface: no packet leaves or arrives by another one from now on.
    func bind(to interface: String) -> EventLoopFuture<Void> {
        unsafeSetSocketOption(
            level: .init(rawValue: SOL_SOCKET), name: .init(rawValue: SO_BINDTODEVICE), value: InterfaceName(interface))
    }
}

extension Connection {
    /// Makes the later tries come soon as well: limits the time between two of them to more than any round trip on this
    /// path should take. Kernels know this since 6.15; on older ones the longer waits remain.
    func limitRetransmissionTimeout() {
        withSocket { socket in
            guard let roundTrip = TCPMeasurement(descriptor: socket)?.roundTrip else { return }
            var limit = Self.retransmissionLimit(roundTrip: roundTrip)
            setsockopt(
                socket, CInt(IPPROTO_TCP), TCP_RTO_MAX_MS, &limit, socklen_t(MemoryLayout<CInt>.size))
        }
    }

    /// Returns the limit in milliseconds, within the kernel's range. A limit below the round-trip time would send
    /// everything twice, and a queue on the way can make that time much longer than it was during the handshake.
    static func retransmissionLimit(roundTrip: Duration) -> CInt {
        CInt(min(max((roundTrip * 8).wholeMilliseconds, 1_000), 120_000))
    }
}

/// From <linux/tcp.h>; too new for the C library's header.
private let TCP_RTO_MAX_MS: CInt = 44
