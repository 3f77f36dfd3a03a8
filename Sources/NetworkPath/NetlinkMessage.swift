import CNetlink

/// One message from the kernel, with the parts that the watcher needs.
struct NetlinkMessage: Equatable {
    /// The content of a message.
    enum Body: Equatable {
        case link(LinkMessage)
        case address(AddressMessage)
        case route(RouteMessage)
        /// The answer to a request that was refused (`number` is the positive errno) or carried out (0).
        case error(number: Int32, text: String?)
        /// The end of a dump; `number` is the positive errno if it failed half-way.
        case done(number: Int32, text: String?)
        /// A kind whose contents the watcher does not need, or one whose contents are too short.
        case skipped(type: UInt16)
    }

    var sequence: UInt32
    /// Whether the tables changed while they were dumped (`NLM_F_DUMP_INTR`).
    var isInterrupted: Bool
    var body: Body
}

extension NetlinkMessage {
    /// Returns the messages of one datagram, up to one with an impossible length.
    static func parse(_ datagram: ArraySlice<UInt8>) -> [NetlinkMessage] {
        let bytes = NetlinkBytes(datagram)
        var messages: [NetlinkMessage] = []
        var offset = 0
        while let length = bytes.number(at: offset, as: UInt32.self).map(Int.init),
            length >= headerLength, let message = bytes.part(from: offset, length: length)
        {
            guard let type = message.number(at: 4, as: UInt16.self),
                let flags = message.number(at: 6, as: UInt16.self),
                let sequence = message.number(at: 8, as: UInt32.self)
            else { break }
            let body = Body(type: type, flags: flags, payload: message.dropFirst(headerLength))
            messages.append(
                NetlinkMessage(
                    sequence: sequence, isInterrupted: flags & UInt16(NLM_F_DUMP_INTR) != 0, body: body))
            offset += align(length)
        }
        return messages
    }

    /// `struct nlmsghdr`: length, type, flags, sequence, sender's port.
    static let headerLength = 16
}

extension NetlinkMessage.Body {
    fileprivate init(type: UInt16, flags: UInt16, payload: NetlinkBytes) {
        let understood: NetlinkMessage.Body? =
            switch Int(type) {
            case Int(NLMSG_ERROR): .error(payload, flags: flags)
            case Int(NLMSG_DONE): .done(payload, flags: flags)
            case RTM_NEWLINK: LinkMessage(payload).map { .link($0) }
            case RTM_NEWADDR: AddressMessage(payload).map { .address($0) }
            case RTM_NEWROUTE: RouteMessage(payload).map { .route($0) }
            default: nil
            }
        self = understood ?? .skipped(type: type)
    }

    /// `struct nlmsgerr`: the negative errno and the refused request, of which only the header is repeated if
    /// `NLM_F_CAPPED` is set; then attributes with the kernel's words, if `NLM_F_ACK_TLVS` is set.
    private static func error(_ payload: NetlinkBytes, flags: UInt16) -> Self? {
        guard let code = payload.number(at: 0, as: Int32.self) else { return nil }
        let isCapped = flags & UInt16(NLM_F_CAPPED) != 0
        let requestLength = payload.number(at: 4, as: UInt32.self).map(Int.init) ?? 0
        let request = isCapped ? NetlinkMessage.headerLength : max(requestLength, NetlinkMessage.headerLength)
        return .error(
            number: positive(code), text: words(payload.dropFirst(4 + align(min(request, payload.count))), flags: flags)
        )
    }

    private static func done(_ payload: NetlinkBytes, flags: UInt16) -> Self? {
        let code = payload.number(at: 0, as: Int32.self) ?? 0
        return .done(number: positive(code), text: words(payload.dropFirst(4), flags: flags))
    }

    /// The kernel sends `-errno`. Any other number is not an errno, and the most negative one has no positive
    /// counterpart.
    private static func positive(_ code: Int32) -> Int32 {
        code < 0 && code > .min ? -code : 0
    }

    private static func words(_ attributes: NetlinkBytes, flags: UInt16) -> String? {
        guard flags & UInt16(NLM_F_ACK_TLVS) != 0 else { return nil }
        var text: String?
        attributes.forEachAttribute { type, payload in
            if type == Int(NLMSGERR_ATTR_MSG.rawValue) { text = payload.text }
        }
        return text
    }
}
