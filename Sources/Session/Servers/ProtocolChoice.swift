package import MQTT

/// Which version of MQTT to use for the next connection to a server: the configured one or, with `auto`, 5 first and
/// 3.1.1 if the server does not accept 5. The choice is remembered for each address, for as long as the daemon has the
/// session.
///
/// A server that explicitly refuses 5 means it. One that closes the connection after CONNECT may mean the same, or may
/// have been restarted: then 3.1.1 is used, but remembered only when this has happened twice. Decision 12 has the
/// reasons.
package struct ProtocolChoice: Sendable {
    private struct Server: Sendable {
        var next = ProtocolVersion.five
        /// The versions that the server explicitly refused since it last accepted a connection.
        var refused: Set<ProtocolVersion> = []
        /// How often a close without a reason led to 3.1.1.
        var detours = 0
        /// Whether the version is known: then a closed connection says nothing about it.
        var isKnown = false
    }

    private let configured: ProtocolVersion?
    private var servers: [Endpoint: Server] = [:]

    /// - Parameter configured: the one version to use; `nil` for `auto`.
    package init(_ configured: ProtocolVersion?) {
        self.configured = configured
    }

    package func version(at address: Endpoint) -> ProtocolVersion {
        configured ?? servers[address, default: Server()].next
    }

    /// The version that messages are accepted for while there is no connection: 3.1.1 only if the server is known not to
    /// accept 5.
    package func expected(at address: Endpoint) -> ProtocolVersion {
        guard configured == nil, let server = servers[address] else { return configured ?? .five }
        return server.isKnown || server.refused.contains(.five) ? server.next : .five
    }

    /// Whether the next connection uses 3.1.1 only because of a close, which may have had another reason. The connection after
    /// it uses 5.
    package func isTentative(at address: Endpoint) -> Bool {
        guard configured == nil, let server = servers[address] else { return false }
        return server.next == .threeOneOne && !server.isKnown && !server.refused.contains(.five) && server.detours == 0
    }

    /// The server said that it does not speak the version.
    ///
    /// - Returns: the version to try at once; `nil` when none is left.
    package mutating func refused(_ version: ProtocolVersion, at address: Endpoint) -> ProtocolVersion? {
        guard configured == nil else { return nil }
        var server = servers[address, default: Server()]
        defer { servers[address] = server }
        server.isKnown = false
        server.refused.insert(version)
        guard server.refused.count < ProtocolVersion.allCases.count else {
            server = Server()
            return nil
        }
        server.next = version.other
        return server.next
    }

    /// The connection ended after CONNECT and before CONNACK, and the server did not say why.
    ///
    /// - Returns: the version to try at once; `nil` when there is no reason to hurry.
    package mutating func closed(_ version: ProtocolVersion, at address: Endpoint) -> ProtocolVersion? {
        var server = servers[address, default: Server()]
        guard configured == nil, !server.isKnown else { return nil }
        server.next = version.other
        servers[address] = server
        return version == .five ? server.next : nil
    }

    /// The server accepted a connection with the version.
    package mutating func connected(_ version: ProtocolVersion, at address: Endpoint) {
        guard configured == nil else { return }
        var server = servers[address, default: Server()]
        if version == .threeOneOne, !server.refused.contains(.five), !server.isKnown { server.detours += 1 }
        server.isKnown = server.isKnown || version == .five || server.refused.contains(.five) || server.detours > 1
        server.next = server.isKnown ? version : .five
        server.refused = []
        servers[address] = server
    }
}

extension ProtocolVersion {
    fileprivate var other: ProtocolVersion { self == .five ? .threeOneOne : .five }
}
