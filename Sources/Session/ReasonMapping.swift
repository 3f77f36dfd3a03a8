package import MQTT
package import SessionCore
import Vocabulary

// Translates what the server says into the session's terms: the tables of Documentation/Reason-codes.md.

extension Reason {
    /// The server speaks another protocol.
    package init(_ other: ForeignProtocol, at address: String?) {
        self.init(
            .wrongProtocol, "\(address.map { "at \($0)" } ?? "there") is \(other.name)",
            detail: other == .http ? .webServer : nil)
    }

    /// What the server said in CONNACK or DISCONNECT.
    package init(_ server: MQTTClientMachine.ServerReason) {
        let code = Reason.Code(server.code)
        // The code of a normal end is called success, which would be read as that of a session.
        var message =
            server.code == .success
            ? "the server closed the connection normally (0x00)"
            : "the server said: \(server.code.isError ? server.code.description : server.code.number)"
        if let text = server.reasonString { message += ", \"\(text)\"" }
        var detail: FailureDetail?
        if let reference = server.serverReference, reference.contains(where: { $0 != " " }) {
            message += ", use \(reference)"
        } else if code == .serverMoved {
            detail = .elsewhereUnnamed
        }
        if !server.remedies.isEmpty { message += "; " + server.remedies.map(\.description).joined(separator: ", ") }
        self.init(
            server.remedies.contains(.cleanStart) ? .stateMismatch : code, message, serverCode: server.code.rawValue,
            detail: detail)
    }

    /// No connection came about to the address that a server has named instead of its own. That is not terminal: other
    /// addresses are left, at least the endpoint's own.
    init(_ reason: Reason, redirectedTo address: Endpoint) {
        self = reason
        message += "; a redirect led to \(address.authority)"
        guard isTerminal else { return }
        code = code == .certificateInvalid ? .tlsFailed : .unreachable
    }
}

extension SessionMachine.Ending {
    /// What the server said in CONNACK or DISCONNECT, and what its reason code calls for.
    package init(_ server: MQTTClientMachine.ServerReason, in place: Consequence.Place) {
        self.init(Reason(server))
        let measures = Consequence.measures(for: server.code, in: place)
        leavesEndpoint = measures.contains(.nextEndpoint)
        if server.remedies.contains(.quarantine) {
            search = .found
        } else if server.remedies.contains(.isolation) {
            search = .suspected
        }
        // As long as each search finds something to set aside, the server does not object to everything.
        failsIfRepeated = measures.contains(.failIfRepeated) && search == .none
        if measures.contains(.slow) {
            pace = .slow
        } else if measures.contains(.floor) {
            pace = .floor
        } else if measures.contains(.doubledFloor) {
            pace = .doubledFloor
        } else if measures.contains(.atOnce) {
            pace = .atOnce
        }
    }
}

extension SessionMachine.Ending {
    /// The code may be about a packet that we sent. It then says nothing about the session, which continues.
    package func considering(_ finding: MQTTClientMachine.EndFinding?) -> Self {
        guard let finding else { return self }
        var ending = self
        if reason.isTerminal || reason.code.group == .auth { ending.reason.code = .serverError }
        (ending.mayHaveNewCredential, ending.failsIfRepeated, ending.search) = (false, false, .continued)
        switch finding {
        case .suspected(ends: 1):
            ending.reason.message += ", while packets were unanswered"
            ending.search = .suspected
        case .suspected(let ends):
            ending.reason.message += ", and the same packet has now been left unanswered \(ends) times"
        case .isolated: ending.reason.message += "; \(Remedy.isolation)"
        case .setAside(let what):
            ending.reason.message += "; \(what) is the cause, and is set aside"
            ending.search = .found
            if ending.pace != .otherWay { ending.pace = .atOnce }
        }
        return ending
    }

    /// The server closed the connection right after refusing messages because its quota was used up.
    package init(closedAfter refusal: MQTTClientMachine.ServerReason) {
        self.init(
            Reason(
                refusal.remedies.contains(.cleanStart) ? .stateMismatch : .serverError,
                "the server refused messages (\(refusal.code)) and closed the connection; "
                    + refusal.remedies.map(\.description).joined(separator: ", "),
                serverCode: refusal.code.rawValue))
        pace = .atOnce
    }

    /// Client and server have not proven to each other that they know the password.
    init(_ failure: SCRAMClient.Failure) {
        switch failure {
        case .malformed:
            self.init(Reason(.protocolError, "\(failure)"))
            failsIfRepeated = true
        case .refused:
            self.init(Reason(.credentialRejected, "\(failure)"))
        case .iterations, .notProven:
            self.init(Reason(.serverUnauthenticated, "\(failure)"))
        }
    }
}

extension Reason.Code {
    /// Whether somebody disconnected the session, so that it stays disconnected when the daemon restarts.
    package var isDisconnectAskedFor: Bool { self == .userDisconnect || self == .goodbyeUnheard }

    /// Whether a connection or an attempt was given up because of this host or its network, not because of the server.
    var isOurOwn: Bool { isOfOwnPath || group == .local }

    package init(_ code: ReasonCode) {
        self =
            switch code {
            case .normalDisconnection, .disconnectWithWill: .serverClosed
            case .unsupportedProtocolVersion: .unsupportedVersion
            case .clientIdentifierNotValid: .clientIdentifierRejected
            case .badUserNameOrPassword: .credentialRejected
            case .badAuthenticationMethod: .authenticationMethodRejected
            case .notAuthorized: .notAuthorized
            case .serverUnavailable, .serverBusy: .serverBusy
            case .banned: .banned
            case .serverShuttingDown: .serverShutdown
            case .keepAliveTimeout: .serverKeepAliveTimeout
            case .sessionTakenOver: .displaced
            case .administrativeAction: .removedByAdministrator
            case .messageRateTooHigh, .connectionRateExceeded: .rateLimited
            case .quotaExceeded: .serverBusy
            case .useAnotherServer, .serverMoved: .serverMoved
            case .maximumConnectTime: .serverClosed
            case .malformedPacket, .protocolError: .protocolError
            case .packetIdentifierInUse, .packetIdentifierNotFound: .stateMismatch
            case .retainNotSupported, .qosNotSupported: .incompatible
            case .unspecifiedError, .implementationSpecificError, .topicFilterInvalid, .topicNameInvalid,
                .receiveMaximumExceeded, .topicAliasInvalid, .packetTooLarge, .payloadFormatInvalid,
                .sharedSubscriptionsNotSupported, .subscriptionIdentifiersNotSupported,
                .wildcardSubscriptionsNotSupported:
                .serverError
            default: .unknown
            }
    }
}
