import ControlAPI
package import SessionCore
package import Vocabulary

/// Which credential the next attempt uses: one that was renewed for it, one that a program gave, or the configured one,
/// which has to be fetched. A credential that the server has rejected is not sent again.
package struct CredentialState: Sendable {
    /// A credential that a program gave, to use instead of the configured one.
    package var given: SessionCredential?
    /// A credential that was fetched for the attempt that is about to begin.
    private var renewed: SessionCredential?
    /// The secret that the server rejected, until an attempt has obtained its credential.
    private var rejected: [UInt8]?
    /// The file that the last credential came from.
    package var file: FileVersion?
    /// This host's own certificate and key, as the last connection used them.
    package var certificate: FileVersion?
    /// The files of trusted authorities by which a server's certificate was rejected first, since the session was connected
    /// or started again.
    package var authorities: FileVersion?
    /// Whether the session's file names a credential.
    private let isConfigured: Bool

    package init(isConfigured: Bool) {
        self.isConfigured = isConfigured
    }

    /// Whether there is a credential at all.
    package var exists: Bool { isConfigured || given != nil }

    // MARK: Renewal

    /// An attempt that begins before `endRenewal` uses this credential.
    package mutating func beginRenewal(with credential: SessionCredential) { renewed = credential }

    package mutating func endRenewal() { renewed = nil }

    package mutating func takeRenewed() -> SessionCredential? {
        defer { renewed = nil }
        return renewed
    }

    // MARK: Rejection

    package mutating func serverRejected(_ secret: [UInt8]?) { rejected = secret }

    /// The credential that a program gave. An attempt discards it and uses the configured one if the server rejected
    /// the given one or it has expired.
    package mutating func given(for role: DialRole, wallClock: Timestamp, at now: Instant) -> SessionCredential? {
        guard let given, case .attempt(let attempt) = role, isConfigured else { return given }
        let isRejected = attempt.rejection != nil && given.secret == rejected
        let hasEnded = given.end.map { $0.instant(wallClock: wallClock, bootClock: now) <= now } ?? false
        guard isRejected || hasEnded else { return given }
        self.given = nil
        return nil
    }

    /// The attempt has obtained its credential.
    ///
    /// - Returns: the server's rejection, if the credential is still the one that it rejected and must not be used.
    package mutating func obtained(_ credential: SessionCredential, for attempt: Attempt) -> Reason? {
        let last = rejected
        rejected = nil
        guard let rejection = attempt.rejection, credential.secret == last else { return nil }
        file = credential.file
        return rejection
    }
}
