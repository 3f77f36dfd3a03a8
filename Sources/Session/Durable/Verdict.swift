package import MQTT

/// What the next run of the daemon has to know about a session, unless the host is rebooted: somebody disconnected the
/// session, or started one that does not connect on its own; it has been connected, or is in an outage; or it failed for a
/// reason that trying again cannot change.
package struct Verdict: Hashable, Sendable {
    /// The raw value of a ``Decision``, and ``afterStart`` if it is about a session that was started.
    package var state: String
    /// The stable code of the reason.
    package var reasonCode: String
    /// What happened, in a sentence.
    package var message: String
    /// The reason code of the wire protocol, if the server gave one.
    package var serverCode: UInt8?
    /// The boot that the verdict is valid for.
    package var bootID: String
    /// When the decision was made, or the outage began.
    package var since: Timestamp
    /// The digest of the session's configuration at that time, which the driver adds; `nil` if it was not recorded.
    package var configuration: String?
    /// The versions of the files whose change ends the failure, one a line: see ``Session/Session/rejectedFiles``; `nil` if
    /// the change of no file does.
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
        case disconnected
        /// Somebody has started it although it does not connect on its own, and it has not been connected yet.
        case connecting
        /// It has been connected since somebody asked for that, or since the boot; or it had failed, and goes on because what
        /// it failed with has changed.
        case connected
        /// As `connected`, but the connection was lost, and not by a decision of this host.
        case lost
        case failed
    }

    /// The end of the state of a session that somebody had started although it does not connect on its own. When a failure
    /// is over, such a session is started again.
    private static let afterStart = "-after-start"

    private var decision: Decision? {
        Decision(rawValue: state.hasSuffix(Self.afterStart) ? String(state.dropLast(Self.afterStart.count)) : state)
    }

    /// Returns what is stored as ``state``.
    package static func state(_ decision: Decision, isStarted: Bool) -> String {
        switch decision {
        case .disconnected, .connecting: decision.rawValue
        case .connected, .lost, .failed: decision.rawValue + (isStarted ? afterStart : "")
        }
    }

    /// Whether the session does not connect until something changes. A word of another version does not keep a session
    /// down: it would never be connected, and nothing would say why.
    package var keepsDown: Bool {
        switch decision {
        case .connecting, .connected, .lost, nil: false
        case .disconnected, .failed: true
        }
    }

    /// Whether the session was started although it does not connect on its own.
    package var isStarted: Bool { decision == .connecting || state.hasSuffix(Self.afterStart) }

    /// Whether the session has been connected or had failed, and was not disconnected on command since then: it does not
    /// begin with the very first attempt again, which takes over the session from another device.
    package var hasBeenUp: Bool { decision == .connected || isLost }

    /// Whether the session is in an outage.
    package var isLost: Bool { decision == .lost }

    /// Whether it is a failure, which a new configuration ends. An explicit disconnect outlives a new configuration.
    package var isFailure: Bool { decision == .failed }

    /// What holds when the failure is over without a command to connect.
    package var withoutFailure: Verdict {
        guard isFailure else { return self }
        var verdict = self
        verdict.state = Self.state(.connected, isStarted: isStarted)
        return verdict
    }

    /// Why it was decided.
    package var reason: Reason { Reason(.init(rawValue: reasonCode) ?? .unknown, message, serverCode: serverCode) }
}
