import NIOCore
import NIOSSL
package import Vocabulary

/// What one attempt leaves for the next: the last good TLS files, so that a file that is broken while it is being replaced
/// costs no connection, and an unchanged one is not parsed again; and the addresses that took up its time, or whose
/// server did not answer.
///
/// Belongs to one event loop, like the connections that are given it. One per session is enough. TLS sessions are not
/// cached: NIOSSL (2.37) cannot resume them for clients, so every handshake is a full one.
public final class TLSContextCache {
    /// What the next attempt falls back on.
    public private(set) var lastFiles: LastTLSFiles
    private var tried: [Endpoint: [SocketAddress]] = [:]
    /// Endpoints of which addresses are kept; a server may redirect to any number of them.
    private static let mostTried = 16

    /// - Parameter last: those of an earlier cache; they are only used with the same options.
    public init(_ last: LastTLSFiles = LastTLSFiles()) { lastFiles = last }

    /// Returns the addresses without those that were tried in vain; all, if there are no others. That counts for one
    /// attempt, which comes back to all of them if it cannot connect to those that are left, and is told again if the
    /// server answers at one of those.
    func untried(_ addresses: [SocketAddress], of endpoint: Endpoint) -> [SocketAddress] {
        guard let tried = tried.removeValue(forKey: endpoint) else { return addresses }
        let others = addresses.filter { !tried.contains($0) }
        return others.isEmpty ? addresses : others
    }

    /// Has the next attempt begin with all addresses.
    func forgetTried(of endpoint: Endpoint) { tried[endpoint] = nil }

    /// - Parameter addresses: those that the present attempt, or earlier ones, have tried in vain while others were not
    ///   tried.
    func setTried(_ addresses: [SocketAddress], of endpoint: Endpoint) {
        guard !addresses.isEmpty else { return }
        if tried.count == Self.mostTried { tried = [:] }
        tried[endpoint] = addresses
    }

    func last(for options: TLSOptions) -> LoadedTLS? {
        lastFiles.loaded.flatMap { $0.options == options ? $0 : nil }
    }

    func keep(_ loaded: LoadedTLS) { lastFiles.loaded = loaded }

    /// The authorities' files as the last attempt with these options read them.
    package func authorities(for options: TLSOptions) -> FileVersion? { last(for: options)?.files.authorities }

    /// Our own certificate and its key as the last attempt read them.
    package var identity: FileVersion? { lastFiles.loaded?.files.identity }

    /// Why some of the files cannot be used, and those before them are, since the last attempt; otherwise `nil`.
    public var rejection: String? { lastFiles.loaded?.rejection?.message }
}

/// The TLS files that could be used last, if any.
public struct LastTLSFiles: Sendable {
    fileprivate(set) var loaded: LoadedTLS?

    public init() {}
}

@available(*, unavailable)
extension TLSContextCache: Sendable {}

/// A TLS context, and the files that it was made from.
///
/// The authorities and our own certificate are checked separately: a certificate that is broken while it is being
/// replaced must not keep an authority in use that was removed.
struct LoadedTLS: Sendable {
    let options: TLSOptions
    private(set) var context: NIOSSLContext
    /// Whether the context leaves it to us to compare names: NIOSSL (2.37) compares none with an underscore.
    private var leavesName: Bool
    private let authorities: Authorities
    private let identity: Identity?
    /// The files as they were when they were read, including those that were rejected.
    fileprivate let files: (authorities: FileVersion?, identity: FileVersion?)
    /// Why some of the present files are not used, and the previous ones are.
    let rejection: TransportFailure?
    /// The same; `nil` also if it was reported before.
    private(set) var rejected: TransportFailure?

    private struct Authorities: Sendable {
        let version: FileVersion?
        /// `nil`: the system's trust store.
        let certificates: [NIOSSLCertificate]?
    }

    /// A certificate with its chain, and the key that fits.
    private struct Identity: Sendable {
        let version: FileVersion?
        let chain: [NIOSSLCertificate]
        let key: NIOSSLPrivateKey
        let path: String
    }

    /// Whether it was made from these files.
    func isMade(of files: TLSFiles) -> Bool { self.files == (files.authorities, files.identity) }

    /// Makes the context. It takes long, so it must be called on a thread of a pool.
    ///
    /// - Parameters:
    ///   - last: what the last attempt with the same options used.
    ///   - name: the host name that the server's certificate must have; `nil` for an address.
    static func load(
        _ files: TLSFiles, last: LoadedTLS?, for name: String? = nil
    ) -> Result<LoadedTLS, TransportFailure> {
        let leavesName = name?.contains("_") == true
        let (options, authorityFiles, identityFiles) = (files.options, files.authorities, files.identity)
        var failures: [TransportFailure] = []
        do throws(TransportFailure) {
            if var last, last.isMade(of: files) {
                last.rejected = nil
                if last.leavesName != leavesName {
                    last.context = try context(options, last.authorities.certificates, last.identity, leavesName)
                    last.leavesName = leavesName
                }
                return .success(last)
            }
            let authorities = try newer(last.map { $0.authorities }, &failures) { () throws(TransportFailure) in
                if let last, last.authorities.version == authorityFiles { return last.authorities }
                return Authorities(version: authorityFiles, certificates: try certificates(files))
            }
            let identity = try newer(last.map { $0.identity }, &failures) { () throws(TransportFailure) in
                if let last, last.identity?.version == identityFiles { return last.identity }
                return try Self.identity(files)
            }
            let rejection =
                failures.isEmpty
                ? nil : TransportFailure(ownFiles: failures.map(\.message).joined(separator: "; "))
            let loaded = LoadedTLS(
                options: options, context: try context(options, authorities.certificates, identity, leavesName),
                leavesName: leavesName, authorities: authorities, identity: identity,
                files: (authorityFiles, identityFiles),
                rejection: rejection, rejected: rejection)
            return .success(loaded)
        } catch {
            return .failure(error)
        }
    }

    /// Returns the new value. If that cannot be used, returns the last one, if any, and appends the failure.
    private static func newer<Value>(
        _ last: Value?, _ failures: inout [TransportFailure], _ new: () throws(TransportFailure) -> Value
    ) throws(TransportFailure) -> Value {
        do throws(TransportFailure) {
            return try new()
        } catch {
            guard let last else { throw error }
            failures.append(error)
            return last
        }
    }

    /// Returns a sentence if our own certificate has expired: servers only say that they reject it, or say nothing.
    func expiry(at now: Int) -> String? {
        guard let identity, let certificate = identity.chain.first, now > certificate.notValidAfter else { return nil }
        return "our own certificate in \(identity.path) has expired, or our clock is wrong"
    }

    /// - Parameter leavesName: see ``leavesName``. The chain is verified all the same.
    private static func context(
        _ options: TLSOptions, _ authorities: [NIOSSLCertificate]?, _ identity: Identity?, _ leavesName: Bool
    ) throws(TransportFailure) -> NIOSSLContext {
        var configuration = TLSConfiguration.makeClientConfiguration()
        configuration.certificateVerification = leavesName ? .noHostnameVerification : .fullVerification
        configuration.verifySignatureAlgorithms = signatures
        switch options.minimum {
        case .tls12: configuration.minimumTLSVersion = .tlsv12
        case .tls13: configuration.minimumTLSVersion = .tlsv13
        }
        if let authorities { configuration.trustRoots = .certificates(authorities) }
        if let identity {
            configuration.certificateChain = identity.chain.map { .certificate($0) }
            configuration.privateKey = .privateKey(identity.key)
        }
        do {
            return try NIOSSLContext(configuration: configuration)
        } catch {
            throw TransportFailure(
                ownFiles: options.authorities == nil
                    ? "this host has no trusted authorities that can be used: \(error)"
                    : "the trusted authorities cannot be used: \(error)")
        }
    }

    /// Those that BoringSSL offers on its own, and Ed25519 and P-521, which other clients take as well.
    private static let signatures: [SignatureAlgorithm] = [
        .ed25519, .ecdsaSecp256R1Sha256, .rsaPssRsaeSha256, .rsaPkcs1Sha256, .ecdsaSecp384R1Sha384, .rsaPssRsaeSha384,
        .rsaPkcs1Sha384, .ecdsaSecp521R1Sha512, .rsaPssRsaeSha512, .rsaPkcs1Sha512, .rsaPkcs1Sha1,
    ]

    private static func certificates(_ files: TLSFiles) throws(TransportFailure) -> [NIOSSLCertificate]? {
        guard let path = files.options.authorities else { return nil }
        return try parsed("the authorities", path, files) { try NIOSSLCertificate.fromPEMBytes($0) }
    }

    private static func identity(_ files: TLSFiles) throws(TransportFailure) -> Identity? {
        switch (files.options.certificate, files.options.key) {
        case (nil, nil):
            return nil
        case (_?, nil), (nil, _?):
            throw TransportFailure(ownFiles: "a TLS certificate and its key must be given together")
        case (let path?, let keyPath?):
            let identity = Identity(
                version: files.identity,
                chain: try parsed("the certificate", path, files) { try NIOSSLCertificate.fromPEMBytes($0) },
                key: try parsed("the private key", keyPath, files) { try NIOSSLPrivateKey(bytes: $0, format: .pem) },
                path: path)
            // No authorities are read here, so the only possible error is a key that does not belong to the
            // certificate.
            do throws(TransportFailure) {
                _ = try context(files.options, [], identity, false)
            } catch {
                throw TransportFailure(ownFiles: "\(path) and \(keyPath) do not belong together")
            }
            return identity
        }
    }

    private static func parsed<Value>(
        _ what: String, _ path: String, _ files: TLSFiles, _ parse: ([UInt8]) throws -> Value
    ) throws(TransportFailure) -> Value {
        guard let contents = files.contents[path] else { preconditionFailure("files that have changed were read") }
        switch contents {
        case .success(let bytes) where bytes.count <= TLSFiles.maximumLength:
            if let value = try? parse(bytes) { return value }
            let isEncrypted = String(decoding: bytes, as: UTF8.self).contains("ENCRYPTED")
            let cause =
                isEncrypted
                ? "it is encrypted, and the daemon has no passphrase for it"
                : "it is not PEM, or damaged, or of a kind that the daemon does not know"
            throw TransportFailure(ownFiles: "\(what) in \(path) cannot be used: \(cause)")
        case .success:
            let cause = "it is longer than \(TLSFiles.maximumLength) bytes"
            throw TransportFailure(ownFiles: "cannot read \(what) in \(path): \(cause)")
        case .failure(.system(let code)):
            throw TransportFailure(ownFiles: "cannot read \(what) in \(path): \(systemText(code))")
        case .failure(.notRegular):
            throw TransportFailure(ownFiles: "\(what) in \(path) cannot be used: it is not a regular file")
        }
    }
}
