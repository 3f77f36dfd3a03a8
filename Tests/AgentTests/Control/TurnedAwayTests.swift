import ControlAPI
import Glibc
import NIOCore
import Support
import Testing

@testable import Agent

/// The programs that wait at the socket of systemd when the daemon cannot start.
struct TurnedAwayTests {
    private func connect(to path: String) throws -> CInt {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Glibc.connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        try #require(result == 0)
        return descriptor
    }

    private func everything(from descriptor: CInt) -> String {
        defer { close(descriptor) }
        var bytes = [UInt8](repeating: 0, count: 4096)
        var text = ""
        while true {
            let count = recv(descriptor, &bytes, bytes.count, 0)
            guard count > 0 else { return text }
            text += String(decoding: bytes[..<count], as: UTF8.self)
        }
    }

    @Test func `each is answered under the id of its request, also one that says nothing`() throws {
        let directory = try TemporaryDirectory()
        defer { directory.remove() }
        let path = "\(directory.path)/socket"
        let listener = try ControlSocket.listen(at: path, group: nil)
        defer { close(listener) }
        let requests = [#"{"jsonrpc":"2.0","id":7,"method":"rpc.hello"}"# + "\n", "?\n", ""]
        let programs = try requests.map { request in
            let program = try connect(to: path)
            _ = request.withCString { send(program, $0, strlen($0), 0) }
            return program
        }
        TurnedAway.answer(at: [listener], .shuttingDown)
        let answers = programs.map(everything)
        #expect(answers.allSatisfy { $0.contains("the daemon is stopping") && $0.hasSuffix("\n") }, "\(answers)")
        #expect(answers[0].contains(#""id":7"#) && answers[1].contains(#""id":null"#), "\(answers)")
    }
}
