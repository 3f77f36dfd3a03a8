import NIOCore
import NIOPosix
import NIOSSL
import Vocabulary

// TLS, and the next address when the handshake with one of several fails.

extension Connection {
    /// Reads the TLS files where a file system that does not answer delays nothing else, and makes a context of them.
    func loadTLS(_ threadPool: NIOThreadPool) {
        let (tls, name, eventLoop) = (options.tls, verifiedName, eventLoop)
        let last = contexts.last(for: tls)
        blocking.run(tls.ownFiles.joined(separator: ", "), within: options.dialTimeout) { TLSFiles(tls, last: last) }
            .flatMap { files in
                threadPool.runIfActive(eventLoop: eventLoop) { LoadedTLS.load(files, last: last, for: name) }
            }
            .assumeIsolated().whenComplete { self.loadedTLS($0) }
    }

    private func unread(_ cause: String) -> TransportFailure {
        let files = options.tls.ownFiles
        let names = files.isEmpty ? "the system's trusted authorities" : files.joined(separator: ", ")
        return TransportFailure(ownFiles: "cannot read \(names): \(cause)")
    }

    func loadedTLS(_ outcome: Result<Result<LoadedTLS, TransportFailure>, any Error>) {
        guard phase != .finished else { return }
        switch outcome {
        case .success(.success(let loaded)):
            tls = loaded
            contexts.keep(loaded)
            if let rejected = loaded.rejected { emit(.tlsFilesRejected(rejected)) }
            if phase == .securing { shakeHands() }
        case .success(.failure(let failure)):
            fail(failure)
        case .failure(let error):
            fail(unread("\(error)"))
        }
    }

    func secure(_ peer: SocketAddress) {
        phase = .securing
        let timeout = options.handshakeTimeout ?? options.dialTimeout
        dialing.lastHandshake = dialing.lastHandshake ?? eventLoop.now + TimeAmount(timeout * 2)
        startTimer(timeout) { connection in
            guard connection.tls != nil else {
                return connection.fail(connection.unread("there was no answer within \(timeout)"))
            }
            connection.handshakeFailed(
                TransportFailure(
                    .tlsTimeout, "\(connection.peerText) did not finish the TLS handshake within \(timeout)"))
        }
        emit(.securing(peer))
        if phase == .securing { shakeHands() }
    }

    /// Starts the handshake once TCP is connected and the TLS files are loaded.
    private func shakeHands() {
        guard let wire, let tls, wire.tls == nil else { return }
        do {
            // Without a server name, the certificate is compared with the IP address that was dialed.
            let handler = try makeTLSHandler(tls.context, serverHostname: verifiedName) { [weak self] certificate in
                // Verification goes from the root to the server, so the first certificate reported is the one nearest
                // to the root.
                if self?.wire?.turnedDown == nil { self?.wire?.turnedDown = certificate }
            }
            self.wire?.tls = handler
            try wire.channel.pipeline.syncOperations.addHandler(handler, position: .after(wire.burst))
            passOnEarly()
            guard phase == .securing else { return }
            try wire.channel.syncOptions?.setOption(.autoRead, value: true)
        } catch {
            channelFailed(error)
        }
    }

    /// The host name that the certificate must be valid for; `nil` when it must be valid for the IP address.
    var verifiedName: String? {
        if let name = options.tls.serverName { return name }
        if endpoint.isLiteral { return nil }
        // The trailing dot is for the resolver; certificates do not have it (RFC 6066, 3).
        return endpoint.host.hasSuffix(".") ? String(endpoint.host.dropLast()) : endpoint.host
    }

    /// The handshake was finished and the certificate verified.
    func channelSecured() {
        guard phase == .securing, let handler = wire?.tls else { return }
        if let verifiedName, handler.peerCertificate?.isFor(hostName: verifiedName) != true {
            channelFailed(NIOSSLExtraError.failedToValidateHostname)
            return
        }
        let version: String? =
            switch handler.tlsVersion {
            case .tlsv13: "TLSv1.3"
            case .tlsv12: "TLSv1.2"
            default: nil
            }
        secured(tlsVersion: version)
    }

    func secured(tlsVersion: String?) {
        endpoint.scheme.isWebSocket ? upgrade(tlsVersion: tlsVersion) : opened(tlsVersion: tlsVersion)
    }

    func handshakeFailed(_ failure: TransportFailure) {
        let left = dialing.addresses.filter { $0 != wire?.peer }
        switch failure.code {
        case .tlsTimeout, .tlsFailed, .wrongProtocol, .certificateInvalid, .reset, .unreachable:
            // Perhaps only this address fails, and the race would choose it again at every attempt. The address of a peer
            // can be another one than was dialed: that of 0.0.0.0 is 127.0.0.1.
            guard !left.isEmpty, left.count < dialing.addresses.count else { return fail(failure) }
            dialing.earlierFailures.append(failure)
            if let peer = wire?.peer { dialing.vain.append(peer) }
            if let lastHandshake = dialing.lastHandshake, eventLoop.now >= lastHandshake { return outOfTime(left) }
            stopTimer()
            wire.take()?.drop()
            dialing.addresses = left
            dial()
        default:
            fail(failure)
        }
    }

    /// Ends an attempt in which the handshakes took too long: each address may use up its time limit, and a name may have
    /// any number of addresses, while other endpoints wait. The next attempt begins with those that are left.
    private func outOfTime(_ left: [SocketAddress]) {
        beginNext(with: left)
        let others = left.count == 1 ? "1 other address" : "\(left.count) other addresses"
        fail(TransportFailure(.tlsTimeout, "the next attempt begins with \(others)"))
    }

    /// Has the next attempt begin with these addresses.
    private func beginNext(with left: [SocketAddress]) {
        contexts.setTried(dialing.resolved.filter { !left.contains($0) }, of: endpoint)
    }

    /// Notes for the next attempt what has become of the addresses. The race would choose one that TCP reaches, and from
    /// which nothing ever comes, at every attempt.
    func noteAddresses(_ end: ConnectionEnd) {
        switch (answer, phase) {
        case (.awaited(let askedAt), _)
        where end != .closedLocally || eventLoop.now >= askedAt + TimeAmount(options.patience):
            let left = dialing.addresses.filter { $0 != wire?.peer }
            if !left.isEmpty, left.count < dialing.addresses.count { beginNext(with: left) }
        case (.notAwaited, .resolving), (.notAwaited, .dialing), (.notAwaited, .reached), (.awaited, _):
            // We closed it before anything was found out, so what was known before still holds.
            if end == .closedLocally { contexts.setTried(dialing.vain, of: endpoint) }
        case (.received(let since), _):
            // A server that sends the session away at once answers, but is no better than an address that is mute.
            if eventLoop.now < since + TimeAmount(options.patience) { contexts.forgetTried(of: endpoint) }
        case (.notAwaited, _):
            break
        }
    }

    /// The server has answered at this address. Until it no longer does, the session keeps away from those that were tried
    /// in vain: each attempt that began with them would take up its time again.
    func serverAnswered() {
        answer = .received(since: eventLoop.now)
        guard !dialing.vain.isEmpty else { return }
        contexts.setTried(dialing.vain, of: endpoint)
        let list = dialing.vain.map(\.hostAndPort).sorted().joined(separator: ", ")
        let causes = dialing.earlierFailures.map(\.message).joined(separator: "; ")
        emit(.addressesAvoided(list, because: causes.isEmpty ? "there was no answer" : causes))
    }
}
