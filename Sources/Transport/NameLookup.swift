import Glibc
import NIOCore
import Vocabulary

/// Resolves a host name; blocks. The result has at least one address, and the addresses carry the port.
typealias LookUp = @Sendable (_ host: String, _ port: Int) -> Result<[SocketAddress], TransportFailure>

/// Looks a name up with the system's resolver. It blocks, so it must be called on a thread of a pool.
///
/// Both families are asked for, in the order of RFC 6724. AI_ADDRCONFIG is not set: on a host whose network is just
/// coming up it would hide the family that is about to be usable, and an address without a route fails at once.
@Sendable func systemLookUp(_ host: String, _ port: Int) -> Result<[SocketAddress], TransportFailure> {
    var hints = addrinfo()
    hints.ai_family = AF_UNSPEC
    hints.ai_socktype = CInt(SOCK_STREAM.rawValue)
    hints.ai_protocol = CInt(IPPROTO_TCP)
    var list: UnsafeMutablePointer<addrinfo>?
    let code = getaddrinfo(host, nil, &hints, &list)
    let systemError = errno
    guard code == 0 else {
        let words = code == EAI_SYSTEM ? systemText(systemError) : String(cString: gai_strerror(code))
        return .failure(TransportFailure(.dnsFailed, "cannot resolve \(host): \(words)"))
    }
    defer { freeaddrinfo(list) }

    var addresses: [SocketAddress] = []
    var next = list
    while let entry = next?.pointee {
        next = entry.ai_next
        guard let address = socketAddress(entry, port: port), !addresses.contains(address) else { continue }
        addresses.append(address)
    }
    guard !addresses.isEmpty else {
        return .failure(TransportFailure(.dnsFailed, "cannot resolve \(host): it has no IPv4 and no IPv6 address"))
    }
    return .success(addresses)
}

private func socketAddress(_ entry: addrinfo, port: Int) -> SocketAddress? {
    guard let raw = UnsafeRawPointer(entry.ai_addr) else { return nil }
    var address: SocketAddress
    switch entry.ai_family {
    case AF_INET: address = SocketAddress(raw.loadUnaligned(as: sockaddr_in.self))
    case AF_INET6: address = SocketAddress(raw.loadUnaligned(as: sockaddr_in6.self))
    default: return nil
    }
    address.port = port
    return address
}
