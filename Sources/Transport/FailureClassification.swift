import Glibc
import NIOCore
import NIOPosix
import NIOSSL
import Vocabulary

extension TransportFailure {
    /// Dialing failed; `addresses` are those that were tried.
    init(dialing addresses: [SocketAddress], _ error: any Error, within timeout: Duration) {
        let tried = Self.list(addresses.map(\.hostAndPort))
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
        let order: [Reason.Code] = [.refused, .reset, .dialTimeout, .unreachable]
        let code = order.first { code in each.contains { $0.code == code } } ?? .unreachable
        self.init(
            code, Self.message(failures.map { ($0.target.hostAndPort, cause(of: $0.error)) }),
            systemError: each.first { $0.code == code }?.systemError)
    }

    /// Says why no address could be dialed; addresses that failed alike are named together.
    static func message(_ failures: [(address: String, cause: String)]) -> String {
        var addresses: [(cause: String, list: [String])] = []
        for failure in failures {
            if let alike = addresses.firstIndex(where: { $0.cause == failure.cause }) {
                addresses[alike].list.append(failure.address)
            } else {
                addresses.append((failure.cause, [failure.address]))
            }
        }
        return addresses.map { "cannot connect to \(list($0.list)): \($0.cause)" }.joined(separator: "; ")
    }

    /// Names the first addresses, so that what follows them is not cut off.
    private static func list(_ addresses: [String]) -> String {
        let rest = addresses.count - longestList
        guard rest > 1 else { return addresses.joined(separator: ", ") }
        return addresses.prefix(longestList).joined(separator: ", ") + " and \(rest) more addresses"
    }

    private static let longestList = 4

    /// A socket could not be bound to an interface.
    init(binding interface: String, _ error: any Error) {
        let number = (error as? IOError)?.errnoCode
        let words = cause(of: error)
        switch number {
        case EPERM:
            self.init(
                .networkNotAllowed,
                "a connection cannot be bound to \(interface): \(words); before Linux 5.7 this takes CAP_NET_RAW",
                systemError: number)
        default:
            self.init(
                .unreachable, "a connection cannot be bound to \(interface): \(words)", systemError: number)
        }
    }

    private init(dialingOne address: String, _ error: any Error) {
        let message = Self.message([(address, cause(of: error))])
        let number = (error as? IOError)?.errnoCode
        let code = number.map { $0 == ETIMEDOUT ? .dialTimeout : Reason.Code(errno: $0) } ?? .unreachable
        self.init(code, message, systemError: number)
    }

    init(closedInHandshake peer: String) {
        self.init(
            .tlsFailed, "\(peer) closed the connection during the TLS handshake; it may not speak TLS on this port",
            detail: .endedInHandshake)
    }

    /// An established TCP connection to `peer` failed.
    init(connection peer: String, _ error: any Error) {
        switch error {
        case let error as IOError where error.errnoCode == ETIMEDOUT:
            self.init(
                .unreachable,
                "the connection to \(peer) broke: what was sent is no longer acknowledged (\(systemText(ETIMEDOUT)))",
                systemError: ETIMEDOUT, detail: .noLongerAcknowledged)
        case let error as IOError:
            self.init(
                Reason.Code(errno: error.errnoCode), "the connection to \(peer) broke: \(systemText(error.errnoCode))",
                systemError: error.errnoCode)
        case is BoringSSLError, is NIOSSLError:
            let words = tlsWords(error)
            self.init(.tlsFailed, "TLS with \(peer) failed: \(words)", detail: Self.detail(of: words))
        default:
            self.init(.unreachable, "the connection to \(peer) broke: \(error)")
        }
    }

    private static func detail(of words: String) -> FailureDetail? {
        words.contains(certificateRequired) || words.contains(certificateRefused) ? .certificateWanted : nil
    }

    /// What to say about our clock where a certificate is outside of its dates.
    static func doubt(aboutClock now: time_t) -> String {
        guard now < firstRelease else { return "or our clock is wrong" }
        let date = Timestamp(seconds: Int64(now), nanoseconds: 0).date(offset: 0)
        return "but it is our clock that is wrong, since it says \(date): set it, and have it set over the network "
            + "(timedatectl set-ntp true)"
    }

    /// 2026-01-01, before which no Holdfast ran.
    private static let firstRelease: time_t = 1_767_225_600

    /// The handshake with `peer` failed.
    ///
    /// - Parameters:
    ///   - name: what the server's certificate had to be valid for.
    ///   - turnedDown: the certificate of the server's chain that failed verification.
    ///   - isServers: whether that is the server's own certificate, not an authority's.
    init(handshake peer: String, _ error: any Error, name: String, turnedDown: NIOSSLCertificate?, isServers: Bool) {
        if let error = error as? NIOSSLExtraError, error == .failedToValidateHostname {
            self.init(.certificateInvalid, "the certificate of \(peer) is not for \"\(name)\"", detail: .otherName)
            return
        }
        if error as? NIOSSLError == .unableToValidateCertificate {
            // The certificate's name cannot be compared, or there is none.
            self.init(
                .certificateInvalid, "the certificate of \(peer) names nothing that \"\(name)\" can be compared to",
                detail: .otherName)
            return
        }
        if let error = error as? IOError {
            let code = Reason.Code(errno: error.errnoCode)
            let words = "the connection to \(peer) broke in the TLS handshake: \(systemText(error.errnoCode))"
            // A server without TLS does that when it cannot read what we send.
            let isReset = code == .reset
            self.init(
                code, isReset ? "\(words); it may not speak TLS on this port" : words,
                systemError: error.errnoCode, detail: isReset ? .endedInHandshake : nil)
            return
        }
        let words = tlsWords(error)
        // The server's first bytes were not a TLS record.
        if words.contains("wrong version number") || words.contains("http request") {
            self.init(.wrongProtocol, "\(peer) does not speak TLS on this port")
            return
        }
        if words == serverClosed {
            self.init(closedInHandshake: peer)
            return
        }
        guard words.contains("certificate verify failed") else {
            self.init(.tlsFailed, "the TLS handshake with \(peer) failed: \(words)", detail: Self.detail(of: words))
            return
        }
        // BoringSSL does not say why. The dates are the only cause that can go away on its own, so they come first.
        let now = time(nil)
        let whose = isServers ? "the certificate of \(peer)" : "an authority in the certificate chain of \(peer)"
        if let turnedDown, now > turnedDown.notValidAfter {
            self.init(
                .tlsFailed, "\(whose) has expired, \(Self.doubt(aboutClock: now))", detail: .certificateExpired)
        } else if let turnedDown, now < turnedDown.notValidBefore {
            self.init(
                .tlsFailed, "\(whose) is not valid yet, \(Self.doubt(aboutClock: now))", detail: .certificateExpired)
        } else {
            self.init(
                .certificateInvalid,
                "the certificate of \(peer) is not signed by a trusted authority, its chain is not complete, or it is not "
                    + "meant for servers")
        }
    }
}

extension Reason.Code {
    /// The kind of an error of connect, read or write.
    init(errno number: CInt) {
        switch number {
        case ECONNREFUSED: self = .refused
        case ECONNRESET, EPIPE, ECONNABORTED, ENOTCONN: self = .reset
        // Whatever else the kernel says: there is no route, a route of type prohibit or a packet filter (EACCES, EPERM), or
        // nothing that was sent on an open connection is acknowledged (ETIMEDOUT).
        default: self = .unreachable
        }
    }
}

/// Returns what BoringSSL says, without its numbers and source lines: `certificate verify failed`; in our own words
/// where it is the server that objects.
private func tlsWords(_ error: any Error) -> String {
    let stack: NIOBoringSSLErrorStack
    switch error {
    case NIOSSLError.handshakeFailed(.sslError(let errors)), NIOSSLError.handshakeFailed(.unknownError(let errors)),
        NIOSSLError.shutdownFailed(.sslError(let errors)), BoringSSLError.sslError(let errors),
        BoringSSLError.unknownError(let errors):
        stack = errors
    case NIOSSLError.handshakeFailed(.zeroReturn), BoringSSLError.zeroReturn:
        return serverClosed
    default:
        return String(describing: error)
    }
    if stack.contains(.eofDuringHandshake) { return serverClosed }
    let words = stack.map { error in
        let marker = "OPENSSL_internal:"
        guard let start = error.description.firstRange(of: marker)?.upperBound else { return error.description }
        let reason = error.description[start...].prefix { $0 != " " }.lowercased().replacing("_", with: " ")
        return alert(reason).map { "the server \($0)" } ?? reason
    }
    return words.isEmpty ? "no cause given" : words.joined(separator: ", ")
}

private func cause(of error: any Error) -> String {
    (error as? IOError).map { systemText($0.errnoCode) } ?? "\(error)"
}

private let serverClosed = "the server closed the connection"
private let certificateRequired = "wants a certificate of ours (certificate required)"
private let certificateRefused = "does not take our certificate, or wants one"

/// Puts a server's TLS alert (RFC 8446, 6.2) into words. BoringSSL calls it `tlsv1 alert unknown ca`, or `reason(1109)`
/// for the number 109. Returns `nil` for anything else.
private func alert(_ reason: String) -> String? {
    if reason.hasPrefix("reason(1"), let number = UInt8(reason.dropFirst("reason(1".count).prefix { $0 != ")" }) {
        return "sent the TLS alert \(number)"
    }
    guard let version = ["sslv3 ", "tlsv1 ", "tlsv13 "].first(where: reason.hasPrefix) else { return nil }
    var name = reason.dropFirst(version.count)
    if name.hasPrefix("alert ") { name = name.dropFirst("alert ".count) }
    return switch name {
    case "certificate required": certificateRequired
    case "unknown ca", "bad certificate", "certificate expired", "certificate revoked", "certificate unknown",
        "unsupported certificate":
        "\(certificateRefused) (\(name))"
    case "handshake failure": "cannot agree with us, or wants a certificate of ours (handshake failure)"
    case "protocol version": "does not take the versions of TLS that we offer (protocol version)"
    case "unrecognized name": "has no certificate for this name (unrecognized name)"
    default: "sent the TLS alert \"\(name)\""
    }
}
