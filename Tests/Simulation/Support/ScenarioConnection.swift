import Configuration
import NIOCore
import Session
import SessionCore
import Support
import Transport

@testable import Agent

/// A connection of a daemon in a scenario.
final class ScenarioConnection: TransportConnection, Sendable {
    let wire: Int
    private let scenario: Scenario
    /// Whether the daemon is alive for its next action.
    private let acts: @Sendable () -> Bool

    init(wire: Int, scenario: Scenario, acts: @escaping @Sendable () -> Bool) {
        (self.wire, self.scenario, self.acts) = (wire, scenario, acts)
    }

    func send(_ buffer: ByteBuffer, flushed: (() -> Void)?) {
        guard acts() else { return }
        scenario.assumeIsolated { $0.send(buffer, on: wire) }
        guard let flushed else { return }
        // The callback never leaves the loop.
        nonisolated(unsafe) let callback = flushed
        scenario.assumeIsolated { scenario in
            if scenario.holdsFlushes {
                scenario.heldFlushes.append { callback() }
            } else {
                scenario.loop.execute { callback() }
            }
        }
    }

    func close(_ mode: Closing) {
        guard acts() else { return }
        scenario.assumeIsolated { $0.close(wire, mode) }
    }

    func proceed(onEvent: @escaping (ConnectionEvent) -> Void) -> Bool {
        guard acts() else { return false }
        nonisolated(unsafe) let onEvent = onEvent
        return scenario.assumeIsolated { $0.proceed(wire, onEvent: onEvent) }
    }

    func measure() -> TCPMeasurement? { scenario.assumeIsolated { $0.measure(wire) } }

    func pauseReading() { scenario.assumeIsolated { $0.read(wire, false) } }

    func resumeReading() { scenario.assumeIsolated { $0.read(wire, true) } }
}

/// The secrets of a host's sessions.
struct ScenarioCredentials: CredentialSource {
    var host: Host

    func fetch(
        _ reference: SecretReference, turn: @escaping @Sendable (RunningHelpers.Turn) -> Void
    ) async throws(Credential.Failure) -> SessionCredential {
        try await host.fetchCredential()
    }

    func change(of files: [WatchedFiles]) async throws(Credential.Failure) {
        let (changes, continuation) = AsyncStream.makeStream(of: Never.self)
        for await _ in changes {}
        continuation.finish()
    }

    func stop() async {}
}
