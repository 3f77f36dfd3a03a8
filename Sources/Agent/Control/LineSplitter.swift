import NIOCore

/// Cuts a stream of bytes into lines, without ever holding more than one line of the greatest length.
struct LineSplitter {
    enum Line: Hashable {
        case line([UInt8])
        /// A line was longer than allowed; all of it, up to its end, is skipped.
        case tooLong
    }

    private let maximumLength: Int
    private var buffer = ByteBuffer()
    /// How many bytes of the buffer are known to hold no line feed.
    private var searched = 0
    private var isSkipping = false

    init(maximumLength: Int) {
        self.maximumLength = maximumLength
    }

    mutating func append(_ bytes: ByteBuffer) {
        buffer.writeImmutableBuffer(bytes)
    }

    /// The next line, without its end; `nil` when there is none yet. Empty lines are passed over.
    mutating func next() -> Line? {
        while true {
            let unsearched = buffer.readableBytesView.dropFirst(searched)
            if let end = unsearched.firstIndex(of: UInt8(ascii: "\n")) {
                let length = end - buffer.readerIndex
                guard let line = take(length) else { continue }
                return line
            }
            searched = buffer.readableBytes
            guard searched > maximumLength else { return nil }
            buffer.clear()
            searched = 0
            let wasSkipping = isSkipping
            isSkipping = true
            return wasSkipping ? nil : .tooLong
        }
    }

    /// Takes a line of the given length and its end from the buffer; `nil` if there is nothing to tell of it.
    private mutating func take(_ length: Int) -> Line? {
        defer {
            buffer.moveReaderIndex(forwardBy: length + 1)
            // Moving the rest to the front for every line would be quadratic in the lines of one read.
            if buffer.readableBytes == 0 {
                buffer.clear()
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
