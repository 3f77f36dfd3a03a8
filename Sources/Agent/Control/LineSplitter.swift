import Glibc
import NIOCore

/// Splits a stream of bytes into lines. A line that is too long is skipped, and not kept in memory.
struct LineSplitter {
    enum Line: Hashable {
        case line([UInt8])
        /// A line was longer than allowed; it is skipped up to its end.
        case tooLong
    }

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

    /// The next line, without its end; `nil` if none is complete yet. Empty lines are skipped.
    mutating func next() -> Line? {
        while true {
            search()
            if let length = found {
                found = nil
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

    /// Takes a line of the given length, and its end, from the buffer; `nil` if the line is empty or skipped.
    private mutating func take(_ length: Int) -> Line? {
        defer {
            buffer.moveReaderIndex(forwardBy: length + 1)
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
        if isSkipping {
            isSkipping = false
            return nil
        }
        guard length <= maximumLength else { return .tooLong }
        var bytes = buffer.getBytes(at: buffer.readerIndex, length: length) ?? []
        if bytes.last == UInt8(ascii: "\r") { bytes.removeLast() }
        return bytes.isEmpty ? nil : .line(bytes)
    }
}
