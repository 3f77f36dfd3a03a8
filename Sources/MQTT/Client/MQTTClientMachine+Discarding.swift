// How to begin a new session. If there was none before, it begins with Clean Start 0, which is right as long as the server
// has none either: with Clean Start 1, mosquitto (2.0.11) would not keep it over its own restart. If the server has one,
// that must be discarded. MQTT 5 does it with one CONNECT: Clean Start 1. In MQTT 3.1.1 the same bit is Clean Session, and
// a session that begins with it also ends with its connection. So the old session is discarded by a connection of its
// own, as section 3.2.2.2 of 3.1.1 says:
//
//     CONNECT, Clean Session 1 ─▶ CONNACK ─▶ DISCONNECT        then        CONNECT, Clean Session 0 ─▶ Session Present 0

extension MQTTClientMachine {
    /// What becomes of the server's session.
    enum Discarding: Hashable, Sendable {
        /// It stays. Can transition to: needed.
        case none
        /// The next connection discards it. Can transition to: done.
        case needed
        /// It is gone; the next connection begins a new one, and does not discard that one. Some servers forget it only
        /// a moment after its connection: they have claimed it this many times since. Can transition to: none, needed.
        case done(claims: Int)
    }

    /// How often a server may claim a session that it was told to discard, before it is told again.
    private static let lateClaims = 2

    /// Handles a CONNACK with success. Returns whether the connection ends now: it was only for discarding, or it
    /// cannot continue.
    mutating func endedDiscarding(
        _ connack: Connack, _ connecting: Connecting, _ step: inout Step
    ) -> Bool {
        if connecting.onlyDiscards {
            claim.discarding = .done(claims: 0)
            step.emit(.discarded)
        } else if connack.sessionPresent, !connecting.claimsSession {
            if case .done(let claims) = claim.discarding, claims < Self.lateClaims {
                claim.discarding = .done(claims: claims + 1)
                step.emit(.stateMismatch("the server still has the session that it was told to discard"))
                disconnect(.normalDisconnection, &step)
                return true
            }
            claim.discarding = .needed
            step.emit(.stateMismatch("the server has a session of this client that is not known here"))
        } else {
            claim.discarding = .none
            return false
        }
        disconnect(.normalDisconnection, &step)
        return true
    }
}
