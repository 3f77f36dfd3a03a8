import Foundation
import Glibc

/// A TCP server that answers whatever the first bytes of a client are with always the same bytes.
///
/// A socket stays in the namespace of the thread that made it, so a thread of its own enters the server's.
public final class LabFakeServer: Sendable {
    private let listener: Int32

    /// - Parameter answer: sent to every client once it has sent something.
    public init(_ lab: Lab, port: UInt16, answer: [UInt8]) async throws {
        let path = "/run/netns/\(lab.server.name)"
        let listener: Int32 = try await withCheckedThrowingContinuation { continuation in
            Thread.detachNewThread { continuation.resume(with: Result { try Self.listen(port: port, namespace: path) }) }
        }
        self.listener = listener
        Thread.detachNewThread { Self.serve(listener, answer) }
    }

    /// Ends the serving thread.
    public func stop() {
        shutdown(listener, Int32(SHUT_RDWR))
    }

    private static func listen(port: UInt16, namespace: String) throws -> Int32 {
        let file = open(namespace, O_RDONLY | O_CLOEXEC)
        defer { close(file) }
        guard file >= 0, enterNamespace(file) == 0 else { throw Lab.Failure("setns: errno \(errno)") }
        let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        let bound = withUnsafeBytes(of: address) { bytes in
            bytes.withMemoryRebound(to: sockaddr.self) { bind(listener, $0.baseAddress, socklen_t(bytes.count)) }
        }
        guard bound == 0, Glibc.listen(listener, 16) == 0 else { throw Lab.Failure("bind: errno \(errno)") }
        return listener
    }

    private static func serve(_ listener: Int32, _ answer: [UInt8]) {
        var buffer = [UInt8](repeating: 0, count: 4096)
        while true {
            let client = accept4(listener, nil, nil, Int32(SOCK_CLOEXEC.rawValue))
            guard client >= 0 else { break }
            if read(client, &buffer, buffer.count) > 0 {
                _ = send(client, answer, answer.count, Int32(MSG_NOSIGNAL.rawValue))
                // Until the client closes.
                while read(client, &buffer, buffer.count) > 0 {}
            }
            close(client)
        }
        close(listener)
    }

    /// `setns(2)`, which glibc's headers show to C programs only when `_GNU_SOURCE` is defined.
    private static func enterNamespace(_ file: Int32) -> Int32 {
        guard let symbol = dlsym(nil, "setns") else { return -1 }
        let networkNamespace: Int32 = 0x4000_0000
        return unsafeBitCast(symbol, to: (@convention(c) (Int32, Int32) -> Int32).self)(file, networkNamespace)
    }
}
