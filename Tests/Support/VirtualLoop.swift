public import Dispatch
import Foundation
public import NIOCore
import Synchronization

/// An event loop whose time is virtual: it advances only when nothing is left to be done now, and then at once to the
/// next timer. Twenty minutes of outage take milliseconds, and a repeated run is the same to the last step.
///
/// Everything that takes part must run on it: actors use it as their executor, and what would wait elsewhere (the disk,
/// the network, a thread pool) is replaced by something that lives here. It has its own thread, so that a test's body
/// can be one of its actors.
public final class VirtualLoop: NIOSerialEventLoopExecutor, TaskExecutor, @unchecked Sendable {
    private struct Timer {
        var deadline: NIODeadline
        var id: UInt64
        var task: @Sendable () -> Void
        /// Called when the task will never run, so that those who wait for it learn that.
        var drop: @Sendable () -> Void
    }

    // All of it is protected by the condition: when a test begins, jobs may come from outside.
    private let condition = NSCondition()
    private var ready: [@Sendable () -> Void] = []
    /// Sorted, the earliest last.
    private var timers: [Timer] = []
    private var lastTimer: UInt64 = 0
    private var isStopped = false
    /// The loop's thread; 0 before it runs.
    private let owner = Atomic<UInt>(0)
    private var time: NIODeadline
    /// The number of timers that have fired.
    public private(set) var firedTimers = 0
    /// The number of jobs from other threads. Time may advance without waiting for such a thread, so a test with one is
    /// not the same each time.
    public private(set) var jobsFromOutside = 0

    /// - Parameter uptime: the time that the loop's clock shows at first.
    public init(uptime: TimeAmount = .hours(1)) {
        time = .uptimeNanoseconds(UInt64(uptime.nanoseconds))
        let thread = Thread { [self] in run() }
        thread.stackSize = 8 << 20
        thread.start()
    }

    /// Ends the thread when the present job is over. What is still pending never runs.
    public func stop() {
        condition.withLock {
            isStopped = true
            condition.signal()
        }
    }

    private func run() {
        owner.store(UInt(pthread_self()), ordering: .relaxed)
        ThreadOfLoop.enter(self)
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
                    firedTimers += 1
                    return timer.task
                }
                condition.wait()
            }
        }
    }

    fileprivate var hasEnded: Bool { condition.withLock { isStopped } }

    // MARK: Executor

    public func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        execute { [self] in
            job.runSynchronously(isolatedTo: asUnownedSerialExecutor(), taskExecutor: asUnownedTaskExecutor())
        }
    }

    // MARK: EventLoop

    public var inEventLoop: Bool { owner.load(ordering: .relaxed) == UInt(pthread_self()) }

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
            // Of two with the same deadline, the one that was scheduled first runs first.
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

    /// When the next timer is due.
    public var nextTimer: NIODeadline? { condition.withLock { timers.last?.deadline } }

    /// Advances the time at once, and makes every timer later by as much: as on a host that sleeps, whose timers do not
    /// count that time.
    public func sleepThrough(_ amount: TimeAmount) {
        condition.withLock {
            time = time + amount
            for index in timers.indices where timers[index].deadline < .distantFuture {
                timers[index].deadline = timers[index].deadline + amount
            }
        }
    }

    // When the loop ends, those who wait below are never resumed.

    /// Returns when everything that is ready now has been started.
    public func turn() async {
        await withUnsafeContinuation { continuation in execute { continuation.resume() } }
    }

    /// Returns when nothing is left to be done before time advances.
    public func settle() async { await sleep(until: now) }

    /// Returns when the virtual time has reached the deadline.
    public func sleep(until deadline: NIODeadline) async {
        await withUnsafeContinuation { continuation in
            _ = scheduleTask(deadline: deadline) { continuation.resume() }
        }
    }
}

/// Keeps what begins on the thread of a virtual loop on that thread. A continuation awaited in an unstructured task, as
/// in the daemon, would otherwise be resumed on another thread first, and return from there at any time.
private enum ThreadOfLoop {
    private typealias Original = @convention(thin) (UnownedJob) -> Void
    private typealias Hook = @convention(thin) (UnownedJob, Original) -> Void

    private static let key: pthread_key_t = {
        var key = pthread_key_t()
        guard pthread_key_create(&key, nil) == 0 else { fatalError("there is no room for one more key of threads") }
        // The runtime's own hook for this: it is called for every job without an executor of its own.
        guard let address = dlsym(dlopen(nil, RTLD_LAZY), "swift_task_enqueueGlobal_hook") else {
            fatalError("this runtime has no hook for jobs without an executor")
        }
        address.assumingMemoryBound(to: Hook?.self).pointee = { job, original in
            // A job that continues after the loop has ended no longer belongs to it.
            guard let loop = ThreadOfLoop.present, !loop.hasEnded else { return original(job) }
            loop.execute { job.runSynchronously(on: loop.asUnownedSerialExecutor()) }
        }
        return key
    }()

    static func enter(_ loop: VirtualLoop) {
        pthread_setspecific(key, Unmanaged.passUnretained(loop).toOpaque())
    }

    private static var present: VirtualLoop? {
        pthread_getspecific(key).map { Unmanaged<VirtualLoop>.fromOpaque($0).takeUnretainedValue() }
    }
}
