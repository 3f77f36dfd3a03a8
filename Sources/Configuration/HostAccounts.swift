import Glibc

/// The users and groups of this host, by name.
package enum HostAccounts {
    /// The name service failed, so it is not known whether there is such a name.
    package struct Failure: Error, Hashable, CustomStringConvertible {
        let number: Int32

        package var description: String { String(cString: strerror(number)) }

        /// - Parameter number: what getpwnam_r(3) and getgrnam_r(3) return. Some services have numbers of their own for a
        ///   name that does not exist.
        static func check(_ number: Int32) throws(Failure) {
            if ![0, ENOENT, ESRCH, EBADF, EPERM].contains(number) { throw Failure(number: number) }
        }
    }

    package static func uid(ofUser name: String) throws(Failure) -> UInt32? { try user(named: name)?.uid }

    /// Returns the numbers of a user and of the user's primary group.
    static func user(named name: String) throws(Failure) -> (uid: UInt32, gid: UInt32)? {
        var entry = passwd()
        var found: UnsafeMutablePointer<passwd>?
        try Failure.check(withBuffer { getpwnam_r(name, &entry, $0, $1, &found) })
        return found == nil ? nil : (entry.pw_uid, entry.pw_gid)
    }

    /// Returns the group `primary` and all groups that a user is listed in.
    static func groups(ofUser name: String, _ primary: UInt32) -> [UInt32] {
        // The kernel's limit for a process.
        var groups = [UInt32](repeating: 0, count: 65536)
        var count = Int32(groups.count)
        guard getgrouplist(name, primary, &groups, &count) >= 0 else { return [primary] }
        return Array(groups.prefix(Int(count)))
    }

    package static func gid(ofGroup name: String) throws(Failure) -> UInt32? {
        var entry = group()
        var found: UnsafeMutablePointer<group>?
        try Failure.check(withBuffer { getgrnam_r(name, &entry, $0, $1, &found) })
        return found == nil ? nil : entry.gr_gid
    }

    static func name(ofGroup gid: UInt32) -> String? {
        var entry = group()
        var found: UnsafeMutablePointer<group>?
        var name: String?
        let number = withBuffer { buffer, size in
            let result = getgrgid_r(gid, &entry, buffer, size, &found)
            // The name is in the buffer.
            if result == 0, found != nil { name = entry.gr_name.map { String(cString: $0) } }
            return result
        }
        return number == 0 ? name : nil
    }

    /// Calls `read` with a buffer for an entry, and with larger ones for as long as it answers ERANGE: a group with
    /// thousands of members does not fit into any usual size.
    ///
    /// - Returns: what it answered last.
    static func withBuffer(_ read: (UnsafeMutablePointer<CChar>, Int) -> Int32) -> Int32 {
        var size = 16384
        while size <= maximumBuffer {
            let buffer = UnsafeMutableBufferPointer<CChar>.allocate(capacity: size)
            defer { buffer.deallocate() }
            guard let start = buffer.baseAddress else { return ENOMEM }
            let result = read(start, size)
            guard result == ERANGE else { return result }
            size *= 4
        }
        return ERANGE
    }

    /// Room for a million members.
    private static let maximumBuffer = 64 << 20
}
