public import Dispatch
import Foundation
public import NIOCore

/// An event loop whose time is virtual: it goes on only when nothing is left to be done now, and then at once to the next
/// timer. Twenty minutes of outage take milliseconds, and the same run is the same to the last step.
///
/// Everything that takes part has to run on it: actors take it as their executor, and what would wait elsewhere (the disk,
/// the network, a thread pool) is replaced by something that lives here. It has a thread of its own, so that a test's
/// body can be one of its actors.
public final class VirtualLoop: NIOSerialEventLoopExecutor, TaskExecutor, @unchecked Sendable {
    private struct Timer {
        var deadline: NIODeadline
        var id: UInt64
        var task: @Sendable () -> Void
        /// Whoever waits for it is told when it never happens.
        var drop: @Sendable () -> Void
    }

    // All of it under the condition: jobs may come from outside, when a test begins.
    private let condition = NSCondition()
    private var ready: [@Sendable () -> Void] = []
    /// The earliest last.
    private var timers: [Timer] = []
    private var lastTimer: UInt64 = 0
    private var isStopped = false
    private var thread: Thread?
    private var time: NIODeadline
    /// How often somebody came from another thread. While somebody is there, the time may go on without waiting for them:
    /// a test whose participants do that is not the same each time.
    public private(set) var jobsFromOutside = 0

    /// - Parameter uptime: what the loop's clock shows at first.
    public init(uptime: TimeAmount = .hours(1)) {
        time = .uptimeNanoseconds(UInt64(uptime.nanoseconds))
        let thread = Thread { [self] in run() }
        thread.stackSize = 8 << 20
        self.thread = thread
        thread.start()
    }

    /// Ends the thread when the present job is over. What was left to do is never done.
    public func stop() {
        condition.withLock {
            isStopped = true
            condition.signal()
        }
    }

    private func run() {
        while let job = next() { job() }
        let dropped = condition.withLock {
            defer { (ready, timers) = ([], []) }
            return timers
        }
        for timer in dropped { timer.drop() }
    }

    private func next() -> (@Sendable () -> Void)? {
        condition.withLock {
            while true {
                if isStopped { return nil }
                if !ready.isEmpty { return ready.removeFirst() }
                if let timer = timers.popLast() {
                    time = max(time, timer.deadline)
                    return timer.task
                }
                condition.wait()
            }
        }
    }

    // MARK: Executor

    public func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        execute { [self] in
            job.runSynchronously(isolatedTo: asUnownedSerialExecutor(), taskExecutor: asUnownedTaskExecutor())
        }
    }

    // MARK: EventLoop

    public var inEventLoop: Bool { Thread.current === thread }

    public var now: NIODeadline { condition.withLock { time } }

    public func execute(_ task: @escaping @Sendable () -> Void) {
        condition.withLock {
            if !inEventLoop { jobsFromOutside += 1 }
            ready.append(task)
            condition.signal()
        }
    }

    public func scheduleTask<T>(
        deadline: NIODeadline, _ task: @escaping @Sendable () throws -> T
    ) -> Scheduled<T> {
        let promise = makePromise(of: T.self)
        let id = condition.withLock {
            lastTimer += 1
            let timer = Timer(deadline: deadline, id: lastTimer) {
                promise.assumeIsolated().completeWith(Result { try task() })
            } drop: {
                promise.fail(EventLoopError.shutdown)
            }
            // Of two with the same deadline, the one that was scheduled first.
            let index = timers.firstIndex { $0.deadline <= deadline } ?? timers.endIndex
            timers.insert(timer, at: index)
            condition.signal()
            return lastTimer
        }
        return Scheduled(promise: promise) { [weak self] in
            guard let self else { return }
            condition.withLock { timers.removeAll { $0.id == id } }
        }
    }

    public func scheduleTask<T>(
        in amount: TimeAmount, _ task: @escaping @Sendable () throws -> T
    ) -> Scheduled<T> {
        scheduleTask(deadline: now + amount, task)
    }

    public func next() -> any EventLoop { self }

    public func any() -> any EventLoop { self }

    public func makeIterator() -> EventLoopIterator { EventLoopIterator([self]) }

    public func shutdownGracefully(queue: DispatchQueue, _ callback: @escaping @Sendable ((any Error)?) -> Void) {
        stop()
        queue.async { callback(nil) }
    }

    /// Returns when the virtual time has come.
    public func sleep(until deadline: NIODeadline) async {
        await withCheckedContinuation { continuation in
            _ = scheduleTask(deadline: deadline) { continuation.resume() }
        }
    }
}
