package import SessionCore

/// What the session needs from its configuration and host, apart from what its parts already have.
package struct SessionSettings: Sendable {
    package var name: SessionName
    package var endpoints: [Endpoint]
    package var user: String
    /// The beginning of the topics of all rooms, and the room that the file names, empty for none.
    package var room: (prefix: String, configured: String) = ("", "")
    /// Whether the session connects when the daemon starts.
    package var autoconnects = false
    /// The user name to log in with, if the file has one.
    package var username: String?
    /// Whether the file names a password.
    package var hasPassword = false
    /// Whether a password may be sent to all of the endpoints: none is unencrypted, or the file allows it.
    package var mayCarryPassword = true
    /// Whether the client proves that it knows the password, and never sends it (SCRAM-SHA-256).
    package var provesPassword = false
    package var proxy = Proxy.none
    package var maximumPacketSize = 1 << 20
    package var timeouts = AttemptTimeouts()
    /// How long a connection must last before the server counts as good.
    package var stableAfter = Duration.seconds(60)
    /// The keep-alive in seconds: in a room, and in none.
    package var keepAlive: (inRoom: UInt16, alone: UInt16) = (60, 60)
    /// Whether the session keeps track of its uses: always with `on-demand`, otherwise only for the return to the first
    /// endpoint.
    package var notesUses = false
    /// Whether the session may use only some of the host's networks.
    package var isBound = false
    /// How soon to retry something that the disk had no room for.
    package var retryInterval = Duration.seconds(1)
    package var bootID = ""
    /// Milliseconds after which a message in the inbox is too old; `nil`: never.
    package var maximumInboxAge: Int64?

    package enum Proxy: Hashable, Sendable {
        case none
        /// Whether the proxy wants a login, and whether that needs a password to be fetched.
        case some(needsLogin: Bool, hasPassword: Bool)
    }

    package init(name: SessionName, endpoints: [Endpoint], user: String) {
        self.name = name
        self.endpoints = endpoints
        self.user = user
    }
}
