package import SessionCore

/// Where servers have sent a session instead of an endpoint of its list (MQTT 5, 4.11). A value without I/O, kept as
/// long as the daemon runs and the session's file does not change.
///
/// Scheme and path stay those of the endpoint, so a server cannot remove TLS. 0x9C applies to the next connection, 0x9D
/// to every later one, until the endpoint's own address accepts the session. If no connection to such a server comes
/// about, the next address of the server's list is tried, and after the last one the endpoint's own, so that servers
/// that went away do not keep the session down.
package struct Redirections: Sendable {
    package enum Outcome: Hashable, Sendable {
        /// The next attempt for this endpoint leads there.
        case followed(Endpoint)
        /// The redirection must not be followed, for this reason.
        case refused(String)
        /// Too many in a row.
        case tooMany
        /// The reference names no address.
        case empty
        /// Nothing in the reference can be dialed.
        case unusable
    }

    /// The most redirections that may follow one another without an ordinary attempt, or a stable connection, in
    /// between.
    package static let hopLimit = 3

    /// The most addresses of a server's list that are tried.
    package static let listLimit = 4

    private struct Target {
        /// The addresses of the server's list that may be used.
        let addresses: [Endpoint]
        let isRemembered: Bool
        /// How many of them have failed. None again when the endpoint's own address is tried.
        var failed = 0
        /// Whether the redirection came just before, and not all of its addresses have been tried.
        var isNew = true

        /// Where the next attempt leads; `nil`: to the endpoint's own address.
        var address: Endpoint? { failed < addresses.count ? addresses[failed] : nil }
    }

    private let endpoints: [Endpoint]
    private let patterns: [HostPattern]
    private let isInsecure: Bool
    private var needsEncryption: Bool
    private var targets: [EndpointIndex: Target] = [:]
    private var hops = 0
    /// Whether the attempt that began last follows a redirection that came just before it.
    package private(set) var hasFollowed = false
    /// Where a redirection led the attempt that began last.
    package private(set) var followedTo: Endpoint?
    /// The endpoint of the attempt that began last.
    private var present: EndpointIndex?
    /// The endpoint whose redirection is in use.
    private var inUse: EndpointIndex?
    private var isConnected = false

    /// - Parameters:
    ///   - endpoints: the session's list.
    ///   - patterns: the other servers that a redirection may lead to.
    ///   - hasPassword: whether a password is sent. ``passwordGiven()`` says so later.
    ///   - isInsecure: whether passwords may be sent unencrypted.
    package init(_ endpoints: [Endpoint], allowed patterns: [HostPattern], hasPassword: Bool, isInsecure: Bool) {
        self.endpoints = endpoints
        self.patterns = patterns
        self.isInsecure = isInsecure
        needsEncryption = hasPassword && !isInsecure
    }

    /// From now on a password is sent, because a program has given one. Redirections that were followed without one are
    /// forgotten if it must not be sent there.
    package mutating func passwordGiven() {
        needsEncryption = !isInsecure
        targets = targets.filter { !$0.value.addresses.contains(where: isExposed) }
    }

    /// Where the next attempt at an endpoint of the list will go.
    package func next(_ index: EndpointIndex) -> Endpoint { targets[index]?.address ?? endpoints[index.rawValue] }

    /// The address for an attempt at an endpoint of the list.
    package mutating func begin(_ index: EndpointIndex) -> Endpoint {
        let target = targets[index]
        hasFollowed = target?.isNew ?? false
        if !hasFollowed { hops = 0 }
        isConnected = false
        present = index
        followedTo = target?.address
        inUse = followedTo == nil ? nil : index
        if followedTo == nil { targets[index]?.failed = 0 }
        return followedTo ?? endpoints[index.rawValue]
    }

    /// The server accepted the connection.
    package mutating func connected() {
        isConnected = true
        // What was said for one connection has served its purpose.
        targets = targets.filter { $0.value.isRemembered || $0.key == inUse }
        if let inUse {
            targets[inUse]?.isNew = false
        } else if let present {
            // The server that sent the session away takes it again.
            targets[present] = nil
        }
    }

    /// A server that was knocked at, at ``next(_:)``, did not answer. The next knock goes to the next address.
    package mutating func notAnswered(_ index: EndpointIndex) {
        guard var target = targets[index] else { return }
        target.failed = target.address == nil ? 0 : target.failed + 1
        target.isNew = false
        targets[index] = target
    }

    /// The connection is over, or could not be established.
    ///
    /// - Parameter wasTried: whether this says anything about the server. It does not when the attempt never got that
    ///   far, or when this host ended it.
    /// - Returns: whether the endpoint's next address may serve at once: a server to which it sent the session before
    ///   is gone. A redirection that has just come would come again.
    @discardableResult
    package mutating func ended(wasTried: Bool = true) -> Bool {
        guard let index = inUse, var target = targets[index] else { return false }
        inUse = nil
        if isConnected {
            if !target.isRemembered { targets[index] = nil }
            return false
        }
        guard wasTried else { return false }
        target.failed += 1
        if target.address == nil { target.isNew = false }
        targets[index] = target.address == nil && !target.isRemembered ? nil : target
        return !hasFollowed
    }

    /// - Parameters:
    ///   - present: the server that redirects.
    ///   - index: the endpoint of the list that led there.
    ///   - isStable: whether the connection had lasted, so that it does not count as a hop of a redirect chain.
    package mutating func follow(
        _ reference: String, from present: Endpoint, of index: EndpointIndex, isRemembered: Bool, isStable: Bool
    ) -> Outcome {
        let references = reference.split(separator: " ")
        guard !references.isEmpty else { return .empty }
        let candidates = references.compactMap { Self.endpoint(String($0), like: present) }
        guard let candidate = candidates.first else { return .unusable }
        let allowed = candidates.filter { refusal(of: $0) == nil }
        guard let first = allowed.first else { return .refused(refusal(of: candidate) ?? "") }
        if isStable { hops = 0 }
        guard hops < Self.hopLimit else {
            targets[index] = nil
            inUse = nil
            return .tooMany
        }
        hops += 1
        inUse = nil
        targets[index] = Target(addresses: Array(allowed.prefix(Self.listLimit)), isRemembered: isRemembered)
        return .followed(first)
    }

    /// Why a server must not be connected to; `nil` if it may be.
    private func refusal(of endpoint: Endpoint) -> String? {
        guard patterns.contains(where: { $0.matches(endpoint.host) }) || endpoints.contains(where: isAt(endpoint))
        else {
            return "the server sends the session to \(endpoint.authority), which redirects of [mqtt] does not allow"
        }
        if isExposed(endpoint) {
            return "the server sends the session to \(endpoint), where the password would go unencrypted"
        }
        return nil
    }

    /// Whether a password would go to the server unencrypted although it must not.
    private func isExposed(_ endpoint: Endpoint) -> Bool {
        needsEncryption && !endpoint.scheme.isSecure && !endpoint.isLoopback
    }

    private func isAt(_ endpoint: Endpoint) -> (Endpoint) -> Bool {
        { $0.host == endpoint.host }
    }

    /// Parses one reference: a name, or an IPv6 address in brackets, with an optional port.
    private static func endpoint(_ reference: String, like present: Endpoint) -> Endpoint? {
        guard !reference.contains(where: { "/?#@".contains($0) }) else { return nil }
        return try? Endpoint("\(present.scheme.rawValue)://\(reference)\(present.path)")
    }
}
