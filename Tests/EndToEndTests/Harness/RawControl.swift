import Foundation
import Glibc
import Support

/// The control socket, byte by byte, for what no client of ours would send.
actor RawControl {
    private let descriptor: Int32

    init(_ path: String) async throws {
        descriptor = try await onThread {
            let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
            var address = sockaddr_un()
            address.sun_family = sa_family_t(AF_UNIX)
            withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix($0.count - 1)) }
            let connected = withUnsafeBytes(of: address) { bytes in
                bytes.withMemoryRebound(to: sockaddr.self) {
                    Glibc.connect(descriptor, $0.baseAddress, socklen_t(bytes.count))
                }
            }
            guard connected == 0 else { throw Lab.Failure("connect: errno \(errno)") }
            var limit = timeval(tv_sec: 180, tv_usec: 0)
            setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
            setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
            return descriptor
        }
    }

    func close() {
        Glibc.close(descriptor)
    }

    /// Sends the same bytes again and again until the daemon takes no more of them. It may close the connection of a
    /// program that stands still, and on a busy machine this one may seem to.
    ///
    /// - Parameter maximum: how many bytes to send at most.
    func pour(_ bytes: [UInt8], maximum: Int) async throws {
        let descriptor = descriptor
        try await onThread {
            var sent = 0
            while sent < maximum {
                let offset = sent % bytes.count
                let count = bytes.withUnsafeBytes {
                    Glibc.send(
                        descriptor, $0.baseAddress?.advanced(by: offset), bytes.count - offset,
                        Int32(MSG_NOSIGNAL | MSG_DONTWAIT))
                }
                if count > 0 {
                    sent += count
                    continue
                }
                if errno == EPIPE || errno == ECONNRESET { return }
                guard errno == EAGAIN else { throw Lab.Failure("send after \(sent) bytes: errno \(errno)") }
                // If the daemon takes nothing within half a second, it has stopped reading.
                var waiting = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                guard poll(&waiting, 1, 500) > 0 else { return }
            }
        }
    }

    /// Sends a line without waiting for an answer.
    func send(_ line: String) throws {
        let bytes = Array(line.utf8) + [UInt8(ascii: "\n")]
        let count = bytes.withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress, bytes.count, Int32(MSG_NOSIGNAL)) }
        guard count == bytes.count else { throw Lab.Failure("send: \(count), errno \(errno)") }
    }

    func ask(_ line: String) async throws -> String {
        try await ask(Array(line.utf8))
    }

    /// Sends a line, and returns the next one that arrives.
    func ask(_ line: [UInt8]) async throws -> String {
        let descriptor = descriptor
        return try await onThread {
            let bytes = line + [UInt8(ascii: "\n")]
            var sent = 0
            while sent < bytes.count {
                let count = bytes.withUnsafeBytes {
                    Glibc.send(descriptor, $0.baseAddress?.advanced(by: sent), bytes.count - sent, Int32(MSG_NOSIGNAL))
                }
                guard count > 0 else { throw Lab.Failure("send after \(sent) bytes: errno \(errno)") }
                sent += count
            }
            var answer: [UInt8] = []
            var buffer = [UInt8](repeating: 0, count: 65536)
            while answer.last != UInt8(ascii: "\n") {
                let count = read(descriptor, &buffer, buffer.count)
                guard count > 0 else { throw Lab.Failure("no answer: read \(count), errno \(errno)") }
                answer += buffer.prefix(count)
            }
            return String(decoding: answer, as: UTF8.self)
        }
    }
}
