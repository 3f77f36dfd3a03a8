import Glibc
import Testing

@testable import Systemd

/// The variables and descriptor 3 belong to the whole process, so each of these runs in one of its own.
@Suite struct `Socket activation` {
    @Test func `hands over the sockets`() async {
        // Only the exit code counts, since descriptor 3 may have been the test's own channel.
        await #expect(processExitsWith: .exitCode(42)) {
            let first = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
            let second = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
            let high = fcntl(first, F_DUPFD, 100)
            let higher = fcntl(second, F_DUPFD, 100)
            dup2(high, 3)
            dup2(higher, 4)
            setenv("LISTEN_PID", "\(getpid())", 1)
            setenv("LISTEN_FDS", "2", 1)
            let descriptors = SocketActivation.descriptors()
            let closedOnExec = fcntl(3, F_GETFD) & FD_CLOEXEC != 0
            _exit(descriptors == [3, 4] ? (closedOnExec ? 42 : 43) : 50 + Int32(descriptors.count))
        }
    }

    @Test func `is empty when the sockets are meant for another process`() async {
        await #expect(processExitsWith: .success) {
            setenv("LISTEN_PID", "1", 1)
            setenv("LISTEN_FDS", "2", 1)
            #expect(SocketActivation.descriptors().isEmpty)
        }
    }

    @Test func `is empty without systemd`() async {
        await #expect(processExitsWith: .success) {
            unsetenv("LISTEN_PID")
            unsetenv("LISTEN_FDS")
            #expect(SocketActivation.descriptors().isEmpty)
        }
    }
}
