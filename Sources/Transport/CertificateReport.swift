import NIOSSL

/// Makes NIOSSL's handler, which verifies as always, and tells which certificates of the chain were turned down: BoringSSL's
/// error says only that one was.
///
/// - Parameter turnedDown: is called on the event loop, in the middle of the handshake.
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

/// NIOSSL (2.37) has deprecated this initializer because it is hard to decide with the callback. Its successors replace
/// the verification as a whole; this one can only listen. A protocol's requirement is not deprecated.
private protocol Reporting {
    init(context: NIOSSLContext, serverHostname: String?, verificationCallback: NIOSSLVerificationCallback?) throws
}

extension NIOSSLClientHandler: Reporting {}
