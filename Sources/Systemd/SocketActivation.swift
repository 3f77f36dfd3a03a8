internal import CSystemd
internal import Glibc

/// Sockets that systemd opened and holds for the daemon: sd_listen_fds_with_names(3).
public enum SocketActivation {
    /// A socket that was handed over.
    public struct Listener: Hashable, Sendable {
        /// FileDescriptorName= of the socket unit, by default the unit's name, for example `holdfast.socket`.
        public let name: String
        /// The descriptor, close-on-exec, which the caller now owns.
        public let descriptor: Int32

        public init(name: String, descriptor: Int32) {
            self.name = name
            self.descriptor = descriptor
        }
    }

    /// SD_LISTEN_FDS_START.
    private static let firstDescriptor: Int32 = 3

    /// Returns the sockets, in the order of the units; none if systemd passed none, or they are meant for another
    /// process.
    ///
    /// Call it once: each call returns the same descriptors.
    public static func listeners() -> [Listener] {
        var names: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?
        let count = sd_listen_fds_with_names(0, &names)
        guard count > 0, let names else { return [] }
        defer { free(names) }
        return (0..<Int(count)).map { index in
            let name = names[index].map { String(cString: $0) } ?? ""
            free(names[index])
            return Listener(name: name, descriptor: firstDescriptor + Int32(index))
        }
    }
}
