package import MQTT

/// A decision about a session that survives restarts of the daemon, but not a reboot: somebody disconnected the
/// session, started one that does not connect on its own, or it failed for a reason that trying again cannot change.
package struct Verdict: Hashable, Sendable {
    /// `disconnected`, `connecting` or `failed`.
    package var state: String
    /// The stable code of the reason.
    package var reasonCode: String
    /// What happened, in a sentence.
    package var message: String
    /// The reason code of the wire protocol, if the server gave one.
    package var serverCode: UInt8?
    /// The boot that the verdict is valid for.
    package var bootID: String
    package var since: Timestamp
    /// The digest of the session's configuration at that time, which the driver adds; `nil` if it was not recorded.
    package var configuration: String?
    /// The version of the file whose change ends the failure: the credential's, or those of trusted authorities; `nil` if
    /// there is none.
    package var rejectedFile: String?

    package init(
        state: String, reasonCode: String, message: String, serverCode: UInt8? = nil, bootID: String, since: Timestamp,
        configuration: String? = nil, rejectedFile: String? = nil
    ) {
        self.state = state
        self.reasonCode = reasonCode
        self.message = message
        self.serverCode = serverCode
        self.bootID = bootID
        self.since = since
        self.configuration = configuration
        self.rejectedFile = rejectedFile
    }
}
