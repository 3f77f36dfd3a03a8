import ArgumentParser
import ControlAPI
import Glibc
import HoldfastClient

struct CheckCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "check",
        abstract: "Try to reach a session's servers step by step, and say what to do about the first failure.",
        discussion: """
            The daemon opens a separate connection to each endpoint: it resolves the name, asks the kernel for a route, \
            opens a TCP connection, negotiates TLS and logs in with the session's credential, as CLIENT-ID-check. The \
            session itself is not affected. Without SESSION, all of them are checked.
            """)

    @OptionGroup var common: CommonOptions
    @Argument(help: "The session; without it, all of them.", completion: .sessions) var session: String?
    @Option(help: ArgumentHelp("Check only this endpoint of the session.", valueName: "url"), completion: .endpoints)
    var endpoint: String?

    func validate() throws {
        if endpoint != nil, session == nil { throw ValidationError("--endpoint needs SESSION") }
    }

    func run() async throws {
        let client = common.client()
        let sessions =
            if let session {
                [
                    try await client.call(
                        SessionStatusMethod.self, .init(session: session), timeout: CommonOptions.answerTimeout)
                ]
            } else {
                try await client.sessions()
            }
        guard !sessions.isEmpty else {
            throw CommandFailure(
                .failed, "no session is configured", advice: common.creation)
        }
        var isGood = true
        for status in sessions {
            do {
                isGood = try await common.check(status.session, endpoint: endpoint, client).isGood && isGood
                if !common.json, status.state != .connected { common.terminal.print(sentenceOf: status) }
                if let errors = status.configurationError {
                    common.complain(
                        Complaint(
                            notice:
                                "\(status.session) was checked with its previous configuration, because its file has "
                                + "errors: \(errors)"))
                }
            } catch ClientError.refused(let refusal) {
                // One broken session must not keep the others from being checked.
                guard refusal.known == .wrongState, sessions.count > 1 else { throw ClientError.refused(refusal) }
                isGood = false
                common.complain(Complaint(Ending(ClientError.refused(refusal))))
            }
        }
        if !common.json { await common.tellRest(of: session, client) }
        guard isGood else { throw CommandFailure(.failed, "") }
    }
}

extension CommonOptions {
    /// Tries to reach the endpoints of a session, or only one of them, and says how that went.
    func check(
        _ session: String, endpoint: String? = nil, _ client: HoldfastClient
    ) async throws -> CheckRunMethod.Result {
        let answer = try await client.callUndecoded(
            CheckRunMethod.self, .init(session: session, endpoint: endpoint), timeout: nil)
        let result = try decode(CheckRunMethod.Result.self, answer)
        if json {
            terminal.print(json: answer)
        } else {
            terminal.print(
                CheckText.lines(for: result, width: terminal.wrap, isColoured: terminal.isColoured))
        }
        return result
    }
}

extension CheckRunMethod.Result {
    /// Whether the session can use at least one endpoint.
    var isGood: Bool { endpoints.contains(where: \.ok) }

    /// Whether a server has refused the password.
    var isRefused: Bool {
        endpoints.contains { endpoint in
            ["credential-rejected", "not-authorized"].contains(endpoint.steps.last { $0.step == .connect }?.code)
        }
    }
}

/// `check` in words.
enum CheckText {
    /// - Parameter last: the last step that was to be taken.
    static func lines(
        for result: CheckRunMethod.Result, until last: CheckStep = .connect, width: Int? = nil, isColoured: Bool
    ) -> [String] {
        result.endpoints.flatMap { endpoint in
            let rows = Columns.details(
                endpoint.steps.map { step in
                    (name(of: step.step), "\(mark(step.ok)) \(duration(step))  \(step.detail ?? "")")
                })
            let indent = (endpoint.steps.map { name(of: $0.step).count }.max() ?? 0) + 4
            var lines = [printable("\(result.session), \(endpoint.endpoint):")]
            for (row, step) in zip(rows, endpoint.steps) {
                lines += Columns.wrapped(row, to: width, indent: indent).map { part in
                    isColoured ? "\u{1B}[\(step.ok ? "32" : "31")m\(part)\u{1B}[0m" : part
                }
                if !step.ok, let hint = step.hint {
                    let text = printable("    → \(hint)")
                    lines += Columns.wrapped(text, to: width, indent: 6)
                }
            }
            return lines + [verdict(endpoint, until: last)]
        }
    }

    /// A step that only reads a file or asks the kernel may be too short to measure.
    private static func duration(_ step: CheckedStep) -> String {
        step.duration > 0 ? TimeText.duration(step.duration) : TimeText.shortest
    }

    private static func mark(_ ok: Bool) -> String { ok ? "ok" : "failed" }

    private static func name(of step: CheckStep) -> String {
        switch step {
        case .credential: "Credential"
        case .dns: "Name"
        case .route: "Route"
        case .tcp: "TCP"
        case .proxy: "Proxy"
        case .tls: "TLS"
        case .webSocket: "WebSocket"
        case .connect: "Login"
        }
    }

    private static func verdict(_ endpoint: CheckedEndpoint, until wanted: CheckStep) -> String {
        guard let last = endpoint.steps.last else { return "  There was nothing to try." }
        if !last.ok { return "  The check failed at the step \(name(of: last.step))." }
        if last.step == .connect { return "  The server lets this session in." }
        let untried = wanted == .connect ? "; logging in with SCRAM-SHA-256 was not tried" : ""
        return "  Everything works up to \(name(of: last.step))\(untried)."
    }
}

struct PingCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "ping",
        abstract: "Measure the round trip to a session's server repeatedly.",
        discussion: """
            Each time, the daemon opens a separate TCP connection to the endpoint and closes it again. The round trip of \
            the session's own connection is in "holdfastctl status".
            """)

    @OptionGroup var common: CommonOptions
    @Argument(help: "The session; may be omitted if there is only one.", completion: .sessions) var session: String?
    @Option(
        help: ArgumentHelp("The endpoint of the session; by default the first one.", valueName: "url"),
        completion: .endpoints)
    var endpoint: String?
    @Option(
        name: [.customShort("c", allowingJoined: true), .long], help: "How many times; by default until interrupted.")
    var count: Int?
    @Option(help: "The time between two measurements.") var interval = SpanArgument(duration: .seconds(1))

    func validate() throws {
        if let count, count < 1 { throw ValidationError("--count must be at least 1") }
        guard let seconds = interval.seconds, seconds >= 0.2 else {
            throw ValidationError("--interval must be at least 200ms")
        }
    }

    func run() async throws {
        let client = common.client()
        let terminal = common.terminal
        terminal.endWithReader()
        let name: String
        if let session { name = session } else { name = try await onlySession(client) }
        let pings = Task { try await measure(name, client, terminal) }
        // Control-C ends the measurement, and the summary follows.
        CaughtSignals.catch([SIGINT])
        _ = startThread {
            var caught = pollfd(fd: CaughtSignals.descriptor, events: Int16(POLLIN), revents: 0)
            while poll(&caught, 1, -1) < 0, errno == EINTR {}
            pings.cancel()
        }
        let summary = try await pings.value
        if !common.json, let line = summary.line { terminal.print(line) }
        guard summary.answers.count == summary.sent else {
            throw CommandFailure(
                .failed, "\(summary.sent - summary.answers.count) of \(summary.sent) pings were not answered")
        }
    }

    /// Returns what was measured until all is done, or the task is cancelled.
    private func measure(
        _ session: String, _ client: HoldfastClient, _ terminal: Terminal
    ) async throws -> PingText.Summary {
        var wanted = CheckRunMethod.Parameters(session: session, endpoint: endpoint, until: .tcp)
        var summary = PingText.Summary()
        do {
            while summary.sent < count ?? .max {
                if summary.sent > 0, let pause = interval.duration { try await Task.sleep(for: pause) }
                let answer = try await client.callUndecoded(CheckRunMethod.self, wanted, timeout: nil)
                guard let checked = try decode(CheckRunMethod.Result.self, answer).endpoints.first else { break }
                // Names are looked up for each ping; the endpoint stays the same.
                wanted.endpoint = checked.endpoint
                summary.take(checked)
                if common.json {
                    terminal.print(json: JSONText.value(checked))
                } else {
                    terminal.print(PingText.line(checked, number: summary.sent))
                }
            }
        } catch {
            guard Task.isCancelled else { throw error }
        }
        return summary
    }

    private func onlySession(_ client: HoldfastClient) async throws -> String {
        let names = try await client.sessions().map(\.session)
        guard names.count < 2 else {
            throw CommandFailure(.usage, "there are \(names.count) sessions", advice: "name one: \(listed(names))")
        }
        guard let name = names.first else {
            throw CommandFailure(
                .failed, "no session is configured", advice: common.creation)
        }
        return name
    }
}

/// `ping` in words.
enum PingText {
    /// What is said at the end.
    struct Summary {
        private(set) var sent = 0
        /// The round trips, in seconds.
        private(set) var answers: [Double] = []

        mutating func take(_ checked: CheckedEndpoint) {
            sent += 1
            if checked.ok, let last = checked.steps.last { answers.append(last.duration) }
        }

        /// `nil` if there was no ping.
        var line: String? {
            guard sent > 0 else { return nil }
            let count = "\(sent) sent, \(answers.count) answered"
            guard let shortest = answers.min(), let longest = answers.max() else { return count }
            let average = answers.reduce(0, +) / Double(answers.count)
            let times = [shortest, average, longest].map { TimeText.duration($0) }
            return "\(count); min \(times[0]), average \(times[1]), max \(times[2])"
        }
    }

    static func line(_ checked: CheckedEndpoint, number: Int) -> String {
        let start = "\(number): \(checked.endpoint)"
        guard let last = checked.steps.last else { return printable("\(start): there was nothing to try") }
        guard last.ok else { return printable("\(start): \(last.detail ?? "no answer")") }
        let route = checked.steps.first { $0.step == .route }?.detail.map { " \($0)" } ?? ""
        return printable("\(start): \(last.detail ?? "") answered in \(TimeText.duration(last.duration))\(route)")
    }
}
