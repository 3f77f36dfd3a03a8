internal import Glibc

/// Learns from logind, on the system bus, that the host is about to sleep or has woken. It can delay sleep until the
/// daemon is prepared for it, with an inhibitor lock of the kind "delay".
///
/// A missing bus or logind, or a refusal, is not an error: nothing is reported about sleep then. It waits for a bus
/// that does not exist yet, and reconnects to one that was restarted.
public actor Logind {
    /// What logind has reported.
    public enum Event: Hashable, Sendable {
        /// The host sleeps as soon as nothing delays it.
        case preparesForSleep
        /// The host has slept and is awake, or its sleep was cancelled.
        case woke
        /// logind is there, and its signals are received from now on.
        case found
        /// Signals are not received, for this reason, until ``found``. Also reported when no bus can be used at all.
        case lost(String)
        /// The bus or logind has not answered in time, and was asked again.
        case unanswered
        /// Sleep is delayed from now on.
        case inhibitorTaken
        /// Sleep is not delayed, for this reason. Everything else is as usual.
        case inhibitorRefused(String)
    }

    /// The address of the system bus, which the environment may override.
    public static var systemBus: String {
        getenv("DBUS_SYSTEM_BUS_ADDRESS").map { String(cString: $0) } ?? "unix:path=/run/dbus/system_bus_socket"
    }

    private static let name = "org.freedesktop.login1"
    private static let path = "/org/freedesktop/login1"
    private static let interface = "org.freedesktop.login1.Manager"
    private static let busName = "org.freedesktop.DBus"
    private static let busPath = "/org/freedesktop/DBus"

    /// How long to wait before each attempt to reach a lost bus. If all of them fail without an answer from the bus,
    /// there are no more.
    private static let pauses: [Duration] = [.seconds(1), .seconds(4), .seconds(16), .seconds(64), .seconds(256)]

    private nonisolated let executor: any SerialExecutor
    public nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    private let address: String
    private let patience: Duration
    private let sleep: @Sendable (Duration) async throws -> Void
    private let deliver: @Sendable (Event) -> Void
    private var bus: Bus?
    /// The sender of logind's signals: anybody on the bus may send one that looks the same.
    private var owner: String?
    private var failures = 0
    private var retry: Task<Void, Never>?
    private var wantsInhibitor = false
    private var isAsking = false
    /// Sleep is delayed as long as this descriptor is open.
    private var inhibitor: Int32?

    /// - Parameters:
    ///   - executor: where everything runs; the daemon's event loop.
    ///   - address: of the bus, as in `DBUS_SYSTEM_BUS_ADDRESS`.
    ///   - patience: how long a call may take. If there is no answer by then, it is made again.
    ///   - sleep: a one-shot timer, used after a bus was lost and never while there is one.
    ///   - deliver: called on `executor`.
    public init(
        executor: any SerialExecutor, address: String = Logind.systemBus, patience: Duration = .seconds(25),
        sleep: @escaping @Sendable (Duration) async throws -> Void = { try await Task.sleep(for: $0) },
        deliver: @escaping @Sendable (Event) -> Void
    ) {
        self.executor = executor
        self.address = address
        self.patience = patience
        self.sleep = sleep
        self.deliver = deliver
    }

    /// Starts to listen; returns before there is an answer.
    public func start() {
        guard bus == nil else { return }
        do throws(Bus.Failure) {
            let bus = try Bus(address: address, patience: patience) { [weak self] in await self?.process() }
            try bus.listen(for: Self.ownerRule, handle: handler { $0.ownerChanged($1) })
            try bus.listen(for: Self.sleepRule, handle: handler { $0.prepareForSleep($1) })
            try askForOwner(bus)
            self.bus = bus
        } catch {
            ended(error)
            return
        }
        process()
    }

    /// Stops listening, and no longer delays sleep. Nothing is delivered afterwards.
    public func stop() {
        retry?.cancel()
        retry = nil
        bus = nil
        owner = nil
        wantsInhibitor = false
        release()
    }

    /// Delays each sleep from now on, as far as logind allows it, until this is called with `false`. A lock that was
    /// refused is requested again.
    public func inhibit(_ wanted: Bool) {
        wantsInhibitor = wanted
        if wanted {
            ask()
            process()
        } else {
            release()
        }
    }

    // MARK: - The bus

    private static var ownerRule: String {
        "type='signal',sender='\(busName)',path='\(busPath)',interface='\(busName)',member='NameOwnerChanged',arg0='\(name)'"
    }

    private static var sleepRule: String {
        "type='signal',sender='\(name)',path='\(path)',interface='\(interface)',member='PrepareForSleep'"
    }

    /// Wraps a handler. Handlers are only called while the bus is processed.
    private func handler(
        _ handle: @escaping @Sendable (isolated Logind, BusMessage) -> Void
    ) -> (BusMessage) -> Void {
        { [weak self] message in
            nonisolated(unsafe) let message = message
            self?.assumeIsolated { handle($0, message) }
        }
    }

    private func process() {
        do throws(Bus.Failure) {
            try bus?.process()
        } catch {
            ended(error)
        }
    }

    private func ended(_ failure: Bus.Failure) {
        bus = nil
        forget(failure.text)
        guard failures < Self.pauses.count else {
            deliver(.lost(failure.text))
            return
        }
        let pause = Self.pauses[failures]
        failures += 1
        retry = Task { [weak self, sleep] in
            do { try await sleep(pause) } catch { return }
            await self?.start()
        }
    }

    private func askForOwner(_ bus: Bus) throws(Bus.Failure) {
        try bus.call(
            "GetNameOwner", of: Self.busName, at: Self.busPath, on: Self.busName, [Self.name],
            reply: handler { $0.ownerTold($1) })
    }

    private func ownerTold(_ message: BusMessage) {
        if message.failure?.isNoReply == true, let bus {
            // No signal announces a logind that is running already.
            try? askForOwner(bus)
            return deliver(.unanswered)
        }
        // Whatever the answer says, the bus is there.
        if message.sender == Self.busName { failures = 0 }
        guard message.failure == nil, let name = message.string(), !name.isEmpty else { return }
        found(name)
    }

    private func ownerChanged(_ message: BusMessage) {
        guard message.sender == Self.busName, message.string() == Self.name, message.string() != nil,
            let new = message.string()
        else { return }
        if owner != nil, owner != new { forget("logind has ended") }
        if !new.isEmpty { found(new) }
    }

    private func found(_ name: String) {
        guard owner != name else { return }
        owner = name
        deliver(.found)
        ask()
    }

    private func forget(_ why: String) {
        isAsking = false
        release()
        guard owner != nil else { return }
        owner = nil
        deliver(.lost(why))
    }

    private func prepareForSleep(_ message: BusMessage) {
        guard let owner, message.sender == owner, let isComing = message.boolean() else { return }
        deliver(isComing ? .preparesForSleep : .woke)
    }

    // MARK: - The inhibitor

    private func ask() {
        guard wantsInhibitor, inhibitor == nil, !isAsking, let owner, let bus else { return }
        let arguments = ["sleep", "Holdfast", "Sessions need to disconnect from their servers", "delay"]
        do throws(Bus.Failure) {
            try bus.call(
                "Inhibit", of: Self.interface, at: Self.path, on: owner, arguments,
                reply: handler { $0.answered($1) })
            isAsking = true
        } catch {
            deliver(.inhibitorRefused(error.text))
        }
    }

    private func answered(_ message: BusMessage) {
        isAsking = false
        if let failure = message.failure {
            if failure.isNoReply {
                ask()
                return deliver(.unanswered)
            }
            deliver(.inhibitorRefused(failure.text))
            return
        }
        guard let descriptor = message.descriptor() else {
            deliver(.inhibitorRefused("logind returned no lock"))
            return
        }
        inhibitor = descriptor
        if wantsInhibitor {
            deliver(.inhibitorTaken)
        } else {
            release()
        }
    }

    private func release() {
        if let inhibitor { close(inhibitor) }
        inhibitor = nil
    }
}
