import ControlAPI
import Foundation
import Support
import Testing

@testable import DurableStore

extension EndToEnd {
    /// The Debian package on a booted Debian: installed, upgraded, downgraded, removed and purged. Its programs are
    /// those of the tests; `make test-package` does the same with the release's package.
    @Suite(
        "Package", .timeLimit(.minutes(30)),
        .enabled(
            if: Container.obstacle == nil && DebianPackage.obstacle == nil || LabRequirements.isAllRequired,
            "cannot run here"))
    struct PackageTests {
        private static let folder = "/tmp/holdfast-packages-\(getpid())"
        private static let packages = Task {
            atexit { try? FileManager.default.removeItem(atPath: PackageTests.folder) }
            try await DebianPackage.make(programs: DaemonProcess.programs, in: folder)
        }
        private static let session = "endpoints = [\"mqtt://localhost:1883\"]\nuser = \"edge-42\"\n"

        private func withDebian(_ body: (Container) async throws -> Void) async throws {
            if let obstacle = DebianPackage.obstacle { throw Lab.Failure(obstacle) }
            try await Self.packages.value
            try await Container.run(programs: DaemonProcess.programs, packages: Self.folder, body)
        }

        private func install(_ file: String, _ container: Container) async throws {
            try await container.run("env", "DEBIAN_FRONTEND=noninteractive", "dpkg", "--install", "/packages/\(file)")
        }

        private func version(_ container: Container) async throws -> String {
            try await container.run("dpkg-query", "--show", "--showformat=${Version}", "holdfast")
        }

        private func connect(_ container: Container) async throws {
            try container.write("/etc/holdfast/sessions.d/main.toml", Self.session)
            try await container.run("systemctl", "reload", "holdfast")
            try await container.run("holdfastctl", "wait", "main", "--timeout", "3min")
        }

        // MARK: Life

        @Test func `an installed package runs, and a purged one leaves nothing behind`() async throws {
            try await withDebian { container in
                func files() async throws -> Set<String> {
                    let found = try await container.shell(
                        "find / -xdev -iname '*holdfast*' -not -path '/proc/*' -not -path '/var/log/journal/*' | sort")
                    return Set(found.split(separator: "\n").map(String.init))
                }
                let before = try await files()
                let users = try await container.run("cat", "/etc/passwd", "/etc/group")

                try await install("this.deb", container)
                for unit in ["holdfast.service", "holdfast.socket"] {
                    let properties = try await container.properties(of: unit)
                    #expect(properties["ActiveState"] == "active", "\(unit) runs")
                    #expect(properties["UnitFileState"] == "enabled", "\(unit) runs after a boot")
                }
                let socket = try await container.run("stat", "--format=%U:%G %a", "/run/holdfast/control.sock")
                #expect(socket == "root:holdfast 660\n")
                // The only command that a new user needs.
                let made = try await container.shell(
                    """
                    echo sesame | holdfastctl config init main --endpoint mqtt://localhost:1883 --user edge-42 \
                    --ask-password --connect
                    """)
                #expect(made.contains("main is connected to mqtt://localhost:1883"), "\(made)")
                let secret = try await container.run("stat", "--format=%U %a", "/etc/holdfast/main.secret")
                #expect(secret == "holdfast 600\n")
                #expect(try await container.run("holdfastctl", "version").contains(Release.version))
                // The triggers of other packages did their part.
                #expect(try await container.run("journalctl", "--list-catalog").contains("Holdfast is ready"))

                try await container.run("systemctl", "start", "holdfast-online.target")
                try await container.run("dpkg", "--remove", "holdfast")
                let units = [
                    "holdfast.service", "holdfast.socket", "holdfast-wait-online.service", "holdfast-online.target",
                ]
                for unit in units {
                    #expect(try await container.properties(of: unit)["ActiveState"] == "inactive", "\(unit) is stopped")
                }
                let last = try await container.run("journalctl", "--unit=holdfast", "--output=cat", "--lines=20")
                #expect(!last.contains("was removed by somebody"), "\(last)")
                #expect(try await container.run("ls", "/etc/holdfast/sessions.d").contains("main.toml\n"))
                #expect(try await container.run("ls", "/var/lib/holdfast").contains("holdfast.db"))

                // As on a host where it has a file system of its own.
                let state = "/var/lib/holdfast"
                try await container.run("mount", "--bind", state, state)
                let purged = try await container.shell("dpkg --purge holdfast 2>&1")
                #expect(purged.contains("holdfast: \(state) stays"), "\(purged)")
                try await container.shell("umount \(state); rmdir \(state)")
                #expect(try await files().subtracting(before).isEmpty)
                #expect(try await container.run("cat", "/etc/passwd", "/etc/group") == users)
                #expect(try await container.finish("systemctl", "is-system-running").output == "running\n")
            }
        }

        @Test func `a new user is connected to a server of their own within three commands`() async throws {
            try await withDebian { container in
                // Debian's servers cannot be reached.
                try container.write("/etc/apt/sources.list", "")
                try await container.shell("DEBIAN_FRONTEND=noninteractive apt-get --yes install /packages/this.deb")
                try await container.shell(
                    "holdfastctl config init main --endpoint mqtt://localhost:1883 --user edge-42 --connect")
                let status = try await container.shell("holdfastctl status main --check")
                #expect(status.contains("main is connected to mqtt://localhost:1883"), "\(status)")
            }
        }

        @Test func `programs that keep publishing lose nothing to an upgrade, a downgrade and a removal`()
            async throws
        {
            try await withDebian { container in
                try await install("this.deb", container)
                try await connect(container)
                let this = try await version(container)
                let subscriber = try await container.start([
                    "stdbuf", "-oL", "mosquitto_sub", "-i", "far", "-c", "-q", "2", "-t", "far/#", "-F", "%p",
                ])
                try await until("the subscriber has subscribed") {
                    try await container.run("holdfastctl", "publish", "main", "far/0", "here", "--wait", "delivered")
                    return subscriber.output.contains("here")
                }
                // It repeats each message until it is accepted, and reports its progress.
                try container.write(
                    "/usr/local/bin/program",
                    """
                    n=0
                    until test -e /tmp/over; do
                        n=$((n + 1))
                        until holdfastctl publish main far/2 $n --qos 2 >/dev/null 2>>/tmp/errors; do sleep 0.05; done
                        echo $n >/tmp/accepted
                    done

                    """)
                let program = try await container.start(["sh", "/usr/local/bin/program"])
                func accepted() async throws -> Int {
                    let text = try await container.finish("cat", "/tmp/accepted").output
                    return Int(text.trimmingCharacters(in: .whitespacesAndNewlines)) ?? 0
                }
                func someMore() async throws {
                    let before = try await accepted()
                    try await until("some more are accepted") { try await accepted() > before + 5 }
                }
                try await someMore()
                try await install("next.deb", container)
                #expect(try await version(container) == "\(this)+next")
                try await someMore()
                try await install("this.deb", container)
                #expect(try await version(container) == this)
                try await someMore()
                let errors = try await container.finish("cat", "/tmp/errors").output
                #expect(!errors.contains("is not running"), "the socket was there all the time: \(errors)")

                // Messages that no program has taken yet survive the package.
                try await container.run("systemctl", "stop", "mosquitto")
                try await someMore()
                try container.write("/tmp/over", "")
                #expect(try await program.ended(within: .seconds(180)) == .exited(0))
                try await container.run("dpkg", "--remove", "holdfast")
                try await install("next.deb", container)
                try await container.run("systemctl", "start", "mosquitto")
                try await container.run("holdfastctl", "wait", "main", "--timeout", "3min")
                let last = try await accepted()
                func arrived() -> [Int] { subscriber.output.split(separator: "\n").compactMap { Int($0) } }
                do {
                    try await until("all has arrived") { arrived().count >= last }
                } catch {
                    let queue = try await container.run("holdfastctl", "queue", "main")
                    let missing = Set(1...last).subtracting(arrived()).sorted()
                    Issue.record(
                        "\(error), of \(last) without \(missing); the subscriber says: \(subscriber.errors); \(queue)")
                }
                #expect(arrived() == Array(1...last))
            }
        }

        // MARK: From the version before

        @Test func `files of the first version are taken over by this one, and those of a later one are refused`()
            async throws
        {
            try await withDebian { container in
                try await install("this.deb", container)
                try await container.run("systemctl", "stop", "holdfast.socket", "holdfast")
                let file = "\(container.directory)/holdfast.db"
                try Database(path: file).execute(Self.firstStore)
                try await container.shell("rm -rf /var/lib/holdfast/*")
                try container.copy(file, to: "/var/lib/holdfast/holdfast.db")
                try await container.run("chown", "-R", "holdfast:holdfast", "/var/lib/holdfast")
                let subscriber = try await container.start([
                    "stdbuf", "-oL", "mosquitto_sub", "-i", "far", "-c", "-q", "2", "-t", "plant/#", "-F", "%t %p",
                ])
                try await until("the subscriber has subscribed") {
                    try await container.run("mosquitto_pub", "-t", "plant/0", "-m", "here")
                    return subscriber.output.contains("plant/0 here")
                }
                try container.write("/etc/holdfast/sessions.d/main.toml", Self.session)
                try await container.run("systemctl", "start", "holdfast")
                try await container.run("holdfastctl", "wait", "main", "--timeout", "3min")
                try await until("the messages have arrived") {
                    (1...5).allSatisfy { subscriber.output.contains("plant/7/reading \($0)\n") }
                        && subscriber.output.contains("plant/7/state open")
                }
                let consumed = try await container.run(
                    "holdfastctl", "subscribe", "main", "orders/#", "--consumer", "billing", "--count", "3")
                #expect(consumed == "orders/1 a\norders/2 b\norders/3 c\n")

                try await container.run("systemctl", "stop", "holdfast.socket", "holdfast")
                try Database(path: file).execute("PRAGMA user_version = 1000")
                try await container.shell("rm -rf /var/lib/holdfast/*")
                try container.copy(file, to: "/var/lib/holdfast/holdfast.db")
                try await container.run("chown", "-R", "holdfast:holdfast", "/var/lib/holdfast")
                #expect(try await container.finish("systemctl", "start", "holdfast").ending != .exited(0))
                let log = try await container.run("holdfastctl", "log")
                #expect(log.contains("install the newer version again"), "\(log)")
                #expect(try await container.run("ls", "/var/lib/holdfast").contains("holdfast.db"))
            }
        }

        private static let firstStore: String = {
            let path = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "Fixtures/store-0.1.0.sql")
            return (try? String(contentsOf: path, encoding: .utf8)) ?? ""
        }()

        // MARK: With apt

        @Test func `apt installs the package from a signed repository, and refuses a changed one`() async throws {
            try await withDebian { container in
                let repository = "\(container.directory)/repository"
                try await DebianPackage.makeRepository(of: Self.folder, in: repository)
                try container.copy(repository, to: "/srv/holdfast")
                // Debian's servers cannot be reached.
                try container.write("/etc/apt/sources.list", "")
                let commands = try Self.documentedCommands(servedAs: "file:/srv/holdfast")
                let (fetchKey, addSource, update, install) = (commands[0], commands[1], commands[2], commands[3])
                try await container.shell(addSource)
                let stranger = try await container.finish("sh", "-c", update)
                #expect(stranger.ending != .exited(0), "a key that is not trusted: \(stranger)")
                for command in [fetchKey, update, install] { try await container.shell(command) }
                #expect(try await version(container).hasSuffix("+next"), "the highest version")
                try await connect(container)

                try await container.shell(
                    "for file in /srv/holdfast/dists/stable/main/binary-*/Packages; do echo >>$file; done")
                try await container.shell(
                    "rm -f /srv/holdfast/dists/stable/main/binary-*/Packages.gz; rm -rf /var/lib/apt/lists/*")
                let changed = try await container.finish("apt-get", "update")
                #expect(changed.ending != .exited(0), "\(changed)")
            }
        }

        /// Returns the commands of Documentation/Installing.md for a host that installs the package from the repository.
        /// Root needs no sudo, and the files are fetched without a web server.
        private static func documentedCommands(servedAs address: String) throws -> [String] {
            let path = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
                .deletingLastPathComponent().appending(path: "Documentation/Installing.md")
            let blocks = try String(contentsOf: path, encoding: .utf8).components(separatedBy: "```\n")
            let block = try #require(blocks.first { $0.hasPrefix("sudo wget") }, "the page has the commands")
            let commands = block.replacing("https://packages.example/holdfast", with: address)
                .replacing("|\n", with: "|").split(separator: "\n").map(String.init)
            try #require(commands.count == 4, "\(commands)")
            let functions = """
                set -e
                export DEBIAN_FRONTEND=noninteractive
                wget() { cp "${3#file:}" "$2"; }
                apt() { apt-get --yes --no-install-recommends "$@"; }
                sudo() { "$@"; }

                """
            return commands.map { functions + $0 }
        }

        // MARK: What others say about it

        @Test func `lintian finds nothing to complain about`() async throws {
            if let obstacle = DebianPackage.obstacle { throw Lab.Failure(obstacle) }
            try await Self.packages.value
            #expect(try await DebianPackage.complaints(about: "\(Self.folder)/this.deb") == "")
        }

        @Test func `systemd finds no fault with the units, and little that they expose`() async throws {
            try await withDebian { container in
                try await install("this.deb", container)
                let units = [
                    "holdfast.service", "holdfast.socket", "holdfast-wait-online.service", "holdfast-online.target",
                ]
                for unit in units {
                    let verdict = try await container.finish("systemd-analyze", "verify", "--man=no", unit)
                    #expect(verdict.ending == .exited(0) && verdict.errors.isEmpty, "\(unit): \(verdict)")
                }
                for unit in ["holdfast.service", "holdfast-wait-online.service"] {
                    let path = try #require(try await container.properties(of: unit)["FragmentPath"])
                    let verdict = try await container.finish(
                        "systemd-analyze", "security", "--offline=true", "--threshold=15", "--no-pager", path)
                    #expect(verdict.ending == .exited(0), "\(verdict.output.suffix(200))")
                }
            }
        }

        @Test func `a unit that needs connected sessions waits for them`() async throws {
            try await withDebian { container in
                try await install("this.deb", container)
                try container.write("/etc/holdfast/sessions.d/main.toml", Self.session)
                try container.write(
                    "/etc/systemd/system/program.service",
                    """
                    [Unit]
                    Requires=holdfast-online.target
                    After=holdfast-online.target
                    [Service]
                    Type=oneshot
                    RemainAfterExit=yes
                    ExecStart=/usr/bin/holdfastctl status main --check

                    """)
                try await container.run("systemctl", "stop", "mosquitto")
                try await container.run("systemctl", "reload", "holdfast")
                try await container.run("systemctl", "daemon-reload")
                try await container.run("systemctl", "start", "--no-block", "program")
                try await until("it waits") {
                    try await container.properties(of: "holdfast-wait-online")["ActiveState"] == "activating"
                }
                #expect(try await container.properties(of: "program")["ActiveState"] == "inactive")
                try await container.run("systemctl", "start", "mosquitto")
                try await until("the program runs") {
                    try await container.properties(of: "program")["ActiveState"] == "active"
                }
                #expect(try await container.properties(of: "holdfast-online.target")["ActiveState"] == "active")
                // An upgrade restarts the daemon, perhaps while the server is away.
                let before = try await container.properties(of: "program")["ActiveEnterTimestampMonotonic"]
                try await container.run("systemctl", "stop", "mosquitto")
                try await container.run("systemctl", "restart", "holdfast")
                let after = try await container.properties(of: "program")
                #expect(after["ActiveState"] == "active" && after["ActiveEnterTimestampMonotonic"] == before)
            }
        }
    }
}
