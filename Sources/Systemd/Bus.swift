internal import CSystemd
internal import Dispatch
internal import Glibc

/// A connection to a message bus: sd-bus(3), driven by sd-event(3), which is a single descriptor from outside.
///
/// It belongs to one executor. Everything is asynchronous: ``process()`` sends requests and handles messages.
final class Bus {
    /// Why a call failed or was refused.
    struct Failure: Error, Hashable {
        /// The name of the D-Bus error, or empty.
        var name = ""
        var text: String

        /// Whether the call got no answer in time. On a busy host the answer may still come; it is then dropped.
        var isNoReply: Bool { name == "org.freedesktop.DBus.Error.NoReply" }
    }

    private final class Handler {
        let handle: (BusMessage) -> Void

        init(_ handle: @escaping (BusMessage) -> Void) { self.handle = handle }
    }

    /// A source may be used from any thread, but libdispatch does not tell the compiler so.
    private struct Pausable: @unchecked Sendable {
        let source: any DispatchSourceRead
    }

    private let event: OpaquePointer
    private let bus: OpaquePointer
    private let source: any DispatchSourceRead
    /// Keeps alive the handlers to which libsystemd has only pointers.
    private var handlers: [UnsafeMutableRawPointer: Handler] = [:]
    private var isArmed = false
    private var isProcessing = false

    /// Starts to connect. If nothing listens at the address yet, waits for it without polling.
    /// - Parameters:
    ///   - address: as in `DBUS_SYSTEM_BUS_ADDRESS`.
    ///   - patience: how long a call waits for its answer.
    ///   - readable: called on another thread when ``process()`` should be called; not called again before it has
    ///     returned.
    init(address: String, patience: Duration, readable: @escaping @Sendable () async -> Void) throws(Failure) {
        var event: OpaquePointer?
        var bus: OpaquePointer?
        var descriptor: Int32 = -1
        do throws(Failure) {
            try Self.check(sd_event_new(&event))
            try Self.check(sd_bus_new(&bus))
            try Self.check(sd_bus_set_address(bus, address))
            try Self.check(sd_bus_set_bus_client(bus, 1))
            try Self.check(sd_bus_negotiate_fds(bus, 1))
            try Self.check(sd_bus_set_watch_bind(bus, 1))
            try Self.check(sd_bus_set_method_call_timeout(bus, UInt64(patience / .microseconds(1))))
            try Self.check(sd_bus_start(bus))
            try Self.check(sd_bus_attach_event(bus, event, 0))
            // A duplicate: libdispatch releases its descriptor later than we free the event loop.
            descriptor = fcntl(sd_event_get_fd(event), F_DUPFD_CLOEXEC, 3)
            try Self.check(descriptor < 0 ? -errno : 0)
            guard let event, let bus else { throw Failure(text: "libsystemd made no connection") }
            (self.event, self.bus) = (event, bus)
        } catch {
            sd_bus_close_unref(bus)
            sd_event_unref(event)
            throw error
        }
        source = DispatchSource.makeReadSource(
            fileDescriptor: descriptor, queue: DispatchQueue(label: "holdfast.bus"))
        let pausable = Pausable(source: source)
        source.setEventHandler {
            pausable.source.suspend()
            Task {
                await readable()
                pausable.source.resume()
            }
        }
        source.setCancelHandler { [descriptor] in close(descriptor) }
        source.activate()
    }

    deinit {
        source.cancel()
        sd_bus_detach_event(bus)
        sd_bus_close_unref(bus)
        sd_event_unref(event)
    }

    /// Sends and receives what it can without waiting, and calls the handlers. Must also be called after every request.
    /// - Throws: if the connection has ended.
    func process() throws(Failure) {
        // A request from within a handler is sent once the handler has returned.
        guard !isProcessing else { return }
        isProcessing = true
        defer { isProcessing = false }
        var result = isArmed ? sd_event_wait(event, 0) : 0
        isArmed = false
        repeat {
            if result > 0 { result = sd_event_dispatch(event) }
            if result >= 0 { result = sd_event_prepare(event) }
        } while result > 0
        isArmed = result == 0
        try Self.check(result)
        guard sd_bus_is_open(bus) > 0 else { throw Failure(text: "the connection to the message bus has ended") }
    }

    /// - Parameters:
    ///   - rule: which messages to listen for, as in `dbus-monitor`.
    ///   - handle: called for every such message. Any program may send one, so check its sender.
    func listen(for rule: String, handle: @escaping (BusMessage) -> Void) throws(Failure) {
        try Self.check(sd_bus_add_match_async(bus, nil, rule, Self.receive, nil, keep(handle, isForOneMessage: false)))
    }

    /// Calls a method whose arguments are strings.
    func call(
        _ member: String, of interface: String, at path: String, on destination: String, _ arguments: [String],
        reply: @escaping (BusMessage) -> Void
    ) throws(Failure) {
        var message: OpaquePointer?
        try Self.check(sd_bus_message_new_method_call(bus, &message, destination, path, interface, member))
        defer { sd_bus_message_unref(message) }
        for argument in arguments {
            try Self.check(sd_bus_message_append_basic(message, CChar(SD_BUS_TYPE_STRING), argument))
        }
        try Self.check(sd_bus_call_async(bus, nil, message, Self.receive, keep(reply, isForOneMessage: true), 0))
    }

    private func keep(_ handle: @escaping (BusMessage) -> Void, isForOneMessage: Bool) -> UnsafeMutableRawPointer {
        var pointer: UnsafeMutableRawPointer?
        let handler = Handler(
            { [weak self] message in
                if isForOneMessage, let pointer { self?.handlers[pointer] = nil }
                handle(message)
            })
        let made = Unmanaged.passUnretained(handler).toOpaque()
        pointer = made
        handlers[made] = handler
        return made
    }

    private static let receive: sd_bus_message_handler_t = { message, handler, _ in
        guard let message, let handler else { return 0 }
        // The handler may be released while it runs.
        let kept = Unmanaged<Handler>.fromOpaque(handler).takeUnretainedValue()
        kept.handle(BusMessage(message))
        return 0
    }

    private static func check(_ result: Int32) throws(Failure) {
        guard result < 0 else { return }
        throw Failure(text: String(cString: strerror(-result)))
    }
}

/// A message that was received; valid only while it is handled.
struct BusMessage {
    private let message: OpaquePointer

    init(_ message: OpaquePointer) { self.message = message }

    /// The sender's unique name, which the bus guarantees.
    var sender: String? { sd_bus_message_get_sender(message).map { String(cString: $0) } }

    /// Set if a call was refused or got no answer.
    var failure: Bus.Failure? {
        guard sd_bus_message_is_method_error(message, nil) > 0 else { return nil }
        let error = sd_bus_message_get_error(message)?.pointee
        let name = error?.name.map { String(cString: $0) } ?? ""
        return Bus.Failure(name: name, text: error?.message.map { String(cString: $0) } ?? name)
    }

    /// Reads the next argument; `nil` if it is not a string.
    func string() -> String? {
        var text: UnsafePointer<CChar>?
        guard sd_bus_message_read_basic(message, CChar(SD_BUS_TYPE_STRING), &text) > 0 else { return nil }
        return text.map { String(cString: $0) }
    }

    /// Reads the next argument; `nil` if it is not a Boolean.
    func boolean() -> Bool? {
        var value: Int32 = 0
        guard sd_bus_message_read_basic(message, CChar(SD_BUS_TYPE_BOOLEAN), &value) > 0 else { return nil }
        return value != 0
    }

    /// Reads the next argument, a descriptor, which the caller must close; `nil` if it is something else.
    func descriptor() -> Int32? {
        var descriptor: Int32 = -1
        guard sd_bus_message_read_basic(message, CChar(SD_BUS_TYPE_UNIX_FD), &descriptor) > 0 else { return nil }
        let own = fcntl(descriptor, F_DUPFD_CLOEXEC, 3)
        return own < 0 ? nil : own
    }
}
