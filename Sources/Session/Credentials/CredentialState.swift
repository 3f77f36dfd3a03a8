package import ControlAPI
package import SessionCore

/// Which credential the next attempt uses: the one that was renewed for it, the one that a program gave, or the configured
/// one, which has to be fetched. A credential that the server has rejected is not sent to it again.
package struct CredentialState: Sendable {
    /// A credential that a program has given, instead of the configured one.
    package var given: SessionCredential?
    /// Fetched for the attempt that is about to begin.
    private var renewed: SessionCredential?
    /// What the server rejected, until there is another one.
    private var rejected: [UInt8]?
    /// The version of the file that the last credential came from.
    package var mark: FileMark?
    /// Whether the session's file names one.
    private let isConfigured: Bool

    package init(isConfigured: Bool) {
        self.isConfigured = isConfigured
    }

    /// Whether an attempt has one at all.
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

    /// The one that a program gave. For an attempt, what the server rejected, or has ended, gives way to the configured one.
    package mutating func given(for role: DialRole, wallClock: RFC3339, at now: Instant) -> SessionCredential? {
        guard let given, case .attempt(let attempt) = role, isConfigured else { return given }
        let isRejected = attempt.rejection != nil && given.secret == rejected
        let hasEnded = given.end.map { $0.instant(wallClock: wallClock, bootClock: now) <= now } ?? false
        guard isRejected || hasEnded else { return given }
        self.given = nil
        return nil
    }

    /// An attempt has got its credential.
    ///
    /// - Returns: why it must not be used: it is still the one that the server rejected.
    package mutating func obtained(_ credential: SessionCredential, for attempt: Attempt) -> Reason? {
        let last = rejected
        rejected = nil
        guard let rejection = attempt.rejection, credential.secret == last else { return nil }
        mark = credential.mark
        return rejection
    }
}
