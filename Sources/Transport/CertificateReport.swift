import NIOSSL

/// Makes NIOSSL's handler, which verifies as always, and reports which certificates of the chain failed: BoringSSL's
/// error says only that one did.
///
/// - Parameter turnedDown: called on the event loop, in the middle of the handshake.
func makeTLSHandler(
    _ context: NIOSSLContext, serverHostname: String?, turnedDown: @escaping (NIOSSLCertificate) -> Void
) throws -> NIOSSLClientHandler {
    func make<Handler: Reporting>(_: Handler.Type) throws -> Handler {
        try Handler(context: context, serverHostname: serverHostname) { result, certificate in
            if result == .failed { turnedDown(certificate) }
            return result
        }
    }
    return try make(NIOSSLClientHandler.self)
}

/// Calls an initializer that NIOSSL (2.37) has deprecated, because it is hard to make the decision correctly in the
/// callback. Its successors replace the whole verification; this one can just listen. Through a protocol it can be
/// called without a warning.
private protocol Reporting {
    init(context: NIOSSLContext, serverHostname: String?, verificationCallback: NIOSSLVerificationCallback?) throws
}

extension NIOSSLClientHandler: Reporting {}
