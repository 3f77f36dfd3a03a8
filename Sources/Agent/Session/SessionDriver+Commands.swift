import Configuration
import ControlAPI
import MQTT
import NIOCore
import Session
import SessionCore
import Transport

// The life of a driver, and what people ask of its session.

extension SessionDriver {
    /// Takes up the session: see ``Session/Session/start(_:wasUp:in:standing:under:)``.
    func start(_ stored: StoredSession, wasUp: Bool = false, after history: CarriedOver.History? = nil) {
        for index in configuration.endpoints.indices {
            let endpoint = EndpointIndex(index)
            guard surroundings.paths.hasDetour(endpoint, of: name) else { continue }
            ask { $0.take(.machine(.detour(endpoint, true))) }
        }
        if configuration.network.isBinding {
            for index in configuration.endpoints.indices {
                let excluded = surroundings.paths.excluded(EndpointIndex(index), of: name)
                ask { $0.take(.machine(.pathExcluded(EndpointIndex(index), excluded))) }
            }
        }
        // The clock may have been set since it was read.
        var stored = stored
        stored.verdict = session.verdict
        let verdict = ask {
            $0.start(
                stored, wasUp: wasUp, in: history?.outage, standing: history?.standing, under: configuration.digest)
        }
        if let verdict { since = verdict.since }
        run()
        loadConsumers()
        watchCredential()
        surroundings.report(name, nil)
    }

    /// Like the other commands, returns when the decision is durable: a crash must not undo what was answered.
    func connect() async throws(RPCError) -> SessionState {
        try await command(.connect(Reason(.userConnect)))
    }

    func disconnect() async throws(RPCError) -> SessionState {
        try await command(.disconnect(Reason(.userDisconnect)))
    }

    func reconnect(_ mode: ReconnectMode?) async throws(RPCError) -> SessionState {
        try await command(.reconnect(mode))
    }

    private func command(_ input: SessionMachine.Input) async throws(RPCError) -> SessionState {
        try checkRunning()
        take(input)
        let state = session.state
        // That may be the decision of an earlier call, which the disk has not taken yet.
        let isRemembered = traffic.verdicts == 0 && input != .reconnect(.full)
        if !isRemembered { try await everythingRemembered("session \(name) is \(state.rawValue)") }
        return state
    }

    var isStopping: Bool { life != .running }

    /// What the last command comes to. The wait ends early when the task is cancelled.
    ///
    /// - Parameter limit: how long to wait; `nil`: as long as it takes.
    func outcome(within limit: Duration?) async -> SessionStateResult {
        let outcome: SessionOutcome
        if let reached = SessionOutcome(session.state) {
            outcome = reached
        } else {
            let call = programs.commanding.next()
            outcome = await withTaskCancellationHandler {
                await withCheckedContinuation { continuation in
                    programs.commanding.add(call) { continuation.resume(returning: $0) }
                    run(.awaitOutcome(call, until: limit.map { now.advanced(by: $0) }))
                }
            } onCancel: {
                eventLoop.execute { self.assumeIsolated { $0.forgetOutcome(call) } }
            }
        }
        return SessionStateResult(
            state: session.state, outcome: outcome, reason: reason(session.machine.status.reason))
    }

    private func forgetOutcome(_ call: CallID) {
        run(.forgetOutcome(call))
        programs.commanding.answer([call], .timeout)
    }

    /// - Throws: ``RPCError/sessionIsRestarting`` when this driver decides nothing any more.
    func checkRunning() throws(RPCError) {
        if isStopping { throw .sessionIsRestarting }
    }

    /// Leaves the server and returns when the session is down; nothing happens afterwards.
    ///
    /// What was accepted stays in the store.
    ///
    /// - Parameters:
    ///   - parting: how it leaves the server, if it is connected.
    ///   - hasNext: the session's next driver takes over the publishers that wait for delivery. Otherwise they are told
    ///     that it has not happened yet.
    /// - Returns: what outlives this driver. After a stop for good, `leftBehind` is what the server may keep all the
    ///   same, in words, or `nil` if nothing.
    func stop(
        _ reason: Reason, _ parting: Session.Parting = .leavingRoom, hasNext: Bool = false
    ) async -> (carriedOver: CarriedOver, leftBehind: String?) {
        life = .stopping
        let outage = session.machine.outage
        run(.stop(reason, parting))
        await untilDown()
        let leftBehind = parting == .forGood ? ask { $0.leftBehind() } : nil
        if let leftBehind { log.leftBehind(leftBehind) }
        ask { $0.end() }
        run()
        endWatch()
        // Completing a commit may lead to more commits. Repeat until there are none, so that the next driver reads all
        // of them.
        var decided = 0
        var unstored: [SessionChange] = []
        repeat {
            decided = traffic.commits
            guard await everythingCommitted() != nil else { continue }
            // Written later, these changes would contradict what the next driver has read by then.
            unstored = await surroundings.commits.giveUp(name)
            break
        } while decided != traffic.commits
        life = .over
        let publishers = programs.publishers
        programs.publishers = Publishers()
        programs.queueing.answerAll(())
        programs.keying.answerAll(nil)
        surroundings.paths.forget(name)
        tell()
        programs.subscribing.answerAll(nil)
        var live = session.consumers
        _ = live.connectionEnded()
        // The calls of these are repeated at the next driver.
        for subscription in session.durableConsumers.attaching { programs.subscribers[subscription] = nil }
        var carriedOver = CarriedOver(
            live: live, attached: session.durableConsumers.attached, subscribers: programs.subscribers,
            publishers: publishers, credential: session.credentials.given, tls: tlsContexts.lastFiles,
            history: .init(
                counters: session.machine.counters, messages: session.counts, outage: outage,
                standing: session.rooms.membership?.standing),
            clock: clockSteps, unstored: unstored.filter(\.outlivesDriver))
        if !hasNext { carriedOver.releasePublishers() }
        return (carriedOver, leftBehind)
    }
}

extension SessionChange {
    /// Whether the session's next driver has to make up for it, if the disk has not taken it. The protocol goes on as after
    /// a crash.
    fileprivate var outlivesDriver: Bool {
        if case .mqtt = self { clockStep != nil } else { true }
    }
}

extension RPCError {
    /// The driver was stopped before it could answer the call. Programs never see this error: the call goes to the
    /// session's next driver, or the program is told that the daemon is stopping.
    static var sessionIsRestarting: RPCError {
        RPCError(.shuttingDown, "the session is being restarted", hint: "try again")
    }
}
