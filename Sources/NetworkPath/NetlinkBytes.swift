/// A part of a netlink datagram that is read by offset.
///
/// Every read is checked against the end: if the kernel (or something that claims to be it) sent too few bytes, the
/// result is `nil`, never a trap. Numbers are in the host's byte order, as in netlink.
struct NetlinkBytes {
    private let bytes: ArraySlice<UInt8>

    init(_ bytes: ArraySlice<UInt8>) {
        self.bytes = bytes
    }

    var count: Int { bytes.count }

    /// The whole part as an array.
    var array: [UInt8] { Array(bytes) }

    func number<Number: FixedWidthInteger>(at offset: Int, as type: Number.Type = Number.self) -> Number? {
        let size = MemoryLayout<Number>.size
        guard offset >= 0, offset <= count - size else { return nil }
        return bytes.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: offset, as: Number.self) }
    }

    /// The part from `offset` to the end, which is empty when `offset` is beyond it.
    func dropFirst(_ offset: Int) -> NetlinkBytes {
        NetlinkBytes(bytes.dropFirst(offset))
    }

    /// `length` bytes from `offset`; `nil` if there are fewer.
    func part(from offset: Int, length: Int) -> NetlinkBytes? {
        guard offset >= 0, length >= 0, offset <= count - length else { return nil }
        let start = bytes.startIndex + offset
        return NetlinkBytes(bytes[start..<(start + length)])
    }

    /// Text up to the first NUL, or to the end.
    var text: String { String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self) }
}

extension NetlinkBytes {
    /// Calls `body` with the type and the payload of each attribute (`struct rtattr`) in this part.
    ///
    /// A length that is smaller than the attribute's own header, or beyond the end, ends the walk: nothing after it can
    /// be found.
    func forEachAttribute(_ body: (_ type: Int, _ payload: NetlinkBytes) -> Void) {
        var offset = 0
        while let length = number(at: offset, as: UInt16.self).map(Int.init),
            let type = number(at: offset + 2, as: UInt16.self),
            length >= 4, let payload = part(from: offset + 4, length: length - 4)
        {
            // The two highest bits mean "nested" and "network byte order"; they do not belong to the type.
            body(Int(type & 0x3fff), payload)
            offset += align(length)
        }
    }
}

/// Netlink messages and attributes start at multiples of four.
func align(_ length: Int) -> Int {
    (length + 3) & ~3
}
