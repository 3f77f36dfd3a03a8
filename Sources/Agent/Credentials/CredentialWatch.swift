import Dispatch
import Glibc
import Session

extension FileMark {
    /// For the file that the path leads to, following links; `nil` if it does not exist, or is empty and still to be
    /// written.
    init?(_ path: String) {
        var status = stat()
        guard stat(path, &status) == 0, status.st_size > 0 else { return nil }
        let (modified, changed) = (status.st_mtim, status.st_ctim)
        self.init(
            rawValue: "\(status.st_dev):\(status.st_ino) \(status.st_size) \(modified.tv_sec).\(modified.tv_nsec) "
                + "\(changed.tv_sec).\(changed.tv_nsec)")
    }
}

/// Waits for another version of a file. The kernel tells of changes in its directory, so a file that is replaced at once,
/// by a rename, is seen as well as one that is written in place; nothing is polled.
///
/// Where the path is a link, the directory that it leads to is watched too.
struct CredentialWatch: ~Copyable {
    private let source: any DispatchSourceRead

    /// - Parameters:
    ///   - last: the version that is of no use.
    ///   - changed: called once, on another thread, also when another version was there before the watch began.
    /// - Throws: when the kernel cannot watch the directory.
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
        // What came between the last reading and now is told by nobody else.
        source.setRegistrationHandler { [source] in check(source) }
        source.setEventHandler { [source] in
            let isUsable = news.drain()
            check(source)
            if !isUsable { source.cancel() }
        }
        // It keeps the descriptor open until nobody reads it any more.
        source.setCancelHandler { _ = news }
        source.activate()
    }

    deinit {
        source.cancel()
    }
}
