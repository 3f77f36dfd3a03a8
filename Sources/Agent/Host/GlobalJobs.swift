import CConcurrency
import NIOCore

/// Runs jobs that are isolated to no actor on an event loop, instead of libdispatch's threads.
///
/// Once those threads are used, another thread of libdispatch wakes up every second to count them, for as long as the
/// process lives. An idle daemon should wake up only for what its sessions need. Documentation/decisions/0022 has what
/// was found and what else was tried.
final class GlobalJobs: Sendable {
    private let loop: any EventLoop

    private init(_ loop: any EventLoop) {
        self.loop = loop
    }

    /// Takes over the global jobs. Call it once in a process, before there is any task.
    ///
    /// - Parameter loop: a loop on which nothing else runs, since a job may take a while.
    static func run(on loop: any EventLoop) {
        holdfast_take_global_jobs(
            { job, context in
                let jobs = Unmanaged<GlobalJobs>.fromOpaque(context).takeUnretainedValue()
                jobs.enqueue(unsafeBitCast(job, to: UnownedJob.self))
            }, Unmanaged.passRetained(GlobalJobs(loop)).toOpaque())
    }

    private func enqueue(_ job: UnownedJob) {
        loop.execute { [executor = loop.executor] in job.runSynchronously(on: executor.asUnownedSerialExecutor()) }
    }
}
