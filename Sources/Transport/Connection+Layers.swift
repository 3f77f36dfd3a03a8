import NIOCore
import Vocabulary

// The layers between TCP and MQTT other than TLS: the tunnel through a proxy, and the WebSocket.

extension Connection {
    func tunnel(_ proxy: ProxyOptions, _ wire: Wire) {
        phase = .tunneling
        answer = .awaited(since: eventLoop.now)
        let timeout = options.dialTimeout
        startTimer(timeout) { connection in
            connection.proxyFailed("it did not answer within \(timeout)")
        }
        let tunnel = ProxyTunnel(to: endpoint, through: proxy) { [weak self, peer = wire.peer] result in
            guard let self, phase == .tunneling else { return }
            stopTimer()
            switch result {
            case .success(let early):
                answer = .notAwaited
                self.wire?.early = early
                self.wire?.readPortions(portion)
                connected(peer)
            case .failure(let failure): fail(failure)
            }
        }
        do {
            try tunnel.start(on: wire.channel, before: wire.handler)
            try wire.channel.syncOptions?.setOption(.autoRead, value: true)
        } catch {
            channelFailed(error)
        }
    }

    /// Passes on what the server sent right behind the proxy's answer, once TLS, the WebSocket or the session is there to
    /// take it.
    func passOnEarly() {
        guard let pipeline = wire?.channel.pipeline, let bytes = wire?.early.take(), bytes.readableBytes > 0 else {
            return
        }
        pipeline.syncOperations.fireChannelRead(NIOAny(bytes))
        pipeline.syncOperations.fireChannelReadComplete()
    }

    func proxyFailed(_ sentence: String) {
        fail(
            TransportFailure(
                .proxyFailed, "the proxy \(peerText) does not connect to \(endpoint.authority): \(sentence)"))
    }

    func upgrade(tlsVersion: String?) {
        guard let wire else { return }
        phase = .upgrading
        answer = .awaited(since: eventLoop.now)
        emit(.upgrading(tlsVersion: tlsVersion))
        guard phase == .upgrading else { return }
        let timeout = options.handshakeTimeout ?? options.dialTimeout
        startTimer(timeout) { connection in
            connection.webSocketFailed("did not answer the request for a WebSocket within \(timeout)")
        }
        let upgrade = WebSocketUpgrade(endpoint, turns: turns, before: wire.handler) { [weak self] result in
            guard let self, phase == .upgrading else { return }
            switch result {
            case .success(let webSocket):
                answer = .notAwaited
                self.wire?.webSocket = webSocket
                opened(tlsVersion: tlsVersion)
            case .failure(let failure):
                fail(failure)
            }
        }
        do {
            try upgrade.start(on: wire.channel)
            passOnEarly()
            guard phase == .upgrading else { return }
            try wire.channel.syncOptions?.setOption(.autoRead, value: true)
        } catch {
            channelFailed(error)
        }
    }

    func webSocketFailed(_ sentence: String) {
        fail(TransportFailure(.webSocketFailed, "\(endpoint) \(sentence)"))
    }

    /// Ends the connection, or finishes its closing, after the server closed the WebSocket or broke its rules.
    func webSocketEnded(_ ended: WebSocketEnded) {
        switch (phase, ended.failure) {
        case (.open, nil): finish(endOfWire)
        case (.open, let failure?): fail(failure.saying("\(failure.message) (\(peerText))"))
        default: finish(.closedLocally)
        }
    }
}
