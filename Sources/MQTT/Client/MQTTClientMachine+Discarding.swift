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
        /// The next connection discards it, if it is to the same server or one with an unknown session. Can transition
        /// to: done.
        case needed
        /// It is gone; the next connection begins a new one, and does not discard that one. Can transition to: none,
        /// needed.
        case done
    }

    /// The session at the server is to be discarded, and is not claimed until there is a new one.
    mutating func forgetSession(_ step: inout Step) {
        guard claim.isEstablished else { return }
        claim.isEstablished = false
        step.changes.append(.setEstablished(false))
    }

    /// Handles a CONNACK with success. Returns whether the connection ends now: it was only for discarding, or it
    /// cannot continue.
    mutating func endedDiscarding(
        _ connack: Connack, _ connecting: Connecting, _ step: inout Step
    ) -> Bool {
        if connecting.onlyDiscards {
            claim.discarding = .done
            step.emit(.discarded(isForgottenLate: claim.isForgottenLate))
            // It has no will.
            disconnect(.normalDisconnection, &step)
        } else if connack.sessionPresent, !connecting.claimsSession, !connecting.expected.isOlderCopy {
            var sentence = "the server has a session of this client that is not known here"
            // Without a session that was to be discarded, the durable state is lost, or it is a client's that was not here.
            if claim.discarding == .none, claim.durableClientID != clientID {
                if claim.unansweredClientID == clientID {
                    sentence += "; it may have begun with a CONNECT whose answer did not arrive"
                } else {
                    step.emit(.unknownSession)
                }
            }
            claim.isForgottenLate = claim.discarding == .done
            claim.discarding = .needed
            step.emit(.stateMismatch(sentence))
            disconnectToReturn(&step)
        } else {
            claim.discarding = .none
            claim.isForgottenLate = false
            return false
        }
        return true
    }
}
