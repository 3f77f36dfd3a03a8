import Configuration
import ControlAPI
import DurableStore
import Logging
import MQTT
import NIOCore
import NIOPosix
import NetworkPath
import Session
import SessionCore
import Transport

// What a session's driver uses of its surroundings. Everything that a test in virtual time has to replace is here: the
// clocks, the network, the disk and the secrets.

extension SessionDriver {
    /// What all drivers of a daemon share.
    struct Surroundings: Sendable {
        var eventLoop: any EventLoop
        var clock = HostClock.system
        var store: any SessionStore
        var commits: CommitQueue
        var paths: any PathSource
        var dial: Dial
        /// Lets others go first when a server sends more than is handled at once.
        var turns: PolledTurns
        var credentials: any CredentialSource
        var logger: Logger
        var bootID: String
        var deviceID: String
        /// Does a step of a derivation; `nil` when the daemon is stopping.
        var derive: Derive = { $0.advanced() }
        /// The seeds of the machines' random delays.
        var seed: @Sendable () -> UInt64 = { .random(in: .min ... .max) }
        /// Takes every event of the session, and `nil` when only the status text may have changed.
        var report: @Sendable (SessionName, SessionEvent?) -> Void = { _, _ in }
        /// What one of so many sessions may take of the daemon's memory.
        var memoryShare: @Sendable (_ sessions: Int) -> MessageMemory = MessageMemory.init
        /// The session's share of the daemon's memory.
        var messageMemory = MessageMemory(sessions: 1)
        /// Called whenever a timer has woken the daemon.
        var noteAlive: @Sendable () -> Void = {}
    }

    /// Begins to connect on the driver's loop. Events come only after it has returned.
    typealias Dial =
        @Sendable (
            Endpoint, Connection.Options, TLSContextCache, _ onEvent: @escaping (ConnectionEvent) -> Void
        ) -> any TransportConnection

    typealias Derive = @Sendable (SCRAMClient.Derivation) async -> SCRAMClient.Derivation?

}

extension SessionDriver.Surroundings {
    /// The surroundings on a real host.
    ///
    /// - Parameters:
    ///   - threadPool: a running pool for what keeps the processor busy.
    ///   - blocking: reads files.
    ///   - turns: those of everything that the sessions read.
    init(
        eventLoop: any EventLoop, threadPool: NIOThreadPool, blocking: BlockingCalls, turns: PolledTurns,
        store: DurableStore, commits: CommitQueue, network: NetworkView, logger: Logger, bootID: String,
        deviceID: String
    ) {
        let lookups = NameLookups(eventLoop: eventLoop)
        self.init(
            eventLoop: eventLoop, store: store, commits: commits, paths: network,
            dial: { endpoint, options, contexts, onEvent in
                Connection.open(
                    endpoint, options: options, eventLoop: eventLoop, threadPool: threadPool, lookups: lookups,
                    blocking: blocking, turns: turns, contexts: contexts, onEvent: onEvent)
            }, turns: turns,
            credentials: HostCredentials(
                calls: blocking, helpers: RunningHelpers(eventLoop: eventLoop, calls: blocking)),
            logger: logger, bootID: bootID, deviceID: deviceID)
        // Between two steps the pool does what other sessions need.
        derive = { derivation in
            try? await threadPool.runIfActive { derivation.advanced() }
        }
    }
}

/// The host's clocks.
struct HostClock: Sendable {
    /// The time that the machines use.
    var now: @Sendable () -> Instant
    /// The time that people and servers are told.
    var wallClock: @Sendable () -> Timestamp

    static let system = HostClock(now: { BootClock.now() }, wallClock: { .now })
}

/// What a driver does with a connection; ``Connection`` documents it.
protocol TransportConnection: AnyObject {
    func send(_ buffer: ByteBuffer, flushed: (() -> Void)?)
    func close(_ mode: Closing)
    /// - Returns: whether the connection continues; `false` if it is already over.
    func proceed(onEvent: @escaping (ConnectionEvent) -> Void) -> Bool
    func measure() -> TCPMeasurement?
    func pauseReading()
    func resumeReading()
}

extension TransportConnection {
    func send(_ buffer: ByteBuffer) { send(buffer, flushed: nil) }
}

extension Connection: TransportConnection {}

/// The disk, as sessions see it; ``DurableStore`` documents it.
protocol SessionStore: Actor {
    nonisolated var openReport: OpenReport { get }
    var epoch: String { get async }
    var sessionNames: [SessionName] { get async }
    func setPresent(_ sessions: [SessionName: [Endpoint]]) async throws(StoreError)
    func foreignStates(
        among sessions: [SessionName: [Endpoint]]
    ) async throws(StoreError) -> [SessionName: ForeignState]
    func absentStates(besides present: Set<SessionName>) async throws(StoreError) -> [AbsentState]

    func commit(_ batch: [(session: SessionName, changes: [SessionChange])]) async throws(StoreError)
    func tryRoom(for bytes: UInt64) async throws(StoreError)
    func session(_ name: SessionName) async throws(StoreError) -> StoredSession
    func load(
        _ session: SessionName, after sequence: MessageSequence, maxCount: Int, maxBytes: Int
    ) async throws(StoreError) -> [StoredMessage]
    func message(_ session: SessionName, _ sequence: MessageSequence) async throws(StoreError) -> StoredMessage?
    func summaries(
        _ session: SessionName, _ filter: DurableStore.MessageFilter, after sequence: MessageSequence, limit: Int
    ) async throws(StoreError) -> [StoredMessageSummary]
    func summaries(
        _ session: SessionName, of sequences: [MessageSequence]
    ) async throws(StoreError) -> [StoredMessageSummary]
    func collected(
        _ session: SessionName, for consumer: ConsumerName, after sequence: InboxSequence, maxCount: Int, maxBytes: Int
    ) async throws(StoreError) -> [CollectedMessage]

    func keyed(
        _ session: SessionName, _ key: PublishKey, now: Timestamp
    ) async throws(StoreError) -> KeyedMessage?

    func record(_ entries: [HistoryEntry]) async throws(StoreError)
    func history(
        session: SessionName?, since: Timestamp?, until: Timestamp?, before: Int64?, limit: Int
    ) async throws(StoreError) -> HistoryPage
    func newestHistory() async throws(StoreError) -> [SessionName: HistoryEntry]
    func noteAlive()
}

extension DurableStore: SessionStore {}

/// Where a driver gets the paths to its session's endpoints.
protocol PathSource: Sendable {
    /// Returns the present paths to the hosts that are dialed for the endpoints, in the same order, and has each change
    /// reported from now on.
    ///
    /// - Parameter policy: which networks the session may use.
    func watch(
        _ hosts: [(host: String, port: Int)], of session: SessionName, for policy: NetworkPolicy
    ) -> [Path?]
    /// Returns the path to the addresses of an endpoint, which are watched from now on.
    /// - Parameter origin: where the addresses come from.
    func resolved(
        _ endpoint: EndpointIndex, of session: SessionName, to addresses: [SocketAddress], origin: AddressOrigin
    ) -> Path?
    /// Returns the kernel's own path to an endpoint, if the session must not use that one.
    func excluded(_ endpoint: EndpointIndex, of session: SessionName) -> Path?
    /// Whether the kernel may find a path to an endpoint that has none when it is tried.
    func hasDetour(_ endpoint: EndpointIndex, of session: SessionName) -> Bool
    /// Returns the interface through which the addresses may be dialed now, with those that may; `nil` if there is
    /// none.
    func way(to addresses: [SocketAddress], of session: SessionName) -> Connection.Way?
    /// Looks at all paths again: the kernel has refused to use one.
    func lookAgain()
    func forget(_ session: SessionName)
}

extension PathSource {
    func hasDetour(_ endpoint: EndpointIndex, of session: SessionName) -> Bool { false }
}

extension NetworkView: PathSource {}

/// Where a driver gets its session's secrets.
protocol CredentialSource: Sendable {
    /// Cancel the task when the secret is no longer needed.
    ///
    /// - Parameter turn: see ``RunningHelpers/fetch(_:turn:)``.
    func fetch(
        _ reference: SecretReference, turn: @escaping @Sendable (RunningHelpers.Turn) -> Void
    ) async throws(Credential.Failure) -> SessionCredential
    /// Returns when there is another version of any of the files: see ``Credential/change(of:by:timeLimit:)``.
    func change(of files: [WatchedFiles]) async throws(Credential.Failure)
    /// The daemon is stopping. Returns when nothing is left that fetches a secret outside this process.
    func stop() async
}

/// The files, systemd credentials and helper commands of this host.
struct HostCredentials: CredentialSource {
    var calls: BlockingCalls
    var helpers: RunningHelpers

    func fetch(
        _ reference: SecretReference, turn: @escaping @Sendable (RunningHelpers.Turn) -> Void
    ) async throws(Credential.Failure) -> SessionCredential {
        if case .exec(let command) = reference { return try await helpers.fetch(command, turn: turn) }
        return try await Credential.fetch(reference, by: calls)
    }

    func change(of files: [WatchedFiles]) async throws(Credential.Failure) {
        try await Credential.change(of: files, by: calls)
    }

    func stop() async { await helpers.stop() }
}
