import Foundation
import Glibc

/// A TCP server that always answers with the same bytes, whatever a client sends first.
///
/// A socket stays in the namespace of the thread that made it, so a separate thread enters the server's.
public final class LabFakeServer: Sendable {
    private let listener: Int32

    /// - Parameter answer: sent to every client once it has sent something.
    public init(_ lab: Lab, port: UInt16, answer: [UInt8]) async throws {
        let namespace = lab.server
        let listener = try await onThread { try Self.listen(port: port, namespace: namespace) }
        self.listener = listener
        Thread.detachNewThread { Self.serve(listener, answer) }
    }

    /// Ends the serving thread.
    public func stop() {
        shutdown(listener, Int32(SHUT_RDWR))
    }

    private static func listen(port: UInt16, namespace: Namespace) throws -> Int32 {
        try namespace.enter()
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
            let client = accept(listener, nil, nil)
            if client < 0, errno == EINTR || errno == ECONNABORTED { continue }
            guard client >= 0 else { break }
            _ = fcntl(client, F_SETFD, FD_CLOEXEC)
            if read(client, &buffer, buffer.count) > 0 {
                _ = send(client, answer, answer.count, Int32(MSG_NOSIGNAL))
                // Until the client closes the connection.
                while read(client, &buffer, buffer.count) > 0 {}
            }
            close(client)
        }
        close(listener)
    }
}
