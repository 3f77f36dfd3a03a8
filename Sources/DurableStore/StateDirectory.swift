internal import CSQLite
internal import Glibc
internal import MQTT

/// The daemon's directory, locked for as long as this lives: one state directory, one daemon.
///
/// The lock is the kernel's (flock(2)), so it ends with the process, however that ends; the file's content only tells
/// others who holds it.
struct StateDirectory: ~Copyable {
    let path: String
    /// When the previous holder of the lock took or touched it; `nil` for the first one.
    let lastTouched: Timestamp?
    private let lock: Int32

    /// Creates the directory (0700) if it does not exist, and takes its lock.
    init(path: String) throws(StoreError) {
        if mkdir(path, 0o700) != 0, errno != EEXIST {
            throw .unwritable(path: path, cause: systemText(errno))
        }
        let file = "\(path)/lock"
        let lastTouched = Self.modified(file)
        let descriptor = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw .unwritable(path: file, cause: systemText(errno)) }
        if flock(descriptor, LOCK_EX | LOCK_NB) != 0 {
            let code = errno
            let holder = Self.processID(in: descriptor)
            close(descriptor)
            if code == EWOULDBLOCK { throw .locked(directory: path, holder: holder) }
            throw .unwritable(path: file, cause: systemText(code))
        }
        self.path = path
        self.lastTouched = lastTouched
        lock = descriptor
        // The process id only informs a second daemon: a full disk must not keep the first one from starting.
        let text = Array("\(getpid())\n".utf8)
        if ftruncate(descriptor, 0) == 0 { _ = pwrite(descriptor, text, text.count, 0) }
    }

    deinit {
        unlock()
        close(lock)
    }

    /// Lets another daemon take the directory. Closing alone would not: a child between fork and exec has the
    /// descriptor too.
    func unlock() {
        flock(lock, LOCK_UN)
    }

    /// The bytes that ordinary users may still take on the file system, and its total size.
    var space: (available: UInt64, total: UInt64)? {
        var status = statvfs()
        guard fstatvfs(lock, &status) == 0 else { return nil }
        return (UInt64(status.f_bavail) * UInt64(status.f_frsize), UInt64(status.f_blocks) * UInt64(status.f_frsize))
    }

    /// The size of a file in the directory; 0 if it is not there.
    func size(of name: String) -> Int {
        var status = stat()
        return stat("\(path)/\(name)", &status) == 0 ? Int(status.st_size) : 0
    }

    /// When a file in the directory was written last; `nil` if it is not there.
    func modified(_ name: String) -> Timestamp? {
        Self.modified("\(path)/\(name)")
    }

    /// Marks the lock as held by a living process. That fails on a full or read-only disk, which does not matter.
    func touch() {
        _ = futimens(lock, nil)
    }

    private static func modified(_ path: String) -> Timestamp? {
        var status = stat()
        guard stat(path, &status) == 0 else { return nil }
        return Timestamp(
            rawValue: Int64(status.st_mtim.tv_sec) * 1000 + Int64(status.st_mtim.tv_nsec) / 1_000_000)
    }

    /// Whether a file is in the directory.
    func contains(_ name: String) -> Bool {
        access("\(path)/\(name)", F_OK) == 0
    }

    /// Creates the directory again if somebody has removed it.
    func makeAgain() { mkdir(path, 0o700) }

    /// Creates an empty file that only the daemon's user may read, unless it exists; SQLite gives its log the same
    /// mode.
    func makePrivateFile(_ name: String) throws(StoreError) {
        let file = "\(path)/\(name)"
        let descriptor = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw .unwritable(path: file, cause: systemText(errno)) }
        close(descriptor)
    }

    // MARK: The spare file

    static let spareName = "holdfast.spare"

    /// Reserves room on the file system for what must be written when it is full.
    ///
    /// - Returns: whether the room is reserved now.
    func makeSpare(_ bytes: UInt64) -> Bool {
        guard bytes > 0, size(of: Self.spareName) < bytes else { return bytes > 0 }
        let file = "\(path)/\(Self.spareName)"
        let descriptor = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        guard posix_fallocate(descriptor, 0, off_t(bytes)) == 0 else {
            unlink(file)
            return false
        }
        return true
    }

    /// Gives the reserved room back to the file system.
    ///
    /// - Returns: whether there was some.
    func releaseSpare() -> Bool { unlink("\(path)/\(Self.spareName)") == 0 }

    /// Flushes what was written to a file, by anyone, to the disk.
    func flush(_ name: String) {
        let descriptor = open("\(path)/\(name)", O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
        guard descriptor >= 0 else { return }
        fdatasync(descriptor)
        close(descriptor)
    }

    /// Makes the kernel start writing a file's dirty pages to the disk, without waiting for it.
    func beginWriting(_ name: String) {
        let descriptor = open("\(path)/\(name)", O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
        guard descriptor >= 0 else { return }
        sync_file_range(descriptor, 0, 0, UInt32(SYNC_FILE_RANGE_WRITE))
        close(descriptor)
    }

    /// Gives a file of the directory another name there; does nothing if it does not exist.
    func rename(_ name: String, to newName: String) throws(StoreError) {
        guard Glibc.rename("\(path)/\(name)", "\(path)/\(newName)") != 0, errno != ENOENT else { return }
        throw .unwritable(path: "\(path)/\(name)", cause: systemText(errno))
    }

    /// Removes a database that was just made, with the files that SQLite keeps beside it.
    func remove(_ name: String) {
        for suffix in ["", "-wal", "-shm"] { unlink("\(path)/\(name)\(suffix)") }
    }

    private static func processID(in descriptor: Int32) -> Int32? {
        var buffer = [UInt8](repeating: 0, count: 16)
        let count = pread(descriptor, &buffer, buffer.count, 0)
        guard count > 0 else { return nil }
        return Int32(String(decoding: buffer[..<count].prefix { $0 != 10 }, as: UTF8.self))
    }
}

/// A database and its log as they were opened, identified by device and inode. If they are deleted or a backup is restored
/// while the daemon runs, the daemon would otherwise keep writing to files that no longer have a name.
struct DatabaseFiles {
    private struct Identity: Equatable {
        let device: dev_t
        let inode: ino_t
    }

    private let database: Identity?
    private let log: Identity?

    init(in directory: borrowing StateDirectory) {
        database = Self.identity(of: DurableStore.fileName, in: directory)
        log = Self.identity(of: DurableStore.fileName + "-wal", in: directory)
    }

    func areThere(in directory: borrowing StateDirectory) -> Bool {
        database == Self.identity(of: DurableStore.fileName, in: directory)
            && (log == nil || log == Self.identity(of: DurableStore.fileName + "-wal", in: directory))
    }

    private static func identity(of name: String, in directory: borrowing StateDirectory) -> Identity? {
        var status = stat()
        guard stat("\(directory.path)/\(name)", &status) == 0 else { return nil }
        return Identity(device: status.st_dev, inode: status.st_ino)
    }
}
