internal import CSystemd

/// Sockets that systemd opened and holds for the daemon: sd_listen_fds(3).
public enum SocketActivation {
    /// SD_LISTEN_FDS_START.
    private static let firstDescriptor: Int32 = 3

    /// Returns the descriptors of the sockets, close-on-exec, in the order of the units; none if systemd passed none, or
    /// they are meant for another process. The caller owns them.
    ///
    /// Call it once: each call returns the same descriptors.
    public static func descriptors() -> [Int32] {
        (0..<max(0, sd_listen_fds(0))).map { firstDescriptor + $0 }
    }
}
