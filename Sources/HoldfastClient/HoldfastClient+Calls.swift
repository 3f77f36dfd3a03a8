public import ControlAPI
internal import NIOCore

extension HoldfastClient {
    /// Calls a method and waits for its result.
    ///
    /// - Parameter timeout: how long to wait for the answer; `nil`: as long as the connection lasts.
    /// - Throws: ``ClientError/refused(_:)`` with the daemon's error; ``ClientError/connectionLost``,
    ///   ``ClientError/dismissed(_:)``, ``ClientError/timeout`` or ``ClientError/cancelled`` if it is not known whether
    ///   the call was carried out; ``ClientError/invalidAnswer(_:)`` if the result cannot be read; other errors if the
    ///   request was not sent.
    public func call<Method: ControlMethod>(
        _ method: Method.Type, _ parameters: Method.Parameters, timeout: Duration? = nil
    ) async throws(ClientError) -> Method.Result {
        try Self.decode(Method.Result.self, from: try await callUndecoded(method, parameters, timeout: timeout))
    }

    /// Calls a method and returns its result as the daemon wrote it, including members that this version does not know.
    ///
    /// - Parameter timeout: how long to wait for the answer; `nil`: as long as the connection lasts.
    /// - Throws: as ``call(_:_:timeout:)``; the result is not checked.
    public func callUndecoded<Method: ControlMethod>(
        _ method: Method.Type, _ parameters: Method.Parameters, timeout: Duration? = nil
    ) async throws(ClientError) -> JSONValue {
        try await attach()
        let id = nextID()
        let line = try Self.line(method, parameters, id: id)
        return try await answer(to: line, id: id, timeout: timeout).get()
    }

    /// Sends a request on the present connection, and returns the answer.
    func answer(to line: [UInt8], id: Int64, timeout: Duration?) async -> Answer {
        await withTaskCancellationHandler {
            await withCheckedContinuation { send(line, id: id, as: .call($0), timeout: timeout) }
        } onCancel: {
            cancel([id])
        }
    }

    /// Calls a method several times. The requests are written in this order, without waiting for answers in between.
    ///
    /// - Parameter timeout: how long to wait for each answer; `nil`: as long as the connection lasts.
    /// - Parameter answered: called on the client's event loop whenever a call has a result, with the call's index and
    ///   whether it succeeded.
    /// - Returns: one result for each call, in the same order.
    /// - Throws: when the daemon cannot be reached; then nothing was sent.
    public func callInOrder<Method: ControlMethod>(
        _ method: Method.Type, _ parameters: [Method.Parameters], timeout: Duration? = nil,
        answered: (@Sendable (Int, Bool) -> Void)? = nil
    ) async throws(ClientError) -> [Result<Method.Result, ClientError>] {
        try await attach()
        guard !parameters.isEmpty else { return [] }
        let group = nextID()
        let ids = parameters.map { _ in nextID() }
        let answers = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let none = [Answer?](repeating: nil, count: ids.count)
                groups[group] = CallGroup(
                    answers: none, missing: ids.count, continuation: continuation, answered: answered)
                for (index, id) in ids.enumerated() {
                    let role = Pending.member(of: group, index: index)
                    do throws(ClientError) {
                        let line = try Self.line(method, parameters[index], id: id)
                        send(line, id: id, as: role, timeout: timeout)
                    } catch {
                        resolve(role, .failure(error))
                    }
                }
            }
        } onCancel: {
            cancel(ids)
        }
        return answers.map { answer in
            Result { () throws(ClientError) in
                guard let answer else { preconditionFailure("a group is answered when no answer is missing") }
                return try Self.decode(Method.Result.self, from: try answer.get())
            }
        }
    }

    func nextID() -> Int64 {
        lastID += 1
        return lastID
    }

    static func line<Method: ControlMethod>(
        _ method: Method.Type, _ parameters: Method.Parameters, id: Int64
    ) throws(ClientError) -> [UInt8] {
        guard let line = OutgoingLine.request(method, parameters, id: .number(id)) else {
            throw .refused(.invalidParameters("a number is not finite"))
        }
        let maximum =
            RequestLine.payloadMethods.contains(method.name)
            ? RequestLine.maximumPayloadLineLength : RequestLine.maximumLineLength
        guard line.count <= maximum else { throw .requestTooLong }
        return line
    }

    package static func decode<Value: Decodable>(_ type: Value.Type, from value: JSONValue) throws(ClientError) -> Value
    {
        do {
            return try ParameterDecoder.decodeLeniently(type, from: value)
        } catch {
            throw .invalidAnswer(error.message)
        }
    }

    /// Writes a request and records who is waiting for its answer.
    func send(_ line: [UInt8], id: Int64, as role: Pending, timeout: Duration?) {
        let channel: any Channel
        switch connection {
        case .attached(let attached, _): channel = attached
        case .attaching(let dialed?, _): channel = dialed
        case .attaching(nil, _), .detached:
            resolve(role, .failure(.connectionLost))
            return
        case .closed:
            resolve(role, .failure(.closed))
            return
        }
        pending[id] = role
        if let timeout {
            deadlines[id] = eventLoop.scheduleTask(in: TimeAmount(timeout)) { [weak self] in
                self?.assumeIsolated { $0.end(id, .failure(.timeout)) }
            }
        }
        channel.writeAndFlush(ByteBuffer(bytes: line), promise: nil)
    }

    /// Ends a request. Only its first end counts: an answer, a timeout, a cancellation or the end of the connection.
    func end(_ id: Int64, _ answer: Answer) {
        deadlines.removeValue(forKey: id)?.cancel()
        guard let role = pending.removeValue(forKey: id) else { return }
        resolve(role, answer)
    }

    func failPending(_ error: ClientError) {
        for id in pending.keys.sorted() { end(id, .failure(error)) }
    }

    nonisolated func cancel(_ ids: [Int64]) {
        eventLoop.execute {
            self.assumeIsolated { client in
                for id in ids { client.end(id, .failure(.cancelled)) }
            }
        }
    }

    func resolve(_ role: Pending, _ answer: Answer) {
        switch role {
        case .greeting:
            greeted(answer)
        case .call(let continuation):
            continuation.resume(returning: answer)
        case .member(let group, let index):
            groups[group]?.answers[index] = answer
            groups[group]?.missing -= 1
            groups[group]?.answered?(index, (try? answer.get()) != nil)
            if let complete = groups[group], complete.missing == 0 {
                groups[group] = nil
                complete.continuation.resume(returning: complete.answers)
            }
        case .feed(let feed, let continuation):
            feedAnswered(feed, answer, isFirst: continuation != nil)
            continuation?.resume(returning: answer)
        case .acknowledgement(let feed, let id):
            acknowledgementAnswered(feed, id, answer)
        case .ignored:
            break
        }
    }
}
