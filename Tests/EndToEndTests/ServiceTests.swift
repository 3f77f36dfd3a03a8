import ControlAPI
import Foundation
import Support
import Systemd
import Testing

extension EndToEnd {
    /// The service as people have it: installed on a Debian with systemd, and examined with systemctl, journalctl and
    /// holdfastctl. The server runs beside it; each test has its own container.
    @Suite(
        "Service", .timeLimit(.minutes(30)),
        .enabled(if: Container.obstacle == nil || LabRequirements.isAllRequired, "cannot run here"))
    struct ServiceTests {
        private static let sessionFile = "/etc/holdfast/sessions.d/main.toml"

        private func withService(
            session: String = "endpoints = [\"mqtt://localhost:1883\"]\nuser = \"edge-42\"\n",
            isStarted: Bool = true, _ body: (Container) async throws -> Void
        ) async throws {
            try await Container.run(programs: DaemonProcess.programs) { container in
                try container.write(Self.sessionFile, session)
                if isStarted {
                    try await container.run("systemctl", "enable", "--now", "holdfast")
                    try await container.run("holdfastctl", "wait", "main", "--timeout", "3min")
                }
                try await body(container)
            }
        }

        private func service(_ container: Container) async throws -> [String: String] {
            try await container.properties(of: "holdfast")
        }

        /// Returns the service's journal entries with this message id, or all of them.
        private func journal(_ container: Container, _ id: MessageID? = nil) async throws -> [[String: String]] {
            try await container.run("journalctl", "--sync")
            let lines = try await container.run(
                "journalctl", "-t", "holdfastd", "-o", "json", "--no-pager", "--all",
                id.map { "MESSAGE_ID=\($0)" } ?? "SYSLOG_IDENTIFIER=holdfastd")
            return try lines.split(separator: "\n").map { line in
                let fields = try #require(
                    try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any], "\(line)")
                return fields.compactMapValues { $0 as? String }
            }
        }

        // MARK: Life

        @Test func `an installed service runs with few rights and says what its sessions do`() async throws {
            try await withService { container in
                let service = try await service(container)
                #expect(service["ActiveState"] == "active" && service["User"] == "holdfast")
                let pid = try #require(service["MainPID"])
                let status = try await container.run("cat", "/proc/\(pid)/status")
                for line in ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"]
                {
                    #expect(status.contains("\n\(line)\n"))
                }
                let exposure = try await container.run("systemd-analyze", "security", "--no-pager", "holdfast")
                let level = try #require(exposure.firstMatch(of: /exposure level for holdfast.service: ([0-9.]+)/))
                #expect(try #require(Double(level.1)) <= 1.5)

                try await until("systemctl status says that it is connected") {
                    try await self.service(container)["StatusText"]?.hasPrefix("main: connected to localhost") == true
                }
                try await container.run("systemctl", "stop", "mosquitto")
                try await until("systemctl status says that it tries") {
                    try await self.service(container)["StatusText"]?.hasPrefix("main: retry") == true
                }
                #expect(try await self.service(container)["ActiveState"] == "active", "offline is no failure")
                try await container.run("systemctl", "start", "mosquitto")
                try await container.run("holdfastctl", "wait", "main", "--timeout", "3min")
                #expect(try await self.service(container)["NRestarts"] == "0")
                let complaints = try await journal(container).filter { Int($0["PRIORITY"] ?? "") ?? 0 < 4 }
                #expect(complaints.isEmpty, "\(complaints)")
            }
        }

        @Test func `the journal describes an outage in fields, and says what to do`() async throws {
            try await withService { container in
                try await container.run("systemctl", "stop", "mosquitto")
                try await until("the journal has that it is lost") {
                    try await !journal(container, .sessionLost).isEmpty
                }
                try await container.run("systemctl", "start", "mosquitto")
                try await until("the journal has that it is back") {
                    try await journal(container, .sessionConnected).count == 2
                }
                let lost = try #require(try await journal(container, .sessionLost).first)
                #expect(lost["HOLDFAST_SESSION"] == "main" && lost["HOLDFAST_PREVIOUS_STATE"] == "connected")
                #expect(lost["_SYSTEMD_UNIT"] == "holdfast.service" && lost["HOLDFAST_REASON"] != nil)
                let back = try #require(try await journal(container, .sessionConnected).last)
                #expect(back["HOLDFAST_MODE"] != nil && back["HOLDFAST_ENDPOINT"] == "mqtt://localhost:1883")
                #expect(Int(back["HOLDFAST_OUTAGE_USEC"] ?? "") ?? 0 > 0)
                let explained = try await container.run(
                    "journalctl", "-x", "--no-pager", "MESSAGE_ID=\(MessageID.sessionLost)")
                #expect(explained.contains("Subject: Session main lost its connection"))
                for id in [MessageID.started, .ready] { #expect(try await journal(container, id).count == 1) }
                // An outage has two entries, or one more for each summary if it took over a minute; an idle session none.
                for _ in 1...20 { try await container.run("holdfastctl", "ping", "main", "--count", "1") }
                let entries = try await journal(container).drop { $0["MESSAGE_ID"] != "\(MessageID.sessionLost)" }
                let summaries = entries.filter { $0["MESSAGE_ID"] == "\(MessageID.stillTrying)" }
                #expect(entries.count == 2 + summaries.count, "\(entries.map { $0["MESSAGE"] ?? "" })")
            }
        }

        @Test func `a reload is done when systemctl says so, and a bad configuration changes nothing`() async throws {
            try await withService { container in
                let since = /"since":"([^"]*)"/
                let before = try await container.run("holdfastctl", "status", "main", "--json")
                let begun = try #require(before.firstMatch(of: since)).1
                try container.write(
                    "/etc/holdfast/sessions.d/second.toml",
                    "endpoints = [\"mqtt://localhost:1883\"]\nuser = \"edge-43\"\n")
                try await container.run("systemctl", "reload", "holdfast")
                #expect(try await container.run("holdfastctl", "list").contains("second"))
                try await container.run("holdfastctl", "wait", "second", "--timeout", "3min")
                #expect(try await journal(container, .reloadDone).count == 1)

                // The settings of the daemon apply completely or not at all.
                try container.write("/etc/holdfast/holdfast.toml", "durability = \"sometimes\"\n")
                #expect(try await container.finish("systemctl", "reload", "holdfast").ending != .exited(0))
                let refused = try #require(try await journal(container, .reloadRefused).first)
                #expect(refused["MESSAGE"]?.contains("/etc/holdfast/holdfast.toml:1:") == true, "\(refused)")
                #expect(try await service(container)["ActiveState"] == "active")
                for session in ["main", "second"] {
                    try await container.run("holdfastctl", "wait", session, "--timeout", "3min")
                }
                // A session whose file breaks keeps its configuration.
                try container.write("/etc/holdfast/holdfast.toml", "")
                try container.write("/etc/holdfast/sessions.d/second.toml", "endpoints = [\"mqtt://localhost:1883\"\n")
                #expect(try await container.finish("systemctl", "reload", "holdfast").ending != .exited(0))
                let told = try await journal(container, .reloadRefused)
                let kept = try #require(told.first { $0["HOLDFAST_SESSION"] == "second" })
                #expect(kept["MESSAGE"]?.contains("/etc/holdfast/sessions.d/second.toml:2:") == true, "\(kept)")
                #expect(try await container.run("holdfastctl", "status", "second", "--json").contains("\"connected\""))
                let after = try await container.run("holdfastctl", "status", "main", "--json")
                #expect(after.firstMatch(of: since)?.1 == begun, "its connection was left alone")
            }
        }

        @Test func `a broken configuration ends the start with its own status, and is not started again`() async throws
        {
            try await withService(isStarted: false) { container in
                try container.write("/etc/holdfast/holdfast.toml", "# Broken.\ndurability = \"sometimes\"\n")
                #expect(try await container.finish("systemctl", "start", "holdfast").ending != .exited(0))
                let service = try await service(container)
                #expect(service["ActiveState"] == "failed" && service["ExecMainStatus"] == "78")
                #expect(service["NRestarts"] == "0")
                let words = try await journal(container).compactMap { $0["MESSAGE"] }
                #expect(words.contains { $0.contains("/etc/holdfast/holdfast.toml:2:") }, "\(words)")

                // Advice to start the daemon would not help: it would fail again.
                try await container.run("systemctl", "stop", "holdfast.socket")
                let advice = try await container.finish("holdfastctl", "status")
                #expect(advice.ending == .exited(6), "\(advice)")
                #expect(advice.errors.contains("sudo holdfastctl config check"), "\(advice)")
                #expect(try await container.run("holdfastctl", "log").contains("Failed with result 'exit-code'"))

                // A client that comes to the socket starts it once, and is told what is wrong.
                try await container.run("systemctl", "restart", "holdfast.socket")
                let starts = try await journal(container).count { $0["MESSAGE"]?.contains("holdfast.toml:2:") == true }
                let turnedAway = try await container.finish("holdfastctl", "status")
                #expect(turnedAway.ending == .exited(6), "\(turnedAway)")
                #expect(
                    turnedAway.errors.contains("the daemon cannot start: /etc/holdfast/holdfast.toml:2:"),
                    "\(turnedAway)")
                try await until("that start has failed") {
                    try await self.service(container)["ActiveState"] == "failed"
                }
                let now = try await journal(container).count { $0["MESSAGE"]?.contains("holdfast.toml:2:") == true }
                #expect(now == starts + 1)
                #expect(try await container.properties(of: "holdfast.socket")["ActiveState"] == "active")
                try container.write("/etc/holdfast/holdfast.toml", "")
                try await container.run("systemctl", "start", "holdfast")
                try await container.run("holdfastctl", "wait", "main", "--timeout", "3min")
                #expect(try await container.properties(of: "holdfast.socket")["ActiveState"] == "active")
            }
        }

        @Test func `a daemon that cannot start tells the programs at its socket why`() async throws {
            try await withService(isStarted: false) { container in
                try await container.run("systemctl", "start", "holdfast.socket")
                try await container.shell("mkdir -p -m 700 /var/lib/holdfast; touch /var/lib/holdfast/holdfast.db")
                try await container.shell("chown holdfast: /var/lib/holdfast; chmod 600 /var/lib/holdfast/holdfast.db")
                let status = try await container.finish("holdfastctl", "status")
                #expect(status.ending == .exited(6), "\(status)")
                #expect(status.errors.contains("the daemon cannot start: cannot write /var/lib/holdfast"), "\(status)")
                #expect(status.errors.contains("chown -R holdfast: /var/lib/holdfast"), "\(status)")
                try await container.run("systemctl", "stop", "holdfast.socket")
                try await container.run("rm", "/var/lib/holdfast/holdfast.db")

                // A wrong option is not tried again.
                try container.write(
                    "/etc/systemd/system/holdfast.service.d/test.conf",
                    "[Service]\nExecStart=\nExecStart=/usr/sbin/holdfastd --no-such\n")
                try await container.run("systemctl", "daemon-reload")
                try await container.run("systemctl", "restart", "holdfast.socket")
                let refused = try await container.finish("holdfastctl", "status")
                #expect(refused.ending == .exited(6), "\(refused)")
                #expect(refused.errors.contains("the daemon cannot start: its command line is wrong:"), "\(refused)")
                try await until("it has failed") { try await service(container)["ActiveState"] == "failed" }
            }
        }

        @Test func `a restrictive umask is no reason to refuse a file, and the unit says who must read it`()
            async throws
        {
            try await withService(isStarted: false) { container in
                try container.write("/etc/holdfast/holdfast.toml", "")
                let begin = "holdfastctl config init second --endpoint mqtt://localhost --user u --untried"
                let made = try await container.shell("umask 077; \(begin) 2>&1")
                #expect(made.contains("second.toml is written"), "\(made)")
                try await container.shell(
                    "umask 077; EDITOR=\"sed -i s/.u./'\\\"v\\\"'/\" holdfastctl config edit second 2>&1")

                let key = "endpoints = [\"mqtt://localhost:1883\"]\nuser = \"edge-42\"\npassword = \"file:/etc/key\"\n"
                try container.write(Self.sessionFile, "\(key)insecure = true\n")
                try await container.shell("groupadd -r keys; echo x >/etc/key; chgrp keys /etc/key; chmod 640 /etc/key")
                let refused = try await container.finish("holdfastctl", "config", "check")
                #expect(refused.ending == .exited(1), "\(refused)")
                #expect(refused.errors.contains("usermod -aG keys holdfast"), "\(refused)")
                try container.write(
                    "/etc/systemd/system/holdfast.service.d/test.conf", "[Service]\nSupplementaryGroups=keys\n")
                try await container.run("systemctl", "daemon-reload")
                try await container.run("holdfastctl", "config", "check")
            }
        }

        // MARK: Ends

        /// Publishes numbered messages.
        private func accept(_ numbers: ClosedRange<Int>, qos: Int, _ container: Container) async throws {
            try await container.shell(
                "seq \(numbers.lowerBound) \(numbers.upperBound) | holdfastctl publish main far/\(qos) --lines --qos \(qos)"
            )
        }

        private func subscriber(_ container: Container) async throws -> LabProcess {
            let words = ["mosquitto_sub", "-i", "far", "-c", "-q", "2", "-t", "far/#", "-F", "%t %p"]
            // mosquitto_sub buffers what it writes.
            let process = try await container.start(["stdbuf", "-oL"] + words)
            try await until("the subscriber has subscribed") {
                try await container.run("holdfastctl", "publish", "main", "far/0", "here", "--wait", "delivered")
                return process.output.contains("far/0 here")
            }
            return process
        }

        private func restarts(_ container: Container) async throws -> Int {
            Int(try await service(container)["NRestarts"] ?? "") ?? 0
        }

        /// - Parameter before: how often systemd had started it again before it was killed.
        private func untilRestarted(_ container: Container, before: Int = 0) async throws {
            try await until("systemd has started it again") {
                let service = try await service(container)
                return Int(service["NRestarts"] ?? "") ?? 0 > before && service["ActiveState"] == "active"
            }
        }

        /// Checks what arrived of one stream: complete, in order, and with QoS 2 once each.
        private func expect(
            _ numbers: ClosedRange<Int>, qos: Int, at subscriber: LabProcess
        ) async throws {
            func arrived() -> [Int] {
                subscriber.output.split(separator: "\n").compactMap { line in
                    line.hasPrefix("far/\(qos) ") ? Int(line.dropFirst(6)) : nil
                }
            }
            try await until("everything of QoS \(qos) has arrived") { Set(arrived()).isSuperset(of: numbers) }
            if qos == 2 {
                #expect(arrived() == Array(numbers))
            } else {
                var seen: Set<Int> = []
                #expect(arrived().filter { seen.insert($0).inserted } == Array(numbers))
            }
        }

        @Test func `a daemon that is killed comes back on its own, with everything that it had accepted`() async throws
        {
            try await withService { container in
                let subscriber = try await subscriber(container)
                try await container.run("systemctl", "stop", "mosquitto")
                for qos in 1...2 { try await accept(1...300, qos: qos, container) }
                try await container.run("systemctl", "kill", "--kill-whom", "main", "--signal", "KILL", "holdfast")
                try await untilRestarted(container)
                try await container.run("systemctl", "start", "mosquitto")
                try await container.run("holdfastctl", "wait", "main", "--timeout", "3min")
                for qos in 1...2 { try await expect(1...300, qos: qos, at: subscriber) }
                #expect(try await service(container)["ActiveState"] == "active")
            }
        }

        @Test func `a daemon that hangs is killed by the watchdog, and everything continues`() async throws {
            try await withService(isStarted: false) { container in
                try container.write("/etc/systemd/system/holdfast.service.d/test.conf", "[Service]\nWatchdogSec=20s\n")
                try await container.run("systemctl", "daemon-reload")
                try await container.run("systemctl", "enable", "--now", "holdfast")
                try await container.run("holdfastctl", "wait", "main", "--timeout", "3min")
                let subscriber = try await subscriber(container)
                try await container.run("systemctl", "stop", "mosquitto")
                for qos in 1...2 { try await accept(1...100, qos: qos, container) }
                let before = try await restarts(container)
                try await container.run("systemctl", "kill", "--kill-whom", "main", "--signal", "STOP", "holdfast")
                try await untilRestarted(container, before: before)
                #expect(
                    try await container.run("journalctl", "-u", "holdfast", "--no-pager").contains("Watchdog timeout"))
                try await container.run("systemctl", "start", "mosquitto")
                try await container.run("holdfastctl", "wait", "main", "--timeout", "3min")
                for qos in 1...2 { try await expect(1...100, qos: qos, at: subscriber) }
            }
        }

        @Test func `a journal that hangs holds up neither the sessions nor a start`() async throws {
            try await withService { container in
                let reader = "systemd-journald.service"
                func hang() async throws {
                    try await container.run("systemctl", "kill", "--kill-whom=main", "--signal=STOP", reader)
                    // Fills the queue of the journal's socket: each sender has a limit of its own, too.
                    try await container.run(
                        "perl", "-MSocket", "-e",
                        """
                        do {
                            socket(my $s, AF_UNIX, SOCK_DGRAM, 0);
                            connect($s, sockaddr_un("/run/systemd/journal/socket")) or die;
                            $count = 0;
                            $count++ while send($s, "MESSAGE=x", MSG_DONTWAIT);
                        } while $count;
                        """)
                }
                func goOn() async throws {
                    try await container.run("systemctl", "kill", "--kill-whom=main", "--signal=CONT", reader)
                }
                try await hang()
                for _ in 1...3 { try await container.run("holdfastctl", "reload") }
                try await container.run("holdfastctl", "ping", "main", "--count", "1")
                try await goOn()
                try await until("the journal has all entries") { try await journal(container, .reloadDone).count == 3 }

                try await hang()
                try await container.run("systemctl", "restart", "holdfast")
                try await container.run("holdfastctl", "wait", "main", "--timeout", "3min")
                try await goOn()
                try await until("the journal has its entries") { try await journal(container, .ready).count == 2 }
            }
        }

        /// The server accepts the connection and then says nothing: messages are in flight, and no acknowledgement
        /// comes.
        @Test func `stopping while messages are in flight ends in time, and the next version continues with them`()
            async throws
        {
            try await withService { container in
                let subscriber = try await subscriber(container)
                try await container.run("systemctl", "kill", "--kill-whom", "main", "--signal", "STOP", "mosquitto")
                for qos in 1...2 { try await accept(1...100, qos: qos, container) }
                try await container.run("systemctl", "stop", "holdfast")
                let service = try await service(container)
                #expect(service["ActiveState"] == "inactive" && service["Result"] == "success")
                #expect(try await journal(container, .stopping).count == 1)
                // As when a package is upgraded: other files replace the running ones.
                try await container.shell(
                    "for file in /usr/sbin/holdfastd /usr/bin/holdfastctl; do cp $file $file.new; mv $file.new $file; done"
                )
                try await container.run("systemctl", "start", "holdfast")
                try await container.run("systemctl", "kill", "--kill-whom", "main", "--signal", "CONT", "mosquitto")
                try await container.run("holdfastctl", "wait", "main", "--timeout", "3min")
                for qos in 1...2 { try await expect(1...100, qos: qos, at: subscriber) }
            }
        }

        /// The daemon asks systemd for more time, so the limits of the unit do not cut off a start or a stop that waits for
        /// the disk.
        @Test func `a start and a stop that wait for the disk take the time that they need`() async throws {
            try await withService(isStarted: false) { container in
                let limit = Duration.seconds(12)
                let disk = try await SlowDisk(in: container, at: "/var/lib/holdfast")
                try container.write(
                    "/etc/systemd/system/holdfast.service.d/test.conf",
                    """
                    [Service]
                    TimeoutStartSec=\(limit.components.seconds)
                    TimeoutStopSec=\(limit.components.seconds)
                    Environment=LD_PRELOAD=\(disk.library)

                    """)
                try await container.run("systemctl", "daemon-reload")
                func untilTheLimitHasPassed(since time: String, _ status: String) async throws {
                    try await until("the service says what it waits for") {
                        try await self.service(container)["StatusText"] == status
                    }
                    try await until("the unit's limit has passed") {
                        let began = try #require(Int(try await self.service(container)[time] ?? ""))
                        let uptime = try await container.run("cut", "-d", " ", "-f", "1", "/proc/uptime")
                        let now = try #require(Double(uptime.trimmingCharacters(in: .whitespacesAndNewlines)))
                        return .seconds(now) > .microseconds(began) + limit
                    }
                }

                try await disk.stops()
                try await container.run("systemctl", "start", "--no-block", "holdfast")
                try await untilTheLimitHasPassed(since: "InactiveExitTimestampMonotonic", "opening the durable state")
                #expect(try await service(container)["ActiveState"] == "activating")
                try await disk.works()
                try await container.run("holdfastctl", "wait", "main", "--timeout", "3min")

                try await disk.stops()
                try await container.run("systemctl", "stop", "--no-block", "holdfast")
                try await untilTheLimitHasPassed(since: "ActiveExitTimestampMonotonic", "writing out the durable state")
                #expect(try await service(container)["ActiveState"] == "deactivating")
                try await disk.works()
                try await until("the service has ended") {
                    try await self.service(container)["ActiveState"] != "deactivating"
                }
                let service = try await service(container)
                #expect(service["ActiveState"] == "inactive" && service["Result"] == "success")
                #expect(service["NRestarts"] == "0")
            }
        }

        @Test func `a restart while programs publish loses no accepted message`() async throws {
            try await withService { container in
                let subscriber = try await subscriber(container)
                // A program that repeats each message until it is accepted.
                try container.write(
                    "/usr/local/bin/program",
                    "for n in $(seq 1 60); do until holdfastctl publish main far/2 $n --qos 2; do sleep 0.05; done; done\n"
                )
                let program = try await container.start(["sh", "/usr/local/bin/program"])
                for _ in 1...3 {
                    try await container.run("systemctl", "restart", "holdfast")
                    try await container.run("holdfastctl", "wait", "main", "--timeout", "3min")
                }
                #expect(try await program.ended(within: .seconds(180)) == .exited(0))
                try await expect(1...60, qos: 2, at: subscriber)
            }
        }

        @Test func `systemd holds the control socket for programs that come early`() async throws {
            try await withService { container in
                try await container.run("systemctl", "stop", "holdfast")
                try await container.run("holdfastctl", "wait", "main", "--timeout", "3min")
                #expect(try await service(container)["ActiveState"] == "active", "it was started")

                // This program connects all the time. The daemon may end a connection, but there is always a socket to
                // connect to.
                try container.write(
                    "/usr/local/bin/program",
                    "until test -e /tmp/over; do holdfastctl publish main a b >/dev/null; done\n")
                let program = try await container.start(["sh", "/usr/local/bin/program"])
                for _ in 1...3 { try await container.run("systemctl", "restart", "holdfast") }
                try container.write("/tmp/over", "")
                #expect(try await program.ended(within: .seconds(180)) == .exited(0))
                #expect(!program.errors.contains("is not running"), "\(program.errors)")

                try await container.run("systemctl", "stop", "holdfast.socket", "holdfast")
                #expect(try await container.finish("holdfastctl", "status").ending == .exited(6))
                try await container.run("systemctl", "start", "holdfast")
                try await container.run("holdfastctl", "wait", "main", "--timeout", "3min")

                // If somebody removes it, programs that have no socket do not wait for the next start of the service.
                func isServed() async throws -> Bool {
                    try await container.finish("holdfastctl", "status").ending == .exited(0)
                }
                let socket = "/run/holdfast/control.sock"
                try await container.run("rm", socket)
                try await until("a removed socket is made again") { try await isServed() }
                try await container.run("sh", "-c", "rm \(socket); systemctl restart holdfast")
                try await until("it is there after a restart") { try await isServed() }
                // systemd removes its socket, and opens none for a service that runs already.
                _ = try await container.finish("systemctl", "restart", "holdfast.socket")
                try await until("the daemon has a socket of its own") { try await isServed() }

                // Without the socket unit, the daemon makes the socket itself.
                try await container.run("systemctl", "stop", "holdfast.socket", "holdfast")
                try await container.run("systemctl", "mask", "--now", "holdfast.socket")
                try await container.run("systemctl", "start", "holdfast")
                try await container.run("holdfastctl", "wait", "main", "--timeout", "3min")
            }
        }

        // MARK: People

        @Test func `two groups decide who may do what at the socket`() async throws {
            try await withService { container in
                try await container.run("useradd", "alice")
                func alice(_ words: String) async throws -> (ending: LabProcess.Ending, output: String, errors: String)
                {
                    try await container.finish("runuser", "-u", "alice", "--", "sh", "-c", words)
                }
                let stranger = try await alice("holdfastctl status")
                #expect(stranger.ending == .exited(5), "\(stranger)")
                #expect(stranger.errors.contains("usermod -aG holdfast"), "it says what to do: \(stranger.errors)")

                try await container.run("usermod", "-aG", "holdfast", "alice")
                #expect(try await alice("holdfastctl status").ending == .exited(0))
                #expect(try await alice("holdfastctl publish main a b --wait delivered").ending == .exited(0))
                for command in ["reload", "disconnect main", "queue drop main --all"] {
                    let denied = try await alice("holdfastctl \(command)")
                    #expect(denied.ending == .exited(5), "\(command): \(denied)")
                }
                let id = try await container.run("id", "-u", "alice").trimmingCharacters(in: .whitespacesAndNewlines)
                let told = try #require(try await journal(container, .accessDenied).first)
                #expect(told["HOLDFAST_PEER_UID"] == id)

                let reported = try await alice("holdfastctl bugreport")
                #expect(reported.output.contains("==== daemon.clients\nleft out: it takes the role control\n"))
                let denials = try await journal(container, .accessDenied)
                #expect(!denials.contains { $0["MESSAGE"]?.contains("daemon.clients") == true }, "\(denials)")

                // Users who may observe can see how far away the server is; the journal is for others.
                #expect(try await alice("holdfastctl ping --count 1").ending == .exited(0))
                #expect(try await alice("holdfastctl check main").ending == .exited(5))
                let log = try await alice("holdfastctl log")
                #expect(log.ending == .exited(5) && log.errors.contains("usermod -aG systemd-journal"), "\(log)")
                // The program that shows the journal can be ended: it inherits nothing of what this program does to
                // signals.
                let signals =
                    "holdfastctl log --follow >/tmp/log & until grep -q ready /tmp/log; do :; done; "
                    + "cat /proc/$!/comm; grep ^SigBlk /proc/$!/status; kill $!; wait $!; echo $?"
                #expect(try await container.shell(signals) == "journalctl\nSigBlk:\t0000000000000000\n143\n")
                try await container.run("usermod", "-aG", "systemd-journal", "alice")
                #expect(try await alice("holdfastctl log").output.contains("ready: 1 session"))

                // The session's file can narrow what they use.
                let topics = "[topics]\\npublish = [\"group:holdfast plant/+\"]\\n"
                try await container.run("sh", "-c", "printf '\(topics)' >>\(Self.sessionFile)")
                try await container.run("systemctl", "reload", "holdfast")
                try await container.run("holdfastctl", "wait", "main", "--timeout", "3min")
                #expect(try await alice("holdfastctl publish main plant/a b --wait delivered").ending == .exited(0))
                let elsewhere = try await alice("holdfastctl publish main a b")
                #expect(elsewhere.ending == .exited(5) && elsewhere.errors.contains("[topics]"), "\(elsewhere)")
                try await container.run("holdfastctl", "publish", "main", "a", "b", "--wait", "delivered")

                try await container.run("usermod", "-aG", "holdfast-admin", "alice")
                #expect(try await alice("holdfastctl reload").ending == .exited(0))
                #expect(try await alice("holdfastctl disconnect main").ending == .exited(0))

                // The command leaves the journal to the daemon; libdispatch would write to it for users without rights.
                try await container.run("journalctl", "--sync")
                let own = try await container.run(
                    "journalctl", "--quiet", "--no-pager", "_COMM=holdfastctl", "_UID=\(id)")
                #expect(own == "")
            }
        }

        @Test func `a secret that systemd keeps is used, and a wrong one is reported`() async throws {
            let session = """
                endpoints = ["mqtt://localhost:1883"]
                user = "edge-42"
                username = "edge"
                password = "credential:broker"

                """
            try await withService(session: session, isStarted: false) { container in
                try container.write(
                    "/etc/mosquitto/conf.d/test.conf", "listener 1883\npassword_file /etc/mosquitto/users\n")
                try await container.run("mosquitto_passwd", "-c", "-b", "/etc/mosquitto/users", "edge", "sesame")
                try await container.run("chown", "mosquitto", "/etc/mosquitto/users")
                try await container.run("systemctl", "restart", "mosquitto")
                try container.write("/etc/holdfast/broker.secret", "wrong\n")
                try await container.run("chmod", "600", "/etc/holdfast/broker.secret")
                let missing = try await container.finish("holdfastctl", "config", "check")
                #expect(missing.ending == .exited(1), "\(missing)")
                #expect(missing.errors.contains("main.toml:4: the service has no credential \"broker\""), "\(missing)")
                try container.write(
                    "/etc/systemd/system/holdfast.service.d/secret.conf",
                    "[Service]\nLoadCredential=broker:/etc/holdfast/broker.secret\nSetCredential=other:planted-in-unit\n"
                )
                try await container.run("systemctl", "daemon-reload")
                try await container.run("holdfastctl", "config", "check")
                try await container.run("systemctl", "enable", "--now", "holdfast")
                #expect(
                    try await container.finish("holdfastctl", "wait", "main", "--timeout", "3min").ending == .exited(3))
                #expect(try await !journal(container, .credentialRejected).isEmpty)
                #expect(try await service(container)["ActiveState"] == "active")

                try container.write("/etc/holdfast/broker.secret", "sesame\n")
                try await container.run("systemctl", "restart", "holdfast")
                try await container.run("holdfastctl", "wait", "main", "--timeout", "3min")
                let everything = try await container.run("journalctl", "--no-pager", "-o", "export")
                #expect(!everything.contains("sesame"))

                // The report has what systemd says of the unit, and names its drop-ins, but not what they contain.
                let report = try await container.run("holdfastctl", "bugreport", "-o", "/tmp/report", "--yes")
                #expect(report.contains("ActiveState=active"), "\(report)")
                #expect(report.contains("/etc/systemd/system/holdfast.service.d/secret.conf"), "\(report)")
                #expect(report.contains("Started holdfast.service"), "\(report)")
                #expect(!report.contains("sesame") && !report.contains("planted"), "\(report)")
                #expect(try await container.run("cat", "/tmp/report") == report)
            }
        }
    }
}
