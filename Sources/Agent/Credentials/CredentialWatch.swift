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
    /// - Throws: an error when the kernel can watch none of their directories.
    init(_ files: [WatchedFiles], changed: @escaping @Sendable () -> Void) throws(Credential.Failure) {
        let lasts = files.map { $0.last ?? $0.version }
        let paths = files.flatMap(\.paths)
        guard let news = FileNews() else {
            throw Credential.Failure(description: String(cString: strerror(errno)))
        }
        // One in a folder that only lets pass, as that of private keys may, is not noticed; the others are.
        var failures: [Int32] = []
        for path in paths where !news.watch(path) { failures.append(errno) }
        if failures.count == paths.count {
            throw Credential.Failure(
                description: "\(FileNews.directory(of: paths[0])): \(String(cString: strerror(failures[0])))")
        }
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
