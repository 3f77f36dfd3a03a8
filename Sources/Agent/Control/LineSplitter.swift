import Glibc
import NIOCore

/// Splits a stream of bytes into lines. A line that is too long is skipped, and not kept in memory.
struct LineSplitter {
    enum Line: Hashable {
        case line([UInt8])
        /// A line was longer than allowed; it is skipped up to its end.
        case tooLong
        /// Empty lines, which are skipped, and so are their ends: this many bytes, at most ``LineSplitter/skippedAtOnce``.
        /// They cost time all the same.
        case empty(bytes: Int)
    }

    private static let skippedAtOnce = 16 << 10

    /// A buffer that has grown beyond this is released when it is empty.
    private static let keptCapacity = 64 << 10

    private let maximumLength: Int
    private var buffer = ByteBuffer()
    /// How many bytes of the buffer are known to hold no line feed.
    private var searched = 0
    /// The length of the first line in the buffer, if its end has arrived.
    private var found: Int?
    private var isSkipping = false

    init(maximumLength: Int) {
        self.maximumLength = maximumLength
    }

    mutating func append(_ bytes: ByteBuffer) {
        buffer.writeImmutableBuffer(bytes)
    }

    /// How many bytes are held.
    var byteCount: Int { buffer.readableBytes }

    /// Whether a line is complete or too long, even if ``next()`` skips it.
    mutating func hasLine() -> Bool {
        search()
        return found != nil || searched > maximumLength
    }

    /// The next line, without its end; `nil` if none is complete yet.
    mutating func next() -> Line? {
        while true {
            search()
            if let length = found {
                found = nil
                if length <= 1, !isSkipping, let line = skipEmptyLines() { return line }
                guard let line = take(length) else { continue }
                return line
            }
            guard searched > maximumLength else { return nil }
            buffer = ByteBuffer()
            searched = 0
            isSkipping = true
            return .tooLong
        }
    }

    /// Searches for the end of the first line. Bytes that are skipped are not kept.
    private mutating func search() {
        guard found == nil, searched < buffer.readableBytes else { return }
        // NIO's own search looks at one byte at a time.
        let end = buffer.withUnsafeReadableBytes { [searched] bytes -> Int? in
            let unsearched = UnsafeRawBufferPointer(rebasing: bytes[searched...])
            guard let start = unsearched.baseAddress,
                let end = memchr(start, Int32(UInt8(ascii: "\n")), unsearched.count)
            else { return nil }
            return searched + (UnsafeRawPointer(end) - start)
        }
        if let end {
            found = end
        } else if isSkipping {
            buffer = ByteBuffer()
            searched = 0
        } else {
            searched = buffer.readableBytes
        }
    }

    /// Skips the empty lines at the front of the buffer; `nil` if there are none.
    private mutating func skipEmptyLines() -> Line? {
        let (lineFeed, carriageReturn) = (UInt8(ascii: "\n"), UInt8(ascii: "\r"))
        let count = buffer.withUnsafeReadableBytes { bytes in
            var end = 0
            while end < min(bytes.count, Self.skippedAtOnce) {
                if bytes[end] == lineFeed {
                    end += 1
                } else if bytes[end] == carriageReturn, end + 1 < bytes.count, bytes[end + 1] == lineFeed {
                    end += 2
                } else {
                    break
                }
            }
            return end
        }
        guard count > 0 else { return nil }
        drop(count)
        return .empty(bytes: count)
    }

    /// Removes bytes from the front of the buffer.
    private mutating func drop(_ count: Int) {
        buffer.moveReaderIndex(forwardBy: count)
        // Moving the rest to the front for every line would be quadratic in the lines of one read.
        if buffer.readableBytes == 0 {
            if buffer.capacity > Self.keptCapacity { buffer = ByteBuffer() } else { buffer.clear() }
        } else if buffer.readerIndex > 1 << 20 {
            buffer = ByteBuffer(buffer: buffer.slice())
        } else if buffer.readerIndex > 1 << 16 {
            buffer.discardReadBytes()
        }
        searched = 0
    }

    /// Takes a line of the given length, and its end, from the buffer; `nil` if it is the end of a line that was too long.
    private mutating func take(_ length: Int) -> Line? {
        defer { drop(length + 1) }
        if isSkipping {
            isSkipping = false
            return nil
        }
        guard length <= maximumLength else { return .tooLong }
        var bytes = buffer.getBytes(at: buffer.readerIndex, length: length) ?? []
        if bytes.last == UInt8(ascii: "\r") { bytes.removeLast() }
        return .line(bytes)
    }
}
