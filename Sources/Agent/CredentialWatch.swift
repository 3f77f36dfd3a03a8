import Dispatch
import Glibc

/// What tells one version of a file from the next without reading it.
struct FileMark: RawRepresentable, Hashable, Sendable {
    /// Device and inode, size, and when it was modified and changed. It is kept in the state directory.
    let rawValue: String

    init(rawValue: String) {
        self.rawValue = rawValue
    }

    /// Of the file that the path leads to, links followed; `nil` if there is none, or an empty one that is still to be
    /// written.
    init?(_ path: String) {
        var status = stat()
        guard stat(path, &status) == 0, status.st_size > 0 else { return nil }
        let (modified, changed) = (status.st_mtim, status.st_ctim)
        rawValue =
            "\(status.st_dev):\(status.st_ino) \(status.st_size) \(modified.tv_sec).\(modified.tv_nsec) "
            + "\(changed.tv_sec).\(changed.tv_nsec)"
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
        let descriptor = inotify_init1(Int32(IN_NONBLOCK | IN_CLOEXEC))
        guard descriptor >= 0 else { throw Self.failure(path) }
        guard inotify_add_watch(descriptor, Self.directory(path), Self.events) >= 0 else {
            let failure = Self.failure(path)
            close(descriptor)
            throw failure
        }
        if let target = Self.resolved(path) { inotify_add_watch(descriptor, Self.directory(target), Self.events) }
        source = DispatchSource.makeReadSource(
            fileDescriptor: descriptor, queue: DispatchQueue(label: "holdfast.credential"))
        let check: @Sendable (any DispatchSourceRead) -> Void = { source in
            guard let mark = FileMark(path), mark != last else { return }
            source.cancel()
            changed()
        }
        // What came between the last reading and now is told by nobody else.
        source.setRegistrationHandler { [source] in check(source) }
        source.setEventHandler { [source] in
            let isUsable = Self.drain(descriptor)
            check(source)
            if !isUsable { source.cancel() }
        }
        source.setCancelHandler { close(descriptor) }
        source.activate()
    }

    deinit {
        source.cancel()
    }

    private static let events = UInt32(IN_CLOSE_WRITE | IN_MOVED_TO | IN_CREATE | IN_ATTRIB)

    private static func failure(_ path: String) -> Credential.Failure {
        Credential.Failure(description: "\(directory(path)): \(String(cString: strerror(errno)))")
    }

    private static func directory(_ path: String) -> String {
        guard let slash = path.lastIndex(of: "/"), slash > path.startIndex else { return "/" }
        return String(path[..<slash])
    }

    private static func resolved(_ path: String) -> String? {
        guard let resolved = realpath(path, nil) else { return nil }
        defer { free(resolved) }
        return String(cString: resolved)
    }

    /// - Returns: whether there can be more later.
    private static func drain(_ descriptor: Int32) -> Bool {
        withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 8) { buffer in
            while true {
                let count = Glibc.read(descriptor, buffer.baseAddress, buffer.count)
                if count > 0 || count < 0 && errno == EINTR { continue }
                return count < 0 && errno == EAGAIN
            }
        }
    }
}
