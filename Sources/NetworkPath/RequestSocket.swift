import Glibc

/// Sends requests to the kernel and reads its answers, matched by sequence number.
///
/// rtnetlink handles a request within `send`, so the answer is there when `send` returns. Nothing here blocks, and an
/// answer that is not there will not come.
struct RequestSocket: ~Copyable {
    private let socket: NetlinkSocket
    private var sequence: UInt32 = 0
    private let buffer: UnsafeMutableRawBufferPointer

    init() throws(NetlinkError) {
        socket = try NetlinkSocket()
        // The kernel fills at most 32 KiB per read of a dump; a single message is smaller.
        buffer = .allocate(byteCount: 65536, alignment: 8)
    }

    deinit {
        buffer.deallocate()
    }

    /// Returns the name of an interface and its `IFF_…` flags; `nil` if there is no such interface.
    mutating func interface(index: Int32) -> (name: String, flags: UInt32)? {
        guard let (name, flags) = socket.interface(index: index) else { return nil }
        if let flags { return (name, flags) }
        // This waits until the interface has its new name.
        guard case .link(let link)? = try? first(.link(index: index)) else { return nil }
        return (link.name, link.flags)
    }

    /// Sends a request for one thing and returns the answer.
    mutating func first(_ request: NetlinkRequest) throws(NetlinkError) -> NetlinkMessage.Body {
        try begin(request)
        while let messages = try receive() {
            for message in messages where message.sequence == sequence {
                if case .error(let number, let text) = message.body {
                    throw .refused(number: number, text: text)
                }
                return message.body
            }
        }
        throw .noAnswer
    }

    /// Calls `body` with each row of a table. Throws ``NetlinkError/interrupted`` at the end if the rows are
    /// inconsistent because the table changed meanwhile.
    mutating func dump(_ request: NetlinkRequest, _ body: (NetlinkMessage.Body) -> Void) throws(NetlinkError) {
        try begin(request)
        var isInterrupted = false
        while let messages = try receive() {
            for message in messages where message.sequence == sequence {
                isInterrupted = isInterrupted || message.isInterrupted
                switch message.body {
                case .error(let number, let text):
                    throw .refused(number: number, text: text)
                case .done(let number, let text):
                    if number == EINTR || number == 0, isInterrupted || number != 0 { throw .interrupted }
                    if number != 0 { throw .refused(number: number, text: text) }
                    return
                default:
                    body(message.body)
                }
            }
        }
        throw .noAnswer
    }

    private mutating func begin(_ request: NetlinkRequest) throws(NetlinkError) {
        sequence &+= 1
        try socket.send(request.encoded(sequence: sequence))
    }

    /// Returns the messages of the kernel's next datagram; `nil` if none is waiting.
    private func receive() throws(NetlinkError) -> [NetlinkMessage]? {
        while true {
            switch socket.receive(into: buffer) {
            case .datagram(let length):
                return NetlinkMessage.parse(ArraySlice(UnsafeRawBufferPointer(buffer)[..<length]))
            case .foreign: continue
            case .overrun: throw .interrupted
            case .nothing: return nil
            case .failed(let error): throw error
            }
        }
    }
}
