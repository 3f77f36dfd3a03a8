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

/// Listens to the kernel and drains the socket at every wake-up, on a queue of its own; what was in the messages does
/// not matter, only that they came.
struct HintSource: ~Copyable {
    private let source: any DispatchSourceRead

    /// - Parameters:
    ///   - receiveBuffer: bytes of messages that may wait to be read.
    ///   - now: the boot clock.
    ///   - deliver: called on the queue for every wake-up with messages of the kernel.
    init(
        receiveBuffer: Int32, now: @escaping @Sendable () -> Instant,
        deliver: @escaping @Sendable (HintBatch) -> Void
    ) throws(NetlinkError) {
        let socket = try NetlinkSocket(groups: Self.groups, receiveBuffer: receiveBuffer)
        let queue = DispatchQueue(label: "holdfast.netlink", qos: .userInitiated)
        source = DispatchSource.makeReadSource(fileDescriptor: socket.descriptor, queue: queue)
        // The handlers keep the socket open: the queue may read it until the cancellation has been carried out.
        source.setEventHandler { [source] in
            let (batch, isUsable) = socket.drain(receivedAt: now())
            if batch.messages > 0 || batch.overruns > 0 { deliver(batch) }
            // A socket that can only fail would be readable for ever.
            if !isUsable { source.cancel() }
        }
        source.setCancelHandler { _ = socket }
        source.activate()
    }

    /// Ends the listening. It also breaks the cycle of the source and its handlers, which dispatch lets go then.
    deinit {
        source.cancel()
    }

    /// Never RTNLGRP_NEIGH: every ARP entry would wake the daemon, and none says anything about a route.
    private static let groups = [
        RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE,
        RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_RULE,
    ]
}

extension NetlinkSocket {
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
