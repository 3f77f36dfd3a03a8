import Configuration
import ControlAPI
import Glibc

/// The other end of a control connection, as the kernel identifies it.
struct Peer: Hashable, Sendable {
    var pid: Int32
    var uid: UInt32
    var gid: UInt32
    /// All groups of the process when it connected, including the primary one.
    var groups: Set<UInt32>
}

extension Peer {
    /// Asks the kernel with `SO_PEERCRED` and `SO_PEERGROUPS` (unix(7), socket(7)).
    /// - Returns: `nil` if the kernel does not say who connected: then nothing is permitted.
    init?(descriptor: Int32) {
        // This is struct ucred of unix(7), which the module Glibc does not export.
        var credentials: (pid: Int32, uid: UInt32, gid: UInt32) = (0, 0, 0)
        var length = socklen_t(MemoryLayout.size(ofValue: credentials))
        guard getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0,
            // A peer that is not on this host has no user.
            credentials.uid != .max
        else { return nil }
        self.init(
            pid: credentials.pid, uid: credentials.uid, gid: credentials.gid,
            groups: Set([credentials.gid] + Self.supplementaryGroups(descriptor)))
    }

    private static func supplementaryGroups(_ descriptor: Int32) -> [UInt32] {
        var groups = [gid_t](repeating: 0, count: 64)
        while true {
            var length = socklen_t(groups.count * MemoryLayout<gid_t>.stride)
            if getsockopt(descriptor, SOL_SOCKET, SO_PEERGROUPS, &groups, &length) == 0 {
                return Array(groups.prefix(Int(length) / MemoryLayout<gid_t>.stride))
            }
            // The kernel returns the length that it needs; a process has at most 65,536 groups.
            guard errno == ERANGE, Int(length) > groups.count else { return [] }
            groups = [gid_t](repeating: 0, count: Int(length) / MemoryLayout<gid_t>.stride)
        }
    }
}

/// Decides which roles a peer has: root and the daemon's own user have all of them, others have what `[access]` gives
/// them.
///
/// Names are looked up when a peer connects, so a group that is created later counts without a reload.
struct AccessPolicy: Sendable {
    var configuration: AccessConfiguration
    var accounts = Accounts()
    var ownUID: UInt32 = geteuid()

    /// Whether the peer could do everything that the daemon can, even without the socket.
    func isMaster(_ peer: Peer) -> Bool { peer.uid == 0 || peer.uid == ownUID }

    func roles(of peer: Peer) -> Set<Role> {
        if isMaster(peer) { return Set(Role.allCases) }
        var roles: Set<Role> = []
        if includes(configuration.observe, peer) { roles.insert(.observe) }
        if includes(configuration.message, peer) { roles.insert(.message) }
        if includes(configuration.control, peer) { roles.formUnion(Role.allCases) }
        return roles
    }

    /// Returns who has the role besides root, as text for people.
    func others(with role: Role) -> [String] {
        let principals =
            switch role {
            case .observe: configuration.observe + configuration.control
            case .message: configuration.message + configuration.control
            case .control: configuration.control
            }
        var texts: [String] = []
        for principal in principals {
            let text =
                switch principal {
                case .anyone: "anyone"
                case .uid(let uid): "the user with the id \(uid)"
                case .user(let name): "the user \(name)"
                case .group(let name): "members of the group \(name)"
                }
            if !texts.contains(text) { texts.append(text) }
        }
        return texts
    }

    /// Whether the peer is one of these users.
    func includes(_ principals: [Principal], _ peer: Peer) -> Bool {
        principals.contains { principal in
            switch principal {
            case .anyone: true
            case .uid(let uid): peer.uid == uid
            case .user(let name): accounts.uid(ofUser: name) == peer.uid
            case .group(let name): accounts.gid(ofGroup: name).map(peer.groups.contains) ?? false
            }
        }
    }
}
