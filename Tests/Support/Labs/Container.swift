import Foundation
import Glibc
import Synchronization

/// A Debian that was booted with systemd, for one test: an in-memory copy of the one that `scripts/setup container`
/// made, in its own network with nothing but a loopback interface.
///
/// Holdfast is in it as `make install` puts it there, followed by the commands that `make install` names; or there are
/// only its packages, in `/packages`.
public struct Container: Sendable {
    /// The tree that every container is a copy of.
    static let tree = repository + "/.build-container/tree"
    private static let repository = repositoryRoot.path
    /// Why a container cannot be made here; `nil` when one can.
    public static var obstacle: String? {
        if geteuid() != 0 { return "root is needed to boot a container" }
        if Sanitizer.inUse != nil { return "a sanitizer's runtime lacks the permissions that it needs in a container" }
        // This file is made last.
        if access(repository + "/.build-container/version", R_OK) != 0 {
            return "there is no Debian to boot: scripts/setup container makes it"
        }
        return nil
    }

    /// A directory of the host, for what a test needs outside of the container.
    public let directory: String
    private let machine: LabProcess
    /// The container's systemd, by its process id on the host.
    private let leader: pid_t

    /// Boots a container, runs `body`, and removes the container.
    ///
    /// - Parameters:
    ///   - programs: where `holdfastd` and `holdfastctl` are.
    ///   - packages: a folder with their packages; if given, nothing is installed.
    public static func run(
        programs: String, packages: String? = nil, _ body: (Container) async throws -> Void
    ) async throws {
        if let obstacle { throw Lab.Failure(obstacle) }
        let directory = try TemporaryDirectory("holdfast-container").path
        let name = (directory as NSString).lastPathComponent
        defer {
            try? FileManager.default.removeItem(atPath: directory)
            // systemd-nspawn leaves this behind.
            rmdir("/run/systemd/nspawn/propagate/\(name)")
        }
        let group = ControlGroup(name)
        let contents: String
        if let packages {
            contents = "\(packages):/packages"
        } else {
            contents = "\(try await installed(programs)):/installed"
        }
        let outcome: Result<Void, any Error>
        do {
            let container = try await boot(
                name, directory, in: group, binding: try await runtime(of: programs),
                contents: contents)
            outcome = await container.live(isInstalled: packages == nil, body)
        } catch {
            outcome = .failure(error)
        }
        // The container's processes end after the one that was killed.
        try await until("the cgroup is empty") { group.remove() }
        try outcome.get()
    }

    private static let installations = Mutex<[String: Task<String, any Error>]>([:])

    /// Returns the folder that has what `make install` installs, with stripped programs. It is made once for all tests.
    public static func installed(_ programs: String) async throws -> String {
        let task = installations.withLock { installations in
            if let task = installations[programs] { return task }
            let task = Task {
                let folder = try TemporaryDirectory("holdfast-installed", in: TemporaryDirectory.diskParent).path
                // It is copied with its permissions, and those of the folder are only ours.
                let installed = folder + "/installed"
                removed.withLock { $0.append(folder) }
                atexit { for folder in Container.removed.withLock({ $0 }) { TemporaryDirectory.remove(folder) } }
                try await LabProcess.run(
                    ["make", "--silent", "-C", repository, "install", "RELEASE=\(programs)", "DESTDIR=\(installed)"],
                    files: "\(folder)/make", within: .seconds(1200))
                return installed
            }
            installations[programs] = task
            return task
        }
        return try await task.value
    }

    /// What is removed when the tests end.
    private static let removed = Mutex<[String]>([])

    private func live(isInstalled: Bool, _ body: (Container) async throws -> Void) async -> Result<Void, any Error> {
        let outcome: Result<Void, any Error>
        do {
            try await start()
            if isInstalled { try await install() }
            outcome = .success(try await body(self))
        } catch {
            outcome = .failure(await explained(error))
        }
        _ = try? await machine.killed()
        return outcome
    }

    /// The folders of the shared libraries that Debian lacks: those of Swift, unless they are linked statically.
    public static func runtime(of programs: String) async throws -> Set<String> {
        let libraries = try await LabProcess.run(
            ["ldd", "\(programs)/holdfastd"], files: "\(TemporaryDirectory.parent)/holdfast-ldd-\(UUID())")
        return Set(
            libraries.split(separator: "\n").compactMap { line in
                let words = line.split(separator: " ")
                guard words.count > 2, words[1] == "=>", words[2].hasPrefix("/"),
                    !FileManager.default.fileExists(atPath: tree + words[2])
                else { return nil }
                return (String(words[2]) as NSString).deletingLastPathComponent
            })
    }

    /// Units of Debian that no test needs. It boots faster without them, and the journal can stay in memory.
    private static let unneeded = [
        "systemd-journal-flush.service", "systemd-random-seed.service", "systemd-update-utmp.service",
        "systemd-update-utmp-runlevel.service", "console-getty.service", "apt-daily.timer", "apt-daily-upgrade.timer",
        "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service", "fstrim.timer",
    ]

    private static func boot(
        _ name: String, _ directory: String, in group: ControlGroup, binding folders: Set<String>, contents: String
    ) async throws -> Container {
        // Units that are needed may take as long as they need.
        let limits = "\(directory)/limits.conf"
        try "[Manager]\nDefaultTimeoutStartSec=30min\n".write(toFile: limits, atomically: true, encoding: .utf8)
        // The container ends with the first process of a PID namespace, which ends with ours.
        var words = [
            "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "systemd-nspawn", "--directory", tree,
            "--volatile=overlay", "--private-network", "--register=no",
            "--keep-unit", "--quiet", "--boot", "--machine", name, "--console=pipe",
            "--bind-ro=\(contents)", "--bind-ro=\(limits):/etc/systemd/system.conf.d/limits.conf",
        ]
        // The dynamic linker searches there on its own. The service could not see a home directory, for example.
        for (number, folder) in folders.sorted().enumerated() {
            words.append("--bind-ro=\(folder):/usr/local/lib/runtime-\(number)")
        }
        // As on the kernel's command line.
        words += unneeded.map { "systemd.mask=\($0)" }
        let machine = try await LabProcess.start(group.around(words), files: "\(directory)/console")
        var leader: pid_t?
        do {
            try await until("the container's systemd runs", within: .seconds(600)) {
                guard await machine.isRunning else {
                    throw Lab.Failure("the container did not boot: \(machine.errors)\(machine.output)")
                }
                leader = Self.leader(of: machine.pid)
                return leader != nil
            }
        } catch {
            _ = try? await machine.killed()
            throw error
        }
        guard let leader else { preconditionFailure("it was waited for") }
        return Container(directory: directory, machine: machine, leader: leader)
    }

    /// Finds the first process of a container among a process and its descendants.
    private static func leader(of pid: pid_t) -> pid_t? {
        let status = (try? String(contentsOfFile: "/proc/\(pid)/status", encoding: .utf8)) ?? ""
        if status.hasPrefix("Name:\tsystemd\n"), status.contains(/\nNSpid:.*\t1\n/) { return pid }
        let children = (try? String(contentsOfFile: "/proc/\(pid)/task/\(pid)/children", encoding: .utf8)) ?? ""
        return children.split(separator: " ").lazy.compactMap { pid_t($0) }.compactMap { leader(of: $0) }.first
    }

    private func start() async throws {
        try await until("systemd answers", within: .seconds(600)) {
            try await finish("systemctl", "show-environment").ending == .exited(0)
        }
        let state = try await finish("systemctl", "is-system-running", "--wait").output
        guard state == "running\n" else {
            throw Lab.Failure("the container is \(state)\(try await run("systemctl", "--failed", "--no-legend"))")
        }
        try await shell("ls -d /usr/local/lib/runtime-* >/etc/ld.so.conf.d/runtime.conf 2>/dev/null; ldconfig")
    }

    private func install() async throws {
        try await shell("cp -a /installed/. /")
        try await run("systemd-sysusers")
        try await run("systemd-tmpfiles", "--create", "holdfast.conf")
        try await run("journalctl", "--update-catalog")
        try await run("systemctl", "daemon-reload")
    }

    private func explained(_ error: any Error) async -> any Error {
        let journal = try? await finish("journalctl", "--no-pager", "-n", "60").output
        return Lab.Failure("\(error)\nThe journal, its end:\n\(journal ?? "cannot be read")")
    }

    // MARK: Inside the container

    /// Runs a program as root to its end; any ending is fine.
    public func finish(
        _ words: String...
    ) async throws -> (ending: LabProcess.Ending, output: String, errors: String) {
        try await finish(words)
    }

    private func finish(
        _ words: [String]
    ) async throws -> (ending: LabProcess.Ending, output: String, errors: String) {
        let process = try await start(words)
        // Also to boot and to install packages, while other containers do the same.
        let ending = try await process.ended(within: .seconds(600))
        defer {
            unlink(process.outputFile)
            unlink(process.errorFile)
        }
        return (ending, process.output, process.errors)
    }

    /// Runs a program as root, which must exit with 0.
    ///
    /// - Returns: its standard output.
    @discardableResult
    public func run(_ words: String...) async throws -> String {
        let (ending, output, errors) = try await finish(words)
        guard ending == .exited(0) else {
            throw Lab.Failure("\(words.joined(separator: " ")): \(ending): \(output)\(errors)")
        }
        return output
    }

    /// Does the same as `run`, for a line of shell.
    @discardableResult
    public func shell(_ line: String) async throws -> String {
        try await run("sh", "-c", line)
    }

    /// Starts a program as root.
    public func start(_ words: [String]) async throws -> LabProcess {
        let environment = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"]
        return try await LabProcess.start(
            ["nsenter", "--target", "\(leader)", "--all", "--wdns=/", "--"] + environment + words,
            files: "\(directory)/command-\(UUID().uuidString.prefix(8))")
    }

    /// Writes a file that everybody may read.
    public func write(_ path: String, _ text: String) throws {
        let path = "/proc/\(leader)/root\(path)"
        try FileManager.default.createDirectory(
            atPath: (path as NSString).deletingLastPathComponent, withIntermediateDirectories: true)
        try text.write(toFile: path, atomically: false, encoding: .utf8)
    }

    /// Copies a file or a folder of the host.
    public func copy(_ source: String, to path: String) throws {
        try FileManager.default.copyItem(atPath: source, toPath: "/proc/\(leader)/root\(path)")
    }

    /// The properties of a unit, by name.
    public func properties(of unit: String) async throws -> [String: String] {
        Dictionary(
            try await run("systemctl", "show", unit).split(separator: "\n").compactMap { line in
                line.firstIndex(of: "=").map { (String(line[..<$0]), String(line[line.index(after: $0)...])) }
            }, uniquingKeysWith: { $1 })
    }
}
