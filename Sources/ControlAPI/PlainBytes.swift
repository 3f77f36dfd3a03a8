extension UnsafeRawBufferPointer {
    /// Skips bytes, from this index on, that stand for themselves in a JSON string of ASCII: all but control characters,
    /// the quote and the backslash.
    ///
    /// Eight bytes are looked at at a time, because payloads are long. The result is where a group of eight has another
    /// byte, or where fewer than eight bytes are left.
    func skippingPlainBytes(from start: Int) -> Int {
        let (each, highBits): (UInt64, UInt64) = (0x0101_0101_0101_0101, 0x8080_8080_8080_8080)
        var position = start
        while count - position >= 8 {
            let word = loadUnaligned(fromByteOffset: position, as: UInt64.self)
            let (quote, backslash) = (word ^ (each &* 0x22), word ^ (each &* 0x5C))
            // Each subtraction sets the high bit of the lowest byte that is a control character, or that matches the
            // quote or the backslash.
            let control = (word &- each &* 0x20) & ~word
            let quoteOrBackslash = (quote &- each) & ~quote | (backslash &- each) & ~backslash
            guard (word | control | quoteOrBackslash) & highBits == 0 else { break }
            position += 8
        }
        return position
    }
}
