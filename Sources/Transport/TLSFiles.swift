import Vocabulary

/// The files of ``TLSOptions`` as they were read. What they say is not looked at here: reading takes as long as the file
/// system does, and parsing as long as the processor.
struct TLSFiles: Sendable {
    /// A bundle of all authorities that there are has less.
    static let maximumLength = 16 << 20

    let options: TLSOptions
    /// `nil`: there is no such file.
    let authorities: FileVersion?
    let identity: FileVersion?
    /// By path; empty if no file has changed since the last time.
    private(set) var contents: [String: Result<[UInt8], FileError>] = [:]

    /// Reads the files. It blocks.
    init(_ options: TLSOptions, last: LoadedTLS?) {
        self.options = options
        // Before the files are read, so that a later change is noticed the next time.
        authorities = FileVersion(of: options.authorityFiles, skipsEmpty: true)
        identity = FileVersion(of: options.identityFiles, skipsEmpty: true)
        if last?.isMade(of: self) == true { return }
        for path in options.ownFiles {
            contents[path] = Result { () throws(FileError) in
                try fileContents(path, atMost: Self.maximumLength + 1)
            }
        }
    }
}

extension TLSOptions {
    /// The system's trust store: the bundles of Debian and Fedora.
    private static let systemAuthorityFiles = [
        "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
    ]

    /// The file of authorities, or those of the system.
    package var authorityFiles: [String] { authorities.map { [$0] } ?? Self.systemAuthorityFiles }
    /// This host's own certificate and its key.
    package var identityFiles: [String] { [certificate, key].compactMap(\.self) }

    /// The files that the configuration names.
    var ownFiles: [String] { [authorities, certificate, key].compactMap(\.self) }
}
