public import ControlAPI
internal import Glibc
public import NIOCore
internal import NIOPosix

/// A connection to the daemon's control socket, which is opened again when it breaks.
///
/// Calls are pipelined: any number may wait for their answers, which arrive in any order. The first call opens the
/// connection. When the daemon goes away, waiting calls fail with ``ClientError/connectionLost``, watches and live
/// subscriptions report it, and later calls open the connection again. Watches and subscriptions of both kinds are
/// restored as soon as the daemon is back.
///
/// The actor runs on its event loop: nothing here needs a lock, and every line is handled as soon as it is read.
/// Whatever follows an answer on the wire, such as the first event of a watch, therefore finds that answer already
/// handled.
public actor HoldfastClient {
    /// The limits and times of a client.
    public struct Options: Sendable {
        /// The name that the client gives the daemon when it attaches.
        public var name = "HoldfastClient"
        /// How long connecting may take, and how long the greeting may take after that.
        public var attachTimeout: Duration = .seconds(10)
        /// The pauses between attempts to reach the daemon again; the last one is repeated.
        public var reattachDelays: [Duration] = [
            .milliseconds(50), .milliseconds(100), .milliseconds(250), .milliseconds(500), .seconds(1), .seconds(2),
        ]
        /// How many elements a watch or a live subscription holds for a slow reader.
        public var bufferedElements = 1024
        /// How many bytes of them, as the daemon has written them. One element may always wait, whatever its length.
        public var bufferedBytes = 16 << 20
        /// How many bytes a line from the daemon may have; a longer one ends the connection. The longest regular line
        /// carries a payload of 16 MiB in base64.
        public var maximumAnswerLength = 32 << 20
        /// How long publishing without a timeout waits for a daemon that was lost.
        package var patience: Duration = .seconds(30)

        public init() {}
    }

    enum Connection {
        /// Can transition to: attaching, closed.
        case detached
        /// Dialing, or waiting for the answer to the greeting. Can transition to: attached, detached, closed.
        case attaching((any Channel)?, waiting: [CheckedContinuation<Greeting, Never>])
        /// Can transition to: detached, closed.
        case attached(any Channel, RPCHelloMethod.Result)
        /// Final.
        case closed
    }

    typealias Answer = Result<JSONValue, ClientError>
    typealias Greeting = Result<RPCHelloMethod.Result, ClientError>

    struct CallGroup {
        var answers: [Answer?]
        var missing: Int
        var continuation: CheckedContinuation<[Answer?], Never>
        var answered: (@Sendable (Int, Bool) -> Void)?
    }

    enum Pending {
        case greeting
        case call(CheckedContinuation<Answer, Never>)
        /// One of several calls whose answers are awaited together.
        case member(of: Int64, index: Int)
        /// The continuation is that of the caller who opens the feed; `nil` when the feed is restored.
        case feed(FeedID, CheckedContinuation<Answer, Never>?)
        /// An acknowledgement that is sent again because the daemon has not confirmed it.
        case acknowledgement(FeedID, Int64)
        /// The answer is discarded.
        case ignored
    }

    /// The path of the control socket.
    public nonisolated let socket: String
    let options: Options
    nonisolated let eventLoop: any EventLoop
    var connection = Connection.detached
    /// Counts connections, so that late events of an old one are recognized.
    var generation = 0
    var lastID: Int64 = 0
    var pending: [Int64: Pending] = [:]
    var deadlines: [Int64: Scheduled<Void>] = [:]
    var groups: [Int64: CallGroup] = [:]
    var watches: [FeedID: WatchFeed] = [:]
    var subscriptions: [FeedID: SubscriptionFeed] = [:]
    var consumers: [FeedID: ConsumerFeed] = [:]
    /// Whether the daemon has ever answered.
    var wasAttached = false
    var reattachAttempts = 0
    /// Whether the feeds have been told that this user may not open the socket of the daemon that is back.
    var isDenied = false
    /// How many connections in a row ended with a line that cannot be read and brought no consumer a new message.
    var unreadableConnections = 0
    var reattachment: Scheduled<Void>?

    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        eventLoop.executor.asUnownedSerialExecutor()
    }

    /// - Parameter socket: the path of the control socket; `nil`: ``defaultSocket``.
    /// - Parameter eventLoop: an event loop of a `MultiThreadedEventLoopGroup` that is not shut down before the client
    ///   is closed; `nil`: one of the process-wide group.
    public init(socket: String? = nil, options: Options = Options(), eventLoop: (any EventLoop)? = nil) {
        precondition(!options.reattachDelays.isEmpty, "there must be at least one delay")
        precondition(options.bufferedElements > 0, "a buffer holds at least one element")
        precondition(options.bufferedBytes >= 0, "a buffer holds no negative number of bytes")
        self.socket = socket ?? Self.defaultSocket
        self.options = options
        self.eventLoop = eventLoop ?? MultiThreadedEventLoopGroup.singleton.next()
    }

    deinit {
        switch connection {
        case .attached(let channel, _), .attaching(let channel?, _): channel.close(promise: nil)
        case .attaching(nil, _), .detached, .closed: break
        }
        reattachment?.cancel()
    }

    /// The default path of the control socket: `$HOLDFAST_SOCKET`, or `/run/holdfast/control.sock` when that is unset
    /// or empty.
    public static var defaultSocket: String {
        if let value = getenv("HOLDFAST_SOCKET"), value.pointee != 0 { return String(cString: value) }
        return "/run/holdfast/control.sock"
    }

    /// Opens the connection now, if there is none, and returns the daemon's greeting.
    ///
    /// - Throws: the reason why the daemon cannot be reached.
    @discardableResult
    public func attach() async throws(ClientError) -> RPCHelloMethod.Result {
        switch connection {
        case .attached(_, let hello):
            return hello
        case .closed:
            throw .closed
        case .detached, .attaching:
            let greeting = await withCheckedContinuation { continuation in
                if case .attaching(let channel, var waiting) = connection {
                    waiting.append(continuation)
                    connection = .attaching(channel, waiting: waiting)
                } else {
                    dial(waiting: [continuation])
                }
            }
            return try greeting.get()
        }
    }

    /// Closes the connection for good: waiting calls fail, watches and subscriptions end, and the client cannot be used
    /// again.
    public func close() {
        let ended = connection
        connection = .closed
        generation += 1
        reattachment?.cancel()
        switch ended {
        case .attached(let channel, _): channel.close(promise: nil)
        case .attaching(let channel, let waiting):
            channel?.close(promise: nil)
            for continuation in waiting { continuation.resume(returning: .failure(.closed)) }
        case .detached, .closed: break
        }
        failPending(.closed)
        endFeeds(nil)
    }
}
