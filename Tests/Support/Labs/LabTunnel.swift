import Glibc

/// A tunnel in a namespace, like a VPN's, that swallows what it is given. It is removed with its last reference.
public final class LabTunnel: Sendable {
    private let descriptor: CInt

    /// Creates it, sets it up and gives it an address.
    ///
    /// - Parameter address: with prefix length, for example `10.50.0.1/24`.
    public init(_ name: String, address: String, in namespace: Namespace) async throws {
        descriptor = try await onThread {
            try namespace.enter()
            let descriptor = open("/dev/net/tun", O_RDWR | O_CLOEXEC)
            // struct ifreq: the name, then IFF_TUN | IFF_NO_PI.
            var request = [UInt8](repeating: 0, count: 40)
            request.replaceSubrange(0..<name.utf8.count, with: name.utf8)
            request.replaceSubrange(16..<18, with: [0x01, 0x10])
            let setInterface: UInt = 0x4004_54ca
            guard descriptor >= 0, ioctl(descriptor, setInterface, &request) == 0 else {
                throw Lab.Failure("no tunnel can be made: errno \(errno)")
            }
            return descriptor
        }
        try await namespace.ip("addr add \(address) dev \(name)", "link set \(name) up")
    }

    deinit {
        close(descriptor)
    }
}
