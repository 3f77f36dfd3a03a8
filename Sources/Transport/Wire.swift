import NIOCore
import NIOSSL

/// The TCP connection to the first hop, and the layers on it.
struct Wire {
    let channel: any Channel
    let burst: BurstHandler
    let handler: ConnectionHandler
    let peer: SocketAddress
    var tls: NIOSSLClientHandler?
    /// The certificate of the server's chain that failed verification; if several did, the one nearest to the root.
    var turnedDown: NIOSSLCertificate?
    var webSocket: WebSocketHandler?
    /// Whether the proxy has connected us to the server.
    var hasTunnel = false
    /// What the server sent before the layer that takes it was there.
    var early: ByteBuffer?
    /// Writes that are not in the kernel yet.
    var unflushed = 0
    /// The first failed write. The channel's end follows and reports it.
    var writeFailure: TransportFailure?

    /// Reads, or stops reading until the next call.
    func read(_ isReading: Bool) {
        if let webSocket { return webSocket.read(isReading) }
        // Fails only on a closed channel, whose end is reported separately.
        try? channel.syncOptions?.setOption(.autoRead, value: isReading)
    }

    /// How much is read before other connections get their turn.
    enum Portion {
        /// An answer of HTTP or a frame of a WebSocket costs as much as hundreds of bytes, and the peer may send nothing
        /// but short ones.
        case small
        /// One read of 64 KiB at most. TLS makes a session of each ticket, which may have 18 bytes. Smaller reads would cost
        /// large messages several times as much.
        case single
        /// As is usual: four such reads.
        case large
    }

    func readPortions(_ portion: Portion) {
        let size: any RecvByteBufferAllocator =
            portion == .small
            ? FixedSizeRecvByteBufferAllocator(capacity: Self.smallSize) : AdaptiveRecvByteBufferAllocator()
        let reads: UInt = portion == .large ? 4 : 1
        try? channel.syncOptions?.setOption(.maxMessagesPerRead, value: reads)
        try? channel.syncOptions?.setOption(.recvAllocator, value: size)
    }

    static let smallSize = 4096

    func sayGoodbyeWhenFlushed() {
        guard unflushed == 0 else { return }
        // TLS sends its close_notify and waits for the peer's; plain TCP sends FIN and keeps reading until the peer's.
        // A plain close() with unread bytes would become a reset, and could take our last bytes with it.
        channel.close(mode: tls == nil ? .output : .all, promise: nil)
    }

    /// Closes the channel at once and ignores whatever it still reports.
    func drop() {
        handler.cutOff()
        let polite: (any ChannelHandler)? = tls ?? webSocket
        if let polite, let context = try? channel.pipeline.syncOperations.context(handler: polite) {
            // Closing from this context bypasses TLS and WebSocket, which would wait for the peer's goodbye.
            context.close(promise: nil)
        } else {
            channel.close(promise: nil)
        }
    }
}
