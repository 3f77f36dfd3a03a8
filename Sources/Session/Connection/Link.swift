package import NIOCore
package import SessionCore

/// An attempt and the connection that it becomes, or the successor that is set up beside that connection.
package struct Link: Sendable {
    package let attempt: Attempt
    package let destination: Servers.Destination
    package var login = Login()
    package var stage: Stage
    /// Whether dialing the address has begun, even if only for a look.
    package var isDialed = false
    package var flow = Flow()
    package var step = Step.none
    /// Whether the server must be told to discard the will when the link is dropped, because the session has left the
    /// room that it is for.
    package var hasStaleWill = false
    /// Whether its transport was there before the session left the link before it.
    package var isHandover = false
    /// How the protocol ended the link. The transport's own end is a consequence, and says less.
    package var ending: SessionMachine.Ending?

    package init(_ attempt: Attempt, to destination: Servers.Destination, knock: DialID? = nil) {
        self.attempt = attempt
        self.destination = destination
        stage = .preparing(knock: knock)
    }

    package enum Stage: Sendable {
        /// What has to be ready before dialing is being prepared: see ``Preparation``. The link may continue on the
        /// connection of a knock that was answered. Can transition to: dialing.
        case preparing(knock: DialID?)
        /// Can transition to: open, or preparing if a successor failed.
        case dialing(DialID)
        /// CONNECT is sent on it; a successor waits here until it takes over. Can transition to: preparing, if a
        /// successor failed.
        case open(DialID, LinkPeer)
    }

    /// What the session waits for on an open link.
    package enum Step: Hashable, Sendable {
        case none
        /// The subscriptions are restored; the session's presence and its publications are not yet.
        case restoring
        /// Everything accepted has to be acknowledged before the session leaves.
        case flushing
    }

    /// Bytes to and from the server.
    package struct Flow: Hashable, Sendable {
        /// Bytes that were given to the connection, but not yet taken by the kernel.
        package var unflushed = 0
        /// Whether the session reads from the server, or makes it wait.
        package var isReading = true
        /// When the session last began to read again.
        package var resumedAt: Instant?
        /// When the last bytes arrived from the server; some of them may wait to be read.
        package var arrivedAt: Instant?
        /// Whether `readOnLater` is under way, to read the rest of what the server has sent.
        package var readsOn = false
        /// Why the transport is gone, while some of what the server sent is still unread.
        package var end: SessionMachine.Ending?
    }

    package var generation: Generation { attempt.generation }
    /// Where the attempt leads: its endpoint, or the server that it was redirected to.
    package var address: Endpoint { destination.address }

    package var connection: DialID? {
        switch stage {
        case .preparing: nil
        case .dialing(let id), .open(let id, _): id
        }
    }

    package var knock: DialID? { if case .preparing(let knock) = stage { knock } else { nil } }

    package var peer: LinkPeer? { if case .open(_, let peer) = stage { peer } else { nil } }
}

/// The peer of an open connection.
package struct LinkPeer: Hashable, Sendable {
    package let address: SocketAddress
    /// `203.0.113.9:8883` or `[2001:db8::1]:8883`.
    package let name: String
    /// `nil` without TLS.
    package let tlsVersion: String?
    /// A sentence if our own certificate has expired; otherwise `nil`.
    package let expiry: String?

    package init(address: SocketAddress, name: String, tlsVersion: String?, expiry: String? = nil) {
        self.address = address
        self.name = name
        self.tlsVersion = tlsVersion
        self.expiry = expiry
    }
}

/// The secrets of a connection.
package struct Login: Sendable {
    /// `nil` if there is none, or none yet. Set from the start if it was fetched before.
    package var credential: SessionCredential?
    package var proxyPassword: [UInt8]?
    /// When the credential ends.
    package var expiry: CredentialExpiry?
    /// A new credential on its way to the server, and when to stop waiting for the answer.
    package var renewal: (credential: SessionCredential, deadline: Instant)?

    package init() {}

    package var password: [UInt8]? { credential?.secret }
}

/// When the credential of a connection ends.
package struct CredentialExpiry: Hashable, Sendable {
    package var end: CredentialEnd
    /// The end that the session machine was last told.
    package var told: Instant
}
