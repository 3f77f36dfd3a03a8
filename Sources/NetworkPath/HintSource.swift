import CNetlink
import NIOCore
import NIOPosix
import SessionCore

/// The result of one reading of the hint socket.
struct HintBatch: Hashable, Sendable {
    /// The number of kernel messages.
    var messages: UInt64
    /// When the first of them was read.
    var receivedAt: Instant
}

/// Listens to the kernel, as a channel of the event loop that the watcher lives on. The content of the messages does
/// not matter, only that they arrived.
///
/// A separate thread would have to wake the loop for each message. Waking a second thread takes a quarter of a
/// millisecond, half of what a session needs to recover when its route is back.
struct HintSource {
    private let channel: any Channel

    /// The callbacks, which are called on the event loop.
    struct Listener: Sendable {
        var hinted: @Sendable (HintBatch) -> Void
        /// The socket has ended: by `close`, or because the kernel had more messages than the socket holds, which the
        /// channel treats as an error.
        var ended: @Sendable () -> Void
    }

    /// - Parameters:
    ///   - receiveBuffer: bytes of messages that may wait to be read.
    ///   - eventLoop: the loop that this is called on; the socket belongs to the network namespace of its thread.
    ///   - now: the boot clock.
    init(
        receiveBuffer: Int32, on eventLoop: any EventLoop, now: @escaping @Sendable () -> Instant, _ listener: Listener
    ) async throws(NetlinkError) {
        let descriptor = try NetlinkSocket(
            groups: Self.groups, groupsIfKnown: Self.groupsOfNewerKernels, receiveBuffer: receiveBuffer
        ).release()
        do {
            channel = try await NIOPipeBootstrap(group: eventLoop)
                .channelOption(.recvAllocator, value: FixedSizeRecvByteBufferAllocator(capacity: Self.messageSize))
                .channelOption(.maxMessagesPerRead, value: Self.messagesPerRead)
                .channelOption(.allowRemoteHalfClosure, value: false)
                .channelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        try channel.pipeline.syncOperations.addHandler(
                            HintHandler(now: now, listener: listener))
                    }
                }
                .takingOwnershipOfDescriptor(input: descriptor).get()
        } catch {
            throw .system(call: "epoll_ctl", number: (error as? IOError)?.errnoCode ?? 0)
        }
    }

    func close() {
        channel.close(promise: nil)
    }

    /// Never RTNLGRP_NEIGH: every ARP entry would wake the daemon, and none of them concerns a route.
    private static let groups = [
        RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE,
        RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_RULE,
    ]
    /// A route may use a nexthop object, which changes without a message about the route. Kernels before 5.3 have none.
    private static let groupsOfNewerKernels = [RTNLGRP_NEXTHOP]
    /// A longer message is truncated, which does not matter for a hint.
    private static let messageSize = 16384
    private static let messagesPerRead: UInt = 64
}

private final class HintHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private let now: @Sendable () -> Instant
    private let listener: HintSource.Listener
    private var batch: HintBatch?

    init(now: @escaping @Sendable () -> Instant, listener: HintSource.Listener) {
        self.now = now
        self.listener = listener
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        // The kernel announces each change in a datagram of its own.
        batch = HintBatch(messages: (batch?.messages ?? 0) + 1, receivedAt: batch?.receivedAt ?? now())
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        if let batch = batch.take() { listener.hinted(batch) }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        // The channel closes after an error, and `channelInactive` reports that.
    }

    func channelInactive(context: ChannelHandlerContext) {
        listener.ended()
    }
}
