import CSystemd
import Foundation
import Glibc
public import Support
import Synchronization

/// What Holdfast needs of logind, on a bus of a test's own. It runs on a thread of its own until it is stopped.
public final class FakeLogind: Sendable {
    public enum Event: Hashable, Sendable {
        /// Somebody took a lock.
        case inhibited(what: String, who: String, mode: String)
        /// Somebody asked for a lock and did not get it.
        case refused
        /// The lock was given back.
        case released
        case ended
    }

    private enum Command {
        case signal(Bool), refuse(Bool), stop
    }

    /// What its clients do.
    public let seen = Heard<Event>()
    private let commands = Mutex<[Command]>([])
    private let wake: Int32
    private let woken: Int32

    /// - Parameters:
    ///   - address: of the bus.
    ///   - name: an impostor has another one, and sends the same signals.
    /// - Throws: when it cannot connect.
    public init(_ address: String, name: String? = "org.freedesktop.login1") async throws {
        var ends: [Int32] = [-1, -1]
        guard socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0 else {
            throw MessageBus.Failure(description: "no sockets can be made")
        }
        (woken, wake) = (ends[0], ends[1])
        let result: Int32 = await withCheckedContinuation { continuation in
            let thread = Thread { [self] in
                var bus: OpaquePointer?
                let result = Self.connect(&bus, address, name)
                continuation.resume(returning: result)
                if result >= 0, let bus { Worker(bus, self).run() }
            }
            thread.start()
        }
        guard result >= 0 else { throw MessageBus.Failure(description: "no bus: \(result)") }
    }

    /// Not earlier: a test that still tells it something would write into a file that another test has opened meanwhile.
    deinit {
        close(wake)
        close(woken)
    }

    private static func connect(_ bus: inout OpaquePointer?, _ address: String, _ name: String?) -> Int32 {
        var result = sd_bus_new(&bus)
        if result >= 0 { result = sd_bus_set_address(bus, address) }
        if result >= 0 { result = sd_bus_set_bus_client(bus, 1) }
        if result >= 0 { result = sd_bus_negotiate_fds(bus, 1) }
        if result >= 0 { result = sd_bus_start(bus) }
        if result >= 0, let name { result = sd_bus_request_name(bus, name, 0) }
        return result
    }

    /// PrepareForSleep.
    public func prepareForSleep(_ isComing: Bool) { tell(.signal(isComing)) }
    /// From now on, or no more.
    public func refuse(_ refuses: Bool = true) { tell(.refuse(refuses)) }
    public func stop() { tell(.stop) }

    private func tell(_ command: Command) {
        commands.withLock { $0.append(command) }
        var byte: UInt8 = 0
        _ = write(wake, &byte, 1)
    }

    /// What only its thread touches.
    private final class Worker {
        private let bus: OpaquePointer
        private let owner: FakeLogind
        private var refuses = false
        private var locks: [Int32] = []
        private var isRunning = true

        init(_ bus: OpaquePointer, _ owner: FakeLogind) {
            (self.bus, self.owner) = (bus, owner)
        }

        func run() {
            sd_bus_add_filter(
                bus, nil,
                { message, worker, _ in
                    guard let message, let worker else { return 0 }
                    return Unmanaged<Worker>.fromOpaque(worker).takeUnretainedValue().take(message)
                }, Unmanaged.passUnretained(self).toOpaque())
            while isRunning {
                var result: Int32
                repeat { result = sd_bus_process(bus, nil) } while result > 0
                if result < 0 { break }
                wait()
            }
            sd_bus_flush_close_unref(bus)
            for descriptor in locks { close(descriptor) }
            owner.seen.append(.ended)
        }

        private func wait() {
            var descriptors = ([sd_bus_get_fd(bus), owner.woken] + locks).map {
                pollfd(fd: $0, events: Int16(POLLIN), revents: 0)
            }
            poll(&descriptors, nfds_t(descriptors.count), -1)
            if descriptors[1].revents != 0 {
                var byte: UInt8 = 0
                _ = read(owner.woken, &byte, 1)
                performCommands()
            }
            for lock in descriptors.dropFirst(2) where lock.revents != 0 {
                close(lock.fd)
                locks.removeAll { $0 == lock.fd }
                owner.seen.append(.released)
            }
        }

        private func performCommands() {
            let commands = owner.commands.withLock { commands in
                defer { commands = [] }
                return commands
            }
            for command in commands { perform(command) }
        }

        private func perform(_ command: Command) {
            switch command {
            case .refuse(let refuses): self.refuses = refuses
            case .stop: isRunning = false
            case .signal(let isComing):
                var signal: OpaquePointer?
                var value: Int32 = isComing ? 1 : 0
                sd_bus_message_new_signal(
                    bus, &signal, "/org/freedesktop/login1", "org.freedesktop.login1.Manager", "PrepareForSleep")
                sd_bus_message_append_basic(signal, CChar(SD_BUS_TYPE_BOOLEAN), &value)
                sd_bus_send(bus, signal, nil)
                sd_bus_message_unref(signal)
            }
        }

        private func take(_ message: OpaquePointer) -> Int32 {
            guard sd_bus_message_is_method_call(message, "org.freedesktop.login1.Manager", "Inhibit") > 0 else {
                return 0
            }
            // What it was told before this came.
            performCommands()
            let arguments = (0..<4).map { _ -> String in
                var text: UnsafePointer<CChar>?
                sd_bus_message_read_basic(message, CChar(SD_BUS_TYPE_STRING), &text)
                return text.map { String(cString: $0) } ?? ""
            }
            var reply: OpaquePointer?
            if refuses {
                sd_bus_message_new_method_errno(message, &reply, EACCES, nil)
                owner.seen.append(.refused)
            } else {
                var ends: [Int32] = [-1, -1]
                // Closed in every program that another test starts: what is left open there would hold the lock.
                socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends)
                locks.append(ends[0])
                sd_bus_message_new_method_return(message, &reply)
                sd_bus_message_append_basic(reply, CChar(SD_BUS_TYPE_UNIX_FD), &ends[1])
                close(ends[1])
                owner.seen.append(.inhibited(what: arguments[0], who: arguments[1], mode: arguments[3]))
            }
            sd_bus_send(bus, reply, nil)
            sd_bus_message_unref(reply)
            return 1
        }
    }
}
