import Glibc
import NIOSSL

/// The last good TLS files, so that a file that is broken while it is being replaced costs no connection, and an
/// unchanged one is not parsed again.
///
/// Belongs to one event loop, like the connections that are given it. One per session is enough. TLS sessions are not
/// cached: NIOSSL (2.37) cannot resume them for clients, so every handshake is a full one.
public final class TLSContextCache {
    private var last: LoadedTLS?

    public init() {}

    func last(for options: TLSOptions) -> LoadedTLS? { last.flatMap { $0.options == options ? $0 : nil } }
    func keep(_ loaded: LoadedTLS) { last = loaded }
}

@available(*, unavailable)
extension TLSContextCache: Sendable {}

/// A TLS context, and the files that it was made from.
///
/// The authorities and our own certificate are checked separately: a certificate that is broken while it is being
/// replaced must not keep an authority in use that was removed.
struct LoadedTLS: Sendable {
    let options: TLSOptions
    let context: NIOSSLContext
    private let authorities: Authorities
    private let identity: Identity?
    /// The files as they were when they were read, including those that were rejected.
    private let files: [FileIdentity?]
    /// Why some of the present files are not used, and the previous ones are; `nil` also if that was reported before.
    private(set) var rejected: TransportFailure?

    private struct Authorities: Sendable {
        let files: [FileIdentity?]
        /// `nil`: the system's trust store.
        let certificates: [NIOSSLCertificate]?
    }

    /// A certificate with its chain, and the key that fits.
    private struct Identity: Sendable {
        let files: [FileIdentity?]
        let chain: [NIOSSLCertificate]
        let key: NIOSSLPrivateKey
        let path: String
    }

    /// Reads the files. It blocks, so it must be called on a thread of a pool.
    ///
    /// - Parameter last: what the last attempt with the same options used.
    static func load(_ options: TLSOptions, last: LoadedTLS?) -> Result<LoadedTLS, TransportFailure> {
        let authorityFiles = options.authorityFiles.map { FileIdentity(path: $0) }
        let identityFiles = options.identityFiles.map { FileIdentity(path: $0) }
        if var last, last.files == authorityFiles + identityFiles {
            last.rejected = nil
            return .success(last)
        }
        var failures: [TransportFailure] = []
        do throws(TransportFailure) {
            let authorities = try newer(last.map { $0.authorities }, &failures) { () throws(TransportFailure) in
                if let last, last.authorities.files == authorityFiles { return last.authorities }
                return Authorities(files: authorityFiles, certificates: try certificates(options))
            }
            let identity = try newer(last.map { $0.identity }, &failures) { () throws(TransportFailure) in
                if let last, last.identity?.files == identityFiles { return last.identity }
                return try Self.identity(options, identityFiles)
            }
            let loaded = LoadedTLS(
                options: options, context: try context(options, authorities.certificates, identity),
                authorities: authorities, identity: identity, files: authorityFiles + identityFiles,
                rejected: failures.isEmpty
                    ? nil : TransportFailure(.tlsFilesUnusable, failures.map(\.message).joined(separator: "; ")))
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

    private static func context(
        _ options: TLSOptions, _ authorities: [NIOSSLCertificate]?, _ identity: Identity?
    ) throws(TransportFailure) -> NIOSSLContext {
        var configuration = TLSConfiguration.makeClientConfiguration()
        configuration.certificateVerification = .fullVerification
        switch options.minimumVersion {
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
            throw TransportFailure(.tlsFilesUnusable, "the trusted authorities cannot be used: \(error)")
        }
    }

    private static func certificates(_ options: TLSOptions) throws(TransportFailure) -> [NIOSSLCertificate]? {
        guard let path = options.certificateAuthorityFile else { return nil }
        return try unusable("the authorities", path) { try NIOSSLCertificate.fromPEMFile(path) }
    }

    private static func identity(
        _ options: TLSOptions, _ files: [FileIdentity?]
    ) throws(TransportFailure) -> Identity? {
        switch (options.certificateFile, options.keyFile) {
        case (nil, nil):
            return nil
        case (_?, nil), (nil, _?):
            throw TransportFailure(.tlsFilesUnusable, "a TLS certificate and its key must be given together")
        case (let path?, let keyPath?):
            let identity = Identity(
                files: files,
                chain: try unusable("the certificate", path) { try NIOSSLCertificate.fromPEMFile(path) },
                key: try unusable("the private key", keyPath) { try NIOSSLPrivateKey(file: keyPath, format: .pem) },
                path: path)
            // No authorities are read here, so the only possible error is a key that does not belong to the
            // certificate.
            do throws(TransportFailure) {
                _ = try context(options, [], identity)
            } catch {
                throw TransportFailure(.tlsFilesUnusable, "\(path) and \(keyPath) do not belong together")
            }
            return identity
        }
    }

    private static func unusable<Value>(
        _ what: String, _ path: String, _ read: () throws -> Value
    ) throws(TransportFailure) -> Value {
        if access(path, R_OK) != 0 {
            throw TransportFailure(.tlsFilesUnusable, "cannot read \(what) in \(path): \(errorText(errno))")
        }
        // A pipe without a writer would block the thread forever.
        var status = stat()
        guard stat(path, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
            throw TransportFailure(.tlsFilesUnusable, "\(what) in \(path) cannot be used: it is not a regular file")
        }
        do {
            return try read()
        } catch {
            throw TransportFailure(.tlsFilesUnusable, "\(what) in \(path) cannot be used: it is not PEM, or damaged")
        }
    }
}

/// The attributes by which a replaced or changed file is recognized.
private struct FileIdentity: Equatable, Sendable {
    let inode: UInt64
    let size: Int64
    let modifiedSeconds: Int64
    let modifiedNanoseconds: Int64

    init?(path: String) {
        var status = stat()
        guard stat(path, &status) == 0 else { return nil }
        inode = UInt64(status.st_ino)
        size = Int64(status.st_size)
        modifiedSeconds = Int64(status.st_mtim.tv_sec)
        modifiedNanoseconds = Int64(status.st_mtim.tv_nsec)
    }
}

extension TLSOptions {
    fileprivate var authorityFiles: [String] {
        // The bundles of Debian and Fedora stand for the system's trust store.
        certificateAuthorityFile.map { [$0] }
            ?? ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"]
    }

    fileprivate var identityFiles: [String] { [certificateFile, keyFile].compactMap(\.self) }
}
