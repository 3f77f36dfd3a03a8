import Logging
import NIOCore
import NetworkPath
import SessionCore
import Systemd

/// Tells the sessions when the host is about to sleep, when it is awake again, and when its clock was set: the shell
/// around ``SleepMachine``.
actor SleepWatch {
    nonisolated let eventLoop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    private let registry: SessionRegistry
    private let logger: Logger
    private let read: @Sendable () -> ClockReading
    private let busAddress: String
    private var machine: SleepMachine
    private var clocks: ClockSource?
    private var logind: Logind?
    private var timer: Scheduled<Void>?
    private var steps = HourlyCount()
    private var naps = HourlyCount()
    private var isRefusalTold = false

    /// - Parameters:
    ///   - busAddress: the bus address where logind is.
    ///   - read: reads the host's clocks.
    init(
        registry: SessionRegistry, logger: Logger, eventLoop: any EventLoop, busAddress: String = Logind.systemBus,
        read: @escaping @Sendable () -> ClockReading = { .now() }
    ) {
        self.registry = registry
        self.logger = logger
        self.eventLoop = eventLoop
        self.busAddress = busAddress
        self.read = read
        machine = SleepMachine(read())
    }

    /// Starts watching. Whatever cannot be watched is logged, and is not an error.
    func start() {
        do throws(ClockSource.Failure) {
            clocks = try ClockSource { [weak self] in
                // Takes one hop only: the task runs here until it has to change to the loop.
                Task.immediate { await self?.clockJumped() }
            }
        } catch {
            logger.notice("clock steps cannot be detected; sleep is detected only through logind: \(error)")
        }
        let logind = Logind(
            executor: eventLoop.executor, address: busAddress,
            sleep: { [eventLoop] in try await eventLoop.sleep(for: $0) },
            deliver: { [weak self] event in self?.assumeIsolated { $0.take(event) } })
        self.logind = logind
        registry.assumeIsolated { registry in
            registry.sessionsChanged = { [weak self] in self?.assumeIsolated { $0.sessionsChanged() } }
        }
        logind.assumeIsolated { $0.start() }
        sessionsChanged()
    }

    /// Stops watching. The sessions are told nothing after this.
    func stop() {
        registry.assumeIsolated { $0.sessionsChanged = {} }
        logind?.assumeIsolated { $0.stop() }
        logind = nil
        clocks = nil
        timer?.cancel()
        timer = nil
    }

    // MARK: - What happens

    /// The wall clock was set, or the host woke up.
    func clockJumped() { take(.clockJumped) }

    private func sessionsChanged() {
        take(.sessionsChanged(leave: registry.assumeIsolated { $0.leaveBeforeSleep }))
    }

    private func take(_ event: Logind.Event) {
        switch event {
        case .preparesForSleep:
            logger.debug("the host is about to sleep")
            take(.sleepIsNear)
        case .woke:
            take(.sleepIsOver)
        case .found:
            logger.debug("logind tells when the host sleeps")
        case .lost(let why):
            logger.debug("logind does not tell when the host sleeps: \(why)")
            take(.logindLost)
        case .unanswered:
            logger.debug("logind has not answered in time, and is asked again")
        case .inhibitorTaken:
            isRefusalTold = false
            logger.debug("sleep is delayed until the sessions have left")
        case .inhibitorRefused(let why):
            if !isRefusalTold {
                logger.notice(
                    """
                    sleep cannot be delayed, sessions may not have left before it; logind asks polkit whether it may: \
                    \(why)
                    """)
            }
            isRefusalTold = true
        }
    }

    private func take(_ input: SleepMachine.Input) {
        guard logind != nil else { return }
        let reading = read()
        for action in machine.handle(input, at: reading) { perform(action, at: reading.boot) }
        arm(at: reading.boot)
    }

    // MARK: - What is done

    private func perform(_ action: SleepMachine.Action, at now: Instant) {
        switch action {
        case .leave:
            Task {
                await registry.hostWillSleep()
                take(.sessionsLeft)
            }
        case .wake(let slept):
            if slept > .zero { tellSleep(slept, at: now) }
            registry.assumeIsolated { $0.hostWoke(slept: slept) }
        case .judgeDates(let step):
            tellStep(step, at: now)
            registry.assumeIsolated { $0.clockStepped() }
        case .inhibit(let wanted):
            logind?.assumeIsolated { $0.inhibit(wanted) }
        }
    }

    private func arm(at now: Instant) {
        timer?.cancel()
        timer = machine.nextDeadline.map { deadline in
            let wait = max(.zero, now.duration(to: deadline))
            return eventLoop.scheduleTask(in: .nanoseconds(wait.nanoseconds)) { [weak self] in
                self?.assumeIsolated { $0.take(.timeReached) }
            }
        }
    }

    /// The short naps of a virtual machine that is paused again and again are not worth a line each.
    private func tellSleep(_ slept: Duration, at now: Instant) {
        var more = 0
        if slept < .seconds(30) {
            guard let untold = naps.take(at: now) else { return }
            more = untold
        }
        logger.notice(
            "the host slept for \(SessionLog.text(slept))\(HourlyCount.text(more: more))",
            metadata: ["MESSAGE_ID": "\(MessageID.resumedFromSleep)"])
    }

    private func tellStep(_ step: Duration, at now: Instant) {
        guard let more = steps.take(at: now) else { return }
        let (size, direction) = step < .zero ? (.zero - step, "back") : (step, "forward")
        logger.notice(
            "the clock was set \(direction) by \(SessionLog.text(size))\(HourlyCount.text(more: more))",
            metadata: ["MESSAGE_ID": "\(MessageID.clockStepped)"])
    }
}
