import Glibc

/// An AF_UNIX datagram socket in the abstract namespace, in the place of the service manager's.
public final class DatagramSocket: Sendable {
    private let descriptor: Int32
    /// The value for `NOTIFY_SOCKET`.
    public let name: String

    public init?() {
        descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | O_CLOEXEC, 0)
        guard descriptor >= 0 else { return nil }
        name = "@holdfast-test-\(getpid())-\(UInt64.random(in: .min ... .max))"
        guard withAddress({ bind(descriptor, $0, $1) }) == 0 else { return nil }
    }

    deinit {
        close(descriptor)
    }

    private func withAddress(_ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32) -> Int32 {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let bytes = [UInt8](name.utf8)
        withUnsafeMutableBytes(of: &address.sun_path) { path in
            for (index, byte) in bytes.enumerated() { path[index] = index == 0 ? 0 : byte }
        }
        let length = socklen_t(MemoryLayout<sa_family_t>.size + bytes.count)
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, length) }
        }
    }

    /// Fills the queue with datagrams of one byte, so that senders wait.
    ///
    /// - Returns: how many fit.
    public func fill() -> Int {
        let sender = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | O_CLOEXEC, 0)
        defer { close(sender) }
        guard withAddress({ connect(sender, $0, $1) }) == 0 else { return 0 }
        var count = 0
        while send(sender, "x", 1, Int32(MSG_DONTWAIT)) == 1 { count += 1 }
        return count
    }

    /// The next datagram that is there already; `nil` when none is.
    public func receive() -> String? { receive(Int32(MSG_DONTWAIT)) }

    /// Waits for the next datagram.
    public func next() -> String? { receive(0) }

    private func receive(_ flags: Int32) -> String? {
        var buffer = [UInt8](repeating: 0, count: 8192)
        let count = recv(descriptor, &buffer, buffer.count, flags)
        return count < 0 ? nil : String(decoding: buffer[..<count], as: UTF8.self)
    }
}
