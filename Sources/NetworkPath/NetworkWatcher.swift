public import NIOCore
public import SessionCore

/// Watches the kernel's routing tables and reports what their changes mean for each target's path.
///
/// The shell around ``HintPacer`` (when to look) and ``PathClassifier`` (what a difference means). The kernel's
/// messages are only hints; what counts is the kernel's answer to a route lookup for the endpoint's own addresses. It
/// runs on the event loop that it is given, needs no capability, never blocks, and has no timer while the network is
/// quiet.
public actor NetworkWatcher {
    private nonisolated let eventLoop: any EventLoop
    public nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    private let receiveBuffer: Int32
    private let now: @Sendable () -> Instant
    private let pathChanged: @Sendable (PathChange) -> Void
    private let overrun: @Sendable () -> Void

    /// `idle` can transition to `running` (`start`) and `stopped` (`stop`), `running` to `stopped`.
    private enum State {
        case idle, running, stopped
    }
    private var state = State.idle
    /// `nil` unless it is running.
    private var sockets: Sockets?
    private var pacer = HintPacer()
    private var timer: (at: Instant, scheduled: Scheduled<Void>)?
    private var dumping = Dumping.none
    /// When the first hint arrived that no look has followed yet.
    private var oldestHint: Instant?

    private struct Sockets: ~Copyable {
        var lookup: RouteLookup
        let tables: TableReader
        /// `nil` until it is open.
        var hints: HintSource?
    }

    /// Whether the tables are being read.
    private enum Dumping {
        case none
        case underWay
        /// They have to be read again afterwards.
        case outdated
    }

    private struct Watched {
        var addresses: [IPAddress]
        var port: UInt16?
        var origin: AddressOrigin
        var classifier: PathClassifier
        /// What this host needs to reach the world, if the target is on this host itself; else `nil`.
        var beyond: PathClassifier?
    }
    private var watched: [Target: Watched] = [:]
    /// The keys of `watched` by session.
    private var targets: [String: [Target]] = [:]
    /// The policies of the sessions that may not use every network.
    private var policies: [String: NetworkPolicy] = [:]
    private var view = NetworkSnapshot()
    private var round = LookRound()
    private var isTurnAwaited = false
    /// What the kernel has answered since the last hint. Many targets may ask the same.
    private var answers: [Question: PathClassifier.Observation] = [:]

    private struct Question: Hashable {
        let addresses: [IPAddress]
        let port: UInt16?
        let origin: AddressOrigin
        let policy: NetworkPolicy?
    }

    /// - Parameters:
    ///   - eventLoop: where everything runs; one of NIO's own.
    ///   - now: the boot clock.
    ///   - receiveBuffer: bytes of kernel messages that may wait to be read.
    ///   - overrun: called on `eventLoop` when the kernel had more messages than may wait, or the socket failed. What
    ///     was lost does not matter: everything is read again.
    ///   - pathChanged: called on `eventLoop` for every change of a target's path, within a millisecond of the kernel's
    ///     message.
    public init(
        eventLoop: any EventLoop, now: @escaping @Sendable () -> Instant = { BootClock.now() },
        receiveBuffer: Int32 = 1 << 20, overrun: @escaping @Sendable () -> Void = {},
        pathChanged: @escaping @Sendable (PathChange) -> Void
    ) {
        self.eventLoop = eventLoop
        self.now = now
        self.receiveBuffer = receiveBuffer
        self.overrun = overrun
        self.pathChanged = pathChanged
    }

    /// Opens the sockets and reads the tables. When it returns, everything can be queried.
    ///
    /// The sockets belong to the network namespace of the event loop's thread.
    /// - Throws: ``NetlinkError/notStartable`` if it was called before, or the watcher is stopped, also while it starts;
    ///   or the error of opening the sockets. Tables that change too fast to be read are not an error: they are read a
    ///   second later.
    public func start() async throws(NetlinkError) {
        guard state == .idle else { throw .notStartable }
        sockets = Sockets(lookup: try RouteLookup(), tables: TableReader(try RequestSocket()))
        state = .running
        do throws(NetlinkError) {
            try await listen()
        } catch {
            stop()
            throw error
        }
        await dump()
    }

    private func listen() async throws(NetlinkError) {
        let opened = try await HintSource(
            receiveBuffer: receiveBuffer, on: eventLoop, now: now,
            .init(
                hinted: { [weak self] batch in self?.assumeIsolated { $0.hinted(batch) } },
                ended: { [weak self] in self?.assumeIsolated { $0.overran() } }))
        guard state == .running else {
            opened.close()
            throw .notStartable
        }
        sockets?.hints = opened
    }

    /// The socket lost messages.
    private func overran() {
        guard state == .running else { return }
        view.counters.overruns += 1
        overrun()
        listenAgain()
    }

    /// Replaces the socket that lost messages with a new one, and looks at all paths again.
    private func listenAgain() {
        guard state == .running else { return }
        Task {
            do throws(NetlinkError) {
                try await listen()
                hinted(HintBatch(messages: 0, receivedAt: now()))
            } catch {
                listenLater()
            }
        }
    }

    private func listenLater() {
        _ = eventLoop.scheduleTask(in: .seconds(1)) { [weak self] in
            self?.assumeIsolated { $0.listenAgain() }
        }
    }

    /// Closes the sockets. Nothing is reported afterwards, and the watcher cannot be started again.
    public func stop() {
        state = .stopped
        sockets?.hints?.close()
        sockets = nil
        timer?.scheduled.cancel()
        timer = nil
    }

    /// Watches a target, or gives it other addresses, and returns its path.
    ///
    /// If the target was watched before with the same addresses and origin, and has a path, nothing is looked up again,
    /// because every change is noticed anyway. Only the paths that it left behind are forgotten: a caller that sets a
    /// target has no connection on them. Without a path it is looked up again: the kernel may have found one silently.
    ///
    /// - Parameters:
    ///   - target: the target whose path is watched.
    ///   - addresses: the preferred first; none if the name does not resolve yet.
    ///   - port: the TCP port, by which the kernel may choose the route too; `nil` if any.
    ///   - origin: where the addresses come from.
    /// - Returns: the path; `nil` if there is none.
    @discardableResult
    public func setTarget(
        _ target: Target, addresses: [IPAddress], port: UInt16? = nil, origin: AddressOrigin = .literal
    ) -> Path? {
        let addresses = addresses.map(\.unmapped)
        if let before = watched[target], before.addresses == addresses, before.port == port, before.origin == origin,
            let path = before.classifier.current.path
        {
            watched[target]?.classifier.forgetLeftBehind()
            return path
        }
        let classifier = PathClassifier(
            observe(addresses, port, origin, for: target.session), isUnresolved: addresses.isEmpty)
        var watch = Watched(addresses: addresses, port: port, origin: origin, classifier: classifier)
        if classifier.current.path?.staysHere == true {
            watch.beyond = PathClassifier(
                Self.beyond(observe([], nil, .name, for: target.session)), isUnresolved: true)
        }
        if sockets?.lookup.takeFailure() == true { lookLater() }
        if watched.updateValue(watch, forKey: target) == nil { targets[target.session, default: []].append(target) }
        return classifier.current.path
    }

    /// Sets which networks a session may use. Must be called before the session's targets are set; without it, a
    /// session may use all networks.
    /// - Parameters:
    ///   - policy: the session's policy.
    ///   - session: the session's name.
    public func setPolicy(_ policy: NetworkPolicy, ofSession session: String) {
        policies[session] = policy.isBinding ? policy : nil
    }

    /// Stops watching the targets of this session, and forgets which networks it may use.
    /// - Parameter session: the session's name.
    public func removeTargets(ofSession session: String) {
        for target in targets.removeValue(forKey: session) ?? [] { watched[target] = nil }
        policies[session] = nil
    }

    /// Returns the kernel's own path to a target if it is one that the session must not use.
    public func excluded(_ target: Target) -> Path? {
        watched[target]?.classifier.current.excluded
    }

    /// Whether an attempt at a target without a path is worthwhile: the interface that the kernel names has no carrier,
    /// and another one has a route that the kernel takes once packets have got nowhere, of which it does not tell.
    public func hasDetour(_ target: Target) -> Bool {
        watched[target]?.classifier.current.hasDetour ?? false
    }

    /// Looks up the path to each of the addresses, all through one interface that the session may use; `nil` for those
    /// that cannot be reached through it.
    /// - Parameters:
    ///   - addresses: the preferred first.
    ///   - port: the TCP port; `nil` if any.
    ///   - session: the session's name.
    public func paths(to addresses: [IPAddress], port: UInt16? = nil, ofSession session: String) -> [Path?] {
        sockets?.lookup.port = port
        return sockets?.lookup.paths(
            to: addresses.map(\.unmapped), for: policies[session] ?? .init(), among: view.links)
            ?? addresses.map { _ in nil }
    }

    /// Tells the watcher that the resolver has a new configuration: names may resolve differently, or for the first
    /// time.
    public func resolverChanged() {
        guard state == .running else { return }
        let time = now()
        for (target, watched) in watched.sorted(by: { $0.key < $1.key }) where watched.origin != .literal {
            let current = watched.classifier.current
            report(
                PathChange(
                    target: target, pathClass: .maybe, from: current.path, to: current.path,
                    excluded: current.excluded, hasDetour: current.hasDetour, receivedAt: time))
        }
    }

    /// Looks at all paths as after a message of the kernel, because a connection could not be made: not every change is
    /// announced, as when a route that a router has advertised expires.
    public func lookAgain() {
        guard state == .running else { return }
        perform(pacer.hinted(at: now()))
    }

    /// Looks up the path to the first of the addresses that has one.
    /// - Parameter addresses: the preferred first; none for the path of the default routes.
    /// - Returns: `nil` if there is no path, and before ``start()``.
    public func path(to addresses: [IPAddress]) -> Path? {
        sockets?.lookup.port = nil
        return sockets?.lookup.observe(addresses.map(\.unmapped)).path
    }

    /// The view that people are shown.
    public func snapshot() -> NetworkSnapshot {
        var snapshot = view
        snapshot.paths = watched.mapValues(\.classifier.current.path)
        snapshot.excluded = watched.compactMapValues(\.classifier.current.excluded)
        snapshot.counters.lookups = sockets?.lookup.count ?? 0
        return snapshot
    }

    /// How many interfaces and paths ``snapshot()`` has.
    public var listed: (interfaces: Int, paths: Int) { (view.interfaces.count, watched.count) }

    // MARK: - Hints and deadlines

    private func hinted(_ batch: HintBatch) {
        guard state == .running else { return }
        view.counters.hints += batch.messages
        oldestHint = oldestHint ?? batch.receivedAt
        perform(pacer.hinted(at: now()))
    }

    private func deadlineReached() {
        guard state == .running else { return }
        timer = nil
        perform(pacer.deadlineReached(at: now()))
    }

    private func perform(_ actions: [HintPacer.Action]) {
        for action in actions {
            switch action {
            case .look: look()
            case .dump: Task { await dump() }
            }
        }
        arm()
    }

    private func arm() {
        guard timer?.at != pacer.nextDeadline else { return }
        timer?.scheduled.cancel()
        guard let deadline = pacer.nextDeadline else {
            timer = nil
            return
        }
        let delay = max(.zero, now().duration(to: deadline))
        let scheduled = eventLoop.scheduleTask(in: .nanoseconds(delay.nanoseconds)) { [weak self] in
            guard let self else { return }
            self.assumeIsolated { $0.deadlineReached() }
        }
        timer = (deadline, scheduled)
    }

    // MARK: - Looking

    private func look() {
        look(at: watched.keys.sorted(), receivedAt: oldestHint ?? now())
        oldestHint = nil
    }

    private func look(at targets: [Target], receivedAt: Instant) {
        round.add(targets, receivedAt: receivedAt)
        answers = [:]
        if !isTurnAwaited { takeTurn() }
    }

    private func takeTurn() {
        isTurnAwaited = false
        guard state == .running else { return }
        let receivedAt = round.receivedAt ?? now()
        for target in round.turn() { look(at: target, receivedAt: receivedAt) }
        guard !round.isOver else {
            answers = [:]
            return
        }
        isTurnAwaited = true
        // Not at once: the loop polls before this is due, so that others come in between.
        _ = eventLoop.scheduleTask(in: .milliseconds(1)) { [weak self] in self?.assumeIsolated { $0.takeTurn() } }
    }

    private func look(at target: Target, receivedAt: Instant) {
        guard let before = watched[target],
            let observation = answer(before.addresses, before.port, before.origin, for: target.session)
        else { return }
        let pathClass = watched[target]?.classifier.handle(
            observation, oldSourceRemains: { sockets?.lookup.hasSource(of: $0) ?? false }, at: now())
        guard let pathClass else { return }
        let old = before.classifier
        var change = PathChange(
            target: target, pathClass: pathClass,
            from: pathClass == .movedSourceGone ? old.lastPath : old.current.path, to: observation.path,
            excluded: observation.excluded, hasDetour: observation.hasDetour, receivedAt: receivedAt)
        if pathClass == .none { change.pathClass = lookBeyond(target) }
        if change.pathClass != .none {
            report(change)
        } else {
            view.counters.changes[.none, default: 0] += 1
            // An interface with another name is shown by it.
            if change.from != change.to { pathChanged(change) }
        }
        reportDepartures(from: target, receivedAt: receivedAt)
        // Any program's packets may make the kernel take the other route, and a connection is held for a while.
        if watched[target]?.classifier.mayReturnSilently(at: now()) == true { lookLater() }
        if sockets?.lookup.takeFailure() == true { lookLater() }
    }

    /// Returns what the kernel answers, or has answered since the last hint; `nil` if it does not: then nothing is known,
    /// and what was seen last still counts.
    private func answer(
        _ addresses: [IPAddress], _ port: UInt16?, _ origin: AddressOrigin, for session: String
    ) -> PathClassifier.Observation? {
        guard sockets != nil else { return nil }
        let question = Question(addresses: addresses, port: port, origin: origin, policy: policies[session])
        if let known = answers[question] { return known }
        let observation = observe(addresses, port, origin, for: session)
        guard sockets?.lookup.takeFailure() == false else {
            lookLater()
            return nil
        }
        answers[question] = observation
        return observation
    }

    /// Looks at the default routes for a target on this host, because what listens there may be a proxy, or a tunnel: it
    /// needs the network, whose return changes nothing about the path to the target.
    /// - Returns: what the change of the default routes means for such a target.
    private func lookBeyond(_ target: Target) -> PathClass {
        guard watched[target]?.beyond != nil, let observation = answer([], nil, .name, for: target.session) else {
            return .none
        }
        let pathClass = watched[target]?.beyond?.handle(
            Self.beyond(observation), oldSourceRemains: { _ in true }, at: now())
        // It is for whatever listens there to find out that the network is gone.
        return pathClass == .lost ? .none : pathClass ?? .none
    }

    /// Returns what was seen of the default routes without the networks that the host itself is in: those lead nowhere from
    /// a proxy on this host.
    private static func beyond(_ observation: PathClassifier.Observation) -> PathClassifier.Observation {
        observation.path?.isToNeighbours == true ? PathClassifier.Observation() : observation
    }

    private func lookLater() {
        pacer.lookFailed(at: now())
        arm()
    }

    /// Reports the paths that were left behind and whose source address has left the host.
    ///
    /// The receiver of a change may set the target again, so the classifier is read again each time.
    private func reportDepartures(from target: Target, receivedAt: Instant) {
        while let path = watched[target]?.classifier.departure(
            oldSourceRemains: { sockets?.lookup.hasSource(of: $0) ?? true })
        {
            let current = watched[target]?.classifier.current
            report(
                PathChange(
                    target: target, pathClass: .movedSourceGone, from: path, to: current?.path,
                    excluded: current?.excluded, receivedAt: receivedAt))
        }
    }

    private func observe(
        _ addresses: [IPAddress], _ port: UInt16?, _ origin: AddressOrigin, for session: String
    ) -> PathClassifier.Observation {
        sockets?.lookup.port = port
        let policy = policies[session] ?? .init()
        _ = sockets?.lookup.takeDeadEnds()
        var observation =
            sockets?.lookup.observe(addresses, orAnywhere: origin == .name, for: policy, among: view.links) ?? .init()
        guard observation.path == nil else { return observation }
        if let deadEnds = sockets?.lookup.takeDeadEnds(), !deadEnds.isEmpty, !policy.isBinding {
            observation.hasDetour = hasDetour(
                to: addresses.isEmpty ? RouteLookup.anywhere : addresses, around: deadEnds)
        }
        guard addresses.isEmpty else { return observation }
        // Without a route beyond the host's own networks, the name may still be a neighbour's; until it resolves, that
        // is unknown.
        let neighbours = view.neighbours
        guard !neighbours.isEmpty,
            var nearby = sockets?.lookup.observe(neighbours, orAnywhere: false, for: policy, among: view.links),
            nearby.path != nil
        else { return observation }
        nearby.path?.isToNeighbours = true
        return nearby
    }

    /// Whether another default route leads to one of the addresses, and the kernel takes it once packets have got nowhere:
    /// with IPv6 always, with IPv4 only one with the same metric as that of the interface without a carrier.
    private func hasDetour(to addresses: [IPAddress], around deadEnds: Set<Int32>) -> Bool {
        let names = Set(view.links.filter { deadEnds.contains($0.index) }.map(\.name))
        let left = view.defaultRoutes.filter { $0.family == .ipv4 && names.contains($0.interface) }
        for route in view.defaultRoutes {
            guard let link = view.links.first(where: { $0.name == route.interface }),
                route.family == .ipv6
                    || left.contains(where: { $0.table == route.table && $0.metric == route.metric })
            else { continue }
            for address in addresses where address.family == route.family {
                if sockets?.lookup.path(to: address, by: link) != nil { return true }
            }
        }
        return false
    }

    private func report(_ change: PathChange) {
        view.counters.changes[change.pathClass, default: 0] += 1
        if view.changes.count == Self.changesKept { view.changes.removeFirst() }
        view.changes.append(change)
        pathChanged(change)
    }

    private static let changesKept = 32

    // MARK: - Reading the tables

    private func dump() async {
        guard let tables = sockets?.tables else { return }
        guard dumping == .none else {
            dumping = .outdated
            return
        }
        dumping = .underWay
        let result: Result<TableReader.Tables, NetlinkError>
        do throws(NetlinkError) {
            result = .success(try await tables.read())
        } catch {
            result = .failure(error)
        }
        let isOutdated = dumping == .outdated
        dumping = .none
        guard state == .running else { return }
        switch result {
        case .success(let tables):
            let (links, neighbours, defaultRoutes) = (view.links, view.neighbours, view.defaultRoutes)
            view.interfaces = tables.interfaces
            view.defaultRoutes = tables.defaultRoutes
            view.takenAt = now()
            view.counters.dumps += 1
            sockets?.lookup.keepTypes(ofInterfaces: tables.interfaces)
            let mayHaveNeighbours = neighbours != view.neighbours
            let affected = watched.filter { target, watched in
                // An interface that was not known before may be one that the session is allowed to use.
                links != view.links && policies[target.session] != nil
                    || mayHaveNeighbours && watched.addresses.isEmpty
                    || defaultRoutes != view.defaultRoutes && watched.classifier.current.path == nil
            }
            if !affected.isEmpty { look(at: affected.keys.sorted(), receivedAt: now()) }
        case .failure:
            view.counters.interruptedDumps += 1
            pacer.dumpFailed(at: now())
        }
        if isOutdated { pacer.dumpFailed(at: now()) }
        arm()
    }
}
