public import NIOCore
import Vocabulary

/// Looks names up, each on its own thread: the system's resolver blocks for as long as no name server answers, and
/// another name must not wait for that.
///
/// A thread stays blocked when its caller has left, so names that are not answered could keep all threads. Those whose
/// last lookup was given up may use half of them.
///
/// Belongs to one event loop, like the connections that are given it. One per process is enough.
public final class NameLookups: Sendable {
    /// Threads at the same time. Requests beyond them wait. `TasksMax=` of the service has room for as many besides.
    static let maximumThreads = 64
    /// Threads for one name. The network may change more than once while the first lookup waits for a name server that has
    /// become unreachable, so two are not enough. Further requests share the answer of the latest lookup.
    static let maximumThreadsOfName = 3
    /// How many names are remembered whose name servers do not answer.
    static let maximumSilentNames = 1024

    typealias Completion = (Result<[SocketAddress], TransportFailure>) -> Void

    fileprivate struct Name: Hashable, Sendable {
        let host: String
        let port: Int
    }

    /// One caller's wait for an answer.
    final class Request {
        fileprivate let name: Name
        fileprivate let completion: Completion

        fileprivate init(_ name: Name, _ completion: @escaping Completion) {
            self.name = name
            self.completion = completion
        }
    }

    private final class Lookup {
        let name: Name
        var requests: [Request]
        var hasThread = false
        /// Every caller left before there was an answer, and the thread stayed behind.
        var isGivenUp = false

        init(_ request: Request) {
            name = request.name
            requests = [request]
        }
    }

    private struct State {
        var threads = 0
        /// The last one is the latest.
        var underWay: [Name: [Lookup]] = [:]
        var waiting: [Lookup] = []
        /// The names whose last lookup was given up.
        var silent: Set<Name> = []

        var silentThreads: Int {
            silent.reduce(0) { $0 + (underWay[$1] ?? []).count { $0.hasThread } }
        }

        mutating func remove(_ lookup: Lookup) {
            waiting.removeAll { $0 === lookup }
            underWay[lookup.name]?.removeAll { $0 === lookup }
            if underWay[lookup.name]?.isEmpty == true { underWay[lookup.name] = nil }
        }
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
    /// - Returns: what to withdraw when the answer is no longer wanted.
    @discardableResult
    func resolve(_ host: String, _ port: Int, completion: @escaping Completion) -> Request {
        let request = Request(Name(host: host, port: port), completion)
        if let lookups = state.value.underWay[request.name], lookups.count >= Self.maximumThreadsOfName {
            lookups.last?.requests.append(request)
            return request
        }
        let lookup = Lookup(request)
        state.value.underWay[request.name, default: []].append(lookup)
        state.value.waiting.append(lookup)
        startNext()
        return request
    }

    /// The completion is not called any more. A lookup that still waits for a thread ends with its last request.
    func withdraw(_ request: Request) {
        for lookup in state.value.underWay[request.name] ?? [] {
            let count = lookup.requests.count
            lookup.requests.removeAll { $0 === request }
            guard count > 0, lookup.requests.isEmpty else { continue }
            if lookup.hasThread { giveUp(lookup) } else { state.value.remove(lookup) }
        }
        startNext()
    }

    private func giveUp(_ lookup: Lookup) {
        lookup.isGivenUp = true
        if state.value.silent.count >= Self.maximumSilentNames { _ = state.value.silent.popFirst() }
        state.value.silent.insert(lookup.name)
    }

    private func startNext() {
        while state.value.threads < maximumThreads, !state.value.waiting.isEmpty {
            let mayBeSilent = state.value.silentThreads < max(1, maximumThreads / 2)
            let place = state.value.waiting.firstIndex { mayBeSilent || !state.value.silent.contains($0.name) }
            guard let place else { return }
            start(state.value.waiting.remove(at: place))
        }
    }

    private func start(_ lookup: Lookup) {
        state.value.threads += 1
        lookup.hasThread = true
        let promise = eventLoop.makePromise(of: Result<[SocketAddress], TransportFailure>.self)
        promise.futureResult.assumeIsolated().whenSuccess { self.finished(lookup, $0) }
        let (name, lookUp) = (lookup.name, lookUp)
        let code = startThread { promise.succeed(lookUp(name.host, name.port)) }
        guard code != 0 else { return }
        // Later: the caller does not have its request yet.
        eventLoop.execute {
            promise.succeed(
                .failure(
                    TransportFailure(.dnsFailed, "no thread can be started for the resolver: \(systemText(code))")))
        }
    }

    private func finished(_ lookup: Lookup, _ result: Result<[SocketAddress], TransportFailure>) {
        state.value.threads -= 1
        state.value.remove(lookup)
        var requests = lookup.requests
        if case .success = result {
            // A resolver that is slow for every lookup may take longer than an attempt: those of later ones get its answer.
            for other in state.value.underWay[lookup.name] ?? [] {
                requests += other.requests
                other.requests = []
                if !other.hasThread { state.value.remove(other) }
            }
        }
        if lookup.isGivenUp, case .failure = result {} else { state.value.silent.remove(lookup.name) }
        startNext()
        for request in requests { request.completion(result) }
    }
}
