// What follows an ending: how long the next attempt waits, and where it is made. The reason decides, unless the
// server's code says more (`Consequence.rows` of the module MQTT, which become an ending's `pace` and
// `leavesEndpoint`).

/// How the next attempt follows from a reason. Every code is listed, so that nobody adds one without deciding about it.
struct NextAttempt: Hashable, Sendable {
    var cause: Backoff.Cause
    /// Whether the first attempt is made at once at the same endpoint, because something can be changed or agreed with
    /// the server; later ones follow the table.
    var isAtOnce = false
    /// Whether a lost connection is continued at another endpoint.
    var leavesEndpoint = false

    init(after code: Reason.Code) {
        switch code {
        case .serverBusy:
            (cause, leavesEndpoint) = (.floor, true)
        case .rateLimited:
            cause = .floor
        case .serverShutdown:
            (cause, leavesEndpoint) = (.remote, true)
        case .serverKeepAliveTimeout:
            (cause, isAtOnce) = (.remote, true)
        case .stateMismatch, .sessionLost, .credentialRejected, .credentialExpired, .notAuthorized:
            (cause, isAtOnce) = (.unanswered, true)
        case .refused, .reset, .tlsFailed, .proxyFailed, .serverClosed, .displacedSuspected, .serverMoved, .serverError,
            .authenticateTimeout, .restoreTimeout, .protocolError, .wrongProtocol, .webSocketFailed, .unknown:
            cause = .remote
        case .autoconnect, .notStarted, .userConnect, .userDisconnect, .goodbyeUnheard, .userReconnect,
            .configurationChanged,
            .credentialRenewed, .credentialChanged, .shutdown, .switchRoom, .demand, .idle, .suspend, .wake, .returning,
            .inboxRoom, .otherVersion, .storeReplaced, .storeUnavailable, .clockSet, .noPath, .pathGained, .pathMoved,
            .pathReturned, .pathLost, .networkNotAllowed, .answered, .dnsFailed, .unreachable, .dialTimeout,
            .tlsTimeout, .retryTimeout, .heartbeatTimeout, .probeTimeout, .unacknowledged, .unanswered,
            .credentialUnreadable, .displaced, .yielded, .banned, .removedByAdministrator, .badConfiguration,
            .badEndpoint, .clientIdentifierRejected, .unsupportedVersion, .certificateInvalid, .serverUnauthenticated,
            .authenticationMethodRejected, .redirectRefused, .incompatible:
            cause = .unanswered
        }
    }
}

extension SessionMachine.Ending {
    var isAtOnce: Bool { pace == .atOnce || NextAttempt(after: reason.code).isAtOnce }

    /// Whether the server ended the connection, and not the network, or this host.
    var isServersDoing: Bool {
        switch reason.code {
        case .reset: true
        case .serverKeepAliveTimeout, .serverMoved: false
        case let code: [.server, .session, .auth].contains(code.group)
        }
    }

    var cause: Backoff.Cause {
        switch pace {
        case .byReason, .atOnce, .otherWay, .soon: NextAttempt(after: reason.code).cause
        case .slow: .slow
        case .floor: .floor
        case .doubledFloor: .doubledFloor
        }
    }
}
