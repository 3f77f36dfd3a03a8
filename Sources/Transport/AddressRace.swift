import Glibc
import NIOCore
import NIOPosix

/// TCP connections to all addresses of an endpoint, of which the first one wins (RFC 8305).
///
/// NIO runs the race itself. This adds that it can be cancelled at once, that its addresses are given instead of
/// resolved, and that a single address is dialed before `start` returns.
final class AddressRace {
    private let addresses: [SocketAddress]
    private let interface: String?
    private let options: Connection.Options
    private let eventLoop: any EventLoop
    /// The channels that are connecting. Kept because NIO's race cannot be cancelled.
    private var channels: [any Channel] = []
    /// Why a channel that was made is not used.
    private var refusal: TransportFailure?
    private var completion: ((Result<any Channel, TransportFailure>) -> Void)?

    /// - Parameter interface: the name of the interface that all sockets are bound to; `nil` lets the kernel choose.
    init(
        _ addresses: [SocketAddress], by interface: String?, options: Connection.Options, eventLoop: any EventLoop
    ) {
        self.addresses = addresses
        self.interface = interface
        self.options = options
        self.eventLoop = eventLoop
    }

    /// Starts the race. The channel that wins has `autoRead` off and no handlers.
    func start(
        _ hop: (host: String, port: Int), completion: @escaping (Result<any Channel, TransportFailure>) -> Void
    ) {
        self.completion = completion
        // NIO starts the next address after 250 ms or a failure, but its timeout is for all of them together.
        let stagger = Duration.milliseconds(250) * (addresses.count - 1)
        let this = NIOLoopBound(self, eventLoop: eventLoop)
        let bootstrap = ClientBootstrap(group: eventLoop)
            .channelOption(.autoRead, value: false)
            .connectTimeout(TimeAmount(options.dialTimeout + stagger))
            .resolver(KnownAddresses(addresses: addresses, eventLoop: eventLoop))
            .channelInitializer { channel in this.value.initialize(channel) }
        let connected =
            addresses.count == 1
            ? bootstrap.connect(to: addresses[0]) : bootstrap.connect(host: hop.host, port: hop.port)
        connected.assumeIsolated().whenComplete { self.finished($0) }
    }

    /// Stops all connects. The completion is not called any more.
    func cancel() {
        completion = nil
        let running = channels
        channels = []
        for channel in running { channel.close(promise: nil) }
    }

    /// Prepares a channel that was made and is not connected yet.
    private func initialize(_ channel: any Channel) -> EventLoopFuture<Void> {
        // After a cancel, the race would continue with the remaining addresses. A refusal here ends it at once.
        guard completion != nil else { return eventLoop.makeFailedFuture(ChannelError.ioOnClosedChannel) }
        channels.append(channel)
        guard let sockets = channel as? any SocketOptionProvider else { return eventLoop.makeSucceededVoidFuture() }
        // Later, so that they do not delay the SYN: they only matter after it.
        let options = NIOLoopBound(options, eventLoop: eventLoop)
        eventLoop.execute { sockets.set(options.value) }
        if let refusal = DescriptorReserve.refusal(of: channel) {
            self.refusal = refusal
            return eventLoop.makeFailedFuture(refusal)
        }
        guard let interface else { return eventLoop.makeSucceededVoidFuture() }
        return sockets.bind(to: interface).assumeIsolated().flatMapErrorThrowing { error in
            self.refusal = TransportFailure(binding: interface, error)
            throw error
        }.nonisolated()
    }

    private func finished(_ result: Result<any Channel, any Error>) {
        channels = []
        guard let completion = completion.take() else {
            // The connection succeeded just before it was cancelled.
            if case .success(let channel) = result { channel.close(promise: nil) }
            return
        }
        completion(
            result.mapError {
                refusal ?? TransportFailure(dialing: addresses, $0, within: options.dialTimeout)
            })
    }
}

/// Gives NIO's race addresses that are already known.
private struct KnownAddresses: Resolver, Sendable {
    let addresses: [SocketAddress]
    let eventLoop: any EventLoop

    func initiateAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> {
        eventLoop.makeSucceededFuture(addresses.filter { $0.protocol == .inet })
    }

    func initiateAAAAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> {
        eventLoop.makeSucceededFuture(addresses.filter { $0.protocol == .inet6 })
    }

    func cancelQueries() {}
}
