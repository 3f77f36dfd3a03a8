import Glibc

/// An AF_UNIX datagram socket in the abstract namespace, in the place of the service manager's.
final class DatagramSocket {
    private let descriptor: Int32
    /// The value for `NOTIFY_SOCKET`.
    let name: String

    init?() {
        descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | O_CLOEXEC, 0)
        guard descriptor >= 0 else { return nil }
        name = "@holdfast-test-\(getpid())-\(UInt64.random(in: .min ... .max))"
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let bytes = [UInt8](name.utf8)
        withUnsafeMutableBytes(of: &address.sun_path) { path in
            for (index, byte) in bytes.enumerated() { path[index] = index == 0 ? 0 : byte }
        }
        let length = socklen_t(MemoryLayout<sa_family_t>.size + bytes.count)
        let bound = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(descriptor, $0, length) }
        }
        guard bound == 0 else { return nil }
    }

    deinit {
        close(descriptor)
    }

    /// The next datagram that is there already; `nil` when none is.
    func receive() -> String? {
        var buffer = [UInt8](repeating: 0, count: 8192)
        let count = recv(descriptor, &buffer, buffer.count, Int32(MSG_DONTWAIT))
        return count < 0 ? nil : String(decoding: buffer[..<count], as: UTF8.self)
    }
}
