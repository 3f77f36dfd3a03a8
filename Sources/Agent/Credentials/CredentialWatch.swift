import Dispatch
import Glibc
import Vocabulary

/// Files that count as one, because they are used together, or because the first that exists is used.
struct WatchedFiles: Sendable {
    /// Not empty.
    let paths: [String]
    /// The version that cannot be used; `nil`: the present one.
    let last: FileVersion?

    init(_ paths: [String], last: FileVersion?) { (self.paths, self.last) = (paths, last) }

    fileprivate var version: FileVersion? { FileVersion(of: paths, skipsEmpty: true) }
}

/// Waits for another version of some files. The kernel reports changes in a file's directory, so that a file that is
/// replaced by a rename is noticed as well as one that is written in place; nothing is polled.
final class CredentialWatch: Sendable {
    /// May be cancelled on any thread.
    private nonisolated(unsafe) let source: any DispatchSourceRead

    /// Blocks on the file system, so call it off the event loop.
    ///
    /// - Parameters:
    ///   - changed: called once, on another thread, when one of the files has another version, even if it had before the
    ///     watch began.
    /// - Throws: an error when the kernel cannot watch a directory.
    init(_ files: [WatchedFiles], changed: @escaping @Sendable () -> Void) throws(Credential.Failure) {
        let lasts = files.map { $0.last ?? $0.version }
        let paths = files.flatMap(\.paths)
        let news = FileNews()
        if let path = paths.first(where: { news?.watch($0) != true }) {
            throw Credential.Failure(
                description: "\(FileNews.directory(of: path)): \(String(cString: strerror(errno)))")
        }
        guard let news else { preconditionFailure("there is something to watch") }
        source = news.source("holdfast.credential")
        let check: @Sendable (any DispatchSourceRead) -> Void = { source in
            // Each is looked at once: it may be written at this moment.
            let hasChanged = zip(files, lasts).contains { files, last in
                if let present = files.version { present != last } else { false }
            }
            guard hasChanged else { return }
            source.cancel()
            changed()
        }
        // The kernel does not report what changed between the last reading and now.
        source.setRegistrationHandler { [source] in check(source) }
        source.setEventHandler { [source] in
            let isUsable = news.drain()
            for path in paths { news.watch(path) }
            check(source)
            if !isUsable { source.cancel() }
        }
        source.activate()
    }

    deinit {
        source.cancel()
    }
}
