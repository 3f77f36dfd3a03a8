import ControlAPI
import Foundation
import Support
import Testing

/// The image of Examples/Container, built and run with podman: there is no systemd, the daemon runs in the foreground
/// as user 990, and its state and socket are in volumes. Its base is the Debian of `scripts/setup container`, and its
/// network is that of the lab's host.
extension EndToEnd {
    @Suite(
        "Image", .timeLimit(.minutes(30)),
        .enabled(if: Podman.obstacle == nil || LabRequirements.isAllRequired, "cannot run here"))
    struct ImageTests {
        private static let folder = repositoryRoot.appending(path: "Examples/Container")
        private static let recipe = folder.appending(path: "Containerfile").path

        private static let storage = "\(TemporaryDirectory.diskParent)/holdfast-images-\(getpid())"

        /// The image, which is built once for all tests.
        private static let images = Task { () -> Podman.Images in
            atexit { TemporaryDirectory.remove(ImageTests.storage) }
            var images: Podman.Images?
            try await withLab { lab, _ in
                let podman = try await Podman(lab, in: lab.host, storage: storage)
                let base = "localhost/debian"
                try await podman.importDebian(as: base)
                let context = "\(lab.directory)/context"
                try FileManager.default.createDirectory(atPath: context, withIntermediateDirectories: true)
                let installed = try await Container.installed(DaemonProcess.programs)
                for (folder, program) in [("sbin", "holdfastd"), ("bin", "holdfastctl")] {
                    try FileManager.default.copyItem(
                        atPath: "\(installed)/usr/\(folder)/\(program)", toPath: "\(context)/\(program)")
                }
                try await podman.build("holdfast", recipe: recipe, base: base, context: context)
                images = try await podman.asImages()
            }
            guard let images else { preconditionFailure("the lab ran to its end") }
            return images
        }

        /// Returns the arguments of podman that Quadlet makes of the unit, as podman-systemd.unit(5) describes them.
        /// The podman of Debian 12 does not contain Quadlet.
        private static func unitOptions() throws -> [String] {
            let unit = try String(contentsOf: folder.appending(path: "holdfast.container"), encoding: .utf8)
            let section = try #require(unit.split(separator: "\n[Container]\n").last?.split(separator: "\n[").first)
            return try section.split(separator: "\n").filter { !$0.hasPrefix("#") }.flatMap { line -> [String] in
                let parts = line.split(separator: "=", maxSplits: 1).map(String.init)
                guard parts.count == 2 else { throw Lab.Failure("not a line of a unit: \(line)") }
                return switch parts[0] {
                case "ContainerName": ["--name", parts[1]]
                case "Network": ["--network", parts[1]]
                case "Volume": ["-v", parts[1]]
                case "DropCapability": ["--cap-drop", parts[1]]
                case "NoNewPrivileges" where parts[1] == "true": ["--security-opt", "no-new-privileges"]
                case "ReadOnly" where parts[1] == "true": ["--read-only", "--read-only-tmpfs=false"]
                case "Image": []
                default: throw Lab.Failure("no key of Quadlet, or none that this test knows: \(line)")
                }
            }
        }

        /// What every container of the image is run with, as the recipe says.
        private struct Image {
            var lab: Lab
            var podman: Podman
            private var options: [String]
            /// What Quadlet runs a container with.
            private var unit: [String]

            init(_ lab: Lab, configuration: String) async throws {
                self.lab = lab
                podman = try await Podman(lab, in: lab.host, images: try await ImageTests.images.value)
                options =
                    Podman.limits + [
                        "--cgroups", "disabled", "--network", "host", "-v", "\(configuration):/etc/holdfast:ro",
                        "-v", "holdfast-state:/var/lib/holdfast", "-v", "holdfast-run:/run/holdfast",
                    ]
                unit =
                    try Podman.limits + ["--cgroups", "disabled"]
                    + ImageTests.unitOptions().map {
                        $0 == "/etc/holdfast:/etc/holdfast:ro" ? "\(configuration):/etc/holdfast:ro" : $0
                    }
                // The tests' programs are not linked statically, so what they need is mounted.
                for folder in try await Container.runtime(of: DaemonProcess.programs) {
                    options += ["-v", "\(folder):\(folder):ro"]
                    unit += ["-v", "\(folder):\(folder):ro"]
                }
            }

            /// Starts the daemon, and returns when it answers.
            func start(_ more: String...) async throws {
                let words = ["run", "--detach", "--name", "holdfast"] + options + more + ["holdfast"]
                let result = try await podman.finish(words)
                guard result.ending == .exited(0) else { throw Lab.Failure("it does not run: \(result)") }
                try await isHealthy()
            }

            /// Starts the daemon as the Quadlet unit does, and returns when it answers.
            func startUnit(_ more: String...) async throws {
                let result = try await podman.finish(["run", "--detach"] + unit + more + ["holdfast"])
                guard result.ending == .exited(0) else { throw Lab.Failure("it does not run: \(result)") }
                try await isHealthy()
            }

            func isHealthy() async throws {
                try await until("the container is healthy") {
                    try await podman.finish(["healthcheck", "run", "holdfast"]).ending == .exited(0)
                }
            }

            func ctl(_ words: String...) async throws -> String {
                let result = try await podman.finish(["exec", "holdfast", "holdfastctl"] + words)
                guard result.ending == .exited(0) else {
                    throw Lab.Failure(
                        "\(words): \(result); \(try await podman.finish(["logs", "holdfast"]))")
                }
                return result.output
            }

            /// Runs `holdfastctl` in another container that has the socket's volume.
            func program(
                _ words: String..., with more: [String]
            ) async throws -> (ending: LabProcess.Ending, output: String, errors: String) {
                try await podman.finish(
                    ["run", "--rm", "--entrypoint", "holdfastctl"] + options + more + ["holdfast"] + words)
            }

            func device() async throws -> String {
                let status = try await ctl("status", "main", "--json")
                return String(try #require(status.firstMatch(of: /"device":"([0-9a-f]{32})"/)).1)
            }
        }

        private func withImage(_ body: (Lab, LabServer, Image) async throws -> Void) async throws {
            try await withLab { lab, daemon in
                var options = LabServer.Options()
                options.users = ["edge-42": "sesame"]
                let server = try await LabServer.started(lab, options)
                try daemon.session(
                    top: """
                        username = "edge-42"
                        password = "file:/run/secrets/broker"
                        insecure = true
                        """)
                let image = try await Image(lab, configuration: daemon.configuration)
                try await image.podman("secret", "create", "broker", lab.write("broker", "sesame\n"))
                try await body(lab, server, image)
            }
        }

        @Test func `the image runs without systemd, and accepted messages outlive its containers`() async throws {
            try await withImage { lab, server, image in
                let far = try await LabSubscriber(
                    LabClient(lab, login: LabLogin(user: "edge-42", password: "sesame")), filter: "plant/#")
                try await image.start("--secret", "broker,uid=990,mode=0400")
                _ = try await image.ctl("wait", "main", "--timeout", "3min")
                let device = try await image.device()

                // The first process is the daemon, as a user without capabilities.
                let first = try await image.podman("exec", "holdfast", "cat", "/proc/1/status")
                for line in ["Name:\tholdfastd", "Uid:\t990\t990\t990\t990", "CapEff:\t0000000000000000"] {
                    #expect(first.contains("\(line)\n"))
                }
                let log = try await image.podman.finish(["logs", "holdfast"])
                #expect((log.output + log.errors).contains("ready: 1 session"))
                #expect(!(log.output + log.errors).contains("sesame"))

                // The daemon sees the host's network.
                try await lab.uplinkDown()
                try await lab.host.ip("link set up1 down")
                try await until("it says that there is no network") {
                    try await image.ctl("status", "main").contains("no network")
                }
                #expect(try await image.ctl("publish", "main", "plant/7", "kept") == "Message 1 is accepted.\n")

                // SIGTERM ends the daemon, and the next container continues where it was.
                try await image.podman("stop", "--time", "170", "holdfast")
                #expect(try await image.podman("inspect", "--format", "{{.State.ExitCode}}", "holdfast") == "0\n")
                try await image.podman("rm", "holdfast")
                try await lab.uplinkUp()
                try await image.start("--secret", "broker,uid=990,mode=0400")
                try await far.received("what waited") { $0.contains { $0.payload == "kept" } }
                // Otherwise it would come again after the kill.
                try await until("it is acknowledged") {
                    let status = try await image.ctl("status", "main", "--json")
                    return status.contains("\"queued\":0") && status.contains("\"inFlight\":0")
                }
                #expect(try await image.device() == device)

                // A socket that a killed daemon left behind is no obstacle.
                try await image.podman("kill", "--signal", "KILL", "holdfast")
                try await until("it is gone") {
                    try await image.podman("inspect", "--format", "{{.State.Status}}", "holdfast") == "exited\n"
                }
                try await image.podman("start", "holdfast")
                try await image.isHealthy()
                _ = try await image.ctl("publish", "main", "plant/7", "last", "--wait", "delivered")
                try await far.received("the last one") { $0.last?.payload == "last" }
                #expect(far.messages.map(\.payload) == ["kept", "last"])
            }
        }

        @Test func `the Quadlet unit's container delivers messages and reads its configuration again`() async throws {
            try await withImage { lab, server, image in
                try await image.startUnit("--secret", "broker,uid=990,mode=0400")
                _ = try await image.ctl("wait", "main", "--timeout", "3min")
                _ = try await image.ctl("publish", "main", "plant/7", "open", "--wait", "delivered")
                #expect(try await image.ctl("reload") == "Reloaded: nothing changed.\n")
                let first = try await image.podman("exec", "holdfast", "cat", "/proc/1/status")
                #expect(first.contains("NoNewPrivs:\t1\n") && first.contains("CapBnd:\t0000000000000000\n"))
                let unit = try String(contentsOf: Self.folder.appending(path: "holdfast.container"), encoding: .utf8)
                #expect(unit.contains("\nExecReload=/usr/bin/podman exec holdfast holdfastctl reload\n"))
                try await image.podman("stop", "--time", "170", "holdfast")
                #expect(try await image.podman("inspect", "--format", "{{.State.ExitCode}}", "holdfast") == "0\n")
            }
        }

        @Test
        func `other containers use the socket's volume, with the right group, and a daemon that hangs is unhealthy`()
            async throws
        {
            try await withImage { lab, server, image in
                try await image.start("--secret", "broker,uid=990,mode=0400")
                _ = try await image.ctl("wait", "main", "--timeout", "3min")
                func publish(_ more: String...) async throws -> (LabProcess.Ending, String) {
                    let result = try await image.program(
                        "publish", "main", "plant/7", "open", "--wait", "delivered", with: more)
                    return (result.ending, result.errors)
                }
                #expect(try await publish().0 == .exited(0))
                let stranger = try await publish("--user", "1234")
                #expect(stranger.0 == .exited(5), "\(stranger)")
                #expect(try await publish("--user", "1234", "--group-add", "990").0 == .exited(0))
                let reload = try await image.program("reload", with: ["--user", "1234", "--group-add", "990"])
                #expect(reload.ending == .exited(5), "\(reload)")
                #expect(try await image.program("reload", with: ["--user", "0"]).ending == .exited(0))

                // Without a journal it says where to look.
                let log = try await image.podman.finish(["exec", "holdfast", "holdfastctl", "log"])
                #expect(log.ending == .exited(1) && log.errors.contains("podman logs"), "\(log)")

                try await image.podman("kill", "--signal", "STOP", "holdfast")
                let check = try await image.podman.finish(["healthcheck", "run", "holdfast"])
                #expect(check.ending != .exited(0), "\(check)")
                try await image.podman("kill", "--signal", "CONT", "holdfast")
                try await image.isHealthy()
            }
        }
    }
}
