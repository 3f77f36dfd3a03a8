import Configuration
import Glibc
import SessionCore

/// Creates the control socket: binds it, sets its owner and mode, and only then listens, so that nobody can connect in
/// between without permission.
enum ControlSocket {
    /// The group that owns the socket, if there is such a group.
    static let groupName = "holdfast"

    struct Failure: Error, CustomStringConvertible {
        var description: String
    }

    /// The number of that group.
    static var group: gid_t? { try? HostAccounts.gid(ofGroup: groupName) }

    /// - Parameters:
    ///   - replacesStale: whether a socket at the path on which nothing listens is removed. A daemon that is
    ///     starting may not listen yet.
    ///   - patience: how long to wait for another daemon that is making its socket.
    /// - Returns: a listening, non-blocking descriptor.
    /// - Throws: `Failure` when the path is too long, is not a socket, is in use or cannot be created.
    static func listen(
        at path: String, group: gid_t? = ControlSocket.group, replacesStale: Bool = true,
        patience: Duration = .milliseconds(200)
    ) throws(Failure) -> CInt {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let capacity = MemoryLayout.size(ofValue: address.sun_path)
        guard path.utf8.count < capacity, !path.isEmpty else {
            throw Failure(description: "\(path): the path of a socket has 1 to \(capacity - 1) bytes")
        }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        makeDirectory(of: path)
        // Two daemons that are started together take turns: a socket that is bound and does not listen yet looks stale.
        let turn = Turn(inDirectoryOf: path, patience: patience)
        defer { turn.end() }
        if replacesStale { try removeStale(path, address) }

        let descriptor = socket(
            AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
        guard descriptor >= 0 else { throw failure("socket", path) }
        guard withSocketAddress(address, { bind(descriptor, $0, $1) }) == 0 else {
            let isTaken = errno == EADDRINUSE
            let failure = failure("bind", path)
            close(descriptor)
            throw isTaken ? Failure(description: "\(path) is in use, perhaps by another holdfastd") : failure
        }
        if let group { _ = chown(path, uid_t.max, group) }
        let failure: Failure
        if chmod(path, 0o660) != 0 {
            failure = Self.failure("chmod", path)
        } else if Glibc.listen(descriptor, 128) != 0 {
            failure = Self.failure("listen", path)
        } else {
            return descriptor
        }
        close(descriptor)
        unlink(path)
        throw failure
    }

    /// Which file a path leads to. As long as a socket is open, the number of its file is not used again, even if the
    /// file was removed.
    struct FileIdentity: Hashable {
        var device: dev_t
        var inode: ino_t

        init?(_ path: String) {
            var status = stat()
            guard lstat(path, &status) == 0 else { return nil }
            (device, inode) = (status.st_dev, status.st_ino)
        }
    }

    /// The path that a socket is bound to; `nil` if it has none.
    static func path(of descriptor: CInt) -> String? {
        var address = sockaddr_un()
        var length = socklen_t(MemoryLayout<sockaddr_un>.size)
        let isFound = withUnsafeMutableBytes(of: &address) { bytes in
            bytes.withMemoryRebound(to: sockaddr.self) { getsockname(descriptor, $0.baseAddress, &length) } == 0
        }
        guard isFound, address.sun_family == sa_family_t(AF_UNIX) else { return nil }
        return withUnsafeBytes(of: address.sun_path) { bytes in
            bytes.first == 0 ? nil : String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
        }
    }

    /// Whether a socket can be served beside the main one: a Unix stream socket, which says who its peers are.
    static func isServable(_ descriptor: CInt) -> Bool {
        var (type, length) = (CInt(0), socklen_t(MemoryLayout<CInt>.size))
        return path(of: descriptor) != nil && getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &length) == 0
            && type == CInt(SOCK_STREAM.rawValue)
    }

    /// Removes the socket that this daemon made, while that is open. If somebody removed it, there may be another
    /// daemon's by now.
    static func remove(_ path: String, madeAs identity: FileIdentity?) {
        if let identity, FileIdentity(path) == identity { unlink(path) }
    }

    /// Removes a socket that nothing listens on any more, as a crash leaves behind.
    private static func removeStale(_ path: String, _ address: sockaddr_un) throws(Failure) {
        var status = stat()
        guard lstat(path, &status) == 0 else { return }
        guard status.st_mode & S_IFMT == S_IFSOCK else {
            throw Failure(description: "\(path) exists and is not a socket; remove it or give another --socket")
        }
        // Non-blocking, so that a daemon that is too busy to accept does not make us wait.
        let probe = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
        defer { close(probe) }
        if withSocketAddress(address, { connect(probe, $0, $1) }) == 0 || errno == EAGAIN {
            throw Failure(description: "another holdfastd already serves \(path); stop it or give another --socket")
        }
        guard errno == ECONNREFUSED else { throw failure("connect", path) }
        unlink(path)
    }

    /// The turn of a daemon that is making its socket: a lock of the directory.
    private struct Turn {
        private let descriptor: CInt

        /// Waits until no other daemon is making its socket. That takes a daemon a moment; anyone who holds the lock for
        /// longer is no daemon, and is not waited for.
        init(inDirectoryOf path: String, patience: Duration) {
            let directory = path.lastIndex(of: "/").map { String(path[...$0]) } ?? "."
            descriptor = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
            let deadline = ContinuousClock.now + patience
            while descriptor >= 0, flock(descriptor, LOCK_EX | LOCK_NB) != 0, ContinuousClock.now < deadline {
                usleep(10_000)
            }
        }

        func end() { if descriptor >= 0 { close(descriptor) } }
    }

    /// Creates the socket's directory, one level only. For the service, systemd creates `/run/holdfast`.
    private static func makeDirectory(of path: String) {
        guard let slash = path.lastIndex(of: "/"), slash > path.startIndex else { return }
        mkdir(String(path[..<slash]), 0o755)
    }

    private static func withSocketAddress(
        _ address: sockaddr_un, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32
    ) -> Int32 {
        withUnsafeBytes(of: address) { bytes in
            bytes.withMemoryRebound(to: sockaddr.self) { rebound in
                rebound.baseAddress.map { body($0, socklen_t(MemoryLayout<sockaddr_un>.size)) } ?? -1
            }
        }
    }

    private static func failure(_ call: String, _ path: String) -> Failure {
        Failure(description: "\(path): \(call): \(systemText(errno))")
    }
}
