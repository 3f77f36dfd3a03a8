public import MQTT

/// A decision about a session that outlives the daemon, though not the boot: somebody disconnected it, or it failed
/// for a reason that trying again cannot change.
public struct Verdict: Hashable, Sendable {
    /// `disconnected` or `failed`.
    public var state: String
    /// The stable code of the reason.
    public var reasonCode: String
    /// What happened, in a sentence.
    public var message: String
    /// The reason code of the wire protocol, if the server gave one.
    public var serverCode: UInt8?
    /// The boot within which it holds; the caller compares.
    public var bootID: String
    public var since: Timestamp
    /// What stands for the session's configuration when it was made; `nil` if that was not written down then.
    public var configuration: String?
    /// What stands for the version of the credential's file that was used last; `nil` if it is from no file.
    public var credential: String?

    public init(
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
