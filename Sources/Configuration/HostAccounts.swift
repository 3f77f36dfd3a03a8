import Glibc

/// The users and groups of this host, by name.
package enum HostAccounts {
    package static func uid(ofUser name: String) -> UInt32? {
        var entry = passwd()
        var found: UnsafeMutablePointer<passwd>?
        guard withBuffer({ getpwnam_r(name, &entry, $0, $1, &found) }), found != nil else { return nil }
        return entry.pw_uid
    }

    package static func gid(ofGroup name: String) -> UInt32? {
        var entry = group()
        var found: UnsafeMutablePointer<group>?
        guard withBuffer({ getgrnam_r(name, &entry, $0, $1, &found) }), found != nil else { return nil }
        return entry.gr_gid
    }

    /// Calls `read` with a buffer for an entry, and with larger ones for as long as it answers ERANGE: a group with
    /// thousands of members does not fit into any usual size.
    ///
    /// - Returns: whether it succeeded.
    static func withBuffer(_ read: (UnsafeMutablePointer<CChar>, Int) -> Int32) -> Bool {
        var size = 16384
        while size <= maximumBuffer {
            let buffer = UnsafeMutableBufferPointer<CChar>.allocate(capacity: size)
            defer { buffer.deallocate() }
            guard let start = buffer.baseAddress else { return false }
            let result = read(start, size)
            guard result == ERANGE else { return result == 0 }
            size *= 4
        }
        return false
    }

    /// Room for a million members.
    private static let maximumBuffer = 64 << 20
}
