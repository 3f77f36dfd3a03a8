import Glibc
import NIOCore
import NIOPosix
import Support
import Systemd
import Testing

@testable import Agent

/// `NOTIFY_SOCKET` belongs to the whole process, so each of these runs in one of its own.
@Suite struct `Notifications for the service manager` {
    @Test func `one that does not read holds up nothing and learns the last state`() async {
        await #expect(processExitsWith: .success) {
            let socket = try #require(DatagramSocket())
            setenv("NOTIFY_SOCKET", socket.name, 1)
            let loop = MultiThreadedEventLoopGroup.singleton.next()
            let notifications = Notifications(eventLoop: loop)
            let ahead = socket.fill()
            try #require(ahead > 0)

            notifications.tell(.ready)
            for second in 0..<1000 {
                notifications.tell(.status("second \(second)"))
                notifications.tell(.alive)
            }
            // The loop goes on.
            try await loop.submit {}.get()

            for _ in 0..<ahead { #expect(socket.next() == "x") }
            #expect(socket.next() == "READY=1")
            #expect(socket.next() == "STATUS=second 999\nWATCHDOG=1")
            notifications.tell(.stopping)
            #expect(socket.next() == "STOPPING=1")
        }
    }

    @Test func `what cannot be sent is sent with the next`() async {
        await #expect(processExitsWith: .success) {
            var reader = DatagramSocket()
            setenv("NOTIFY_SOCKET", try #require(reader).name, 1)
            let loop = MultiThreadedEventLoopGroup.singleton.next()
            let notifications = Notifications(eventLoop: loop)
            // The service manager is gone, and then there again, under its new name.
            reader = nil
            notifications.tell(.ready)
            try await until("nothing is being sent") { try await !loop.submit { notifications.isSending }.get() }

            let socket = try #require(DatagramSocket())
            setenv("NOTIFY_SOCKET", socket.name, 1)
            notifications.tell(.status("main: no network"))
            #expect(socket.next() == "READY=1\nSTATUS=main: no network")
        }
    }
}
