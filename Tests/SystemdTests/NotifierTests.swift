import Glibc
import Testing

@testable import Systemd

/// `NOTIFY_SOCKET` belongs to the whole process, so each of these runs in one of its own.
@Suite struct `The notifier` {
    @Test func `sends each kind of notification in the service manager's form`() async {
        await #expect(processExitsWith: .success) {
            let socket = try #require(DatagramSocket())
            setenv("NOTIFY_SOCKET", socket.name, 1)
            let notifier = Notifier()

            #expect(notifier.ready() > 0)
            #expect(socket.receive() == "READY=1")
            #expect(notifier.ready(status: "5 sessions") > 0)
            #expect(socket.receive() == "READY=1\nSTATUS=5 sessions")
            #expect(notifier.status("main: no network") > 0)
            #expect(socket.receive() == "STATUS=main: no network")
            #expect(notifier.stopping() > 0)
            #expect(socket.receive() == "STOPPING=1")
            #expect(notifier.watchdog() > 0)
            #expect(socket.receive() == "WATCHDOG=1")
            #expect(notifier.extendTimeout(.milliseconds(1500)) > 0)
            #expect(socket.receive() == "EXTEND_TIMEOUT_USEC=1500000")
            #expect(notifier.extendTimeout(.seconds(30), status: "migrating") > 0)
            #expect(socket.receive() == "EXTEND_TIMEOUT_USEC=30000000\nSTATUS=migrating")
            #expect(socket.receive() == nil)
        }
    }

    @Test func `a reload carries the monotonic clock of its beginning`() async {
        await #expect(processExitsWith: .success) {
            let socket = try #require(DatagramSocket())
            setenv("NOTIFY_SOCKET", socket.name, 1)
            var now = timespec()
            clock_gettime(CLOCK_MONOTONIC, &now)
            let before = UInt64(now.tv_sec) * 1_000_000 + UInt64(now.tv_nsec) / 1000

            #expect(Notifier().reloading() > 0)

            clock_gettime(CLOCK_MONOTONIC, &now)
            let after = UInt64(now.tv_sec) * 1_000_000 + UInt64(now.tv_nsec) / 1000
            let lines = try #require(socket.receive()).split(separator: "\n")
            try #require(lines.count == 2)
            #expect(lines[0] == "RELOADING=1")
            try #require(lines[1].hasPrefix("MONOTONIC_USEC="))
            let told = try #require(UInt64(lines[1].dropFirst("MONOTONIC_USEC=".count)))
            #expect((before...after).contains(told))
        }
    }

    @Test func `a status with newlines injects nothing`() async {
        await #expect(processExitsWith: .success) {
            let socket = try #require(DatagramSocket())
            setenv("NOTIFY_SOCKET", socket.name, 1)
            #expect(Notifier().status("lost\nMAINPID=1\r\nFDSTORE=1\0end") > 0)
            #expect(socket.receive() == "STATUS=lost MAINPID=1  FDSTORE=1 end")
        }
    }

    @Test func `a status is cut between characters before the datagram is too long`() {
        let text = Notifier.assignment(ofStatus: String(repeating: "é", count: 5000))
        #expect(text == "STATUS=" + String(repeating: "é", count: Notifier.longestStatus / 2))
    }

    @Test func `does nothing without a service manager`() async {
        await #expect(processExitsWith: .success) {
            unsetenv("NOTIFY_SOCKET")
            #expect(Notifier().ready() == 0)
        }
    }

    @Test func `reports a socket without a listener`() async {
        await #expect(processExitsWith: .success) {
            setenv("NOTIFY_SOCKET", "@holdfast-test-nobody-\(getpid())", 1)
            #expect(Notifier().ready() == -ECONNREFUSED)
        }
    }

    @Test func `the watchdog interval is the unit's, and only for this process`() async {
        await #expect(processExitsWith: .success) {
            unsetenv("WATCHDOG_USEC")
            unsetenv("WATCHDOG_PID")
            #expect(Notifier().watchdogInterval == nil)
            setenv("WATCHDOG_USEC", "30000000", 1)
            #expect(Notifier().watchdogInterval == .seconds(30))
            setenv("WATCHDOG_PID", "\(getpid())", 1)
            #expect(Notifier().watchdogInterval == .seconds(30))
            setenv("WATCHDOG_PID", "1", 1)
            #expect(Notifier().watchdogInterval == nil)
            unsetenv("WATCHDOG_PID")
            setenv("WATCHDOG_USEC", "soon", 1)
            #expect(Notifier().watchdogInterval == nil)
        }
    }
}
