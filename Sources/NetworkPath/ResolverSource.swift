import Dispatch
import Glibc

/// Hints that the configuration of the resolver may say something else, on a queue of its own. Nothing is polled.
///
/// The kernel tells of changes of the file and in its directory: it may be written in place, or replaced at once by a
/// rename, and it is often a link to a file elsewhere.
struct ResolverSource: ~Copyable {
    private let source: any DispatchSourceRead

    /// - Parameters:
    ///   - path: usually `/etc/resolv.conf`.
    ///   - hinted: called on the queue.
    /// - Returns: `nil` when the kernel cannot watch the directory; the configuration then never changes.
    init?(_ path: String, hinted: @escaping @Sendable () -> Void) {
        let descriptor = inotify_init1(Int32(IN_NONBLOCK | IN_CLOEXEC))
        guard descriptor >= 0 else { return nil }
        guard inotify_add_watch(descriptor, Self.directory(of: path), Self.directoryEvents) >= 0 else {
            close(descriptor)
            return nil
        }
        Self.watchFile(path, descriptor)
        source = DispatchSource.makeReadSource(
            fileDescriptor: descriptor, queue: DispatchQueue(label: "holdfast.resolver"))
        source.setEventHandler { [source] in
            let isUsable = Self.drain(descriptor)
            // It may be another file by now, and watching the same one again changes nothing.
            Self.watchFile(path, descriptor)
            hinted()
            if !isUsable { source.cancel() }
        }
        source.setCancelHandler { close(descriptor) }
        source.activate()
    }

    deinit {
        source.cancel()
    }

    /// What the file says; empty when it cannot be read.
    static func read(_ path: String) -> [UInt8] {
        let file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard file >= 0 else { return [] }
        defer { close(file) }
        return [UInt8](unsafeUninitializedCapacity: longest) { buffer, count in
            count = max(0, Glibc.read(file, buffer.baseAddress, longest))
        }
    }

    /// Bytes; a change behind them is not noticed.
    private static let longest = 16384

    private static let directoryEvents = UInt32(IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_ONLYDIR)
    private static let fileEvents = UInt32(IN_CLOSE_WRITE | IN_MOVE_SELF | IN_DELETE_SELF | IN_ATTRIB)

    private static func watchFile(_ path: String, _ descriptor: Int32) {
        _ = inotify_add_watch(descriptor, path, fileEvents)
    }

    private static func directory(of path: String) -> String {
        guard let slash = path.lastIndex(of: "/"), slash != path.startIndex else { return "/" }
        return String(path[..<slash])
    }

    /// - Returns: whether there can be more.
    private static func drain(_ descriptor: Int32) -> Bool {
        withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 8) { buffer in
            while true {
                let length = Glibc.read(descriptor, buffer.baseAddress, buffer.count)
                if length > 0 || (length < 0 && errno == EINTR) { continue }
                return length < 0 && errno == EAGAIN
            }
        }
    }
}
