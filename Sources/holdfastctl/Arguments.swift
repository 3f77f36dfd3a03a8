public import ArgumentParser
public import ControlAPI
import HoldfastClient
import Vocabulary

/// The options that every command takes.
struct CommonOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "The daemon's control socket.",
            discussion: "Default: $HOLDFAST_SOCKET or /run/holdfast/control.sock.", valueName: "path"),
        completion: .file())
    var socket: String?

    @Flag(help: "Print one JSON object per line, for programs.")
    var json = false

    @Option(help: "Whether to use colour and marks; auto means only on a terminal.")
    var color = Terminal.Colour.auto

    func validate() throws {
        if socket == "" { throw ValidationError("--socket needs a path") }
    }

    var terminal: Terminal { Terminal(color) }

    /// - Parameter patience: how long the user wants to wait at most; `nil`: as long as it takes.
    func client(patience: Duration? = nil) -> HoldfastClient {
        var options = HoldfastClient.Options()
        options.name = "holdfastctl \(Release.version)"
        // Even a command that is not to wait gives the daemon a second to answer.
        if let patience { options.attachTimeout = min(max(patience, .seconds(1)), options.attachTimeout) }
        return HoldfastClient(socket: socket, options: options)
    }

    /// How to create a session, for somebody who has none.
    var creation: String { SocketAdvice(socket: socket).creation }

    /// Says which files of the configuration the daemon should read again and, if all sessions are asked about, which
    /// others have messages on disk, and what is wrong with the daemon itself.
    ///
    /// - Parameter session: the session that is asked about; `nil` for all.
    func tellRest(of session: String?, _ client: HoldfastClient) async {
        guard let status = try? await client.call(DaemonStatusMethod.self, .init(), timeout: Self.viewTimeout)
        else { return }
        var sentences = session == nil ? (status.absentSessions ?? []).map { printable($0.sentence) } : []
        if session == nil, let failure = status.metricsFailure {
            sentences.append(printable("\(failure); holdfastctl reload tries again"))
        }
        if session == nil, let missing = status.missingAccounts, !missing.isEmpty {
            let names = missing.joined(separator: ", ")
            sentences.append(printable("[access] or [topics] names what does not exist: \(names)"))
        }
        if session == nil, let change = status.restartNeeded {
            sentences.append(
                printable("\(change) takes effect when the daemon is restarted: systemctl restart holdfast"))
        }
        if session == nil {
            sentences += (status.ignoredFiles ?? []).map { file in
                printable("\(file) is not read: \(SessionName.rule(for: file))")
            }
        }
        var changed = status.changedFiles
        if let error = status.configurationError {
            sentences.append(StatusText.unusable(error))
            // A reload would be refused.
            changed.removeAll(where: StatusText.isDaemonFile)
        }
        if let sentence = StatusText.changedFiles(changed, of: session) { sentences.append(sentence) }
        for sentence in sentences { terminal.print(Columns.wrapped(sentence, to: terminal.wrap, indent: 2)) }
    }

    /// Returns the status of a session that does not connect until a person or a change makes it; `nil` for any other,
    /// and when this user may not ask.
    func stopped(_ session: String, _ client: HoldfastClient) async -> SessionStatus? {
        guard let hello = try? await client.attach(), hello.roles.contains(.observe),
            let status = try? await client.call(
                SessionStatusMethod.self, .init(session: session), timeout: Self.viewTimeout)
        else { return nil }
        return StatusText.isStopped(status) ? status : nil
    }

    /// Says so if a command waits for a session that is stopped.
    func tellIfStopped(_ session: String, _ client: HoldfastClient) async {
        guard let status = await stopped(session, client), !Task.isCancelled else { return }
        let sentence = StatusText.sentence(for: status, times: Terminal.times())
        complain(Complaint(notice: String(sentence.dropLast())))
    }

    /// How long the daemon may take to answer a call that does not itself wait for something.
    static let answerTimeout: Duration = .seconds(30)

    /// How long a reload may take: the daemon waits a minute for the file system of the configuration, and the service
    /// manager 90 seconds for the reload.
    static let reloadTimeout: Duration = .seconds(75)

    /// How long a live view waits for the daemon: it must not show what was, as if it were so now.
    static let viewTimeout: Duration = .seconds(3)

    /// Calls the daemon and prints the answer: unchanged with `--json`, otherwise with `print`.
    ///
    /// - Parameter timeout: how long to wait for the answer; `nil`: as long as the connection lasts.
    func show<Method: ControlMethod>(
        _ method: Method.Type, _ parameters: Method.Parameters, timeout: Duration? = answerTimeout,
        print: (Method.Result, Terminal) throws -> Void
    ) async throws {
        let answer = try await client().callUndecoded(method, parameters, timeout: timeout)
        if json { terminal.print(json: answer) } else { try print(decode(Method.Result.self, answer), terminal) }
    }

    /// Calls the daemon and prints the selected fields of each element of a list in the answer; without a selection,
    /// does the same as ``show(_:_:print:)``.
    func show<Method: ControlMethod>(
        _ method: Method.Type, _ parameters: Method.Parameters, _ selection: FieldOptions, of list: String,
        print: (Method.Result, Terminal) throws -> Void
    ) async throws {
        guard let fields = selection.fields else { return try await show(method, parameters, print: print) }
        let answer = try await client().callUndecoded(method, parameters, timeout: Self.answerTimeout)
        try terminal.print(fields: fields, of: answer, list)
    }
}

extension HoldfastClient {
    /// Returns all sessions, in natural order.
    func sessions(
        within timeout: Duration = CommonOptions.answerTimeout
    ) async throws(ClientError) -> [SessionStatus] {
        try await call(SessionListMethod.self, NoParameters(), timeout: timeout).sessions.inNaturalOrder
    }
}

/// A span of time on the command line, as in the configuration: `250ms`, `15s`, `20min`, `24h`, `never`.
struct SpanArgument: ExpressibleByArgument, Equatable, CustomStringConvertible {
    /// `nil`: never.
    var duration: Duration?

    init(duration: Duration?) {
        self.duration = duration
    }

    init?(argument: String) {
        if argument == "never" {
            self.duration = nil
            return
        }
        // A number without a unit means seconds.
        let text = argument.last?.isNumber == true ? argument + "s" : argument
        guard let duration = Duration(text: text), duration <= .seconds(86_400 * 1_000_000_000) else { return nil }
        self.duration = duration
    }

    var description: String { duration?.text ?? "never" }

    var defaultValueDescription: String { description }

    /// Checks the limits of the time to wait for a session; the upper one is the daemon's.
    func checkAsTimeout(canBeZero: Bool = false) throws {
        guard let seconds else { return }
        if seconds <= 0, !canBeZero { throw ValidationError("--timeout must be above 0") }
        if seconds > 365 * 86_400 { throw ValidationError("--timeout must be at most 365d, or never") }
    }

    /// Seconds; `nil`: never.
    var seconds: Double? { duration?.seconds }
}

extension QoS: ExpressibleByArgument {}
extension MessagePublishMethod.Wait: ExpressibleByArgument {}
extension Terminal.Colour: ExpressibleByArgument {}
extension SessionReconnectMethod.Mode: ExpressibleByArgument {}
extension SessionSimulateMethod.Fault: ExpressibleByArgument {}
extension SessionState: ExpressibleByArgument {}

extension QueuedMessageState: ExpressibleByArgument {
    public init?(argument: String) {
        self.init(rawValue: argument)
        guard Self.all.contains(self) else { return nil }
    }

    public var defaultValueDescription: String { rawValue }
}
