public import NIOCore

extension Connection {
    /// The only interface that a connection may use, and the addresses reached through it.
    public struct Way: Hashable, Sendable {
        /// The name of the interface that the connection's sockets are bound to (SO_BINDTODEVICE of socket(7)).
        public var interface: String
        /// The addresses that are reached through it. Not empty.
        public var addresses: [SocketAddress]
        /// Whether the addresses are this host's own. The sockets are not bound then: no packet leaves the host, and the
        /// kernel delivers those to an address of another interface as if they had arrived there.
        public var staysHere: Bool

        public init(interface: String, addresses: [SocketAddress], staysHere: Bool = false) {
            self.interface = interface
            self.addresses = addresses
            self.staysHere = staysHere
        }
    }
}

/// The name of an interface as the kernel takes it: `char[IFNAMSIZ]`.
struct InterfaceName: Sendable {
    private var bytes: (UInt64, UInt64) = (0, 0)

    /// Uses only the first 15 bytes of the name.
    init(_ name: String) {
        withUnsafeMutableBytes(of: &bytes) { $0.copyBytes(from: name.utf8.prefix(15)) }
    }
}
