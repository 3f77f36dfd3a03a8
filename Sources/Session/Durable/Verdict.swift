package import MQTT

/// A decision about a session that outlives the daemon, though not the boot: somebody disconnected it, or it failed
/// for a reason that trying again cannot change.
package struct Verdict: Hashable, Sendable {
    /// `disconnected` or `failed`.
    package var state: String
    /// The stable code of the reason.
    package var reasonCode: String
    /// What happened, in a sentence.
    package var message: String
    /// The reason code of the wire protocol, if the server gave one.
    package var serverCode: UInt8?
    /// The boot within which it holds; the caller compares.
    package var bootID: String
    package var since: Timestamp
    /// What stands for the session's configuration when it was made; `nil` if that was not written down then.
    package var configuration: String?
    /// What stands for the version of the credential's file that was used last; `nil` if it is from no file.
    package var credential: String?

    package init(
        state: String, reasonCode: String, message: String, serverCode: UInt8? = nil, bootID: String, since: Timestamp,
        configuration: String? = nil, credential: String? = nil
    ) {
        self.state = state
        self.reasonCode = reasonCode
        self.message = message
        self.serverCode = serverCode
        self.bootID = bootID
        self.since = since
        self.configuration = configuration
        self.credential = credential
    }
}
