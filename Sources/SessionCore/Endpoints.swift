/// The session's endpoints, in the order of its list: the path to each, the one that the next attempt starts with, those
/// that are knocked at, and when a session that is connected to a later one returns to the first.
struct Endpoints: Sendable {
    /// The path to each endpoint; `nil` where the kernel has none.
    private(set) var paths: [Path?]
    /// The kernel's own path to each endpoint if the session must not use it, else `nil`.
    private var excluded: [Path?]
    /// The endpoints that have no path, though the kernel may find one when it is tried. Those that have one may be here too.
    private var detours: Set<EndpointIndex> = []
    /// Whether connections are bound to the interface of their path.
    private let isBound: Bool
    /// The endpoint that the next attempt starts with.
    var cursor = Self.first
    var watch: EndpointWatch
    var returns: ReturnPacing
    var stays = ShortStays()
    /// The endpoints whose servers have accepted the session, so that their certificates were valid, and the path on which
    /// they last did; its value is `nil` if the kernel had none.
    var proven: [EndpointIndex: Path?] = [:]
    /// Until when the server of an endpoint asked to be left alone; no network event overrides it.
    var restsUntil: [EndpointIndex: Instant] = [:]

    static let first = EndpointIndex(0)

    init(paths: [Path?], isBound: Bool, _ policy: ReconnectPolicy, seed: UInt64) {
        self.paths = paths
        self.isBound = isBound
        excluded = paths.map { _ in nil }
        watch = EndpointWatch(interval: policy.watch, seed: seed &+ 1)
        returns = ReturnPacing(policy, seed: seed &+ 2)
    }

    /// The path to an endpoint; `nil` if the kernel has none.
    subscript(endpoint: EndpointIndex) -> Path? {
        get { paths[endpoint.rawValue] }
        set {
            precondition(paths.indices.contains(endpoint.rawValue), "paths change only for the session's own endpoints")
            paths[endpoint.rawValue] = newValue
            if newValue != nil { detours.remove(endpoint) }
        }
    }

    /// Whether an attempt is worthwhile.
    var hasPath: Bool { !detours.isEmpty || paths.contains { $0 != nil } }

    /// Whether an attempt at this endpoint is worthwhile. One that may only find a detour is tried if none has a path.
    func isWorthwhile(_ endpoint: EndpointIndex) -> Bool {
        self[endpoint] != nil || detours.contains(endpoint) && paths.allSatisfy { $0 == nil }
    }

    /// Returns why the last attempt failed. The server is not to blame while the kernel uses an interface without a
    /// carrier.
    func explainedByCarrier(_ reason: Reason) -> Reason {
        guard [.unreachable, .dialTimeout].contains(reason.code), hasPath, paths.allSatisfy({ $0 == nil }) else {
            return reason
        }
        return Reason(
            .pathLost,
            "the interface that the kernel uses has no carrier, and it has not taken another one so far (see "
                + "ignore_routes_with_linkdown in the kernel's ip-sysctl): \(reason.message)")
    }

    /// Returns why an attempt without a path failed. The server is not to blame for that.
    func explainedByNoPath(_ reason: Reason) -> Reason {
        guard [.unreachable, .dialTimeout, .dnsFailed].contains(reason.code) else { return reason }
        let noPath = Reason(.noPath)
        return Reason(noPath.code, "\(noPath.message): \(reason.message)")
    }

    /// Notes whether the kernel may find a path to an endpoint that has none.
    mutating func setDetour(_ exists: Bool, to endpoint: EndpointIndex) {
        precondition(paths.indices.contains(endpoint.rawValue), "paths change only for the session's own endpoints")
        if exists { detours.insert(endpoint) } else { detours.remove(endpoint) }
    }

    /// Returns the first endpoint from the cursor on that has a path, and whose server need not be left alone then.
    ///
    /// - Parameter needsPath: whether to rely on what the kernel says.
    func next(at time: Instant, needsPath: Bool = true) -> EndpointIndex? {
        (0..<paths.count).lazy
            .map { EndpointIndex((cursor.rawValue + $0) % paths.count) }
            .first { (isWorthwhile($0) || !needsPath) && !mustRest($0, at: time) }
    }

    /// Returns the time, or a later one if the server of each endpoint that has a path asked to be left alone for longer.
    func allowed(_ time: Instant) -> Instant {
        let candidates = paths.indices.lazy.map(EndpointIndex.init).filter { isWorthwhile($0) || !hasPath }
        return candidates.map { max(time, restsUntil[$0] ?? time) }.min() ?? time
    }

    func mustRest(_ endpoint: EndpointIndex, at time: Instant) -> Bool {
        restsUntil[endpoint].map { time < $0 } ?? false
    }

    func after(_ endpoint: EndpointIndex) -> EndpointIndex { EndpointIndex((endpoint.rawValue + 1) % paths.count) }

    /// Returns the endpoint at which an outage begins: the first one that is not avoided, or the next one if all are.
    func beginning(after present: EndpointIndex) -> EndpointIndex {
        paths.indices.lazy.map(EndpointIndex.init).first { !stays.avoids($0) } ?? after(present)
    }

    /// Begins again at the first endpoint, and forgets how they answered.
    mutating func startOver() {
        cursor = Self.first
        stays.forget()
        watch.reset()
        returns.reset()
    }

    /// Where to knock now.
    mutating func knocksDue(at now: Instant) -> [EndpointIndex] { watch.due(paths, at: now) }

    var knockDeadline: Instant? { watch.deadline(paths) }

    // MARK: Sessions that may not use every network

    /// Notes that the kernel's own path to an endpoint is, or no longer is, one that the session must not use.
    mutating func exclude(_ path: Path?, to endpoint: EndpointIndex) {
        precondition(excluded.indices.contains(endpoint.rawValue), "paths change only for the session's own endpoints")
        excluded[endpoint.rawValue] = path
    }

    /// Returns why the session waits for the network. If there is a path that it must not use, this is why, whatever
    /// the network did before.
    func explained(_ reason: Reason) -> Reason {
        guard reason.code.group == .network || reason.code.group == .liveness else { return reason }
        if let path = excluded.lazy.compactMap({ $0 }).first {
            return Reason(
                .networkNotAllowed,
                "the only way to the endpoint is \(path.interface) (\(path.type.rawValue)), which the session may not use"
            )
        }
        return reason.code == .networkNotAllowed ? Reason(.noPath) : reason
    }

    /// The index of the interface to which a connection to the endpoint is bound; `nil` if it moves with the path.
    func binding(of endpoint: EndpointIndex) -> Int32? { isBound ? self[endpoint]?.interfaceIndex : nil }
}
