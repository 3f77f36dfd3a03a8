import Foundation
import Glibc

/// podman, for one test: with its own storage, and in its own namespaces; everything that it started ends with these. A
/// container with `--network host` is in the network of the lab's namespace.
public struct Podman: Sendable {
    /// Why podman cannot be used here; `nil` when it can.
    public static var obstacle: String? {
        let missing = ["podman", "crun", "conmon"].filter { access("/usr/bin/\($0)", X_OK) != 0 }
        return missing.isEmpty
            ? Container.obstacle : "there is no \(missing.joined(separator: ", ")): scripts/setup container installs it"
    }

    /// Images that other storages may use, but not change.
    public struct Images: Sendable {
        var driver: String
        var root: String
    }

    private let lab: Lab
    private let storage: String
    private let images: Images?
    /// The first process in the namespaces, by its id on the host.
    private let first: pid_t

    /// - Parameters:
    ///   - storage: the folder of its storage, which is kept; the lab's unless it is given.
    ///   - images: those of another storage.
    public init(
        _ lab: Lab, in namespace: Namespace, storage: String? = nil, images: Images? = nil
    ) async throws {
        if let obstacle = Self.obstacle { throw Lab.Failure(obstacle) }
        self.lab = lab
        self.storage = storage ?? "\(lab.directory)/podman"
        self.images = images
        // The mounts hold what podman keeps outside of its storage; the lab's directory may be in /dev/shm. crun refuses
        // cgroups of both versions side by side.
        let name = lab.directory.split(separator: "/").last ?? ""
        let prepare = """
            set -e
            umount /sys/fs/cgroup/unified 2>/dev/null || true
            mkdir -p /var/lib/containers
            mount -t tmpfs tmpfs /var/lib/containers
            if mountpoint --quiet /dev/shm; then
                mkdir /var/lib/containers/shm
                mount --move /dev/shm /var/lib/containers/shm
            fi
            mount -t tmpfs tmpfs /dev/shm
            case \(lab.directory) in /dev/shm/*)
                mkdir \(lab.directory)
                mount --bind /var/lib/containers/shm/\(name) \(lab.directory)
            esac
            echo ready
            while :; do sleep 3600; done
            """
        let process = try await lab.start(
            "namespaces",
            [
                "nsenter", "--net=/run/netns/\(namespace.name)", "--", "unshare", "--mount", "--pid", "--fork",
                "--kill-child", "--mount-proc", "sh", "-c", prepare,
            ], in: nil)
        try await until("podman's namespaces are made") {
            guard await process.isRunning else { throw Lab.Failure("podman has no namespaces: \(process.errors)") }
            return process.output == "ready\n"
        }
        let children = try String(contentsOfFile: "/proc/\(process.pid)/task/\(process.pid)/children", encoding: .utf8)
        guard let child = children.split(separator: " ").first.flatMap({ pid_t($0) }) else {
            throw Lab.Failure("podman's namespaces are gone")
        }
        first = child
    }

    /// Runs podman; any ending is fine. A busy disk holds up even what is short.
    public func finish(
        _ words: [String], within limit: Duration = .seconds(600)
    ) async throws -> (ending: LabProcess.Ending, output: String, errors: String) {
        try await lab.finish(command(words), in: nil, within: limit)
    }

    private func command(_ words: [String]) -> [String] {
        // It leaves the host's cgroups alone.
        let engine = [
            "nsenter", "--target", "\(first)", "--mount", "--pid", "--net", "--", "podman", "--root", "\(storage)/root",
            "--runroot", "\(storage)/run", "--tmpdir", "\(storage)/tmp", "--cgroup-manager", "cgroupfs",
            "--events-backend", "file", "--log-level", "fatal",
        ]
        let others = images.map {
            ["--storage-driver", $0.driver, "--storage-opt", "\($0.driver).imagestore=\($0.root)"]
        }
        return engine + (others ?? []) + words
    }

    /// Returns its images for other storages; nothing may be added to them any more.
    public func asImages() async throws -> Images {
        let driver = try await callAsFunction("info", "--format", "{{.Store.GraphDriverName}}")
        return Images(driver: driver.trimmingCharacters(in: .whitespacesAndNewlines), root: "\(storage)/root")
    }

    /// Runs podman, which must exit with 0.
    ///
    /// - Returns: its standard output.
    @discardableResult
    public func callAsFunction(_ words: String...) async throws -> String {
        let (ending, output, errors) = try await finish(words)
        guard ending == .exited(0) else {
            throw Lab.Failure("podman \(words.joined(separator: " ")): \(ending): \(output)\(errors)")
        }
        return output
    }

    /// The limits to pass to podman, which otherwise asks for more than this process may have.
    public static let limits: [String] = {
        var files = rlimit()
        getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &files)
        let most = min(files.rlim_max, 16384)
        return ["--ulimit", "nofile=\(most):\(most)", "--ulimit", "nproc=4096:4096"]
    }()

    /// Makes an image of the Debian that the containers with systemd are copies of.
    public func importDebian(as name: String) async throws {
        let pipe = "tar --directory \(Container.tree) --exclude './dev/*' --create . | \"$@\""
        let result = try await lab.finish(
            ["sh", "-c", pipe, "sh"] + command(["import", "--quiet", "-", name]), in: nil, within: .seconds(1200))
        guard result.ending == .exited(0) else { throw Lab.Failure("no Debian: \(result.output)\(result.errors)") }
    }

    /// Builds an image from a recipe; nothing can be fetched from elsewhere.
    public func build(_ name: String, recipe: String, base: String, context: String) async throws {
        let result = try await finish(
            ["build", "--format", "docker", "--network", "host", "--build-arg", "BASE=\(base)", "--file", recipe]
                + Self.limits + ["--tag", name, context], within: .seconds(1200))
        guard result.ending == .exited(0) else { throw Lab.Failure("no image: \(result.output)\(result.errors)") }
    }
}
