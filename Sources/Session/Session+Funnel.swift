import ControlAPI
package import MQTT
import NIOCore
package import SessionCore

// The funnel: inputs wait in one queue, and each is handled completely before the next. The actions that result are
// collected, and the driver carries them out before the next input.

extension Session {
    // MARK: In and out

    /// Adds an input to the end of the queue.
    package mutating func take(_ input: Input) { funnel.work.append(.input(input)) }

    /// Puts the answer to an action ahead of everything in the queue. Call it while the driver carries out that action.
    package mutating func answer(_ input: Input) { funnel.work.prepend(.input(input)) }

    /// Handles the consequences of the messages that were accepted at that time. Call it only before ``next(at:)``.
    package mutating func commitAccepted(at time: Timestamp) {
        withAnswers { $0.mqtt.commitAccepted(at: time, into: &$1) }
    }

    /// Gives the protocol machine an input that it needs before any other. Call it between two inputs.
    package mutating func handleFirst(_ input: MQTTClientMachine.Input, at moment: Moment) {
        self.moment = moment
        handle(input)
    }

    /// Whether there is anything left to decide or to carry out.
    package var hasWork: Bool { !funnel.work.isEmpty || !funnel.actions.isEmpty }

    /// Handles the next input. When the queue is empty, decides what follows from all of them together.
    ///
    /// - Returns: `false` when nothing is left to decide or to carry out.
    package mutating func next(at moment: Moment) -> Bool {
        self.moment = moment
        if let work = funnel.work.popFirst() {
            carryOut(work)
            return true
        }
        noteUses()
        endSettling()
        endRoomChange()
        fetchLeftOut()
        readOn()
        guard funnel.work.isEmpty else { return true }
        dropUnwantedKnocks()
        dropUnwantedSuccessor()
        adjustReading()
        return !funnel.actions.isEmpty
    }

    /// Swaps the actions to carry out for an empty buffer.
    package mutating func exchangeActions(_ buffer: inout [Action]) { swap(&funnel.actions, &buffer) }

    /// Drops the link and the look, before the session's value is discarded.
    package mutating func end() {
        dropLink()
        endProtocol()
        endRoomChange()
        stopLooking()
    }

    mutating func act(_ action: Action) { funnel.actions.append(action) }

    mutating func tellMachine(_ input: SessionMachine.Input) { take(.machine(input)) }

    /// Tells the session machine what the protocol machine found out about the current link.
    mutating func tellMachine(_ input: (Generation) -> SessionMachine.Input) {
        if let link { tellMachine(input(link.generation)) }
    }

    mutating func renew(because reason: Reason) { tellMachine(.renew(reason)) }

    mutating func retire(_ generation: Generation, _ ending: SessionMachine.Ending) {
        funnel.work.append(.retire(generation, ending, .connectionClosed))
    }

    // MARK: Inputs

    private mutating func carryOut(_ work: Work) {
        switch work {
        case .input(let input):
            carryOut(input)
        case .onLink(let generation, let input):
            if link?.generation == generation { handle(input) }
        case .announce(let announcement):
            withAnswers { $0.mqtt.announce(announcement, at: $0.wallClock, into: &$1) }
            checkRestored()
        case .subscribe(let filter, let qos):
            subscribe(to: filter, qos: qos)
        case .retire(let generation, let ending, let end):
            linkRetired(generation, ending, end)
        case .greet(let generation):
            greet(generation)
        case .lookUp(let endpoint, let watch):
            act(.lookUp(endpoint, watch))
        case .measure:
            if let link, let connection = link.connection { act(.measure(link.generation, connection)) }
        case .endRenewal:
            credentials.endRenewal()
        case .endProtocol:
            endProtocol()
        case .continueWith(let actions):
            perform(actions[...])
        case .moved(let endpoint, let path):
            handle(.pathChanged(endpoint, to: path, .movedSourceKept))
        case .due:
            carryOutDue()
        }
    }

    private mutating func handle(_ input: SessionMachine.Input) {
        noteRemains()
        machine.awaitsStore = mqtt.awaitsStore
        var actions: [SessionMachine.Action] = []
        let awaitedFile = machine.failureOfFile != nil
        machine.handle(input, at: now, into: &actions)
        perform(actions[...])
        // Every change of the state begins a watch as well.
        if !awaitedFile, machine.failureOfFile != nil, state != .failed { act(.watchCredential) }
    }

    private mutating func carryOut(_ input: Input) {
        switch input {
        case .machine(.pathChanged(let endpoint, _, let path, .movedSourceKept))
        where machine.needsMeasurementToMove(at: now):
            funnel.work.prepend(.moved(endpoint, to: path))
            if let link, let connection = link.connection { act(.measure(link.generation, connection)) }
        case .machine(let input):
            if case .measured(link?.generation, let measurement) = input {
                mqtt.measured(
                    acknowledged: measurement.acknowledgedBytes, pending: measurement.pendingBytes, at: wallClock)
            }
            switch input {
            case .connect(let reason) where reason.code == .userConnect: rememberStart(reason)
            case .reconnect: rememberStart(Reason(.userReconnect))
            default: break
            }
            handle(input)
            // Nothing claims the session that is to be discarded, not even after a restart of the daemon.
            if case .reconnect(.full) = input { take(.mqtt(.forgetSession)) }
        case .mqtt(let input):
            handle(input)
        case .connection(let id, let event):
            take(event, of: id)
        case .retire(let generation, let ending):
            linkRetired(generation, ending, .connectionClosed)
        case .pathFound(let endpoint, let path, let excluded):
            // Only the addresses that are watched have changed. That is not an event, unless it ends the wait for the
            // network.
            let isGained = path != nil && machine.status.phase == .waitingForNetwork
            answer(.machine(.pathChanged(endpoint, to: path, isGained ? .gained : .none)))
            if settings.isBound { answer(.machine(.pathExcluded(endpoint, excluded))) }
        case .readOn(let generation):
            guard link?.generation == generation else { return }
            link?.flow.readsOn = false
            handle(.readOn)
        case .fetchQueued(let use):
            if let generation = use.generation { handle(.credentialQueued(generation)) }
        case .fetchBegun(let use):
            if let generation = use.generation { handle(.credentialAwaited(generation)) }
        case .fetched(let use, let credential):
            fetched(credential, for: use)
        case .notFetched(let use, let sentence):
            notFetched(sentence, for: use)
        case .keyDerived(let generation, let key):
            if link?.generation == generation { handle(.keyDerived(key)) }
        case .credentialGiven(let credential):
            given(credential)
        case .stored(let changes, let isComplete):
            stored(changes, isComplete: isComplete)
        case .join(let name, let call):
            join(name, for: call)
        case .subscribe(let filter, let call):
            subscribe(to: filter, for: call)
        case .consume(let consumer, let call):
            consumers.add(consumer)
            subscribe(to: consumer.filter, isLive: true, for: call)
        case .unsubscribe(let subscription):
            unsubscribeIfUnwanted(consumers.remove(subscription))
        case .detach(let subscription):
            detach(subscription)
        case .endKey(let key, let turn):
            if let next = calls.keys.end(key, turn) { act(.answer([next.call], .keyTurn(next.turn))) }
        case .awaitQueue(let call):
            if calls.queueTurns.begin(call) { act(.answer([call], .turn)) }
        case .endQueue:
            if let next = calls.queueTurns.end() { act(.answer([next], .turn)) }
        case .awaitOutcome(let call, let limit):
            calls.outcomeWaiters.add(call, until: limit)
        case .forgetOutcome(let call):
            calls.outcomeWaiters.remove(call)
        case .stop(let reason, let parting):
            stop(because: reason, parting)
        case .timeReached:
            let isAnswerDue = mqtt.nextDeadline.map { $0 <= wallClock } ?? false
            if isAnswerDue || machine.needsMeasurement(at: now) { funnel.work.append(.measure) }
            checkCredentialEnd()
            funnel.work.append(.due)
        }
    }

    // MARK: Time

    private mutating func carryOutDue() {
        lookIsDue()
        reauthenticationIsDue()
        for due in losses.timeReached(at: now) {
            switch due {
            case .tellDropped(let count): act(.tell(.dropped(count)))
            case .resumeCollecting: take(.mqtt(.resumeCollecting))
            }
        }
        act(.answer(calls.outcomeWaiters.timeReached(at: now), .outcome(.timeout)))
        take(.mqtt(.timePassed))
        tellMachine(.timeReached)
    }

    // MARK: Actions of the session machine

    private mutating func perform(_ actions: ArraySlice<SessionMachine.Action>) {
        for index in actions.indices {
            switch actions[index] {
            // The replacement of the link is dialed first: what the protocol does at the end of a link takes longer.
            case .open, .report(.reconnectStarted), .report(.pathChanged), .report(.connectionLost),
                .report(.qualityChanged), .report(.credentialExpiring), .report(.reconnectCompleted):
                break
            default:
                guard connections.untoldEnd == nil else {
                    funnel.work.prepend(.continueWith(Array(actions[index...])))
                    funnel.work.prepend(.endProtocol)
                    return
                }
            }
            perform(actions[index])
        }
        if connections.untoldEnd != nil { funnel.work.prepend(.endProtocol) }
    }

    private mutating func perform(_ action: SessionMachine.Action) {
        switch action {
        case .open(let attempt):
            open(attempt)
        case .abandon(let generation):
            if link?.generation == generation { dropLink() }
        case .prepare(let attempt):
            prepareSuccessor(attempt)
        case .settle(let generation):
            funnel.work.append(.onLink(generation, .settle))
        case .leave(let generation):
            leave(generation)
        case .flush:
            link?.step = .flushing
            if parting == .stayingInRoom, !canLeaveUnseen { parting = .leavingRoom }
            if parting != .stayingInRoom { perform(rooms.leave()) }
            leavePublications()
            checkFlushed()
        case .sayGoodbye:
            link?.step = .none
            // If the others in the room may not know yet that the session left, the will tells them; also if it stays, but
            // does not come back.
            let keepsWill = rooms.isLeaving || parting == .stayingInRoom
            take(.mqtt(.disconnect(keepsWill ? .disconnectWithWill : .normalDisconnection)))
        case .sendHeartbeat:
            take(.mqtt(.ping))
            // How much is ahead of it.
            funnel.work.append(.measure)
        case .renewCredential(let generation):
            if settings.hasPassword { act(.fetch(.renewal(generation))) }
        case .knock(let endpoint):
            knock(at: endpoint)
        case .report(let event):
            report(event)
        }
    }

    private mutating func report(_ event: SessionMachine.Event) {
        let status = machine.status
        var eventAddress: Endpoint?
        if case .pathChanged(_, let endpoint, _, _) = event { eventAddress = address(of: endpoint) }
        if case .stateChanged(let from, _) = event { stateChanged(from: from, to: status.state) }
        act(
            .report(
                Report(
                    event: event, instant: now, time: wallClock, status: status,
                    address: status.endpoint.map { address(of: $0) }, eventAddress: eventAddress,
                    liveness: machine.liveness, credentialEnd: credentialEnd, room: room?.name)))
        if case .qualityChanged(let quality) = event {
            // The others in the room learn how good this session's connection is.
            perform(rooms.qualityChanged(quality, isConnected: status.state == .connected))
        }
    }

    /// The address of an endpoint, or the one that its attempt was redirected to.
    package func address(of endpoint: EndpointIndex) -> Endpoint {
        if let link, link.attempt.endpoint == endpoint { return link.address }
        return settings.endpoints[endpoint.rawValue]
    }

    private mutating func stateChanged(from: SessionState, to state: SessionState) {
        guard from != state else {
            switch state {
            case .disconnected, .disconnecting:
                // Somebody disconnected a session that was idle or asleep, or about to be.
                rememberVerdict(state)
                leavePublications()
            // A planned reconnect may have become an outage.
            case .reconnecting: rememberVerdict(state)
            case .connecting, .connected, .failed: break
            }
            return
        }
        if state == .disconnected { connections.lastOpened = nil }
        if from == .failed || state == .connected || state == .disconnected { credentials.authorities = nil }
        rememberVerdict(state)
        if state == .failed { failed(because: machine.reason) }
        act(.watchCredential)
        if let (calls, outcome) = calls.outcomeWaiters.stateChanged(to: state) {
            act(.answer(calls, .outcome(outcome)))
        }
        if state != .disconnecting { act(.isDown) }
    }

    // MARK: After every input
    //
    // What depends on the state of several values is looked at here, because any input may change it.

    /// Tells the session machine which uses have begun and ended: programs, messages and publications.
    private mutating func noteUses() {
        guard settings.notesUses else { return }
        for use in changedUses { tellMachine(use) }
    }

    /// Resumes what was held back if the connection is kept after all. Checked after every input, so that the code that
    /// ends a hand-over need not do it.
    private mutating func endSettling() {
        if mqtt.isSettling, !machine.isSettling { take(.mqtt(.stopSettling)) }
    }

    /// Reconnects to receive the messages that were left out because there was no room to hold them, once there is.
    private mutating func fetchLeftOut() {
        if mqtt.hasRoomForLeftOut, state == .connected { renew(because: Reason(.inboxRoom)) }
    }

    mutating func checkFlushed() {
        guard let link, link.step == .flushing, mqtt.counts.queued == 0, mqtt.counts.inFlight == 0, !mqtt.isAnnouncing,
            !funnel.work.contains(where: \.isOrder)
        else { return }
        self.link?.step = .none
        tellMachine(.flushed(link.generation))
    }
}

extension Session.Work {
    /// Whether the session itself asks something of the protocol.
    fileprivate var isOrder: Bool {
        switch self {
        case .announce, .subscribe: true
        default: false
        }
    }
}
