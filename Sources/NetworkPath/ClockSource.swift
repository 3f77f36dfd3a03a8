import CNetlink
import Dispatch
import Glibc

/// Reports that the wall clock jumped: it was set, or the host woke up. ``ClockClassifier`` decides which.
///
/// It waits in the kernel, with a timer that never expires: timerfd_create(2) with `TFD_TIMER_CANCEL_ON_SET`. Nothing
/// is polled.
public struct ClockSource: ~Copyable {
    /// The kernel does not offer such a timer.
    public struct Failure: Error, Hashable, Sendable, CustomStringConvertible {
        /// The system call, for example `timerfd_create`.
        public let call: String
        /// The `errno`.
        public let number: Int32

        public var description: String { "\(call) failed: \(String(cString: strerror(number)))" }
    }

    private let source: any DispatchSourceRead

    /// - Parameter jumped: called on another thread; one call covers all jumps since the last one.
    public init(jumped: @escaping @Sendable () -> Void) throws(Failure) {
        let descriptor = timerfd_create(CLOCK_REALTIME, Int32(TFD_CLOEXEC | TFD_NONBLOCK))
        guard descriptor >= 0 else { throw Failure(call: "timerfd_create", number: errno) }
        var never = itimerspec()
        never.it_value.tv_sec = .max
        let flags = Int32(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET)
        guard timerfd_settime(descriptor, flags, &never, nil) == 0 else {
            let failure = Failure(call: "timerfd_settime", number: errno)
            close(descriptor)
            throw failure
        }
        self.init(descriptor: descriptor, jumped: jumped)
    }

    /// - Parameter descriptor: becomes readable, or fails with `ECANCELED`, at every jump; it is closed at the end.
    init(descriptor: Int32, jumped: @escaping @Sendable () -> Void) {
        source = DispatchSource.makeReadSource(
            fileDescriptor: descriptor, queue: DispatchQueue(label: "holdfast.clock", qos: .userInitiated))
        source.setEventHandler { [source] in
            switch Self.drain(descriptor) {
            case .jumped: jumped()
            case .nothing: break
            // The descriptor would stay readable forever.
            case .failed: source.cancel()
            }
        }
        source.setCancelHandler { close(descriptor) }
        source.activate()
    }

    deinit {
        source.cancel()
    }

    private enum Reading {
        case jumped, nothing, failed
    }

    private static func drain(_ descriptor: Int32) -> Reading {
        var expirations: UInt64 = 0
        let count = read(descriptor, &expirations, MemoryLayout.size(ofValue: expirations))
        if count > 0 { return .jumped }
        switch count < 0 ? errno : 0 {
        case ECANCELED: return .jumped
        case EAGAIN, EINTR: return .nothing
        default: return .failed
        }
    }
}
