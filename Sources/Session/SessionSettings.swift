package import SessionCore
package import Vocabulary

/// What the session's file and its host say, as far as the session decides by it and no value in it has it already.
package struct SessionSettings: Sendable {
    package var name: SessionName
    package var endpoints: [Endpoint]
    package var user: String
    /// The name to log in with, if the file has one.
    package var username: String?
    /// Whether the file names a password.
    package var hasPassword = false
    /// Whether the password is proven and never sent (SCRAM-SHA-256).
    package var provesPassword = false
    package var proxy = Proxy.none
    package var maximumPacketSize = 1 << 20
    package var timeouts = AttemptTimeouts()
    /// How long a connection lasts before the server counts as good.
    package var stableAfter = Duration.seconds(60)
    /// Within which the server notices that the session is gone, in seconds: in a room, and in none.
    package var keepAlive: (inRoom: UInt16, alone: UInt16) = (60, 60)
    /// Whether anything depends on the uses: of a session that is always up, only when it goes back to its first endpoint.
    package var notesUses = false
    /// Whether the session may not use every network.
    package var isBound = false
    /// How soon something is tried again for which the disk had no room.
    package var retryInterval = Duration.seconds(1)
    package var bootID = ""
    /// What stands for the configuration.
    package var digest = ""

    package enum Proxy: Hashable, Sendable {
        case none
        /// Whether it wants a login, and for it a password that has to be fetched.
        case some(needsLogin: Bool, hasPassword: Bool)
    }

    package init(name: SessionName, endpoints: [Endpoint], user: String) {
        self.name = name
        self.endpoints = endpoints
        self.user = user
    }
}
