import CNetlink
import Glibc

/// A non-blocking rtnetlink socket, closed at the end of its lifetime. It belongs to the network namespace of the
/// thread that opened it, whichever thread uses it later.
struct NetlinkSocket: ~Copyable {
    private let descriptor: Int32

    /// - Parameters:
    ///   - groups: the `RTNLGRP_…` to listen to.
    ///   - groupsIfKnown: those that older kernels do not have.
    ///   - receiveBuffer: bytes of messages that may wait to be read; the kernel's default if `nil`.
    init(
        groups: [rtnetlink_groups] = [], groupsIfKnown: [rtnetlink_groups] = [], receiveBuffer: Int32? = nil
    ) throws(NetlinkError) {
        descriptor = socket(AF_NETLINK, Int32(SOCK_RAW.rawValue) | socketFlags, NETLINK_ROUTE)
        guard descriptor >= 0 else { throw NetlinkError(call: "socket") }
        // Kernels before 4.20 have no strict checks; they answer with less filtering.
        _ = set(SOL_NETLINK, NETLINK_GET_STRICT_CHK, 1)
        _ = set(SOL_NETLINK, NETLINK_EXT_ACK, 1)
        if let receiveBuffer, !set(SOL_SOCKET, SO_RCVBUFFORCE, receiveBuffer) {
            // Without CAP_NET_ADMIN the kernel's limit holds (net.core.rmem_max); a smaller buffer only overruns sooner.
            _ = set(SOL_SOCKET, SO_RCVBUF, receiveBuffer)
        }
        var address = sockaddr_nl()
        address.nl_family = sa_family_t(AF_NETLINK)
        let bound = withUnsafePointer(to: address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_nl>.size))
            }
        }
        guard bound == 0 else { throw NetlinkError(call: "bind") }
        // Connected to the kernel, whose port is 0: nobody else can send to it.
        let connected = withUnsafePointer(to: address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_nl>.size))
            }
        }
        guard connected == 0 else { throw NetlinkError(call: "connect") }
        for group in groups {
            guard set(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, Int32(group.rawValue)) else {
                throw NetlinkError(call: "setsockopt(NETLINK_ADD_MEMBERSHIP)")
            }
        }
        for group in groupsIfKnown { _ = set(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, Int32(group.rawValue)) }
    }

    deinit {
        if descriptor >= 0 { close(descriptor) }
    }

    private func set(_ level: Int32, _ option: Int32, _ value: Int32) -> Bool {
        withUnsafePointer(to: value) {
            setsockopt(descriptor, level, option, $0, socklen_t(MemoryLayout<Int32>.size)) == 0
        }
    }

    /// Gives up the descriptor, which the caller must close.
    consuming func release() -> Int32 {
        let descriptor = descriptor
        discard self
        return descriptor
    }

    func send(_ message: [UInt8]) throws(NetlinkError) {
        while Glibc.send(descriptor, message, message.count, Int32(MSG_DONTWAIT)) < 0 {
            guard errno == EINTR else { throw NetlinkError(call: "send") }
        }
    }

    /// The result of one read.
    enum Received: Equatable {
        /// A datagram of this many bytes is in the buffer.
        case datagram(Int)
        /// It was not sent by the kernel.
        case foreign
        /// Messages were lost: the kernel dropped some, or one was longer than the buffer.
        case overrun
        /// Nothing is waiting.
        case nothing
        /// The socket no longer works.
        case failed(NetlinkError)
    }

    func receive(into buffer: UnsafeMutableRawBufferPointer) -> Received {
        var sender = sockaddr_nl()
        var length = socklen_t(MemoryLayout<sockaddr_nl>.size)
        // With MSG_TRUNC the result is the true length, even if the buffer is shorter.
        let flags = Int32(MSG_DONTWAIT) | Int32(MSG_TRUNC)
        let received = withUnsafeMutablePointer(to: &sender) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                recvfrom(descriptor, buffer.baseAddress, buffer.count, flags, $0, &length)
            }
        }
        if received < 0 {
            switch errno {
            case EAGAIN: return .nothing
            case EINTR: return receive(into: buffer)
            case ENOBUFS: return .overrun
            default: return .failed(NetlinkError(call: "recvfrom"))
            }
        }
        guard sender.nl_pid == 0 else { return .foreign }
        return received > buffer.count ? .overrun : .datagram(received)
    }

    /// Returns the name of an interface and its `IFF_…` flags; `nil` if there is no such interface. There are no flags while
    /// it is given another name, which takes the kernel some milliseconds. This does not take the kernel's global routing
    /// lock, which is held for a long time while containers come and go.
    func interface(index: Int32) -> (name: String, flags: UInt32?)? {
        var request = ifreq()
        request.ifr_ifru.ifru_ivalue = index
        guard ioctl(descriptor, UInt(SIOCGIFNAME), &request) == 0 else { return nil }
        let name = withUnsafeBytes(of: request.ifr_ifrn) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
        guard ioctl(descriptor, UInt(SIOCGIFFLAGS), &request) == 0 else { return (name, nil) }
        return (name, UInt32(UInt16(bitPattern: request.ifr_ifru.ifru_flags)))
    }
}

private let socketFlags = Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
private let SOL_NETLINK: Int32 = 270

extension NetlinkError {
    /// The call that just failed, with `errno`.
    fileprivate init(call: String) {
        self = .system(call: call, number: errno)
    }
}
