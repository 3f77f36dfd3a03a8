import Dispatch
import Glibc
import Session

extension FileMark {
    /// Returns the mark of the file that the path leads to, following links; `nil` if it does not exist, or is empty
    /// because it is still to be written.
    init?(_ path: String) {
        var status = stat()
        guard stat(path, &status) == 0, status.st_size > 0 else { return nil }
        let (modified, changed) = (status.st_mtim, status.st_ctim)
        self.init(
            rawValue: "\(status.st_dev):\(status.st_ino) \(status.st_size) \(modified.tv_sec).\(modified.tv_nsec) "
                + "\(changed.tv_sec).\(changed.tv_nsec)")
    }
}

/// Waits for another version of a file. The kernel reports changes in the file's directory, so that a file that is
/// replaced by a rename is noticed as well as one that is written in place; nothing is polled.
final class CredentialWatch: Sendable {
    /// May be cancelled on any thread.
    private nonisolated(unsafe) let source: any DispatchSourceRead

    /// Blocks on the file system, so call it off the event loop.
    ///
    /// - Parameters:
    ///   - last: the version that cannot be used.
    ///   - changed: called once, on another thread, even if another version existed before the watch began.
    /// - Throws: an error when the kernel cannot watch the directory.
    init(
        _ path: String, last: FileMark?, changed: @escaping @Sendable () -> Void
    ) throws(Credential.Failure) {
        guard let news = FileNews(), news.watch(path) else {
            throw Credential.Failure(
                description: "\(FileNews.directory(of: path)): \(String(cString: strerror(errno)))")
        }
        source = DispatchSource.makeReadSource(
            fileDescriptor: news.descriptor, queue: DispatchQueue(label: "holdfast.credential"))
        let check: @Sendable (any DispatchSourceRead) -> Void = { source in
            guard let mark = FileMark(path), mark != last else { return }
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
        // The handler keeps the descriptor open until nothing reads it any more.
        source.setCancelHandler { _ = news }
        source.activate()
    }

    deinit {
        source.cancel()
    }
}
