import Glibc
import Support
import Testing

@testable import Systemd

@Suite struct `A notification` {
    @Test func `has the service manager's form, one line for each kind`() {
        #expect(Notification.ready.text == "READY=1")
        #expect(Notification.status("main: no network").text == "STATUS=main: no network")
        #expect(Notification.stopping.text == "STOPPING=1")
        #expect(Notification.alive.text == "WATCHDOG=1")
        #expect(
            Notification.timeExtension(.milliseconds(30_500), status: "migrating").text
                == "STATUS=migrating\nEXTEND_TIMEOUT_USEC=30500000")
    }

    @Test func `a reload carries the monotonic clock of its beginning`() throws {
        var now = timespec()
        clock_gettime(CLOCK_MONOTONIC, &now)
        let before = UInt64(now.tv_sec) * 1_000_000 + UInt64(now.tv_nsec) / 1000

        let reloading = Notification.reloading()

        clock_gettime(CLOCK_MONOTONIC, &now)
        let after = UInt64(now.tv_sec) * 1_000_000 + UInt64(now.tv_nsec) / 1000
        let lines = reloading.text.split(separator: "\n")
        try #require(lines.count == 2)
        #expect(lines[0] == "RELOADING=1")
        try #require(lines[1].hasPrefix("MONOTONIC_USEC="))
        let told = try #require(UInt64(lines[1].dropFirst("MONOTONIC_USEC=".count)))
        #expect((before...after).contains(told))
    }

    @Test func `a status with newlines injects nothing`() {
        #expect(
            Notification.status("lost\nMAINPID=1\r\nFDSTORE=1\0end").text == "STATUS=lost MAINPID=1  FDSTORE=1 end")
    }

    @Test func `a status is cut between characters before the datagram is too long`() {
        let text = Notification.assignment(ofStatus: String(repeating: "é", count: 5000))
        #expect(text == "STATUS=" + String(repeating: "é", count: Notification.longestStatus / 2))
    }

    @Test func `the newest of each kind replaces the older`() {
        var told = Notification()
        #expect(told.isEmpty)
        for second in 0..<1000 {
            told.add(.reloading())
            told.add(.status("second \(second)"))
            told.add(.alive)
            told.add(.ready)
        }
        #expect(told.text == "READY=1\nSTATUS=second 999\nWATCHDOG=1")
        told.add(.stopping)
        told.add(.timeExtension(.seconds(30), status: "writing"))
        #expect(told.text == "STOPPING=1\nSTATUS=writing\nWATCHDOG=1\nEXTEND_TIMEOUT_USEC=30000000")
    }

    @Test func `a start that is over takes no more time`() {
        var told = Notification.timeExtension(.seconds(30), status: "opening")
        told.add(.ready)
        #expect(told.text == "READY=1\nSTATUS=opening")
    }
}

/// `NOTIFY_SOCKET` belongs to the whole process, so each of these runs in one of its own.
@Suite struct `The notifier` {
    @Test func `sends to the service manager`() async {
        await #expect(processExitsWith: .success) {
            let socket = try #require(DatagramSocket())
            setenv("NOTIFY_SOCKET", socket.name, 1)
            #expect(Notifier.isWanted)
            #expect(Notifier.send(.ready) > 0)
            #expect(socket.receive() == "READY=1")
            #expect(socket.receive() == nil)
        }
    }

    @Test func `does nothing without a service manager`() async {
        await #expect(processExitsWith: .success) {
            unsetenv("NOTIFY_SOCKET")
            #expect(!Notifier.isWanted)
            #expect(Notifier.send(.ready) == 0)
        }
    }

    @Test func `reports a socket without a listener`() async {
        await #expect(processExitsWith: .success) {
            setenv("NOTIFY_SOCKET", "@holdfast-test-nobody-\(getpid())", 1)
            #expect(Notifier.send(.ready) == -ECONNREFUSED)
        }
    }

    @Test func `the watchdog interval is the unit's, and only for this process`() async {
        await #expect(processExitsWith: .success) {
            unsetenv("WATCHDOG_USEC")
            unsetenv("WATCHDOG_PID")
            #expect(Notifier.watchdogInterval == nil)
            setenv("WATCHDOG_USEC", "30000000", 1)
            #expect(Notifier.watchdogInterval == .seconds(30))
            setenv("WATCHDOG_PID", "\(getpid())", 1)
            #expect(Notifier.watchdogInterval == .seconds(30))
            setenv("WATCHDOG_PID", "1", 1)
            #expect(Notifier.watchdogInterval == nil)
            unsetenv("WATCHDOG_PID")
            setenv("WATCHDOG_USEC", "soon", 1)
            #expect(Notifier.watchdogInterval == nil)
        }
    }
}
