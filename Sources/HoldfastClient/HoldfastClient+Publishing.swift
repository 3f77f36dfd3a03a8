public import ControlAPI
internal import NIOCore

extension HoldfastClient {
    /// Publishes a message once: if the connection breaks before the answer, the call is repeated with the same key
    /// until the daemon is back, within the limit of `timeout`.
    ///
    /// - Parameters:
    ///   - parameters: the message; if it has no key, it is given a random one.
    ///   - timeout: how long to wait for the answer altogether; `nil`: as long as the daemon is there, and until 30
    ///     seconds after it was lost. It counts as there again when a connection lasts longer than that.
    /// - Throws: when the daemon cannot be reached and never was, does not come back, or refuses, or the task is
    ///   cancelled; ``ClientError/publishInDoubt(key:because:)`` instead of the other errors when the message was sent and
    ///   the daemon may have accepted it.
    public func publish(
        _ parameters: MessagePublishMethod.Parameters, timeout: Duration? = nil
    ) async throws(ClientError) -> MessagePublishMethod.Result {
        try Self.decode(
            MessagePublishMethod.Result.self, from: try await publishUndecoded(parameters, timeout: timeout))
    }

    /// Publishes like ``publish(_:timeout:)`` and returns the result as the daemon wrote it.
    ///
    /// - Throws: as ``publish(_:timeout:)``; the result is not checked.
    public func publishUndecoded(
        _ parameters: MessagePublishMethod.Parameters, timeout: Duration? = nil
    ) async throws(ClientError) -> JSONValue {
        var parameters = parameters
        let key = parameters.key ?? Self.newKey()
        parameters.key = key
        // A daemon that was never there is an error. One that was may be restarting.
        if !wasAttached { try await attach() }
        let start = NIODeadline.now()
        var lostSince: NIODeadline?
        var isInDoubt = false
        var delays = options.reattachDelays[...]
        while true {
            var sent: NIODeadline?
            do throws(ClientError) {
                if Task.isCancelled { throw .cancelled }
                try await attach()
                if Task.isCancelled { throw .cancelled }
                sent = .now()
                return try await callUndecoded(
                    MessagePublishMethod.self, parameters, timeout: Self.rest(of: timeout, since: start))
            } catch {
                if let sent {
                    isInDoubt = isInDoubt || error.isDoubtful
                    if .now() - sent > TimeAmount(options.patience) { lostSince = nil }
                }
                let final = isInDoubt && !error.isAnswer ? .publishInDoubt(key: key, because: error) : error
                guard error.isWorthRepeating else { throw final }
                let now = NIODeadline.now()
                lostSince = lostSince ?? now
                let patience = TimeAmount(timeout ?? options.patience)
                let begin = timeout == nil ? lostSince ?? now : start
                guard now - begin < patience else { throw final }
            }
            let delay = delays.count > 1 ? delays.removeFirst() : delays.first ?? .seconds(1)
            let pause = eventLoop.scheduleTask(in: TimeAmount(delay)) {}
            await withTaskCancellationHandler {
                try? await pause.futureResult.get()
            } onCancel: {
                pause.cancel()
            }
        }
    }

    private static func rest(of timeout: Duration?, since start: NIODeadline) -> Duration? {
        guard let timeout else { return nil }
        return max(timeout - .nanoseconds((NIODeadline.now() - start).nanoseconds), .milliseconds(1))
    }

    /// Returns a key that no other message has: 128 random bits.
    private static func newKey() -> String {
        let bits = (UInt64.random(in: .min ... .max), UInt64.random(in: .min ... .max))
        return "client-" + String(bits.0, radix: 16) + "-" + String(bits.1, radix: 16)
    }
}

extension ClientError {
    /// Whether to repeat the call: the daemon may have received it, or can receive it when it is back.
    fileprivate var isWorthRepeating: Bool {
        switch self {
        case .connectionLost, .dismissed, .notRunning, .unreachable, .unresponsive: true
        case .refused(let error): error.known == .shuttingDown
        default: false
        }
    }

    /// Whether the daemon may have carried out a call that was sent.
    fileprivate var isDoubtful: Bool {
        switch self {
        case .connectionLost, .dismissed, .timeout, .cancelled, .invalidAnswer, .closed: true
        default: false
        }
    }

    /// Whether the daemon has decided about the message, of which it knows the key. It refuses some calls before it looks
    /// for the key, or because it cannot.
    fileprivate var isAnswer: Bool {
        guard case .refused(let error) = self else { return false }
        return switch error.known {
        case .shuttingDown, .notPermitted, .tooManyRequests, .unknownSession, .wrongState, .badConfiguration: false
        case .storeFull, .internalError: false
        default: true
        }
    }
}
