import NIOCore

/// Lines that wait to be written to a peer, in pieces that are given to the kernel one at a time.
struct OutgoingBytes {
    /// The length of a piece, in bytes. The last one may be shorter.
    let pieceLength: Int
    private var pieces = CircularBuffer<ByteBuffer>()
    /// The last piece, to which lines are added. Not one of `pieces`: an element that is changed there is copied, whole, for
    /// each line.
    private var last = ByteBuffer()

    init(pieceLength: Int) {
        self.pieceLength = pieceLength
    }

    var isEmpty: Bool { pieces.isEmpty && last.readableBytes == 0 }

    mutating func append(_ line: [UInt8]) {
        if last.readableBytes > 0, last.readableBytes + line.count > pieceLength {
            pieces.append(last)
            last = ByteBuffer()
        }
        last.writeBytes(line)
    }

    /// Takes the first piece; `nil` if there is nothing to write.
    mutating func next() -> ByteBuffer? {
        if pieces.isEmpty, last.readableBytes > 0 {
            pieces.append(last)
            last = ByteBuffer()
        }
        guard var first = pieces.popFirst() else { return nil }
        guard first.readableBytes > pieceLength, let piece = first.readSlice(length: pieceLength) else { return first }
        pieces.prepend(first)
        return piece
    }
}
