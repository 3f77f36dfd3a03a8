package import MQTT

/// A decision about a session that survives restarts of the daemon, but not a reboot: somebody disconnected the
/// session, started one that does not connect on its own, or it failed for a reason that trying again cannot change.
package struct Verdict: Hashable, Sendable {
    /// The raw value of a ``Decision``.
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
    /// The version of the file whose change ends the failure: the credential's, or that of trusted authorities; `nil` if the
    /// change of no file does.
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

extension Verdict {
    package enum Decision: String, Sendable {
        case disconnected, connecting, failed
        /// It failed after somebody had started it: when the failure is over, it is started again.
        case failedAfterStart = "failed-after-start"
    }

    private var decision: Decision? { Decision(rawValue: state) }

    /// Whether there is no more to it than that the session was started although it does not connect on its own.
    package var isStart: Bool { decision == .connecting }

    /// Whether the session was started although it does not connect on its own.
    package var isStarted: Bool { decision == .connecting || decision == .failedAfterStart }

    /// Whether it is a failure, which a new configuration ends. An explicit disconnect outlives a new configuration.
    package var isFailure: Bool { decision == .failed || decision == .failedAfterStart }

    /// What holds when the failure is over.
    package var withoutFailure: Verdict? {
        guard isFailure else { return self }
        guard isStarted else { return nil }
        var verdict = self
        verdict.state = Decision.connecting.rawValue
        return verdict
    }
}
