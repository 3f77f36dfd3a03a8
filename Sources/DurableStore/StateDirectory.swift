internal import CSQLite
internal import Glibc
internal import MQTT
internal import Vocabulary

/// The daemon's directory, locked for as long as this lives: one state directory, one daemon.
///
/// The locks are the kernel's (flock(2)), so they end with the process, however that ends. The directory itself is
/// locked, because a file in it can be removed. The file `lock` is locked as well: where the directory is on a network
/// file system, only that lock holds for other hosts. Its content tells others who has the directory.
struct StateDirectory: ~Copyable {
    let path: String
    /// Bytes of the file system that messages may not take, so that acknowledgements always have room. Large enough for
    /// the write-ahead log to be written twice; never more than a sixteenth of the file system.
    private(set) var reserve: UInt64
    /// Whether the spare file holds a part of the reserve, for when the file system is full all the same.
    private(set) var hasSpare = false
    /// When the previous holder of the lock took or touched it; `nil` for the first one.
    let lastTouched: Timestamp?
    private var directory: Lock
    private var file: Lock

    /// Creates the directory (0700) if it does not exist, and locks it.
    init(path: String, reserve: UInt64) throws(StoreError) {
        if mkdir(path, 0o700) != 0, errno != EEXIST {
            throw .unusable(path, errno)
        }
        let lastTouched = Self.modified(Self.lockFile(of: path))
        let directory = try Self.lockDirectory(path)
        let file = try Self.lockFile(in: path)
        self.path = path
        self.lastTouched = lastTouched
        self.reserve = reserve
        self.directory = directory
        self.file = file
        self.reserve = min(reserve, (space?.total ?? .max) / 16)
    }

    /// Lets another daemon take the directory.
    func unlock() {
        file.unlock()
        directory.unlock()
    }

    /// Creates the directory and its lock file again if somebody has removed or moved them, and locks what is there now.
    ///
    /// - Throws: ``StoreError/locked(directory:holder:)`` when another daemon has taken the directory meanwhile.
    mutating func makeAgain() throws(StoreError) {
        mkdir(path, 0o700)
        if !directory.isNamed(path) {
            let new = try Self.lockDirectory(path)
            file = try Self.lockFile(in: path)
            directory = new
        } else if !file.isNamed(Self.lockFile(of: path)) {
            file = try Self.lockFile(in: path)
        }
    }

    static let lockName = "lock"

    private static func lockFile(of path: String) -> String { "\(path)/\(lockName)" }

    private static func lockDirectory(_ path: String) throws(StoreError) -> Lock {
        guard let lock = try Lock(path, O_RDONLY | O_DIRECTORY) else { throw locked(path) }
        return lock
    }

    private static func lockFile(in path: String) throws(StoreError) -> Lock {
        guard let lock = try Lock(lockFile(of: path), O_RDWR | O_CREAT | O_NOFOLLOW) else { throw locked(path) }
        // The process id only informs a second daemon: a full disk must not keep the first one from starting.
        let text = Array("\(getpid())\n".utf8)
        if ftruncate(lock.descriptor, 0) == 0 { _ = pwrite(lock.descriptor, text, text.count, 0) }
        return lock
    }

    /// The bytes that ordinary users may still take on the file system, and its total size; `nil` if they are unknown.
    var space: (available: UInt64, total: UInt64)? {
        var status = statvfs()
        guard fstatvfs(file.descriptor, &status) == 0 else { return nil }
        return Self.space(of: status)
    }

    /// Some file systems, ramfs among them, have no size.
    static func space(of status: statvfs) -> (available: UInt64, total: UInt64)? {
        guard status.f_blocks > 0 else { return nil }
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
    mutating func touch() {
        try? makeAgain()
        _ = futimens(file.descriptor, nil)
    }

    private static func modified(_ path: String) -> Timestamp? {
        var status = stat()
        guard stat(path, &status) == 0 else { return nil }
        return Timestamp(seconds: Int64(status.st_mtim.tv_sec), nanoseconds: Int64(status.st_mtim.tv_nsec))
    }

    /// Whether a file is in the directory.
    func contains(_ name: String) -> Bool {
        access("\(path)/\(name)", F_OK) == 0
    }

    /// Creates an empty file that only the daemon's user may read, unless it exists; SQLite gives its log the same
    /// mode.
    func makePrivateFile(_ name: String) throws(StoreError) {
        let file = "\(path)/\(name)"
        let descriptor = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw .unusable(file, errno) }
        close(descriptor)
    }

    // MARK: The spare file

    static let spareName = "holdfast.spare"

    /// Keeps half of the reserve in the spare file, for what must be written when the file system is full.
    mutating func makeSpare() { hasSpare = makeSpare(reserve / 2) }

    private func makeSpare(_ bytes: UInt64) -> Bool {
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

    /// Makes a file of this size and removes it.
    func tryRoom(for bytes: UInt64) throws(StoreError) {
        let file = "\(path)/holdfast.probe"
        let descriptor = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw .full(path: file, cause: systemText(errno)) }
        defer {
            close(descriptor)
            unlink(file)
        }
        let code = posix_fallocate(descriptor, 0, off_t(clamping: max(bytes, 1)))
        guard code == 0 else { throw .full(path: file, cause: systemText(code)) }
    }

    /// Gives the reserved room back to the file system.
    ///
    /// - Returns: whether there was some.
    mutating func releaseSpare() -> Bool {
        hasSpare = false
        return unlink("\(path)/\(Self.spareName)") == 0
    }

    /// Flushes what was written to a file, by anyone, to the disk.
    ///
    /// - Returns: whether it is done.
    func flush(_ name: String) -> Bool { withFile(name) { fdatasync($0) } == 0 }

    /// Makes the kernel start writing a file's dirty pages to the disk, without waiting for it.
    func beginWriting(_ name: String) {
        _ = withFile(name) { sync_file_range($0, 0, 0, UInt32(SYNC_FILE_RANGE_WRITE)) }
    }

    private func withFile(_ name: String, _ body: (Int32) -> Int32) -> Int32? {
        let descriptor = open("\(path)/\(name)", O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        return body(descriptor)
    }

    /// Gives a file of the directory another name there; does nothing if it does not exist.
    func rename(_ name: String, to newName: String) throws(StoreError) {
        guard contains(name), Glibc.rename("\(path)/\(name)", "\(path)/\(newName)") != 0, errno != ENOENT else {
            return
        }
        throw .unwritable(path: "\(path)/\(name)", cause: systemText(errno))
    }

    /// Makes what was renamed, created or removed so far outlive a loss of power.
    func sync() throws(StoreError) {
        // Some file systems cannot, and say so.
        guard fsync(directory.descriptor) != 0, errno != EINVAL else { return }
        throw .failed(path: path, cause: systemText(errno))
    }

    /// Writes a file, which then has all of the text, or does not exist.
    func write(_ text: String, to name: String) throws(StoreError) {
        let part = "\(path)/\(name).part"
        let descriptor = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw .unusable(part, errno) }
        defer { close(descriptor) }
        let bytes = Array(text.utf8)
        errno = ENOSPC
        guard Glibc.write(descriptor, bytes, bytes.count) == bytes.count, fsync(descriptor) == 0 else {
            let cause = systemText(errno)
            unlink(part)
            throw .full(path: part, cause: cause)
        }
        try rename("\(name).part", to: name)
        try sync()
    }

    /// Removes a file, if it exists.
    func removeFile(_ name: String) throws(StoreError) {
        // A file system that cannot be written would blame one that is not there.
        guard contains(name), unlink("\(path)/\(name)") != 0, errno != ENOENT else { return }
        throw .unwritable(path: "\(path)/\(name)", cause: systemText(errno))
    }

    /// Removes a database that was just made, with the files that SQLite keeps beside it.
    func remove(_ name: String) {
        for suffix in DurableStore.fileSuffixes { unlink("\(path)/\(name)\(suffix)") }
    }

    private static func locked(_ path: String) -> StoreError {
        .locked(directory: path, holder: processID(in: lockFile(of: path)))
    }

    /// - Returns: `nil` if somebody has removed the file.
    private static func processID(in file: String) -> Int32? {
        guard let text = try? fileContents(file, atMost: 16) else { return nil }
        return Int32(String(decoding: text.prefix { $0 != 10 }, as: UTF8.self))
    }
}

/// A file or directory that is locked for as long as this lives.
private struct Lock: ~Copyable {
    let descriptor: Int32

    /// - Returns: `nil` if another process has the lock.
    init?(_ path: String, _ flags: Int32) throws(StoreError) {
        let descriptor = open(path, flags | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw .unusable(path, errno) }
        guard flock(descriptor, LOCK_EX | LOCK_NB) != 0 else {
            self.descriptor = descriptor
            return
        }
        let code = errno
        close(descriptor)
        if code == EWOULDBLOCK { return nil }
        throw .unwritable(path: path, cause: systemText(code))
    }

    deinit {
        unlock()
        close(descriptor)
    }

    /// Lets another process take the lock. Closing alone would not: a child between fork and exec has the descriptor too.
    func unlock() {
        flock(descriptor, LOCK_UN)
    }

    /// Whether this is what has the name now.
    func isNamed(_ path: String) -> Bool {
        var (mine, present) = (stat(), stat())
        guard fstat(descriptor, &mine) == 0, stat(path, &present) == 0 else { return false }
        return mine.st_dev == present.st_dev && mine.st_ino == present.st_ino
    }
}

/// A database and its log as they were opened. If they are deleted, cut short or replaced by a backup while the daemon
/// runs, the daemon would otherwise keep writing to files that no longer have a name, or lack what was written before.
struct DatabaseFiles {
    enum Finding {
        case asTheyWere
        case removed
        case cutShort
    }

    private struct Entry {
        let device: dev_t
        let inode: ino_t
        var size: Int
    }

    private var database: Entry?
    private var log: Entry?
    /// SQLite cuts a longer log to this many bytes.
    private let logLimit: Int

    init(in directory: borrowing StateDirectory, logLimit: Int) {
        self.logLimit = logLimit
        database = Self.entry(of: DurableStore.fileName, in: directory)
        log = Self.entry(of: DurableStore.fileName + "-wal", in: directory)
    }

    /// - Parameter contents: the bytes that the database must have. SQLite may cut off the rest at any time: when it
    ///   writes back a log in which a daemon that was killed had freed pages.
    mutating func look(in directory: borrowing StateDirectory, contents: () -> Int) -> Finding {
        let findings = (
            Self.compare(&database, DurableStore.fileName, in: directory, upTo: contents()),
            Self.compare(&log, DurableStore.fileName + "-wal", in: directory, upTo: logLimit)
        )
        return switch findings {
        case (.asTheyWere, .asTheyWere): .asTheyWere
        case (.removed, _), (_, .removed): .removed
        case (.cutShort, _), (_, .cutShort): .cutShort
        }
    }

    /// The store itself makes the files shorter.
    mutating func forgetSizes() {
        database?.size = 0
        log?.size = 0
    }

    private static func compare(
        _ known: inout Entry?, _ name: String, in directory: borrowing StateDirectory,
        upTo limit: @autoclosure () -> Int
    ) -> Finding {
        guard let entry = known else { return .asTheyWere }
        guard let present = Self.entry(of: name, in: directory), present.device == entry.device,
            present.inode == entry.inode
        else { return .removed }
        known = present
        return present.size < entry.size && present.size < limit() ? .cutShort : .asTheyWere
    }

    private static func entry(of name: String, in directory: borrowing StateDirectory) -> Entry? {
        var status = stat()
        guard stat("\(directory.path)/\(name)", &status) == 0 else { return nil }
        return Entry(device: status.st_dev, inode: status.st_ino, size: Int(status.st_size))
    }
}
