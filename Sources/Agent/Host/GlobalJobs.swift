import CConcurrency
import NIOCore

/// Runs on an event loop what is isolated to no actor, in the place of libdispatch's threads.
///
/// From the first use of those on, another thread of libdispatch wakes up each second to count them, as long as the process
/// lives; an idle daemon wakes up for what its sessions ask for, and for nothing else. Documentation/decisions/0022 has what
/// was found, and what else was tried.
final class GlobalJobs: Sendable {
    private let loop: any EventLoop

    private init(_ loop: any EventLoop) {
        self.loop = loop
    }

    /// To be called once in a process, before there is any task.
    ///
    /// - Parameter loop: nothing else runs there, since a job may take a while.
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
