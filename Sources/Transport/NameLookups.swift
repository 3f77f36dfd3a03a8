public import NIOCore
import Vocabulary

/// Looks names up, each on its own thread: the system's resolver blocks for as long as no name server answers, and
/// another name must not wait for that.
///
/// Belongs to one event loop, like the connections that are given it. One per process is enough.
public final class NameLookups: Sendable {
    /// Threads at the same time. Requests beyond them wait. `TasksMax=` of the service has room for as many besides.
    static let maximumThreads = 64
    /// Threads for one name. The network may change more than once while the first lookup waits for a name server that has
    /// become unreachable, so two are not enough. Further requests share the answer of the latest lookup.
    static let maximumThreadsOfName = 3

    typealias Completion = (Result<[SocketAddress], TransportFailure>) -> Void

    private struct Name: Hashable, Sendable {
        let host: String
        let port: Int
    }

    private final class Lookup {
        let name: Name
        var completions: [Completion]

        init(_ name: Name, _ completion: @escaping Completion) {
            self.name = name
            completions = [completion]
        }
    }

    private struct State {
        var threads = 0
        /// The last one is the latest.
        var underWay: [Name: [Lookup]] = [:]
        var waiting = CircularBuffer<Lookup>()
    }

    private let eventLoop: any EventLoop
    private let state: NIOLoopBoundBox<State>
    private let maximumThreads: Int
    private let lookUp: LookUp

    public convenience init(eventLoop: any EventLoop) {
        self.init(eventLoop: eventLoop, lookUp: systemLookUp)
    }

    /// Creates the same with another resolver.
    init(eventLoop: any EventLoop, maximumThreads: Int = NameLookups.maximumThreads, lookUp: @escaping LookUp) {
        self.eventLoop = eventLoop
        self.maximumThreads = maximumThreads
        self.lookUp = lookUp
        state = NIOLoopBoundBox.makeBoxSendingValue(State(), eventLoop: eventLoop)
    }

    /// - Parameter completion: called on the loop, after this has returned.
    func resolve(_ host: String, _ port: Int, completion: @escaping Completion) {
        let name = Name(host: host, port: port)
        if let lookups = state.value.underWay[name], lookups.count >= Self.maximumThreadsOfName {
            lookups.last?.completions.append(completion)
            return
        }
        let lookup = Lookup(name, completion)
        state.value.underWay[name, default: []].append(lookup)
        state.value.waiting.append(lookup)
        startNext()
    }

    private func startNext() {
        guard state.value.threads < maximumThreads, let lookup = state.value.waiting.popFirst() else { return }
        state.value.threads += 1
        let promise = eventLoop.makePromise(of: Result<[SocketAddress], TransportFailure>.self)
        promise.futureResult.assumeIsolated().whenSuccess { self.finished(lookup, $0) }
        let (name, lookUp) = (lookup.name, lookUp)
        let code = startThread { promise.succeed(lookUp(name.host, name.port)) }
        guard code != 0 else { return }
        promise.succeed(
            .failure(TransportFailure(.dnsFailed, "no thread can be started for the resolver: \(systemText(code))")))
    }

    private func finished(_ lookup: Lookup, _ result: Result<[SocketAddress], TransportFailure>) {
        state.value.threads -= 1
        state.value.underWay[lookup.name]?.removeAll { $0 === lookup }
        if state.value.underWay[lookup.name]?.isEmpty == true { state.value.underWay[lookup.name] = nil }
        startNext()
        var completions = lookup.completions
        if case .success = result {
            // A resolver that is slow for every lookup may take longer than an attempt: those of later ones get its answer.
            for other in state.value.underWay[lookup.name] ?? [] {
                completions += other.completions
                other.completions = []
            }
        }
        for completion in completions { completion(result) }
    }
}
