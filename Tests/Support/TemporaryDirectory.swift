import Glibc

/// A directory for one test. It stays until it is removed.
public struct TemporaryDirectory: Sendable {
    public let path: String

    /// - Parameters:
    ///   - name: what its name begins with.
    ///   - parent: where it is made; in memory, unless the test is about the disk.
    public init(_ name: String = "holdfast-test", in parent: String = TemporaryDirectory.parent) throws {
        var template = Array("\(parent)/\(name)-XXXXXX".utf8CString)
        guard let directory = mkdtemp(&template) else { throw Failure() }
        path = String(cString: directory)
    }

    /// On the disk.
    public static let diskParent = "/tmp"

    /// In memory if there is room, so that neither tests nor the programs that they run wait for the disk. Engines of
    /// containers give their containers little, and execute no program there.
    public static let parent: String = {
        let memory = "/dev/shm"
        var status = statvfs()
        guard statvfs(memory, &status) == 0, status.f_bavail * status.f_frsize >= 1 << 30,
            status.f_flag & noExecution == 0, access(memory, W_OK | X_OK) == 0
        else { return diskParent }
        return memory
    }()

    /// ST_NOEXEC, which glibc's headers declare only if _GNU_SOURCE is defined.
    private static let noExecution: UInt = 8

    public func makeFolder(_ name: String) throws {
        guard mkdir("\(path)/\(name)", 0o700) == 0 else { throw Failure() }
    }

    /// Replaces the file atomically: a program that reads it at the same time must not see half of it.
    ///
    /// - Parameter name: relative to the directory.
    public func write(_ name: String, _ bytes: [UInt8], mode: UInt32 = 0o600) throws {
        let new = "\(path)/\(name.split(separator: "/").last ?? "").new"
        let descriptor = open(new, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode)
        guard descriptor >= 0 else { throw Failure() }
        let count = Glibc.write(descriptor, bytes, bytes.count)
        close(descriptor)
        guard count == bytes.count, rename(new, "\(path)/\(name)") == 0 else { throw Failure() }
    }

    public func write(_ name: String, _ text: String) throws {
        try write(name, Array(text.utf8))
    }

    /// Removes the directory with everything in it.
    public func remove() {
        Self.remove(path)
    }

    /// Removes a file, or a directory with everything in it.
    public static func remove(_ path: String) {
        // The target of a symbolic link is not ours.
        var status = stat()
        if lstat(path, &status) == 0, status.st_mode & S_IFMT == S_IFDIR, let stream = opendir(path) {
            while let entry = readdir(stream) {
                guard let offset = MemoryLayout<dirent>.offset(of: \.d_name) else { continue }
                let name = String(
                    cString: UnsafeRawPointer(entry).advanced(by: offset).assumingMemoryBound(to: CChar.self))
                if name != ".", name != ".." { remove("\(path)/\(name)") }
            }
            closedir(stream)
        }
        _ = Glibc.remove(path)
    }

    public struct Failure: Error {
        public init() {}
    }
}
