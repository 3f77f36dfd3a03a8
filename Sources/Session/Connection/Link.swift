package import NIOCore
package import SessionCore
package import Vocabulary

/// An attempt, and the connection that it becomes; or what is set up beside the connection, to take over from it.
package struct Link: Sendable {
    package let attempt: Attempt
    package let destination: Servers.Destination
    package var login = Login()
    package var stage: Stage
    /// Whether something was opened to the address, be it only to look.
    package var isDialed = false
    package var flow = Flow()
    package var step = Step.none
    /// How the protocol ended it. The transport's own end follows from that, and says less.
    package var ending: SessionMachine.Ending?

    package init(_ attempt: Attempt, to destination: Servers.Destination, knock: DialID? = nil) {
        self.attempt = attempt
        self.destination = destination
        stage = .preparing(knock: knock)
    }

    package enum Stage: Sendable {
        /// What has to be there before it is dialed: see ``Preparation``. It may go on with the connection of a knock that was
        /// answered. Can transition to: dialing.
        case preparing(knock: DialID?)
        /// Can transition to: open.
        case dialing(DialID)
        /// From CONNECT on; a successor is ready for it.
        case open(DialID, LinkPeer)
    }

    /// What is awaited, while it is open.
    package enum Step: Hashable, Sendable {
        case none
        /// Subscriptions are restored, and what the session itself publishes is not.
        case restoring
        /// Everything accepted is to be acknowledged before the session leaves.
        case flushing
    }

    /// Bytes to and from the server.
    package struct Flow: Hashable, Sendable {
        /// Given to the connection, and not taken by the kernel.
        package var unflushed = 0
        /// Whether the server is read, or has to wait.
        package var isReading = true
        /// Whether the rest of what the server has sent is about to be read.
        package var readsOn = false
        /// Why the transport is gone, while some of what the server had sent is not read yet.
        package var end: SessionMachine.Ending?
    }

    package var generation: Generation { attempt.generation }
    /// Where the attempt leads: its endpoint, or the server that one was redirected to.
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

/// The other end of a connection that is open.
package struct LinkPeer: Hashable, Sendable {
    package let address: SocketAddress
    /// `203.0.113.9:8883` or `[2001:db8::1]:8883`.
    package let name: String
    /// `nil` without TLS.
    package let tlsVersion: String?

    package init(address: SocketAddress, name: String, tlsVersion: String?) {
        self.address = address
        self.name = name
        self.tlsVersion = tlsVersion
    }
}

/// The secrets of a connection.
package struct Login: Sendable {
    /// `nil` if there is none, or none yet. From the beginning on, if it was fetched before.
    package var credential: SessionCredential?
    package var proxyPassword: [UInt8]?
    /// When the credential ends.
    package var life: CredentialLife?
    /// A new credential on its way to the server, and when that takes too long.
    package var renewal: (credential: SessionCredential, deadline: Instant)?

    package init() {}

    package var password: [UInt8]? { credential?.secret }
}

/// When the credential of a connection ends.
package struct CredentialLife: Hashable, Sendable {
    package var end: CredentialEnd
    /// The end as the machine was told it last.
    package var told: Instant
}
