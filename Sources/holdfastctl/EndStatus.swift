import ControlAPI
import HoldfastClient
import Vocabulary

/// The exit status, for scripts. The numbers are part of the interface.
enum EndStatus: Int32, Equatable {
    case success = 0
    case failed = 1
    case usage = 2
    /// Of `status --check`, `wait`, `connect --wait`, and commands that need a connected session.
    case notConnected = 3
    case timeout = 4
    case notPermitted = 5
    case daemonUnreachable = 6
    case versionMismatch = 7
}

/// Why the command ends without success: a sentence, and what to do.
struct CommandFailure: Error, Equatable {
    var status: EndStatus
    /// Without the final full stop; empty if everything has already been written.
    var sentence: String
    var advice: String?

    init(_ status: EndStatus, _ sentence: String, advice: String? = nil) {
        self.status = status
        self.sentence = sentence
        self.advice = advice
    }

    /// The lines for standard error.
    var lines: [String] {
        guard !sentence.isEmpty else { return [] }
        // There may be several errors, one per line.
        return printableLines("holdfastctl: \(sentence)") + (advice.map { printableLines("  " + $0) } ?? [])
    }
}

extension CommandFailure {
    /// - Parameter advice: returns the advice about a socket; its path is `nil` if the error does not name it.
    init(_ error: ClientError, advice: (String?) -> SocketAdvice = { SocketAdvice(socket: $0) }) {
        switch error {
        case .notRunning(let socket):
            self.init(.daemonUnreachable, error.description, advice: advice(socket).ifNotRunning)
        case .notPermitted(let socket):
            self.init(.notPermitted, error.description, advice: advice(socket).ifNotPermitted)
        case .unreachable(let socket, _):
            self.init(.daemonUnreachable, error.description, advice: advice(socket).ifBroken)
        case .unresponsive(let socket):
            self.init(.timeout, error.description, advice: advice(socket).ifBroken)
        case .versionMismatch:
            self.init(
                .versionMismatch, error.description,
                advice: "holdfastctl is \(Release.version); \(advice(nil).ifOutdated)")
        case .connectionLost:
            self.init(.daemonUnreachable, error.description, advice: "\(Self.doubt); \(advice(nil).ifBroken)")
        case .dismissed(let reason):
            self.init(reason)
            self.advice = [Self.doubt, reason.data?.hint].compactMap(\.self).joined(separator: "; ")
        case .timeout:
            self.init(.timeout, error.description, advice: "\(Self.doubt); \(advice(nil).ifBroken)")
        case .publishInDoubt(let key, let cause):
            self.init(
                Self(cause, advice: advice).status, error.description,
                advice: "publish it again with --key \(key), which does nothing if it was accepted")
        case .invalidAnswer:
            self.init(
                .failed, error.description, advice: "holdfastctl version compares the versions of both")
        case .requestTooLong:
            self.init(.failed, error.description, advice: "send it in parts")
        case .consumerEnded:
            self.init(
                .failed, error.description,
                advice: "only one program at a time can use a consumer, and sudo holdfastctl clients shows which one "
                    + "does; give each program its own")
        case .cancelled, .closed:
            self.init(.failed, error.description)
        case .refused(let refusal):
            self.init(refusal)
        }
    }

    /// The output cannot be written.
    ///
    /// - Parameters:
    ///   - done: what the command has done nevertheless, without the final full stop.
    ///   - rest: what it has not done.
    init(unwritten cause: String, done: String?, rest: String? = nil) {
        let sentence = "the output cannot be written: \(cause)"
        self.init(
            .failed, done.map { "\($0), but \(sentence)" } ?? sentence,
            advice: done.map { _ in
                "do not repeat the command, which would do it again" + (rest.map { "; \($0)" } ?? "")
            })
    }

    private static let doubt = "the request may or may not have been carried out"

    /// Returns what went wrong, without advice.
    static func sentence(of error: any Error) -> String {
        switch error {
        case let error as CommandFailure: error.sentence
        case let error as ClientError: CommandFailure(error).sentence
        default: "\(error)"
        }
    }

    init(_ refusal: RPCError) {
        let status: EndStatus =
            switch refusal.known {
            case .notPermitted: .notPermitted
            case .versionMismatch: .versionMismatch
            case .notConnected: .notConnected
            case .shuttingDown: .daemonUnreachable
            default: .failed
            }
        self.init(status, refusal.message, advice: refusal.data?.hint)
    }
}

extension ClientError {
    /// Whether the daemon is away, or cannot answer at present, so that a command which goes on waits for it.
    var isAbsence: Bool {
        switch self {
        case .notRunning, .notPermitted, .unreachable, .unresponsive, .connectionLost, .timeout: true
        case .refused(let refusal): refusal.known == .shuttingDown || refusal.known == .tooManyRequests
        case .dismissed, .versionMismatch, .publishInDoubt, .cancelled, .requestTooLong, .invalidAnswer, .consumerEnded,
            .closed:
            false
        }
    }
}

/// Makes text that may come from a server or another user safe for a terminal.
func printable(_ text: String) -> String { text.plain(atMost: .max) }

/// Does the same as ``printable(_:)`` for text that may have several lines, and omits empty lines.
func printableLines(_ text: String) -> [String] {
    text.split(separator: "\n", omittingEmptySubsequences: true).map { printable(String($0)) }
}

/// Returns an MQTT reason code as the standard writes it, for example `0x8E`.
func serverCode(_ code: Int) -> String {
    let digits = String(code, radix: 16, uppercase: true)
    return "0x" + (digits.count < 2 ? "0" : "") + digits
}
