import NIOCore
import Session
import SessionCore
import Transport
import Vocabulary

// Translates what the transport says into the session's terms: the tables of Documentation/Reason-codes.md.

extension Reason {
    init(_ failure: TransportFailure) {
        self.init(failure.code, failure.message, systemError: failure.systemError, detail: failure.detail)
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

extension ConnectionEvent {
    /// What the journal has of it at the level debug; `nil` for what it does not have.
    var words: String? {
        switch self {
        case .resolving: "looks up the name"
        case .resolved(let addresses): "will dial \(addresses.map(\.hostAndPort).joined(separator: ", "))"
        case .reached(let address): "TCP is connected to \(address.hostAndPort)"
        case .securing(let address): "TCP is connected to \(address.hostAndPort), the TLS handshake begins"
        case .upgrading: "asks the server for a WebSocket"
        case .opened(let opened): "connected to \(opened.peerAddress)" + (opened.tlsVersion.map { ", \($0)" } ?? "")
        case .closed(let end): "the connection has ended: \(Reason(end).message)"
        case .dialing, .tlsFilesRejected, .addressesAvoided, .received: nil
        }
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
            self = .opened(
                LinkPeer(
                    address: opened.peer, name: opened.peerAddress, tlsVersion: opened.tlsVersion, expiry: opened.expiry
                ))
        case .received(let bytes): self = .received(bytes)
        case .closed(let end): self = .closed(Reason(end), retryAfter: end.retryAfter)
        case .resolving, .tlsFilesRejected, .upgrading, .addressesAvoided: return nil
        }
    }
}
