internal import ControlAPI
internal import Glibc
internal import NIOCore
internal import NIOPosix

extension HoldfastClient {
    /// detached → attaching. All of `waiting` learn the outcome.
    func dial(waiting: [CheckedContinuation<Greeting, Never>]) {
        reattachment?.cancel()
        reattachment = nil
        generation += 1
        connection = .attaching(nil, waiting: waiting)
        let generation = generation
        let maximumLength = options.maximumAnswerLength
        ClientBootstrap(group: eventLoop)
            .connectTimeout(TimeAmount(options.attachTimeout))
            .channelInitializer { [weak self] channel in
                channel.eventLoop.makeCompletedFuture {
                    guard let self else { throw ChannelError.ioOnClosedChannel }
                    let lines = ByteToMessageHandler(LineDecoder(maximumLength: maximumLength))
                    try channel.pipeline.syncOperations.addHandlers(
                        lines, DaemonConnectionHandler(client: self, generation: generation))
                }
            }
            .connect(unixDomainSocketPath: socket)
            .hop(to: eventLoop)
            .whenComplete { [weak self] result in
                guard let self else { return }
                self.assumeIsolated { $0.dialed(result, generation: generation) }
            }
    }

    private func dialed(_ result: Result<any Channel, any Error>, generation: Int) {
        guard generation == self.generation, case .attaching(_, let waiting) = connection else {
            if case .success(let channel) = result { channel.close(promise: nil) }
            return
        }
        switch result {
        case .failure(let error):
            attachFailed(Self.describe(error, socket: socket))
        case .success(let channel):
            connection = .attaching(channel, waiting: waiting)
            let parameters = RPCHelloMethod.Parameters(
                client: options.name, protocol: ControlMethods.protocolVersion)
            let id = nextID()
            do {
                let line = try Self.line(RPCHelloMethod.self, parameters, id: id)
                send(line, id: id, as: .greeting, timeout: options.attachTimeout)
            } catch {
                attachFailed(error)
            }
        }
    }

    func greeted(_ answer: Answer) {
        guard case .attaching(let channel?, let waiting) = connection else { return }
        let hello: RPCHelloMethod.Result
        do {
            hello = try Self.decode(RPCHelloMethod.Result.self, from: try answer.get())
            guard hello.protocol == ControlMethods.protocolVersion else {
                throw ClientError.versionMismatch(daemon: "\(hello.protocol) (version \(hello.version))")
            }
        } catch ClientError.refused(let error) where error.known == .versionMismatch {
            attachFailed(.versionMismatch(daemon: error.message))
            return
        } catch ClientError.timeout {
            attachFailed(.unresponsive(socket: socket))
            return
        } catch {
            attachFailed(error as? ClientError ?? .connectionLost)
            return
        }
        connection = .attached(channel, hello)
        wasAttached = true
        reattachAttempts = 0
        isDenied = false
        for continuation in waiting { continuation.resume(returning: .success(hello)) }
        restoreFeeds()
    }

    /// attaching → detached.
    private func attachFailed(_ error: ClientError) {
        guard case .attaching(let channel, let waiting) = connection else { return }
        connection = .detached
        generation += 1
        channel?.close(promise: nil)
        failPending(error)
        for continuation in waiting { continuation.resume(returning: .failure(error)) }
        if case .notPermitted = error, !isDenied {
            isDenied = true
            detachFeeds(error)
        }
        if error.isPassing { scheduleReattachment() } else { endFeeds(error) }
    }

    /// The connection has ended, or cannot be used any more.
    func connectionEnded(_ error: ClientError, generation: Int) {
        guard generation == self.generation else { return }
        switch connection {
        case .attaching:
            attachFailed(error)
        case .attached(let channel, _):
            connection = .detached
            self.generation += 1
            channel.close(promise: nil)
            endUnreadableConsumers(error)
            if case .refused(let reason) = error { failPending(.dismissed(reason)) } else { failPending(error) }
            detachFeeds(error)
            scheduleReattachment()
        case .detached, .closed:
            break
        }
    }

    /// Schedules the next attempt to attach, for watches and subscriptions. A call opens the connection itself.
    private func scheduleReattachment() {
        guard !watches.isEmpty || !subscriptions.isEmpty || !consumers.isEmpty else { return }
        let delay = options.reattachDelays[min(reattachAttempts, options.reattachDelays.count - 1)]
        reattachAttempts += 1
        reattachment = eventLoop.scheduleTask(in: TimeAmount(delay)) { [weak self] in
            self?.assumeIsolated { client in
                if case .detached = client.connection { client.dial(waiting: []) }
            }
        }
    }

    func received(_ line: ByteBuffer, generation: Int) {
        guard generation == self.generation else { return }
        do {
            receive(try ServerLine(parsing: Array(line.readableBytesView)[...]), bytes: line.readableBytes)
        } catch {
            connectionEnded(.invalidAnswer(error.problem), generation: generation)
        }
    }

    private func receive(_ line: ServerLine, bytes: Int) {
        switch line {
        case .answer(.number(let id), .success(let result)):
            end(id, .success(result))
        case .answer(.number(let id), .failure(let error)):
            end(id, .failure(.refused(error)))
        case .answer(.null, .failure(let error)), .answer(.string, .failure(let error)):
            // It is about the connection, or the daemon could not tell which request it was.
            connectionEnded(.refused(error), generation: generation)
        case .answer(_, .success):
            break
        case .notification(let method, let parameters):
            notified(method, parameters, bytes: bytes)
        case .batch(let lines):
            for line in lines { receive(line, bytes: bytes / max(1, lines.count)) }
        }
    }

    private static func describe(_ error: any Error, socket: String) -> ClientError {
        switch error {
        case let error as IOError:
            switch error.errnoCode {
            case ENOENT, ECONNREFUSED: .notRunning(socket: socket)
            case EACCES, EPERM: .notPermitted(socket: socket)
            case let code: .unreachable(socket: socket, reason: String(cString: strerror(code)))
            }
        case SocketAddressError.unixDomainSocketPathTooLong:
            .unreachable(socket: socket, reason: "the path is longer than 107 bytes")
        case is ChannelError:
            .unreachable(socket: socket, reason: "the connection could not be made in time")
        default:
            .unreachable(socket: socket, reason: "\(error)")
        }
    }
}
