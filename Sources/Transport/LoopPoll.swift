import Glibc
public import NIOCore
import NIOPosix

/// Calls back when an event loop has polled its descriptors.
///
/// A loop runs all submitted tasks, and those that they submit in turn, before it polls its descriptors again. Timers
/// that are due by then also come first. Only input at a descriptor comes after the poll: here, a byte.
public struct LoopPoll: Sendable {
    private let input: any Channel
    private let output: CInt

    /// - Parameter looked: called on the loop, once for one or several calls of ``ask()``.
    public static func open(on loop: any EventLoop, _ looked: @escaping @Sendable () -> Void) async throws -> LoopPoll {
        var ends: [CInt] = [-1, -1]
        let type = SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue
        guard socketpair(AF_UNIX, CInt(type), 0, &ends) == 0 else {
            throw IOError(errnoCode: errno, reason: "socketpair")
        }
        do {
            let input = try await NIOPipeBootstrap(group: loop)
                .channelOption(.recvAllocator, value: FixedSizeRecvByteBufferAllocator(capacity: 8))
                .channelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        try channel.pipeline.syncOperations.addHandler(Handler(looked: looked))
                    }
                }
                .takingOwnershipOfDescriptor(input: ends[0]).get()
            return LoopPoll(input: input, output: ends[1])
        } catch {
            Glibc.close(ends[1])
            throw error
        }
    }

    /// Calls back after the next poll. Call it on the loop.
    public func ask() {
        // If the socket is full, a byte is on its way already.
        var byte: UInt8 = 0
        _ = write(output, &byte, 1)
    }

    /// Releases the descriptors; ``ask()`` must not be called any more.
    public func close() {
        input.close(promise: nil)
        Glibc.close(output)
    }

    private final class Handler: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer

        private let looked: @Sendable () -> Void

        init(looked: @escaping @Sendable () -> Void) {
            self.looked = looked
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            looked()
        }
    }
}
