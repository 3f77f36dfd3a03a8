import Glibc
import NIOCore
import NIOPosix
import NIOSSL

extension TransportFailure {
    /// Dialing failed; `addresses` are those that were tried.
    init(dialing addresses: [SocketAddress], _ error: any Error, within timeout: Duration) {
        let tried = addresses.map(\.hostAndPort).joined(separator: ", ")
        guard let failures = (error as? NIOConnectionError)?.connectionErrors, !failures.isEmpty else {
            if let error = error as? ChannelError, case .connectTimeout = error {
                self.init(.dialTimeout, "no answer from \(tried) within \(timeout)")
            } else {
                self.init(dialingOne: tried, error)
            }
            return
        }
        let each = failures.map { TransportFailure(dialingOne: $0.target.hostAndPort, $0.error) }
        // One address that answers says more about the server than others that do not.
        let order: [Code] = [.refused, .reset, .dialTimeout, .unreachable]
        let code = order.first { code in each.contains { $0.code == code } } ?? .ioError
        self.init(code, each.map(\.message).joined(separator: "; "))
    }

    /// A socket could not be bound to an interface.
    init(binding interface: String, _ error: any Error) {
        let number = (error as? IOError)?.errnoCode
        let words = number.map(errorText) ?? "\(error)"
        switch number {
        case EPERM:
            self.init(
                .networkNotAllowed,
                "a connection cannot be bound to \(interface): \(words); before Linux 5.7 this takes CAP_NET_RAW")
        default:
            self.init(.unreachable, "a connection cannot be bound to \(interface): \(words)")
        }
    }

    private init(dialingOne address: String, _ error: any Error) {
        guard let error = error as? IOError else {
            self.init(.ioError, "cannot connect to \(address): \(error)")
            return
        }
        let code: Code = error.errnoCode == ETIMEDOUT ? .dialTimeout : Code(errno: error.errnoCode)
        self.init(code, "cannot connect to \(address): \(errorText(error.errnoCode))")
    }

    /// An established TCP connection to `peer` failed.
    init(connection peer: String, _ error: any Error) {
        switch error {
        case let error as IOError:
            self.init(
                Code(errno: error.errnoCode), "the connection to \(peer) broke: \(errorText(error.errnoCode))")
        case is BoringSSLError, is NIOSSLError:
            self.init(.tlsFailed, "TLS with \(peer) failed: \(tlsWords(error))")
        default:
            self.init(.ioError, "the connection to \(peer) broke: \(error)")
        }
    }

    /// The handshake with `peer` failed. `certificate` is what the server showed, if it came so far; `name` is what it
    /// had to be valid for.
    init(handshake peer: String, _ error: any Error, name: String, certificate: NIOSSLCertificate?) {
        if let error = error as? NIOSSLExtraError, error == .failedToValidateHostname {
            self.init(.certificateInvalid, "the certificate of \(peer) is not for “\(name)”")
            return
        }
        if error as? NIOSSLError == .unableToValidateCertificate {
            // The certificate's name cannot be compared, or there is none.
            self.init(.certificateInvalid, "the certificate of \(peer) names nothing that “\(name)” can be compared to")
            return
        }
        if let error = error as? IOError {
            self.init(
                Code(errno: error.errnoCode),
                "the connection to \(peer) broke in the TLS handshake: \(errorText(error.errnoCode))")
            return
        }
        let words = tlsWords(error)
        // The first bytes of the server were no record of TLS.
        if words.contains("wrong version number") || words.contains("http request") {
            self.init(.notTLS, "\(peer) does not speak TLS on this port")
            return
        }
        guard words.contains("certificate verify failed") else {
            self.init(.tlsFailed, "the TLS handshake with \(peer) failed: \(words)")
            return
        }
        // BoringSSL does not tell why; the dates are the one cause that goes away on its own, so they come first.
        let now = time(nil)
        if let certificate, now > certificate.notValidAfter {
            self.init(.certificateExpired, "the certificate of \(peer) has expired, or our clock is wrong")
        } else if let certificate, now < certificate.notValidBefore {
            self.init(.certificateExpired, "the certificate of \(peer) is not valid yet, or our clock is wrong")
        } else {
            self.init(
                .certificateInvalid,
                "the certificate of \(peer) is not signed by a trusted authority, or its chain is not complete")
        }
    }
}

extension TransportFailure.Code {
    /// The kind of an error of connect, read or write.
    init(errno number: CInt) {
        switch number {
        case ECONNREFUSED: self = .refused
        case ECONNRESET, EPIPE, ECONNABORTED, ENOTCONN: self = .reset
        // EACCES and EPERM are how routes of type prohibit and packet filters speak; ETIMEDOUT on an open connection
        // is TCP_USER_TIMEOUT.
        case ENETUNREACH, EHOSTUNREACH, ENETDOWN, EHOSTDOWN, ENONET, EADDRNOTAVAIL, EAFNOSUPPORT, EACCES, EPERM,
            ETIMEDOUT:
            self = .unreachable
        default: self = .ioError
        }
    }
}

/// BoringSSL's own words, without its numbers and source lines: `certificate verify failed`.
private func tlsWords(_ error: any Error) -> String {
    let stack: NIOBoringSSLErrorStack
    switch error {
    case NIOSSLError.handshakeFailed(.sslError(let errors)), NIOSSLError.handshakeFailed(.unknownError(let errors)),
        NIOSSLError.shutdownFailed(.sslError(let errors)), BoringSSLError.sslError(let errors),
        BoringSSLError.unknownError(let errors):
        stack = errors
    default:
        return String(describing: error)
    }
    if stack.contains(.eofDuringHandshake) { return "the server closed the connection" }
    let words = stack.map { error in
        let marker = "OPENSSL_internal:"
        guard let start = error.description.firstRange(of: marker)?.upperBound else { return error.description }
        return error.description[start...].prefix { $0 != " " }.lowercased().replacing("_", with: " ")
    }
    return words.isEmpty ? "no cause given" : words.joined(separator: ", ")
}
