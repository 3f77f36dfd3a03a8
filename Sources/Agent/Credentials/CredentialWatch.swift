import Dispatch
import Glibc
import Vocabulary

/// Waits for another version of a file, or of some files of which the first that exists is used. The kernel reports changes
/// in the file's directory, so that a file that is replaced by a rename is noticed as well as one that is written in place;
/// nothing is polled.
final class CredentialWatch: Sendable {
    /// May be cancelled on any thread.
    private nonisolated(unsafe) let source: any DispatchSourceRead

    /// Blocks on the file system, so call it off the event loop.
    ///
    /// - Parameters:
    ///   - files: must not be empty.
    ///   - last: the version that cannot be used; `nil`: the present one.
    ///   - changed: called once, on another thread, even if another version existed before the watch began.
    /// - Throws: an error when the kernel cannot watch the directory.
    init(
        _ files: [String], last: FileVersion?, changed: @escaping @Sendable () -> Void
    ) throws(Credential.Failure) {
        let version = { @Sendable in FileVersion(of: files, skipsEmpty: true) }
        let path = files.first { FileVersion(of: [$0], skipsEmpty: true) != nil } ?? files[0]
        let last = last ?? version()
        guard let news = FileNews(), news.watch(path) else {
            throw Credential.Failure(
                description: "\(FileNews.directory(of: path)): \(String(cString: strerror(errno)))")
        }
        source = news.source("holdfast.credential")
        let check: @Sendable (any DispatchSourceRead) -> Void = { source in
            guard let present = version(), present != last else { return }
            source.cancel()
            changed()
        }
        // The kernel does not report what changed between the last reading and now.
        source.setRegistrationHandler { [source] in check(source) }
        source.setEventHandler { [source] in
            let isUsable = news.drain()
            news.watch(path)
            check(source)
            if !isUsable { source.cancel() }
        }
        source.activate()
    }

    deinit {
        source.cancel()
    }
}
