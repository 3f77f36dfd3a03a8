public import NIOCore
import Vocabulary

/// Calls that a file system or a name service may leave unanswered. Each runs on a thread of its own, so that only those
/// who need the same thing wait for it.
///
/// Belongs to one event loop. One per process is enough.
public final class BlockingCalls: Sendable {
    /// Threads at the same time, without those whose calls were given up. Calls beyond them wait. With those that were
    /// given up, there are at most twice as many; `TasksMax=` of the service has room for them.
    static let maximumThreads = 32

    /// Why there is no answer, as the end of a sentence that begins with what was called.
    public struct Failure: Error, CustomStringConvertible {
        public let description: String
    }

    private final class Call {
        /// Runs on the thread, and returns what is to be done on the loop with its result.
        let body: @Sendable () -> @Sendable () -> Void
        let fail: (Failure) -> Void
        var timer: Scheduled<Void>?
        /// The caller does not wait any more, while the thread still may.
        var isGivenUp = false

        init(_ body: @escaping @Sendable () -> @Sendable () -> Void, fail: @escaping (Failure) -> Void) {
            self.body = body
            self.fail = fail
        }
    }

    /// The calls with the same key. They run one after the other.
    private struct Lane {
        /// Its thread is blocked, or at work.
        var running: Call?
        var waiting = CircularBuffer<Call>()
    }

    /// The calls whose keys begin with the same folders, which may be on one file system.
    private struct Group {
        var threads = 0
        var givenUp = 0
    }

    private struct State {
        var threads = 0
        /// Those of the threads for which no caller waits any more.
        var givenUp = 0
        var groups: [Substring: Group] = [:]
        var lanes: [String: Lane] = [:]
        /// The keys of the lanes whose next call waits for a thread.
        var ready = CircularBuffer<String>()
    }

    private let eventLoop: any EventLoop
    private let state: NIOLoopBoundBox<State>
    private let maximumThreads: Int
    /// What leaves threads for other groups.
    private var maximumOfGroup: Int { max(1, maximumThreads / 4) }

    public convenience init(eventLoop: any EventLoop) {
        self.init(eventLoop: eventLoop, maximumThreads: Self.maximumThreads)
    }

    init(eventLoop: any EventLoop, maximumThreads: Int) {
        self.eventLoop = eventLoop
        self.maximumThreads = maximumThreads
        state = NIOLoopBoundBox.makeBoxSendingValue(State(), eventLoop: eventLoop)
    }

    /// Runs `body` after the earlier calls with the same key. May be called on any thread.
    ///
    /// - Parameters:
    ///   - key: what may not answer: the path of a file, for example.
    ///   - limit: how long the caller waits; `nil`: as long as it takes. While a thread is blocked for longer, further
    ///     calls with the same key fail at once. While enough threads are blocked for paths in the same two upper
    ///     folders, so do calls for all others there.
    /// - Returns: the result, or a ``Failure``.
    public func run<Value: Sendable>(
        _ key: String, within limit: Duration?, _ body: @escaping @Sendable () -> Value
    ) -> EventLoopFuture<Value> {
        let promise = eventLoop.makePromise(of: Value.self)
        if eventLoop.inEventLoop {
            begin(key, within: limit, body, promise)
        } else {
            eventLoop.execute { self.begin(key, within: limit, body, promise) }
        }
        return promise.futureResult
    }

    private func begin<Value: Sendable>(
        _ key: String, within limit: Duration?, _ body: @escaping @Sendable () -> Value,
        _ promise: EventLoopPromise<Value>
    ) {
        if state.value.lanes[key]?.running?.isGivenUp == true {
            return promise.fail(Failure(description: "an earlier call has not been answered yet"))
        }
        let group = Self.group(of: key)
        if isHung(group) { return promise.fail(Self.hung(group)) }
        let call = Call(
            {
                let value = body()
                return { promise.succeed(value) }
            }, fail: { promise.fail($0) })
        call.timer = limit.map { limit in
            eventLoop.assumeIsolated().scheduleTask(in: TimeAmount(limit)) { self.giveUp(call, key, after: limit) }
        }
        if state.value.lanes[key] == nil { state.value.ready.append(key) }
        state.value.lanes[key, default: Lane()].waiting.append(call)
        startNext()
    }

    /// Returns the two upper folders of a path; anything else is a group of its own.
    private static func group(of key: String) -> Substring {
        guard key.first == "/" else { return key[...] }
        let parts = key.split(separator: "/", maxSplits: 2)
        return parts.count > 2 ? key[..<parts[1].endIndex] : key[...]
    }

    private func isHung(_ group: Substring) -> Bool {
        state.value.groups[group].map { $0.givenUp >= maximumOfGroup } ?? false
    }

    private static func hung(_ group: Substring) -> Failure {
        Failure(description: "earlier calls for other files in \(group) have not been answered yet")
    }

    private func giveUp(_ call: Call, _ key: String, after limit: Duration) {
        call.isGivenUp = true
        let group = Self.group(of: key)
        if state.value.lanes[key]?.running === call {
            state.value.givenUp += 1
            state.value.groups[group]?.givenUp += 1
        }
        state.value.lanes[key]?.waiting.removeAll { $0 === call }
        call.fail(Failure(description: "there was no answer within \(limit)"))
        if isHung(group) { failAll(of: group) }
        startNext()
    }

    private func failAll(of group: Substring) {
        for key in state.value.lanes.keys where Self.group(of: key) == group {
            while let call = state.value.lanes[key]?.waiting.popFirst() {
                call.timer?.cancel()
                call.fail(Self.hung(group))
            }
        }
    }

    private var hasFreeThread: Bool {
        let (all, givenUp) = (state.value.threads, state.value.givenUp)
        return all - givenUp < maximumThreads && all < 2 * maximumThreads
    }

    private func mayStart(_ key: String) -> Bool {
        (state.value.groups[Self.group(of: key)]?.threads ?? 0) < maximumOfGroup
            || state.value.lanes[key]?.waiting.isEmpty != false
    }

    private func startNext() {
        while hasFreeThread, let index = state.value.ready.firstIndex(where: mayStart) {
            let key = state.value.ready.remove(at: index)
            guard let call = state.value.lanes[key]?.waiting.popFirst() else {
                state.value.lanes[key] = nil
                continue
            }
            state.value.threads += 1
            state.value.groups[Self.group(of: key), default: Group()].threads += 1
            state.value.lanes[key]?.running = call
            let body = call.body
            let code = startThread {
                let deliver = body()
                self.eventLoop.execute { self.finished(key, deliver) }
            }
            guard code != 0 else { continue }
            call.fail(Failure(description: "no thread can be started for it: \(systemText(code))"))
            finished(key) {}
        }
    }

    private func finished(_ key: String, _ deliver: () -> Void) {
        let group = Self.group(of: key)
        state.value.threads -= 1
        state.value.groups[group]?.threads -= 1
        let call = state.value.lanes[key]?.running.take()
        call?.timer?.cancel()
        if call?.isGivenUp == true {
            state.value.givenUp -= 1
            state.value.groups[group]?.givenUp -= 1
        }
        if state.value.groups[group]?.threads == 0 { state.value.groups[group] = nil }
        if state.value.lanes[key]?.waiting.isEmpty == true {
            state.value.lanes[key] = nil
        } else {
            state.value.ready.append(key)
        }
        startNext()
        if call?.isGivenUp == false { deliver() }
    }
}
