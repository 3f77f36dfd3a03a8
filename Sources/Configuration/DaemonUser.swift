import Glibc

/// The user whom the daemon runs as, in whose place root checks whether the daemon can read what it needs. Owners and
/// modes do not say that: the user may be in further groups, and files may have access control lists.
package struct DaemonUser {
    package let name: String
    private let uid: uid_t
    private let gid: gid_t
    private let groups: [gid_t]

    /// - Parameter text: `USER`, or `USER:GROUP,…` if the daemon runs with these groups besides those that the host lists
    ///   the user in. The first one, unless it is empty, takes the place of the user's primary group.
    /// - Returns: `nil` if there is no such user or group.
    package init?(_ text: String) {
        let parts = text.split(separator: ":", maxSplits: 1)
        guard let name = parts.first.map(String.init), let account = try? HostAccounts.user(named: name)
        else { return nil }
        var groups: [gid_t] = []
        for group in parts.dropFirst().first?.split(separator: ",", omittingEmptySubsequences: false) ?? [] {
            guard let gid = group.isEmpty ? account.gid : try? HostAccounts.gid(ofGroup: String(group)) else {
                return nil
            }
            groups.append(gid)
        }
        self.init(name: name, uid: account.uid, gid: groups.first ?? account.gid, others: Array(groups.dropFirst()))
    }

    /// - Parameter others: groups besides those that the host lists the user in.
    init(name: String, uid: uid_t, gid: gid_t, others: [gid_t]) {
        (self.name, self.uid, self.gid) = (name, uid, gid)
        groups = HostAccounts.groups(ofUser: name, gid) + others
    }

    /// Makes this process one of the user's, for as long as it lives.
    ///
    /// - Returns: whether it could, for which it has to be root's.
    package func become() -> Bool {
        geteuid() == 0 && setgroups(groups.count, groups) == 0 && setgid(gid) == 0 && setuid(uid) == 0
    }
}
