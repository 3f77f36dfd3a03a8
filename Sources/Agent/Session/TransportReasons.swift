import Session
import SessionCore
import Transport
import Vocabulary

// Translates what the transport says into the session's terms: the tables of Documentation/Reason-codes.md.

extension Reason {
    init(_ failure: TransportFailure) {
        let code: Reason.Code =
            switch failure.code {
            case .dnsFailed: .dnsFailed
            case .unreachable, .ioError: .unreachable
            case .networkNotAllowed: .networkNotAllowed
            case .refused: .refused
            case .reset: .reset
            case .dialTimeout: .dialTimeout
            case .tlsTimeout: .tlsTimeout
            // An expired certificate is tried again, since this host's clock may be wrong. So are our own files, which
            // may be about to be replaced.
            case .tlsFailed, .certificateExpired, .tlsFilesUnusable: .tlsFailed
            case .wrongProtocol: .wrongProtocol
            case .certificateInvalid: .certificateInvalid
            case .proxyFailed: .proxyFailed
            case .webSocketFailed: .webSocketFailed
            case .serverBusy: .serverBusy
            case .serverShutdown: .serverShutdown
            case .serverError: .serverError
            case .protocolError: .protocolError
            case .unsupported: .badEndpoint
            }
        let detail: FailureDetail? =
            switch failure.code {
            case .certificateExpired: .certificateExpired
            case .tlsFilesUnusable: .ownFilesUnusable
            default: failure.detail
            }
        self.init(code, failure.message, systemError: failure.systemError, detail: detail)
    }

    init(_ end: ConnectionEnd) {
        switch end {
        case .closedByPeer: self.init(.serverClosed)
        case .closedLocally: self.init(.userDisconnect)
        case .failed(let failure): self.init(failure)
        }
    }
}

extension ConnectionEnd {
    fileprivate var retryAfter: Duration? {
        if case .failed(let failure) = self { failure.retryAfter } else { nil }
    }
}

extension DialEvent {
    /// `nil` for events that a session ignores.
    init?(_ event: ConnectionEvent) {
        switch event {
        case .resolved(let addresses): self = .resolved(addresses)
        case .reached: self = .reached
        case .dialing: self = .dialing
        case .securing: self = .securing
        case .opened(let opened):
            self = .opened(LinkPeer(address: opened.peer, name: opened.peerAddress, tlsVersion: opened.tlsVersion))
        case .received(let bytes): self = .received(bytes)
        case .closed(let end): self = .closed(Reason(end), retryAfter: end.retryAfter)
        case .resolving, .tlsFilesRejected, .upgrading: return nil
        }
    }
}
