import ControlAPI
import Glibc
import NIOCore
import NetworkPath
import Session
import SessionCore
import Subprocess
import SystemPackage
import Transport

/// Runs a helper command that prints a secret: without a shell, without input, in its own process group, with limited
/// time and output.
///
/// One that is no longer waited for is ended with its whole group: it is terminated and, a second later, killed.
///
/// Its standard output is secret and is shown nowhere. The last line of its standard error is for people and becomes
/// part of the error.
enum CredentialHelper {
    static let timeLimit = Duration.seconds(10)
    /// The most bytes of standard output, and of standard error.
    static let outputLimit = 65_536
    /// How long a helper that is terminated has to clean up.
    private static let grace = Duration.seconds(1)

    /// - Parameter command: the absolute path of the program, and its arguments.
    static func fetch(
        _ command: [String], by calls: BlockingCalls, timeLimit: Duration = timeLimit
    ) async throws(Credential.Failure) -> SessionCredential {
        guard let program = command.first else { preconditionFailure("a helper command has at least one word") }
        let output: [UInt8]
        let end = ContinuousClock.now + timeLimit
        do {
            // The program may be on a file system that does not answer. To start it would wait for that as well.
            try await calls.run(program, within: timeLimit) {
                Result { () throws(Credential.Failure) in try checkProgram(program) }
            }.get().get()
            output = try await withThrowingTaskGroup(of: [UInt8]?.self) { group in
                group.addTask { try await run(program, Array(command.dropFirst())) }
                group.addTask {
                    try await Task.sleep(until: end, clock: .continuous)
                    return nil
                }
                // The group is left only when both tasks have ended. Cancelling them kills the helper first.
                defer { group.cancelAll() }
                guard let output = try await group.next() ?? nil else {
                    throw Credential.Failure(description: "it did not finish within \(timeLimit) and was killed")
                }
                return output
            }
        } catch let failure as Credential.Failure {
            throw Credential.Failure(description: "\(program): \(failure)")
        } catch let error as SubprocessError {
            throw Credential.Failure(description: "\(program): \(sentence(error))")
        } catch let failure as BlockingCalls.Failure {
            throw Credential.Failure(description: "\(program): it could not be run: \(failure)")
        } catch {
            throw Credential.Failure(description: "\(program): it was stopped")
        }
        do throws(Credential.Failure) {
            return try read(output, bootClock: BootClock.now())
        } catch {
            throw Credential.Failure(description: "\(program): \(error)")
        }
    }

    private static func run(_ program: String, _ arguments: [String]) async throws -> [UInt8] {
        var options = PlatformOptions()
        options.createSession = true
        options.teardownSequence = [.send(signal: .terminate, toProcessGroup: true, allowedDurationToNextStep: grace)]
        var group: pid_t?
        var isWhole = false
        defer {
            // The library kills nothing more once the helper itself has ended, but what that started may ignore the
            // first signal. A group's number is not used again while a process is in it.
            if let group, !isWhole || Task.isCancelled { kill(-group, SIGKILL) }
        }
        let result = try await Subprocess.run(
            .path(FilePath(program)), arguments: Arguments(arguments), environment: environment,
            platformOptions: options, input: .none, output: .bytes(limit: outputLimit),
            error: .bytes(limit: outputLimit)
        ) { group = $0.processIdentifier.value }
        isWhole = true
        let said = lastLine(result.standardError).map { ": \($0)" } ?? ""
        switch result.terminationStatus {
        case .exited(0): return result.standardOutput
        case .exited(let code): throw Credential.Failure(description: "it failed with exit status \(code)\(said)")
        case .signaled(let signal):
            throw Credential.Failure(description: "it was ended by signal \(signal)\(said)")
        }
    }

    /// Finds out why a program cannot be run, because the later error does not say.
    private static func checkProgram(_ program: String) throws(Credential.Failure) {
        var status = stat()
        guard stat(program, &status) == 0, access(program, X_OK) == 0 else { throw failure(errno) }
        if status.st_mode & S_IFMT == S_IFDIR { throw failure(EISDIR) }
    }

    private static func failure(_ number: Int32) -> Credential.Failure {
        Credential.Failure(description: "it could not be run: \(String(cString: strerror(number)))")
    }

    /// The daemon's environment, without the variables that systemd sets for the daemon alone.
    private static var environment: Subprocess.Environment {
        .inherit.updating([
            "NOTIFY_SOCKET": nil, "WATCHDOG_PID": nil, "WATCHDOG_USEC": nil, "LISTEN_PID": nil, "LISTEN_FDS": nil,
            "LISTEN_FDNAMES": nil, "JOURNAL_STREAM": nil,
        ])
    }

    private static func sentence(_ error: SubprocessError) -> String {
        if error.code == .outputLimitExceeded { return "it printed more than \(outputLimit) bytes" }
        guard let cause = error.underlyingError else { return "it could not be run" }
        let sentence = failure(cause.rawValue).description
        // The program itself is there.
        return cause.rawValue == ENOENT
            ? "\(sentence): the interpreter that its first line names, or its loader, is missing" : sentence
    }

    private static func lastLine(_ bytes: [UInt8]) -> String? {
        let lines = String(decoding: bytes, as: UTF8.self).split { $0.isNewline }
        let isText: (Unicode.Scalar) -> Bool = { $0.properties.generalCategory != .control }
        let line = lines.last { $0.contains { !$0.isWhitespace } }.map { line in
            String(String.UnicodeScalarView(line.unicodeScalars.filter(isText))).prefix(200)
        }
        return line.map(String.init)
    }

    // MARK: What it prints

    /// Parses the output: the token itself on one line, or a JSON object with the members `token` and, if the token
    /// expires, `expires` (RFC 3339) or `expiresIn` (seconds). Other members are ignored.
    static func read(
        _ output: [UInt8], bootClock: Instant
    ) throws(Credential.Failure) -> SessionCredential {
        let isSpace: (UInt8) -> Bool = { $0 == 0x20 || (0x09...0x0D).contains($0) }
        guard let first = output.firstIndex(where: { !isSpace($0) }),
            let last = output.lastIndex(where: { !isSpace($0) })
        else { throw Credential.Failure(description: "it printed nothing") }
        if output[first] == UInt8(ascii: "{") { return try read(object: output[...], bootClock) }
        let token = Array(output[first...last])
        guard token.allSatisfy({ $0 >= 0x20 && $0 != 0x7F }) else {
            throw Credential.Failure(description: "it printed neither a token in one line nor a JSON object")
        }
        return SessionCredential(secret: try checked(token))
    }

    private static func read(
        object bytes: ArraySlice<UInt8>, _ bootClock: Instant
    ) throws(Credential.Failure) -> SessionCredential {
        let object: JSONValue
        do throws(JSONParseError) {
            object = try JSONValue(parsing: bytes)
        } catch {
            // The error's own sentence may repeat part of the text.
            throw Credential.Failure(description: "it did not print a valid JSON object: error at byte \(error.offset)")
        }
        guard let token = object["token"]?.text, !token.isEmpty else {
            throw Credential.Failure(description: "the JSON object that it printed has no string \"token\"")
        }
        var fetched = SessionCredential(secret: try checked(Array(token.utf8)))
        switch (object["expires"] ?? .null, object["expiresIn"] ?? .null) {
        case (.null, .null):
            break
        case (let value, .null):
            guard let text = value.text, let time = Timestamp(text) else {
                throw Credential.Failure(description: "\"expires\" is not a time like 2026-11-20T09:12:44Z")
            }
            fetched.end = .byWallClock(time)
        case (.null, let value):
            guard let seconds = value.amount, seconds > 0 else {
                throw Credential.Failure(description: "\"expiresIn\" is not a positive number of seconds")
            }
            // A hundred years stand for any longer time, and can be counted in nanoseconds.
            fetched.end = .byBootClock(bootClock.advanced(by: .seconds(min(seconds, 3_155_760_000))))
        default:
            throw Credential.Failure(description: "the JSON object has both \"expires\" and \"expiresIn\"")
        }
        return fetched
    }

    private static func checked(_ token: [UInt8]) throws(Credential.Failure) -> [UInt8] {
        guard token.count <= Credential.maximumLength else {
            throw Credential.Failure(description: "the token is longer than \(Credential.maximumLength) bytes")
        }
        return token
    }
}

extension JSONValue {
    fileprivate var amount: Double? {
        switch self {
        case .integer(let value): Double(value)
        case .number(let value): value
        default: nil
        }
    }
}
