import ControlAPI
import Glibc
import HoldfastClient

/// Advice about a socket that cannot be used. It depends on how the socket was named, on the host and on the user.
struct SocketAdvice: Equatable {
    static let standardPath = "/run/holdfast/control.sock"
    /// That of an address of a socket (unix(7)), without the zero at its end.
    private static let longestPath = 107

    enum Origin: Equatable {
        case standard, option, environment
    }

    enum Owner: Equatable {
        case root
        case group(String)
        /// A group without a name, as in a container that does not know the host's groups.
        case unnamedGroup(UInt32)
        /// The socket cannot be examined.
        case unknown
    }

    var origin = Origin.standard
    var hasSystemd = true
    var owner = Owner.unknown
    /// Whether the user is a member of the group, but became one only after logging in.
    var isMemberSinceLogin = false
    /// How the service has failed; `nil` if it has not, or if that is unknown.
    var failure: ServiceUnit.Failure?
    /// Whether the path is longer than the address of a socket can be.
    var isTooLong = false

    var ifNotRunning: String {
        if let ifFailed { return ifFailed }
        return switch origin {
        case .option: "start the daemon that uses this socket, or omit --socket to use \(Self.standardPath)"
        case .environment:
            "HOLDFAST_SOCKET names this socket: start its daemon, or unset HOLDFAST_SOCKET to use \(Self.standardPath)"
        case .standard where hasSystemd:
            "start it with: sudo systemctl start holdfast, or name another socket with --socket"
        case .standard:
            "systemd does not run here: start holdfastd, or in a container mount the directory of the host's socket at "
                + "/run/holdfast"
        }
    }

    /// How to start the daemon, after a file was written for it.
    var start: String { origin == .standard && hasSystemd ? "systemctl start holdfast" : "start the daemon" }

    /// A service that has failed needs more than being started.
    private var ifFailed: String? {
        switch failure {
        case .configuration:
            "it failed to start, because the configuration has errors; \"sudo holdfastctl config check\" lists them, and "
                + "\"sudo systemctl start holdfast\" starts it when they are corrected"
        case .restarting:
            "it ended with an error, and systemd starts it again after a moment; \"sudo holdfastctl log -x\" says why"
        case .masked:
            "it is masked; \"sudo systemctl unmask holdfast\" and \"sudo systemctl start holdfast\" start it"
        case .other:
            "it has failed; \"sudo holdfastctl log -x\" says why, and \"sudo systemctl start holdfast\" starts it "
                + "again"
        case nil: nil
        }
    }

    var ifNotPermitted: String {
        switch owner {
        case .group(let name) where isMemberSinceLogin:
            "you joined the group \(name) after you logged in: log in again, or run: newgrp \(name)"
        case .group(let name): "join its group with: sudo usermod -aG \(name) $USER, then log in again"
        case .unnamedGroup(let number):
            "its group is \(number), which has no name here: start the container with --group-add \(number)"
        case .root: "only root may open it: try again with sudo"
        case .unknown: "try again with sudo"
        }
    }

    /// How to create a session. A daemon with a socket of its own has a configuration directory of its own, too.
    var creation: String {
        "holdfastctl config init NAME\(origin == .standard ? "" : " --config-directory DIR") creates one"
    }

    /// Where to find the daemon's own messages.
    var ifBroken: String {
        if isTooLong { return "name a shorter one: \"ln -s DIR /run/NAME\" gives its directory a short name" }
        if let ifFailed { return ifFailed }
        guard hasSystemd else {
            return "see the daemon's log: it is its standard error, in a container \"podman logs NAME\" or "
                + "\"docker logs NAME\""
        }
        return origin == .standard
            ? "see: systemctl status holdfast"
            : "see the daemon's log: sudo journalctl -t holdfastd, or where its standard error goes"
    }

    var ifOutdated: String {
        origin == .standard && hasSystemd
            ? "after an upgrade: sudo systemctl restart holdfast" : "after an upgrade, restart the daemon"
    }
}

extension SocketAdvice {
    /// - Parameter socket: its path; `nil` for the one that the command uses without `--socket`.
    init(socket: String? = nil) {
        let named = getenv("HOLDFAST_SOCKET").map { String(cString: $0) } ?? ""
        let path = socket ?? (named.isEmpty ? Self.standardPath : named)
        origin = path == Self.standardPath ? .standard : path == named ? .environment : .option
        hasSystemd = ServiceUnit.hasSystemd
        if origin == .standard { failure = ServiceUnit.failure }
        isTooLong = path.utf8.count > Self.longestPath
        var status = stat()
        guard stat(path, &status) == 0 else { return }
        guard status.st_gid != 0, status.st_mode & S_IWGRP != 0 else {
            owner = .root
            return
        }
        guard let entry = getgrgid(status.st_gid) else {
            owner = .unnamedGroup(status.st_gid)
            return
        }
        owner = .group(String(cString: entry.pointee.gr_name))
        isMemberSinceLogin = Self.isListed(in: status.st_gid) && !Self.isHeld(status.st_gid)
    }

    private static func isListed(in group: gid_t) -> Bool {
        guard let user = getpwuid(getuid()) else { return false }
        var groups = [gid_t](repeating: 0, count: 1024)
        var count = Int32(groups.count)
        guard getgrouplist(user.pointee.pw_name, user.pointee.pw_gid, &groups, &count) >= 0 else { return false }
        return groups.prefix(Int(count)).contains(group)
    }

    private static func isHeld(_ group: gid_t) -> Bool {
        var groups = [gid_t](repeating: 0, count: 1024)
        let count = getgroups(Int32(groups.count), &groups)
        return getegid() == group || groups.prefix(max(0, Int(count))).contains(group)
    }
}
