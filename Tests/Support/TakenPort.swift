import Glibc
import NIOCore

/// A port of this host, IPv4 and IPv6, that refuses connections. It is bound, so that nothing else gets the port by
/// chance; only a socket with SO_REUSEPORT that asks for it can listen there.
public final class TakenPort: Sendable {
    public let port: Int
    private let socket: CInt

    public init() throws {
        let socket = Glibc.socket(AF_INET6, CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
        for (level, option, value) in [(CInt(IPPROTO_IPV6), IPV6_V6ONLY, CInt(0)), (SOL_SOCKET, SO_REUSEPORT, 1)] {
            withUnsafeBytes(of: value) { _ = setsockopt(socket, level, option, $0.baseAddress, socklen_t($0.count)) }
        }
        let anywhere = try SocketAddress(ipAddress: "::", port: 0)
        // The port follows the family, most significant byte first, in both families.
        var bound = [UInt8](repeating: 0, count: MemoryLayout<sockaddr_storage>.size)
        let isBound = bound.withUnsafeMutableBytes { bytes in
            var length = socklen_t(bytes.count)
            return anywhere.withSockAddr { bind(socket, $0, socklen_t($1)) } == 0
                && getsockname(socket, bytes.baseAddress?.assumingMemoryBound(to: sockaddr.self), &length) == 0
        }
        self.socket = socket
        guard isBound else { throw Lab.Failure("cannot bind a port: error \(errno)") }
        port = Int(bound[2]) << 8 | Int(bound[3])
    }

    deinit { close(socket) }
}
