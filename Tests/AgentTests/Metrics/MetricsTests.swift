import Configuration
import ControlAPI
import Dispatch
import Glibc
import MQTT
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import Support
import Testing
import Transport

@testable import Agent

struct OpenMetricsTextTests {
    @Test func `a family has its kind, its help and its samples, and the text its end`() {
        var output = OpenMetricsText()
        output.begin("a_seconds", .gauge, unit: "seconds", "What it is: \"this\"\nand \\that.")
        output.add("", [("session", "ma\"in"), ("b", "c\\d\n")], 0.25)
        output.begin("n", .counter, "Counted.")
        output.add("_total", [], 12)
        #expect(
            output.text == """
                # TYPE a_seconds gauge
                # UNIT a_seconds seconds
                # HELP a_seconds What it is: "this"\\nand \\\\that.
                a_seconds{session="ma\\"in",b="c\\\\d\\n"} 0.25
                # TYPE n counter
                # HELP n Counted.
                n_total 12
                # EOF

                """)
    }

    @Test func `the text of Prometheus has no kind info, no units and no end`() {
        var output = OpenMetricsText(.prometheus)
        output.begin("b", .info, "Built.")
        output.add("_info", [("version", "1")], 1)
        output.begin("n_seconds", .counter, unit: "seconds", "Counted.")
        output.add("_total", [], 12)
        #expect(
            output.text == """
                # HELP b_info Built.
                # TYPE b_info gauge
                b_info{version="1"} 1
                # HELP n_seconds_total Counted.
                # TYPE n_seconds_total counter
                n_seconds_total 12

                """)
    }

    @Test func `the buckets of a histogram count everything below them`() {
        var histogram = Histogram(bounds: [1, 10])
        for value in [0.5, 1, 5, 100] { histogram.add(value) }
        var output = OpenMetricsText()
        output.begin("h", .histogram, "x")
        output.add(histogram, [("s", "m")])
        #expect(
            output.text.split(separator: "\n").dropFirst(2) == [
                "h_bucket{s=\"m\",le=\"1\"} 2", "h_bucket{s=\"m\",le=\"10\"} 3", "h_bucket{s=\"m\",le=\"+Inf\"} 4",
                "h_count{s=\"m\"} 4", "h_sum{s=\"m\"} 106.5", "# EOF",
            ])
    }
}

struct EventMetricsTests {
    private func event(
        _ kind: SessionEvent.Kind, _ state: SessionState? = nil, from: SessionState? = nil,
        because code: String = "refused", group: String = "network", outage: Double? = nil, lasted: Double? = nil
    ) -> SessionEvent {
        var event = SessionEvent(time: Timestamp(rawValue: 0), session: "main", event: kind)
        event.state = state
        event.from = from
        event.outage = outage
        event.lasted = lasted
        event.reason = .init(code: code, group: group, terminal: false, message: "")
        return event
    }

    @Test func `an outage ends with a requested disconnect, and goes on over a restart`() {
        var metrics = EventMetrics()
        for code in ["user-disconnect", "shutdown", "configuration-changed"] {
            metrics.take(
                "main",
                event(.stateChanged, .disconnected, from: .reconnecting, because: code, group: "local", lasted: 7))
        }
        #expect(metrics.outages["main"]?.count == 1)
        #expect(metrics.outages["main"]?.sum == 7)
    }

    @Test func `outages and displacements are counted until the session is gone`() {
        var metrics = EventMetrics()
        metrics.take("main", event(.reconnectCompleted, outage: 3))
        metrics.take("main", event(.displaced))
        #expect(metrics.outages["main"]?.count == 1)
        #expect(metrics.displacements == ["main": 1])
        metrics.forget("main")
        #expect(metrics.outages.isEmpty && metrics.displacements.isEmpty)
    }
}

@Suite(.timeLimit(.minutes(10)))
struct DaemonMetricsTests {
    @Test func `the daemon has metrics of its sessions and its callers`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            try await peer.call(
                "message.publish", #"{"session":"main","topic":"a","payload":"b","wait":"delivered"}"#)
            let answer = try await peer.call("daemon.metrics")
            #expect(answer["contentType"]?.text?.hasPrefix("application/openmetrics-text") == true)
            let lines = (answer["text"]?.text ?? "").split(separator: "\n").map(String.init)
            for line in [
                "holdfast_session_connected{session=\"main\"} 1", "holdfast_session_connects_total{session=\"main\"} 1",
                "holdfast_session_published_total{session=\"main\"} 1",
                "holdfast_session_outbox_messages{session=\"main\",state=\"queued\"} 0",
                "holdfast_rpc_calls_total{method=\"message.publish\"} 1",
            ] {
                #expect(lines.contains(line), "\(line)")
            }
            #expect(lines.last == "# EOF")
        }
    }

    /// A server that refuses the connection, a loss, a new token and another device, as the daemon's own events tell them.
    @Test func `what happens to sessions is counted, and what is planned is no outage`() async throws {
        // No server gets this port.
        let dead = """
            endpoints = ["mqtt://127.0.0.1:1"]
            user = "dead"
            timeouts.dial = "1h"
            [reconnect]
            delays = ["10ms"]
            spread = "0s"
            """
        try await DaemonUnderTest.run("insecure = true", files: ["sessions.d/dead.toml": dead]) { daemon in
            let peer = try await daemon.watcher()
            func metric(_ name: String, _ session: String, _ reason: String? = nil) async -> Int {
                let labels = "session=\"\(session)\"" + (reason.map { ",reason=\"\($0)\"" } ?? "")
                let text = await daemon.daemon.metrics().text
                let line = text.split(separator: "\n").first { $0.hasPrefix("holdfast_session_\(name){\(labels)} ") }
                return line?.split(separator: " ").last.flatMap { Int($0) } ?? 0
            }
            func expect(_ reason: String, _ outages: Int, _ displacements: Int) async {
                #expect(await metric("failures_total", "main", reason) == 1)
                #expect(await metric("outages_total", "main") == outages)
                #expect(await metric("outage_seconds_count", "main") == 1)
                #expect(await metric("displacements_total", "main") == displacements)
            }
            try await until("three attempts have failed") {
                await metric("failures_total", "dead", "refused") >= 3
            }
            try await peer.call("session.disconnect", #"{"session":"dead"}"#)
            try await peer.state("disconnected", of: "dead")
            let failures = await metric("failures_total", "dead", "refused")
            // The last one may have been under way.
            #expect(await (0...1).contains(metric("attempts_total", "dead") - failures))
            #expect(await metric("outages_total", "dead") == 0)

            await daemon.server.drop()
            try await peer.state("reconnecting")
            try await peer.state("connected")
            await expect("server-closed", 1, 0)
            for token in ["one", "two"] {
                try await peer.call("session.renewToken", #"{"session":"main","token":"\#(token)"}"#)
                #expect(try await peer.state("reconnecting")["reason"]?["code"] == "credential-renewed")
                let completed = try await peer.notification("session.event", ["event": "reconnect-completed"])
                #expect(completed["outage"] == nil)
                try await peer.state("connected")
            }
            await expect("server-closed", 1, 0)
            await daemon.server.disconnect(.sessionTakenOver)
            try await peer.state("failed")
            await expect("displaced", 1, 1)
            #expect(await metric("connects_total", "main") == 4)
        }
    }

    @Test func `an address or a file that cannot be used is an error of the reload and of the status`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            await daemon.daemon.publishMetrics()
            let peer = try await daemon.peer()
            let address = "127.0.0.1:\(await daemon.server.port)"
            try daemon.directory.write("holdfast.toml", "[metrics]\nlisten = \"\(address)\"\n")
            let result = try await peer.call("daemon.reload")
            guard case .array(let errors)? = result["errors"], let error = errors.first else {
                throw ControlPeer.CallFailure(code: "none")
            }
            let sentence = "metrics cannot be served on \(address): Address already in use"
            #expect(error["message"]?.text == sentence)
            #expect(error["file"]?.text == "\(daemon.directory.path)/holdfast.toml")
            #expect(try await peer.call("daemon.status")["metricsFailure"]?.text == sentence)
            let file = "\(daemon.directory.path)/none/holdfast.prom"
            try daemon.directory.write("holdfast.toml", "[metrics]\ntextfile = \"\(file)\"\n")
            try await peer.call("daemon.reload")
            try await until("the status says so") {
                try await peer.call("daemon.status")["metricsFailure"]?.text
                    == "metrics cannot be written to \(file): No such file or directory"
            }
            try daemon.directory.write("holdfast.toml", "")
            try await peer.call("daemon.reload")
            #expect(try await peer.call("daemon.status")["metricsFailure"] == .null)
        }
    }

    @Test func `metrics are offered on a loopback address and in a file, as the configuration says`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            await daemon.daemon.publishMetrics()
            #expect(await daemon.daemon.metricsAddress == nil)
            let file = "\(daemon.directory.path)/holdfast.prom"
            try daemon.directory.write(
                "holdfast.toml", "[metrics]\nlisten = \"127.0.0.1:0\"\ntextfile = \"\(file)\"\n")
            let peer = try await daemon.peer()
            try await peer.call("daemon.reload")
            let address = try #require(await daemon.daemon.metricsAddress)
            let answer = try await ask(
                "GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n\r\n",
                at: address, on: daemon.eventLoop)
            #expect(answer.hasPrefix("HTTP/1.1 200 OK\r\n"))
            #expect(answer.contains("\r\nContent-Type: application/openmetrics-text"))
            #expect(answer.contains("\nholdfast_session_connected{session=\"main\"} 0\n"))
            #expect(answer.hasSuffix("# EOF\n"))
            let plain = try await ask("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", at: address, on: daemon.eventLoop)
            #expect(plain.contains("\r\nContent-Type: text/plain; version=0.0.4"))
            #expect(plain.contains("\n# TYPE holdfast_session_connects_total counter\n"))
            for (request, status) in [("GET /", "404"), ("POST /metrics", "405")] {
                let answer = try await ask("\(request) HTTP/1.1\r\nHost: a\r\n\r\n", at: address, on: daemon.eventLoop)
                #expect(answer.hasPrefix("HTTP/1.1 \(status) "), "\(request)")
            }
            // The parser would keep any number of these.
            let blanks = String(repeating: " ", count: 70_000)
            let long = try await ask(
                "GET /metrics HTTP/1.1\r\nHost: a\r\nX:\(blanks)\r\n\r\n", at: address, on: daemon.eventLoop)
            #expect(long.hasPrefix("HTTP/1.1 400 "), "\(long.prefix(100))")
            // The first of pipelined requests is answered; what follows it does not matter.
            let request = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"
            let pipelined = try await ask(
                String(repeating: request, count: 100), at: address, on: daemon.eventLoop)
            #expect(pipelined.ranges(of: "HTTP/1.1 200 OK").count == 1)
            #expect(pipelined.contains("\n# TYPE holdfast_session_connects_total counter\n"))
            try await until("the metrics are in the file") { access(file, R_OK) == 0 }

            try daemon.directory.write("holdfast.toml", "")
            try await peer.call("daemon.reload")
            #expect(await daemon.daemon.metricsAddress == nil)
            // It would look like the present state.
            try await until("the file is gone") { access(file, F_OK) != 0 }
            await daemon.daemon.stopPublishingMetrics()
        }
    }

    @Test func `clients that ask nothing keep out no other, and those that ask together get the same text`()
        async throws
    {
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let reads = NIOLockedValueBox(0)
        let publisher = MetricsPublisher(
            eventLoop: loop, blocking: BlockingCalls(eventLoop: loop), logger: RecordingLog().logger,
            lifetime: .hours(1)
        ) { _ in
            reads.withLockedValue {
                $0 += 1
                return "read \($0)\n"
            }
        }
        var configuration = MetricsConfiguration()
        configuration.listen = "127.0.0.1:0"
        await publisher.apply(configuration)
        let address = try #require(await publisher.address)
        var idle: [any Channel] = []
        for _ in 0..<MetricsPublisher.maximumConnections {
            idle.append(try await ClientBootstrap(group: loop).connect(to: address).get())
        }
        for _ in 0..<2 {
            let answer = try await ask("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", at: address, on: loop)
            #expect(answer.hasSuffix("\r\n\r\nread 1\n"))
        }
        try await idle[0].closeFuture.get()
        await publisher.apply(MetricsConfiguration())
        for channel in idle { try? await channel.close() }
    }

    @Test func `a file that cannot be replaced leaves nothing beside it`() async throws {
        let directory = try TemporaryDirectory()
        defer { directory.remove() }
        try directory.makeFolder("metrics.prom")
        let path = "\(directory.path)/metrics.prom"
        #expect(MetricsPublisher.replace(path, with: "a 1\n") == EISDIR)
        #expect(access("\(path).new", F_OK) != 0)
    }

    @Test func `a file that is being written is removed afterwards, however long that takes`() async throws {
        let directory = try TemporaryDirectory()
        defer { directory.remove() }
        try directory.write("metrics.prom", "")
        let path = "\(directory.path)/metrics.prom"
        let blocking = BlockingCalls(eventLoop: MultiThreadedEventLoopGroup.singleton.next())
        let gate = DispatchSemaphore(value: 0)
        let writing = blocking.run(path, within: nil) {
            gate.wait()
            return MetricsPublisher.replace(path, with: "a 1\n")
        }
        await MetricsPublisher.remove(path, blocking, patience: .milliseconds(1))
        #expect(access(path, F_OK) == 0)
        gate.signal()
        #expect(try await writing.get() == nil)
        // Calls for the same file take turns.
        #expect(try await blocking.run(path, within: nil) { access(path, F_OK) }.get() != 0)
    }

    @Test(arguments: [false, true])
    func `what another user puts beside the file is not written to`(isLink: Bool) throws {
        let directory = try TemporaryDirectory()
        defer { directory.remove() }
        let path = "\(directory.path)/metrics.prom"
        try directory.write("other", "is kept")
        if isLink {
            try #require(symlink("\(directory.path)/other", "\(path).new") == 0)
        } else {
            try #require(mkfifo("\(path).new", 0o600) == 0)
        }
        // Otherwise opening it to write would wait for a reader.
        let reader = isLink ? -1 : open("\(path).new", O_RDWR)
        defer { if reader >= 0 { close(reader) } }
        #expect(MetricsPublisher.replace(path, with: "a 1\n") == nil)
        var status = stat()
        try #require(lstat("\(directory.path)/other", &status) == 0)
        #expect(status.st_size == 7)
        try #require(lstat(path, &status) == 0)
        #expect(status.st_mode & S_IFMT == S_IFREG && status.st_size == 4)
    }

    /// Asks as soon as there is a connection: one on which nothing is asked is closed after a while.
    private func ask(_ request: String, at address: SocketAddress, on eventLoop: any EventLoop) async throws -> String {
        let answer = eventLoop.makePromise(of: String.self)
        let bootstrap = ClientBootstrap(group: eventLoop).channelInitializer { channel in
            channel.eventLoop.makeCompletedFuture {
                try channel.pipeline.syncOperations.addHandler(Asking(request, answer))
            }
        }
        do { _ = try await bootstrap.connect(to: address).get() } catch { answer.fail(error) }
        return try await answer.futureResult.get()
    }

    /// Sends a request when it is connected, and tells everything that came when the connection has ended. That may be a
    /// reset: a server that closes with something unread resets.
    private final class Asking: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer

        private let request: String
        private let answer: EventLoopPromise<String>
        private var text = ""

        init(_ request: String, _ answer: EventLoopPromise<String>) {
            (self.request, self.answer) = (request, answer)
        }

        func channelActive(context: ChannelHandlerContext) {
            context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: request)), promise: nil)
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) { text += String(buffer: unwrapInboundIn(data)) }

        func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }

        func handlerRemoved(context: ChannelHandlerContext) { answer.succeed(text) }
    }

    @Test func `an unknown log level is refused`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon in
            let peer = try await daemon.peer()
            await #expect(throws: ControlPeer.CallFailure(code: "invalid-parameters")) {
                try await peer.call("daemon.logLevel", #"{"level":"debgu"}"#)
            }
            #expect(try await peer.call("daemon.logLevel")["level"] == "debug", "as the test's log has it")
        }
    }
}
