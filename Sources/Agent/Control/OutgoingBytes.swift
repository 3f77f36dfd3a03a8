import NIOCore

/// Lines that wait to be written to a peer, in pieces that are given to the kernel one at a time.
struct OutgoingBytes {
    /// The length of a piece, in bytes. The last one may be shorter.
    let pieceLength: Int
    private var pieces = CircularBuffer<ByteBuffer>()
    /// The last piece, to which lines are added. Not an element of `pieces`, since changing one there would copy it for
    /// each line.
    private var last: [UInt8] = []
    /// Enough for the answers to a few calls. With less, the piece would grow, and be copied, several times.
    private static let firstCapacity = 2048

    init(pieceLength: Int) {
        self.pieceLength = pieceLength
    }

    var isEmpty: Bool { pieces.isEmpty && last.isEmpty }

    mutating func append(_ line: [UInt8]) {
        if last.count + line.count > pieceLength { endPiece() }
        if last.isEmpty { last.reserveCapacity(Self.firstCapacity) }
        last += line
    }

    /// Adds a short line, which `write` appends in place.
    ///
    /// - Returns: its length.
    mutating func append(_ write: (inout [UInt8]) -> Void) -> Int {
        if last.isEmpty { last.reserveCapacity(Self.firstCapacity) }
        let before = last.count
        write(&last)
        let length = last.count - before
        if last.count >= pieceLength { endPiece() }
        return length
    }

    private mutating func endPiece() {
        guard !last.isEmpty else { return }
        pieces.append(ByteBuffer(bytes: last))
        last = []
    }

    /// Takes the first piece; `nil` if there is nothing to write.
    mutating func next() -> ByteBuffer? {
        if pieces.isEmpty { endPiece() }
        guard var first = pieces.popFirst() else { return nil }
        guard first.readableBytes > pieceLength, let piece = first.readSlice(length: pieceLength) else { return first }
        pieces.prepend(first)
        return piece
    }
}
