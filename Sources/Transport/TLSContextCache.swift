import Glibc
import NIOCore
import NIOSSL

/// The TLS files as they were last good, so that a file that is broken while it is being replaced costs no connection,
/// and an unchanged one is not parsed again.
///
/// Belongs to one event loop, like the connections that are given it. One per session is enough.
public final class TLSContextCache {
    private var last: LoadedTLS?

    public init() {}

    func last(for options: TLSOptions) -> LoadedTLS? { last.flatMap { $0.options == options ? $0 : nil } }
    func keep(_ loaded: LoadedTLS) { last = loaded }
}

@available(*, unavailable)
extension TLSContextCache: Sendable {}

/// A context made of TLS files, and which files these were.
struct LoadedTLS: Sendable {
    let options: TLSOptions
    let context: NIOSSLContext
    fileprivate let files: [FileIdentity?]
    /// Why the files as they are now were not used; the context is then that of the files before.
    fileprivate(set) var rejected: TransportFailure?

    /// Reads the files; blocks, to be called on a thread of a pool.
    ///
    /// - Parameter last: what the last attempt with the same options used.
    static func load(_ options: TLSOptions, last: LoadedTLS?) -> Result<LoadedTLS, TransportFailure> {
        let files = options.watchedFiles.map { FileIdentity(path: $0) }
        if var last, last.files == files {
            last.rejected = nil
            return .success(last)
        }
        do throws(TransportFailure) {
            return .success(LoadedTLS(options: options, context: try context(options), files: files))
        } catch {
            guard var last else { return .failure(error) }
            last.rejected = error
            return .success(last)
        }
    }

    private static func context(_ options: TLSOptions) throws(TransportFailure) -> NIOSSLContext {
        var configuration = TLSConfiguration.makeClientConfiguration()
        configuration.certificateVerification = .fullVerification
        switch options.minimumVersion {
        case .tls12: configuration.minimumTLSVersion = .tlsv12
        case .tls13: configuration.minimumTLSVersion = .tlsv13
        }
        if let path = options.certificateAuthorityFile {
            configuration.trustRoots = .certificates(
                try unusable("the authorities", path) { try NIOSSLCertificate.fromPEMFile(path) })
        }
        switch (options.certificateFile, options.keyFile) {
        case (nil, nil): break
        case (let certificate?, let key?):
            let chain = try unusable("the certificate", certificate) { try NIOSSLCertificate.fromPEMFile(certificate) }
            configuration.certificateChain = chain.map { .certificate($0) }
            configuration.privateKey = .privateKey(
                try unusable("the private key", key) { try NIOSSLPrivateKey(file: key, format: .pem) })
        case (_?, nil), (nil, _?):
            throw TransportFailure(.tlsFilesUnusable, "a TLS certificate and its key must be given together")
        }
        do {
            return try NIOSSLContext(configuration: configuration)
        } catch {
            // The one thing left that can go wrong is a key that is not the certificate's.
            let files = [options.certificateFile, options.keyFile].compactMap(\.self).joined(separator: " and ")
            throw TransportFailure(
                .tlsFilesUnusable,
                files.isEmpty
                    ? "the system's trust store cannot be used: \(error)" : "\(files) do not belong together: \(error)")
        }
    }

    private static func unusable<Value>(
        _ what: String, _ path: String, _ read: () throws -> Value
    ) throws(TransportFailure) -> Value {
        if access(path, R_OK) != 0 {
            throw TransportFailure(.tlsFilesUnusable, "cannot read \(what) in \(path): \(errorText(errno))")
        }
        do {
            return try read()
        } catch {
            throw TransportFailure(.tlsFilesUnusable, "\(what) in \(path) cannot be used: it is not PEM, or damaged")
        }
    }
}

/// What tells that a file was replaced or changed.
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
    fileprivate var watchedFiles: [String] {
        // The bundles of Debian and Fedora stand for the system's trust store.
        let authorities =
            certificateAuthorityFile.map { [$0] }
            ?? ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"]
        return authorities + [certificateFile, keyFile].compactMap(\.self)
    }
}
