import NIOCore
import Vocabulary

// The layers between TCP and MQTT other than TLS: the tunnel through a proxy, and the WebSocket.

extension Connection {
    func tunnel(_ proxy: ProxyOptions, _ channel: any Channel, _ handler: ConnectionHandler) {
        phase = .tunneling
        let timeout = options.dialTimeout
        startTimer(timeout) { connection in
            connection.proxyFailed("it did not answer within \(timeout)")
        }
        let tunnel = ProxyTunnel(to: endpoint, through: proxy) { [weak self] result in
            guard let self, phase == .tunneling, let peer else { return }
            stopTimer()
            switch result {
            case .success: connected(peer)
            case .failure(let failure): fail(failure)
            }
        }
        do {
            try tunnel.start(on: channel, before: handler)
            try channel.syncOptions?.setOption(.autoRead, value: true)
        } catch {
            channelFailed(error)
        }
    }

    func proxyFailed(_ sentence: String) {
        fail(
            TransportFailure(
                .proxyFailed, "the proxy \(peerText) does not connect to \(endpoint.authority): \(sentence)"))
    }

    func upgrade(tlsVersion: String?) {
        guard let channel, let handler else { return }
        phase = .upgrading
        let timeout = options.handshakeTimeout ?? options.dialTimeout
        startTimer(timeout) { connection in
            connection.webSocketFailed("did not answer the request for a WebSocket within \(timeout)")
        }
        let upgrade = WebSocketUpgrade(endpoint, maximumFrameSize: options.maximumFrameSize, before: handler) {
            [weak self] result in
            guard let self, phase == .upgrading else { return }
            switch result {
            case .success(let webSocket):
                self.webSocket = webSocket
                opened(tlsVersion: tlsVersion)
            case .failure(let failure):
                fail(failure)
            }
        }
        do {
            try upgrade.start(on: channel)
            try channel.syncOptions?.setOption(.autoRead, value: true)
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
        case (.open, nil): finish(writeFailure.map { .failed($0) } ?? .closedByPeer)
        case (.open, let failure?): fail(TransportFailure(failure.code, "\(failure.message) (\(peerText))"))
        default: finish(.closedLocally)
        }
    }
}
