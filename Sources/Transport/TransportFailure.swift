public import Vocabulary

/// Why a connection could not be opened, or broke.
public struct TransportFailure: Error, Hashable, Sendable {
    /// What kind of failure it was; one of the codes of group network, server or config.
    public let code: Reason.Code
    /// What happened, in one sentence without the final full stop, with the addresses tried and the kernel's words.
    public let message: String
    /// How long the server asks us to wait; `nil` if it does not say.
    public let retryAfter: Duration?
    /// The kernel's number of the error, as in errno(3); `nil` if it was not the kernel that failed.
    public let systemError: Int32?
    /// What else is known about it.
    public let detail: FailureDetail?

    public init(
        _ code: Reason.Code, _ message: String, retryAfter: Duration? = nil, systemError: Int32? = nil,
        detail: FailureDetail? = nil
    ) {
        self.code = code
        self.message = message
        self.retryAfter = retryAfter
        self.systemError = systemError
        self.detail = detail
    }

    /// Our own TLS files are missing, unreadable or invalid. Worth retrying: they may be about to be replaced.
    init(ownFiles message: String) {
        self.init(.tlsFailed, message, detail: .ownFilesUnusable)
    }

    /// Returns the same failure in other words.
    func saying(_ message: String) -> TransportFailure {
        TransportFailure(code, message, retryAfter: retryAfter, systemError: systemError, detail: detail)
    }
}

extension TransportFailure: CustomStringConvertible {
    public var description: String { "\(code.rawValue): \(message)" }
}
