import CNetlink
import Dispatch
import Glibc
import SessionCore

/// What one wake-up of the hint socket brought.
struct HintBatch: Hashable, Sendable {
    /// Messages of the kernel.
    var messages: UInt64 = 0
    /// How often messages were lost.
    var overruns: UInt64 = 0
    /// When the socket was found readable.
    var receivedAt: Instant
}

/// Listens to the kernel and drains the socket at every wake-up; what was in the messages does not matter, only that they
/// came.
///
/// A thread of its own waits in poll(2): a dispatch source would wake one thread to start another one, and the first SYN
/// after an outage would come half a millisecond later.
struct HintSource: ~Copyable {
    private let end: EventDescriptor

    /// - Parameters:
    ///   - receiveBuffer: bytes of messages that may wait to be read.
    ///   - now: the boot clock.
    ///   - deliver: called on the thread for every wake-up with messages of the kernel.
    init(
        receiveBuffer: Int32, now: @escaping @Sendable () -> Instant,
        deliver: @escaping @Sendable (HintBatch) -> Void
    ) throws(NetlinkError) {
        let socket = try NetlinkSocket(groups: Self.groups, receiveBuffer: receiveBuffer)
        let end = try EventDescriptor()
        self.end = end
        DispatchQueue(label: "holdfast.netlink", qos: .userInitiated).async {
            while socket.isReadable(before: end) {
                let (batch, isUsable) = socket.drain(receivedAt: now())
                if batch.messages > 0 || batch.overruns > 0 { deliver(batch) }
                // A socket that can only fail would be readable for ever.
                if !isUsable { return }
            }
        }
    }

    /// Ends the listening.
    deinit {
        end.set()
    }

    /// Never RTNLGRP_NEIGH: every ARP entry would wake the daemon, and none says anything about a route.
    private static let groups = [
        RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE,
        RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_RULE,
    ]
}

/// An eventfd(2), closed with its last reference.
private final class EventDescriptor: Sendable {
    let descriptor: Int32

    init() throws(NetlinkError) {
        descriptor = eventfd(0, Int32(EFD_CLOEXEC))
        guard descriptor >= 0 else { throw NetlinkError.system(call: "eventfd", number: errno) }
    }

    deinit {
        if descriptor >= 0 { close(descriptor) }
    }

    func set() {
        eventfd_write(descriptor, 1)
    }
}

extension NetlinkSocket {
    /// Waits until something can be read; `false` when the end is set before that.
    fileprivate func isReadable(before end: EventDescriptor) -> Bool {
        var waiting = [descriptor, end.descriptor].map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
        while poll(&waiting, nfds_t(waiting.count), -1) < 0 {
            precondition(errno == EINTR, "poll() cannot fail otherwise")
        }
        return waiting[1].revents == 0
    }

    /// Reads everything that waits.
    fileprivate func drain(receivedAt: Instant) -> (HintBatch, isUsable: Bool) {
        var batch = HintBatch(receivedAt: receivedAt)
        let isUsable = withUnsafeTemporaryAllocation(byteCount: 32768, alignment: 8) { buffer -> Bool in
            while true {
                switch receive(into: buffer) {
                case .datagram(let length):
                    batch.messages += UInt64(
                        NetlinkMessage.count(ArraySlice(UnsafeRawBufferPointer(buffer)[..<length])))
                case .foreign: continue
                case .overrun: batch.overruns += 1
                case .nothing: return true
                case .failed: return false
                }
            }
        }
        return (batch, isUsable)
    }
}
