import ControlAPI
import MQTT
import NIOCore

// Most calls are `message.publish`. They run without a task each.
extension ControlConnection {
    /// Where messages go.
    struct Publishing {
        /// Messages for sessions that are being restarted, in order.
        var delayed: [String: [(call: RunningCall, parameters: MessagePublishMethod.Parameters)]] = [:]
        /// The session of the last publish or acknowledgement in this turn, during which nothing else happens.
        var route: (session: String, driver: SessionDriver)?
    }

    /// Publishes a message now, or once its session has been restarted.
    func publish(_ call: RunningCall, _ waiting: WaitingCall) {
        do throws(RPCError) {
            let parameters = try take(MessagePublishMethod.self, waiting.request.parameters, waiting.message)
            let session = parameters.session
            if publishing.delayed[session] != nil {
                publishing.delayed[session]?.append((call, parameters))
            } else if let driver = try driverNow(session) {
                try publish(parameters, on: driver, for: call)
            } else {
                publishing.delayed[session] = [(call, parameters)]
                Task { await publishDelayed(session) }
            }
        } catch {
            fail(call, error)
        }
    }

    /// - Returns: `nil` while the session is being restarted.
    func driverNow(_ session: String) throws(RPCError) -> SessionDriver? {
        if let route = publishing.route, route.session == session { return route.driver }
        let found = registry.assumeIsolated { registry in
            Result { () throws(RPCError) in try registry.driverNow(session) }
        }
        let driver = try found.get()
        publishing.route = driver.map { (session, $0) }
        return driver
    }

    /// Publishes the messages that waited for a session, all at once: those that follow must not overtake them.
    private func publishDelayed(_ session: String) async {
        defer { publishing.route = nil }
        do throws(RPCError) {
            var driver: SessionDriver?
            repeat {
                _ = try await registry.driver(session)
                // It may be about to be restarted again.
                driver = try driverNow(session)
            } while driver == nil
            guard let driver else { return }
            for (call, parameters) in publishing.delayed.removeValue(forKey: session) ?? [] {
                do throws(RPCError) {
                    try publish(parameters, on: driver, for: call)
                } catch {
                    fail(call, error)
                }
            }
        } catch {
            for (call, _) in publishing.delayed.removeValue(forKey: session) ?? [] { fail(call, error) }
        }
    }

    private func publish(
        _ parameters: MessagePublishMethod.Parameters, on driver: SessionDriver, for call: RunningCall
    ) throws(RPCError) {
        try demand(parameters.topic, to: .publish, for: MessagePublishMethod.name, in: driver)
        var call = call
        call.waitsForDelivery = parameters.wait == .delivered
        if call.waitsForDelivery {
            let timer = parameters.timeout.map { [call] timeout in
                channel.eventLoop.scheduleTask(in: .nanoseconds(Int64(min(timeout * 1e9, 1e18)))) { [weak self] in
                    _ = self?.assumeIsolated { $0.timedOut(call) }
                }
            }
            deliveries.add(call, to: driver.name, timer: timer)
        }
        hand(parameters, to: driver, for: call)
    }

    private func hand(
        _ parameters: MessagePublishMethod.Parameters, to driver: SessionDriver, for call: RunningCall
    ) {
        // Only a key is looked up first, which takes time: the session may be restarted in it. Other messages are not kept.
        let keyed = parameters.key == nil ? nil : parameters
        let publish = PublishCall(connection: id, number: call.number)
        driver.assumeIsolated { driver in
            driver.publish(parameters, for: publish) { [weak self] step in
                self?.assumeIsolated { connection in
                    if let keyed, case .ended(.failure(.sessionIsRestarting)) = step {
                        Task { await connection.handToNext(keyed, for: call) }
                        return true
                    }
                    return connection.published(call, step)
                } ?? false
            }
        }
    }

    /// The session was restarted before it could take the message.
    private func handToNext(_ parameters: MessagePublishMethod.Parameters, for call: RunningCall) async {
        do throws(RPCError) {
            hand(parameters, to: try await registry.driver(parameters.session), for: call)
        } catch {
            _ = published(call, .ended(.failure(error)))
        }
    }

    /// - Returns: whether the caller waits for more.
    private func published(_ call: RunningCall, _ step: Publisher.Step) -> Bool {
        switch step {
        case .accepted(let sequence, let isRepeated):
            guard let accepted = deliveries.accepted(call.number, as: sequence, isRepeated: isRepeated) else {
                return false
            }
            let mayWait = schedule { [id] scheduler, _ in
                scheduler.accepted(bytes: call.bytes, answer: call.answer, of: id)
            }
            guard accepted.isLate || !mayWait else { return true }
            _ = deliveries.ended(call.number)
            endUndelivered(call, accepted.message)
            return false
        case .ended(let result):
            var call = call
            if call.waitsForDelivery {
                guard let wasAccepted = deliveries.ended(call.number) else { return false }
                if wasAccepted { call.kind = .delivery }
            }
            switch result {
            case .success(let result): answered(call) { OutgoingLine.write($0, result, into: &$1) }
            case .failure(let error): fail(call, error)
            }
            return false
        }
    }

    private func timedOut(_ call: RunningCall) {
        guard let message = deliveries.timedOut(call.number) else { return }
        leave(call, message)
        endUndelivered(call, message)
    }

    /// The caller does not wait for the delivery of its message any more.
    func leave(_ call: RunningCall, _ message: PendingDeliveries.Message) {
        let call = PublishCall(connection: id, number: call.number)
        registry.assumeIsolated { $0.leave(call, of: message.sequence, in: message.session) }
    }

    /// Answers a call whose caller no longer waits for the delivery of its accepted message.
    func endUndelivered(_ call: RunningCall, _ message: PendingDeliveries.Message) {
        var call = call
        call.kind = .delivery
        var result = MessagePublishMethod.Result.accepted(message.sequence)
        if message.isRepeated { result.repeated = true }
        ended(call, CallReply(line: OutgoingLine.answer(call.id ?? .null, result: result)))
    }

    /// Answers a call in the way most calls end: one commit answers many. Their lines are added to the output at once,
    /// and what they held is given back with the flush at the end of this turn of the loop.
    func answered(_ call: RunningCall, _ write: @escaping (RequestID, inout [UInt8]) -> Void) {
        guard !isClosed, call.kind == .message, call.batch == nil else {
            var line: [UInt8] = []
            write(call.id ?? .null, &line)
            return ended(call, CallReply(line: line))
        }
        calls.answered()
        if let id = call.id, channel.isActive {
            output.append(answerTo: call) { write(id, &$0) }
        } else {
            output.append(answerTo: call, nil)
        }
        planFlush()
    }
}
