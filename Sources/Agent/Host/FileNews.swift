import Dispatch
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

    /// Watches what decides which file the path leads to: the file's directory, those of all links on the way, and whether
    /// every directory on the way stays where it is. In place of a directory that does not exist, the nearest one above
    /// it is watched. Call it again after each report: other directories may be there now.
    /// - Returns: whether the file's directory can be watched; if not, `errno` says why.
    @discardableResult
    func watch(_ path: String) -> Bool {
        // A directory reports nothing about a file that is mounted over another one, as resolv.conf is in containers.
        _ = inotify_add_watch(descriptor, path, UInt32(IN_CLOSE_WRITE))
        var way = Way(to: path)
        // What changes before its directory is watched is not reported. Somebody who never stops changing the way must
        // not keep this from ending.
        for _ in 0..<10 {
            for directory in way.passed {
                _ = inotify_add_watch(descriptor, directory, Self.departure | UInt32(bitPattern: Int32(IN_MASK_ADD)))
            }
            for directory in way.ofLinks { _ = inotify_add_watch(descriptor, directory, Self.events | Self.departure) }
            let isWatched = inotify_add_watch(descriptor, way.directory, Self.events | Self.departure) >= 0
            let error = errno
            let present = Way(to: path)
            if present == way {
                errno = error
                return isWatched
            }
            way = present
        }
        return true
    }

    /// Watches whether a file stays at its path. What happens to other files in its directory is not reported.
    /// - Returns: whether the file is there and can be watched; if not, `errno` says why.
    func watchRemoval(of path: String) -> Bool {
        // The number of links is an attribute, and changes even if the file is still in use.
        let events = UInt32(IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF)
        guard inotify_add_watch(descriptor, path, events) >= 0 else { return false }
        return inotify_add_watch(descriptor, Self.directory(of: path), Self.departure) >= 0
    }

    /// Watches for what may make room for a file at the path: in its directory or, while that does not exist, in the
    /// nearest one above it.
    /// - Returns: whether that can be watched; if not, `errno` says why.
    func watchRoom(for path: String) -> Bool {
        let events = Self.events | Self.departure | UInt32(IN_DELETE | IN_MOVED_FROM)
        var directory = path
        repeat {
            directory = Self.directory(of: directory)
            if inotify_add_watch(descriptor, directory, events) >= 0 { return true }
        } while errno == ENOENT && directory != "/"
        return false
    }

    /// Returns a source whose event handler is called, on a queue of its own, while reports wait to be read. It is not
    /// active yet, and has no handler.
    func source(_ label: String) -> any DispatchSourceRead {
        let source = DispatchSource.makeReadSource(fileDescriptor: descriptor, queue: DispatchQueue(label: label))
        // This handler keeps the descriptor open until nothing reads it any more.
        source.setCancelHandler { [self] in _ = self }
        return source
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
    /// A directory has another name now, or none.
    private static let departure = UInt32(IN_MOVE_SELF | IN_DELETE_SELF)

    static func directory(of path: String) -> String {
        guard let slash = path.lastIndex(of: "/"), slash > path.startIndex else { return "/" }
        return String(path[..<slash])
    }

    /// What an absolute path leads through.
    private struct Way: Equatable {
        /// The directory of the file, or the nearest existing one above it.
        private(set) var directory = "/"
        /// Those of the links on the way.
        private(set) var ofLinks: [String] = []
        /// Those above these.
        private(set) var passed: [String] = []

        init(to path: String) {
            var names = path.split(separator: "/")[...]
            while let name = names.popFirst() {
                let entry = directory == "/" ? "/\(name)" : "\(directory)/\(name)"
                // As many links as the kernel follows.
                if ofLinks.count < 40, let target = target(of: entry) {
                    ofLinks.append(directory)
                    if target.hasPrefix("/") { directory = "/" }
                    names = target.split(separator: "/") + names
                } else if !names.isEmpty, access(entry, F_OK) == 0 || errno != ENOENT {
                    passed.append(directory)
                    directory = entry
                } else {
                    break
                }
            }
        }
    }
}

/// Returns where a link leads; `nil` if this is no link.
private func target(of path: String) -> String? {
    var target = [CChar](repeating: 0, count: Int(PATH_MAX))
    let length = readlink(path, &target, target.count)
    guard length >= 0 else { return nil }
    return String(decoding: target.prefix(length).map { UInt8(bitPattern: $0) }, as: UTF8.self)
}
