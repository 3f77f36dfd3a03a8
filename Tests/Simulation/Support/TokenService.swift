import NIOCore
import Session
import SessionCore
import Support

@testable import Agent

/// The service where the sessions of a host get their tokens: its answers, and how often it was asked.
actor TokenService {
    nonisolated let loop: VirtualLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    var token: String
    /// Counted from the moment when the token is fetched.
    var lifetime: Duration?
    var failure: String?
    var hangs = false
    private(set) var asked = 0

    init(_ loop: VirtualLoop, _ token: String = "first") { (self.loop, self.token) = (loop, token) }

    func set(_ token: String, lifetime: Duration? = nil) { (self.token, self.lifetime) = (token, lifetime) }
    func fail(_ sentence: String?) { failure = sentence }
    func hang(_ hangs: Bool) { self.hangs = hangs }

    func fetch(at now: Instant) async throws(Credential.Failure) -> SessionCredential {
        asked += 1
        // Until the scenario ends.
        if hangs { await loop.sleep(until: .distantFuture) }
        if let failure { throw Credential.Failure(description: failure) }
        return SessionCredential(
            secret: Array(token.utf8), end: lifetime.map { .byBootClock(now.advanced(by: $0)) }, file: nil)
    }
}
