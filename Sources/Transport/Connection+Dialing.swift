import NIOCore
import NIOPosix
import Vocabulary

// How the server is reached: its name is resolved, the addresses are dialed, and a proxy is asked for a tunnel.

extension Connection {
    func start(_ threadPool: NIOThreadPool) {
        guard phase == .resolving else { return }
        if endpoint.scheme.isSecure {
            if let name = options.tls.serverName, IPAddress(name) != nil {
                fail(TransportFailure(.badEndpoint, "the TLS server name \"\(name)\" is an address, not a host name"))
                return
            }
            if options.proxy != nil, endpoint.isLiteral, options.tls.serverName == nil {
                fail(TransportFailure(.badEndpoint, "through a proxy, TLS needs a host name to verify, not an address"))
                return
            }
            loadTLS(threadPool)
        }
        let (host, port) = hop
        if let address = try? SocketAddress(ipAddress: host, port: port) {
            resolved(.success([address]))
            return
        }
        emit(.resolving)
        guard phase == .resolving else { return }
        startTimer(options.dialTimeout) { connection in
            connection.fail(
                TransportFailure(
                    .dnsFailed, "cannot resolve \(host): no answer within \(connection.options.dialTimeout)"))
        }
        dialing.lookup = lookups.resolve(host, port) { self.resolved($0) }
    }

    /// How much of the server's bytes is read at once. TLS passes on all that it was given.
    var portion: Wire.Portion {
        endpoint.scheme.isWebSocket ? .small : endpoint.scheme.isSecure ? .single : .large
    }

    /// The host and port to resolve and dial: those of the proxy, or of the endpoint if there is no proxy.
    private var hop: (host: String, port: Int) {
        options.proxy.map { ($0.address.host, $0.address.port) } ?? (endpoint.host, endpoint.port)
    }

    private func resolved(_ outcome: Result<[SocketAddress], TransportFailure>) {
        dialing.lookup = nil
        guard phase == .resolving else { return }
        stopTimer()
        switch outcome {
        case .success(let addresses):
            dialing.resolved = addresses
            emit(.resolved(addresses))
            guard phase == .resolving else { return }
            dialing.addresses = contexts.untried(addresses, of: endpoint)
            dialing.vain = addresses.filter { !dialing.addresses.contains($0) }
            dialing.mayTryAgain = !dialing.vain.isEmpty
            dial()
        case .failure(let failure):
            fail(failure)
        }
    }

    /// How long addresses are dialed alone, before those that the last attempt has tried in vain are dialed too.
    private static let headStart = Duration.seconds(2)

    func dial() {
        phase = .dialing
        emit(.dialing)
        guard phase == .dialing else { return }
        var interface: String?
        if let choose = options.way {
            guard let way = choose(dialing.addresses) else {
                let names = dialing.addresses.map(\.hostAndPort).joined(separator: ", ")
                dialed(.failure(TransportFailure(.networkNotAllowed, "no network that may be used leads to \(names)")))
                return
            }
            (interface, dialing.addresses) = (way.staysHere ? nil : way.interface, way.addresses)
        }
        var limited = options
        if dialing.mayTryAgain { limited.dialTimeout = min(options.dialTimeout, Self.headStart) }
        let race = AddressRace(dialing.addresses, by: interface, options: limited, eventLoop: eventLoop)
        dialing.race = race
        race.start(hop) { self.dialed($0) }
    }

    private func dialed(_ result: Result<any Channel, TransportFailure>) {
        dialing.race = nil
        switch result {
        case .failure where dialing.mayTryAgain:
            dialing.mayTryAgain = false
            (dialing.addresses, dialing.vain) = (dialing.resolved, [])
            dial()
        case .failure(let failure):
            fail(failure)
        case .success(let channel):
            dialing.mayTryAgain = false
            let (burst, handler) = (BurstHandler(turns), ConnectionHandler(self))
            guard let peer = channel.remoteAddress,
                (try? channel.pipeline.syncOperations.addHandlers([burst, handler])) != nil
            else {
                channel.close(promise: nil)
                fail(brokenAtOnce)
                return
            }
            wire = Wire(channel: channel, burst: burst, handler: handler, peer: peer)
            // Whatever is behind a proxy, its answer comes first.
            wire?.readPortions(options.proxy == nil ? portion : .small)
            if stop == .firstHop { stopHere(peer) } else { continueDialing(peer) }
        }
    }

    private func stopHere(_ peer: SocketAddress) {
        stop = nil
        phase = .reached
        emit(.reached(peer))
    }

    /// Continues after the first hop has answered, or after `proceed`.
    func continueDialing(_ peer: SocketAddress) {
        guard let wire else { return }
        if let proxy = options.proxy, !wire.hasTunnel {
            tunnel(proxy, wire)
        } else {
            connected(peer)
        }
    }

    var brokenAtOnce: TransportFailure {
        TransportFailure(.reset, "the connection to \(endpoint.authority) broke as soon as it was made")
    }

    /// Continues once TCP reaches the server, directly or through the proxy: bytes sent from here on go to the server.
    func connected(_ peer: SocketAddress) {
        wire?.hasTunnel = options.proxy != nil
        if stop == .server { return stopHere(peer) }
        endpoint.scheme.isSecure ? secure(peer) : secured(tlsVersion: nil)
    }
}
