import Glibc
import Vocabulary

/// The files of ``TLSOptions`` as they were read. What they say is not looked at here: reading takes as long as the file
/// system does, and parsing as long as the processor.
struct TLSFiles: Sendable {
    enum Content: Sendable {
        case read([UInt8])
        /// The cause in the system's words.
        case unreadable(String)
        case notRegular
    }

    let options: TLSOptions
    let authorities: [FileIdentity?]
    let identity: [FileIdentity?]
    /// By path; empty if no file has changed since the last time.
    private(set) var contents: [String: Content] = [:]

    /// Reads the files. It blocks.
    init(_ options: TLSOptions, last: LoadedTLS?) {
        self.options = options
        // Before the files are read, so that a later change is noticed the next time.
        authorities = options.authorityFiles.map { FileIdentity(path: $0) }
        identity = options.identityFiles.map { FileIdentity(path: $0) }
        if last?.isMade(of: self) == true { return }
        for path in options.ownFiles { contents[path] = Content(path) }
    }
}

extension TLSFiles.Content {
    /// A bundle of all authorities that there are has less.
    private static let maximumLength = 16 << 20

    init(_ path: String) {
        // Without O_NONBLOCK, a pipe without a writer would block the thread forever.
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard descriptor >= 0 else {
            self = .unreadable(systemText(errno))
            return
        }
        defer { close(descriptor) }
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
            self = .notRegular
            return
        }
        var bytes: [UInt8] = []
        var part = [UInt8](repeating: 0, count: 64 << 10)
        while bytes.count <= Self.maximumLength {
            let count = Glibc.read(descriptor, &part, part.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else {
                self = .unreadable(systemText(errno))
                return
            }
            if count == 0 {
                self = .read(bytes)
                return
            }
            bytes += part[..<count]
        }
        self = .unreadable("it is longer than \(Self.maximumLength) bytes")
    }
}

/// The attributes by which a replaced or changed file is recognized.
struct FileIdentity: Equatable, Sendable {
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
    /// The system's trust store: the bundles of Debian and Fedora.
    package static let systemAuthorityFiles = [
        "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
    ]

    fileprivate var authorityFiles: [String] { certificateAuthorityFile.map { [$0] } ?? Self.systemAuthorityFiles }
    fileprivate var identityFiles: [String] { [certificateFile, keyFile].compactMap(\.self) }

    /// The files that the configuration names.
    var ownFiles: [String] { [certificateAuthorityFile, certificateFile, keyFile].compactMap(\.self) }
}
