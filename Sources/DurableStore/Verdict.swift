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

    public init(
        state: String, reasonCode: String, message: String, serverCode: UInt8? = nil, bootID: String, since: Timestamp
    ) {
        self.state = state
        self.reasonCode = reasonCode
        self.message = message
        self.serverCode = serverCode
        self.bootID = bootID
        self.since = since
    }
}
