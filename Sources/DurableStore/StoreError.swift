internal import Glibc
internal import Vocabulary

/// Why the store did not do what it was asked. Nothing was applied in part.
public enum StoreError: Error, Hashable, Sendable {
    /// Another daemon has the state directory; its process id, if it could be read.
    case locked(directory: String, holder: Int32?)
    /// The directory or the file cannot be made, opened or written; the cause in the system's words.
    case unwritable(path: String, cause: String)
    /// The file was written by a later version of Holdfast.
    case newerSchema(path: String, found: Int, known: Int)
    /// There is no room on the disk. The same call succeeds once there is some.
    case full(path: String, cause: String)
    /// Another program has the file open, so it cannot be opened here. The same call succeeds once that program is gone.
    case busy(path: String, cause: String)
    /// The file is damaged. The next call moves it aside.
    case corrupt(path: String, cause: String)
    /// The file is intact, but something in it makes no sense: a person has to look at it.
    case damaged(path: String, cause: String)
    /// The disk has not answered for more than this many seconds. Nothing is lost; the call may still be done.
    case stalled(seconds: Int)
    /// The disk or the library failed in another way.
    case failed(path: String, cause: String)
    /// The change contradicts what is stored, which is the caller's mistake.
    case inconsistent(String)
    /// ``DurableStore/close()`` was called.
    case closed
}

extension StoreError: CustomStringConvertible {
    /// The stable code, in kebab-case.
    public var code: String {
        switch self {
        case .locked: "store-locked"
        case .unwritable: "store-unwritable"
        case .newerSchema: "store-newer-schema"
        case .full: "store-full"
        case .busy: "store-busy"
        case .corrupt: "store-corrupt"
        case .damaged: "store-damaged"
        case .stalled: "store-stalled"
        case .failed: "store-failed"
        case .inconsistent: "store-inconsistent"
        case .closed: "store-closed"
        }
    }

    /// What happened and what to do, for people.
    public var description: String {
        switch self {
        case .locked(let directory, let holder):
            "the state directory \(directory) is in use by another holdfastd"
                + (holder.map { " (process \($0))" } ?? "")
                + ": stop that one first, or give this one a directory of its own"
        case .unwritable(let path, let cause):
            "cannot write \(path): \(cause); \(Self.remedy(path, cause))"
        case .newerSchema(let path, let found, let known):
            "\(path) has schema version \(found), and this holdfastd knows none after \(known): install the newer "
                + "version again, or move the file away and lose what is in it (\(path).version-\(known)-…, if it is there, "
                + "is the copy that the upgrade made)"
        case .full(let path, let cause):
            "no room for \(path): \(cause); free space on its file system"
        case .busy(let path, _):
            "another program has \(path) open (fuser \(path) names it): end that program; while the daemon runs, no "
                + "other program can use the file"
        case .corrupt(let path, let cause):
            "\(path) is damaged: \(cause); it is moved aside, and what can be read of it is kept"
        case .damaged(let path, let cause):
            "in \(path), \(cause): stop the daemon and repair the file with sqlite3, or move it away, which discards "
                + "its contents"
        case .stalled(let seconds):
            "the disk with the state directory has not answered for more than \(seconds) s; what is published waits "
                + "until it does"
        case .failed(let path, let cause):
            "\(path): \(cause)"
        case .inconsistent(let sentence):
            "it does not fit what is stored, as may be for a moment after damage was repaired: \(sentence)"
        case .closed:
            "the store is closed"
        }
    }
}

extension StoreError {
    private static func remedy(_ path: String, _ cause: String) -> String {
        if cause.contains(systemText(EROFS)) {
            return
                "its file system is read-only, at least for the service: ReadWritePaths= names what else it may write to"
        }
        let parts = path.split(separator: "/", omittingEmptySubsequences: false)
        let directory = parts.dropLast().joined(separator: "/")
        let file = parts.last ?? ""
        if cause.contains(systemText(EACCES)), file == StateDirectory.lockName || file.hasPrefix(DurableStore.fileName)
        {
            return "everything in the directory must belong to the user of the daemon: chown -R holdfast: \(directory)"
        }
        return "it must be in a directory that belongs to the user of the daemon, on a file system that can be written"
    }

    /// A file or directory cannot be made, opened or locked.
    static func unusable(_ path: String, _ code: Int32) -> StoreError {
        switch code {
        // Neither owner nor mode is to blame.
        case EMFILE, ENFILE: .failed(path: path, cause: systemText(code))
        // Also when there are no more inodes.
        case ENOSPC, EDQUOT: .full(path: path, cause: systemText(code))
        default: .unwritable(path: path, cause: systemText(code))
        }
    }
}
