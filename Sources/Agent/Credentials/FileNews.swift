import Glibc

/// The kernel's reports of changes in the directories of files (inotify(7)). Closed with its last reference.
///
/// A directory's reports include files that are replaced by a rename, and files that are written in place.
final class FileNews: Sendable {
    let descriptor: CInt

    /// `nil` when the kernel's limit on such watches is reached; `errno` says which limit.
    init?() {
        descriptor = inotify_init1(Int32(IN_NONBLOCK | IN_CLOEXEC))
        if descriptor < 0 { return nil }
    }

    deinit {
        if descriptor >= 0 { close(descriptor) }
    }

    /// Watches the directory of a file. If the file is a link, also watches the directory that it leads to or, if that
    /// does not exist yet, the nearest existing one above it. Call it again when the link may have changed.
    /// - Returns: whether the directory of the file itself can be watched; if not, `errno` says why.
    @discardableResult
    func watch(_ path: String) -> Bool {
        guard inotify_add_watch(descriptor, Self.directory(of: path), Self.events) >= 0 else { return false }
        // A directory reports nothing about a file that is mounted over another one, as resolv.conf is in containers.
        _ = inotify_add_watch(descriptor, path, UInt32(IN_CLOSE_WRITE))
        guard var target = Self.target(of: path) else { return true }
        repeat {
            target = Self.directory(of: target)
        } while inotify_add_watch(descriptor, target, Self.events) < 0 && errno == ENOENT && target != "/"
        return true
    }

    /// Watches whether a file stays at its path. What happens to other files in its directory is not reported.
    /// - Returns: whether the file is there and can be watched; if not, `errno` says why.
    func watchRemoval(of path: String) -> Bool {
        // The number of links is an attribute, and changes even if the file is still in use.
        let events = UInt32(IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF)
        guard inotify_add_watch(descriptor, path, events) >= 0 else { return false }
        return inotify_add_watch(descriptor, Self.directory(of: path), UInt32(IN_MOVE_SELF | IN_DELETE_SELF)) >= 0
    }

    /// Watches for what may make room for a file at the path: in its directory or, while that does not exist, in the
    /// nearest one above it.
    /// - Returns: whether that can be watched; if not, `errno` says why.
    func watchRoom(for path: String) -> Bool {
        let events =
            Self.events | UInt32(IN_DELETE | IN_MOVED_FROM | IN_MOVE_SELF | IN_DELETE_SELF)
        var directory = path
        repeat {
            directory = Self.directory(of: directory)
            if inotify_add_watch(descriptor, directory, events) >= 0 { return true }
        } while errno == ENOENT && directory != "/"
        return false
    }

    /// Discards the reports that wait to be read.
    /// - Returns: whether more can follow later.
    func drain() -> Bool {
        withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 8) { buffer in
            while true {
                let count = read(descriptor, buffer.baseAddress, buffer.count)
                if count > 0 || count < 0 && errno == EINTR { continue }
                return count < 0 && errno == EAGAIN
            }
        }
    }

    private static let events = UInt32(IN_CLOSE_WRITE | IN_MOVED_TO | IN_CREATE | IN_ATTRIB)

    static func directory(of path: String) -> String {
        guard let slash = path.lastIndex(of: "/"), slash > path.startIndex else { return "/" }
        return String(path[..<slash])
    }

    /// Returns where a link leads, as far as that is known if its target does not exist; `nil` if the path is not a
    /// link.
    private static func target(of path: String) -> String? {
        if let resolved = realpath(path, nil) {
            defer { free(resolved) }
            let target = String(cString: resolved)
            return target == path ? nil : target
        }
        var target = [CChar](repeating: 0, count: Int(PATH_MAX))
        let length = readlink(path, &target, target.count)
        guard length > 0 else { return nil }
        let text = String(decoding: target.prefix(length).map { UInt8(bitPattern: $0) }, as: UTF8.self)
        return text.hasPrefix("/") ? text : directory(of: path) + "/" + text
    }
}
