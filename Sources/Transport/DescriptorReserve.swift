import Glibc
import NIOCore
import NIOPosix
import Vocabulary

/// Descriptors that sessions leave for everything else: clients of the control socket, name lookups, files.
///
/// The kernel gives out the lowest free descriptor, so the number of a new one shows how many are in use.
enum DescriptorReserve {
    private static let size: rlim_t = 32

    /// Why a socket that was just made must not be used; `nil` if it may.
    static func refusal(of channel: any Channel) -> TransportFailure? {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return nil }
        let descriptor = try? channel.pipeline.syncOperations.withUnsafeTransportIfAvailable(
            of: NIOBSDSocket.Handle.self
        ) { rlim_t($0) }
        guard let descriptor, isReserved(descriptor, of: limit.rlim_cur) else { return nil }
        return TransportFailure(.unreachable, "no connection can be made: \(systemText(EMFILE))")
    }

    /// At a limit that is very low, half of it is left.
    static func isReserved(_ descriptor: rlim_t, of limit: rlim_t) -> Bool {
        descriptor >= limit - min(size, limit / 2)
    }
}
