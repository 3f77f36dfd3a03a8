import ControlAPI
import Foundation
import Support
import Testing

/// The clients in Examples, with a real daemon.
extension EndToEnd {
    enum ClientLanguage: String, CaseIterable, Sendable {
        case swift, python, go

        private static let examples = repositoryRoot.appending(path: "Examples").path

        /// The command of the program that answers every message, without its session.
        func echo(_ lab: Lab) async throws -> [String] {
            switch self {
            case .swift: return ["\(DaemonProcess.programs)/echo-client"]
            case .python: return ["python3", "-B", "\(Self.examples)/Python/echo.py"]
            case .go:
                let program = "\(lab.directory)/echo"
                _ = try await Self.go("build", "-o", program, "./echo", in: lab)
                return [program]
            }
        }

        /// Runs Go, which downloads nothing and compiles the standard library only once.
        static func go(_ words: String..., in lab: Lab) async throws -> String {
            let cache = URL(filePath: examples).deletingLastPathComponent().appending(path: ".build/go").path
            let result = try await lab.finish(
                [
                    "env", "--chdir=\(examples)/Go", "GOCACHE=\(cache)", "GOPATH=\(cache)/path", "GOPROXY=off",
                    "GOFLAGS=-trimpath", "CGO_ENABLED=0", "go",
                ] + words, in: nil, within: .seconds(1200))
            guard result.ending == .exited(0) else { throw Lab.Failure("go \(words): \(result.errors)") }
            return result.output
        }
    }

    @Test(arguments: ClientLanguage.allCases)
    func `a client loses no message when the daemon is killed or stopped, and leaves its consumer to the next`(
        _ language: ClientLanguage
    ) async throws {
        try await withConnected { lab, _, daemon in
            let command = ["env", "HOLDFAST_SOCKET=\(daemon.socket)"] + (try await language.echo(lab)) + ["main"]
            let far = try await LabSubscriber(lab, filter: "replies/1")
            let echo = try await lab.start("echo", command, in: nil)
            try await consumes("echo", daemon)
            func answered(_ number: Int) async throws {
                try await until("\(number) is answered") {
                    guard await echo.isRunning else { throw Lab.Failure("the program has ended: \(echo.errors)") }
                    return echo.output.contains("orders/1 \(number) is answered")
                }
            }
            let near = LabClient(lab)
            func send(_ numbers: ClosedRange<Int>) async throws {
                for number in numbers { try await near.publish("\(number)", to: "orders/1") }
            }
            try await send(1...20)
            try await answered(3)
            try await daemon.kill()
            try await send(21...40)
            try await daemon.start()
            try await answered(23)
            _ = try await daemon.stop()
            try await send(41...60)
            try await daemon.start()
            try await answered(60)
            let answered = echo.output.split(separator: "\n").compactMap { line in
                line.hasPrefix("orders/1 ") ? Int(line.split(separator: " ")[1]) : nil
            }
            // A number may come again after a kill; the first arrivals are complete and in order.
            var first: [Int] = []
            for number in answered where !first.contains(number) { first.append(number) }
            #expect(first == Array(1...60))
            try await far.received("the last answer") { $0.contains { $0.payload == "60" } }
            #expect(Set(far.messages.compactMap { Int($0.payload) }) == Set(1...60))

            // Only one program at a time can use a consumer.
            let next = try await lab.start("echo", command, in: nil)
            #expect(try await echo.ended(within: .seconds(180)) == .exited(1))
            #expect(echo.errors.contains("another program has"), "\(echo.errors)")
            try await near.publish("61", to: "orders/1", contentType: "text/plain")
            try await until("the next one continues") { next.output.contains("orders/1 61 is answered") }
            try await far.received("the answer, with the properties of the order") { messages in
                messages.contains { $0.payload == "61" && $0.contentType == "text/plain" }
            }
            await next.signal(SIGINT)
            #expect(try await next.ended(within: .seconds(180)) == .exited(0))
            #expect(next.errors.isEmpty)
        }
    }

    /// Waits until the program's consumer is there and the server has granted its subscription: what is published before
    /// does not reach it.
    private func consumes(_ consumer: String, _ daemon: DaemonProcess) async throws {
        try await until("it consumes") {
            let status = try await daemon.status()
            let filter = status.inbox.consumers.first { $0.name == consumer }?.filter
            return status.subscriptions.contains { $0.filter == filter && $0.state == .granted }
        }
    }

    @Test(arguments: ClientLanguage.allCases)
    func `an order that cannot be answered does not stop a program, and a message on the topic above is no order`(
        _ language: ClientLanguage
    ) async throws {
        try await withConnected { lab, _, daemon in
            let command = ["env", "HOLDFAST_SOCKET=\(daemon.socket)"] + (try await language.echo(lab)) + ["main"]
            let echo = try await lab.start("echo", command, in: nil)
            try await consumes("echo", daemon)
            let near = LabClient(lab)
            // With "replies/" in the place of "orders/", it is too long.
            try await near.publish("1", to: "orders/" + String(repeating: "x", count: 65_535 - "orders/".count))
            try await near.publish("2", to: "orders")
            try await near.publish("3", to: "orders/1")
            try await until("what follows is answered") { echo.output.contains("orders/1 3 is answered") }
            #expect(!echo.output.contains("2 is answered"))
            try await until("the other one is reported") { echo.errors.contains("is not answered") }
            await echo.signal(SIGINT)
            #expect(try await echo.ended(within: .seconds(180)) == .exited(0))
        }
    }

    @Test func `a bridge passes messages on under other topics, with their bytes, and leaves others`() async throws {
        try await withConnected { lab, _, daemon in
            let far = try await LabSubscriber(lab, filter: "up/#")
            let bridge = try await lab.start(
                "bridge",
                [
                    "env", "HOLDFAST_SOCKET=\(daemon.socket)", "python3", "-B",
                    repositoryRoot.appending(path: "Examples/Python/bridge.py").path, "to-far", "main", "local/#",
                    "main", "local/", "up/plant-7/",
                ], in: nil)
            try await consumes("to-far", daemon)
            let near = LabClient(lab)
            try await near.publish("too long", to: "local/" + String(repeating: "x", count: 65_535 - "local/".count))
            try await near.publish("above", to: "local")
            let payloads = ["  x  y  ", "on"]
            for payload in payloads { try await near.publish(payload, to: "local/door", contentType: "text/plain") }
            try await far.received("everything") { $0.count == payloads.count }
            #expect(far.messages.map(\.topic) == ["up/plant-7/door", "up/plant-7/door"])
            #expect(far.messages.map(\.payload) == payloads)
            #expect(far.messages.allSatisfy { $0.contentType == "text/plain" })
            try await until("the other one is reported") { bridge.errors.contains("is not passed on") }
            await bridge.signal(SIGINT)
            #expect(try await bridge.ended(within: .seconds(180)) == .exited(0))
        }
    }

    @Test func `the client for Python takes events of every kind, and leaves what is no longer read`() async throws {
        try await withConnected { lab, _, daemon in
            let program = """
                import asyncio, holdfast
                async def main():
                    async with holdfast.Client() as client:
                        events = client.watch("main")
                        print((await anext(events))["event"])
                        messages = client.subscribe("main", "a/#")
                        first = asyncio.create_task(anext(messages))
                        while (await anext(events))["event"] != "subscription-changed": pass
                        await client.publish("main", "a/1", "x", wait="delivered")
                        print((await first).text)
                        await messages.aclose()
                        while (await client.call("session.status", session="main"))["subscriptions"]:
                            await asyncio.sleep(0.05)
                        await events.aclose()
                        print("left")
                asyncio.run(main())
                """
            let folder = repositoryRoot.appending(path: "Examples/Python").path
            let environment = ["env", "HOLDFAST_SOCKET=\(daemon.socket)", "PYTHONPATH=\(folder)"]
            let result = try await lab.finish(environment + ["python3", "-B", "-c", program], in: nil)
            #expect(result.output == "snapshot\nx\nleft\n", "\(result)")
        }
    }

    @Test func `the client for Python passes its tests`() async throws {
        try await Lab.run { lab in
            let folder = repositoryRoot.appending(path: "Examples/Python").path
            let result = try await lab.finish(["env", "--chdir=\(folder)", "python3", "-B", "-m", "unittest"], in: nil)
            #expect(result.ending == .exited(0), "\(result.errors)")
        }
    }

    @Test func `the client for Python has the types that it declares, and a wheel that can be installed`() async throws
    {
        try await withLab { lab, daemon in
            func run(_ words: [String]) async throws -> String {
                let result = try await lab.finish(words, in: nil, within: .seconds(1200))
                guard result.ending == .exited(0) else { throw Lab.Failure("\(words): \(result)") }
                return result.output
            }
            let folder = repositoryRoot.appending(path: "Examples/Python").path
            let files = ["holdfast", "echo", "bridge", "test_holdfast"].map { "\(folder)/\($0).py" }
            _ = try await run(["/usr/bin/mypy", "--strict", "--cache-dir", "\(lab.directory)/types"] + files)
            let (wheel, venv) = ("\(lab.directory)/wheel", "\(lab.directory)/venv")
            _ = try await run(["make", "-C", repositoryRoot.path, "WHEEL=\(wheel)", "wheel"])
            let name = "holdfast_client-\(Release.version)-py3-none-any.whl"
            _ = try await run(["/usr/bin/python3", "-m", "venv", venv])
            _ = try await run(["\(venv)/bin/pip", "install", "--no-index", "\(wheel)/\(name)"])

            let user = "\(lab.directory)/user.py"
            try Data("import holdfast\nreveal_type(holdfast.Client().publish)\n".utf8).write(to: URL(filePath: user))
            let types = try await run(
                [
                    "/usr/bin/mypy", "--strict", "--cache-dir", "\(lab.directory)/types", "--python-executable",
                    "\(venv)/bin/python", user,
                ])
            #expect(types.contains("-> typing.Coroutine"), "\(types)")

            try daemon.session()
            try await daemon.start()
            let program = """
                import asyncio, holdfast
                async def main():
                    async with holdfast.Client() as client:
                        print(holdfast.__file__, (await client.publish("main", "a", "b"))["id"])
                asyncio.run(main())
                """
            let output = try await run(
                ["env", "HOLDFAST_SOCKET=\(daemon.socket)", "\(venv)/bin/python", "-c", program])
            #expect(output.hasPrefix(venv) && output.hasSuffix("/holdfast/__init__.py 1\n"), "\(output)")
        }
    }

    @Test func `the client for Go passes its tests and tools, and has no dependencies`() async throws {
        try await Lab.run { lab in
            _ = try await ClientLanguage.go("test", "./...", in: lab)
            #expect(try await ClientLanguage.go("vet", "./...", in: lab).isEmpty)
            #expect(try await ClientLanguage.go("list", "-m", "all", in: lab) == "holdfast\n")
            let folder = repositoryRoot.appending(path: "Examples/Go").path
            let unformatted = try await lab.finish(["gofmt", "-l", folder], in: nil)
            #expect(unformatted.ending == .exited(0) && unformatted.output.isEmpty, "\(unformatted)")
        }
    }
}
