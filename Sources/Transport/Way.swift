public import NIOCore

extension Connection {
    /// The only interface that a connection may use, and the addresses reached through it.
    public struct Way: Hashable, Sendable {
        /// The name of the interface that the connection's sockets are bound to (SO_BINDTODEVICE of socket(7)).
        public var interface: String
        /// The addresses that are reached through it. Not empty.
        public var addresses: [SocketAddress]

        public init(interface: String, addresses: [SocketAddress]) {
            self.interface = interface
            self.addresses = addresses
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
