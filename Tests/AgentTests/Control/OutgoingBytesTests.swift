import NIOCore
import Testing

@testable import Agent

struct OutgoingBytesTests {
    private static func all(_ bytes: inout OutgoingBytes) -> [String] {
        var pieces: [String] = []
        while let piece = bytes.next() { pieces.append(String(buffer: piece)) }
        return pieces
    }

    @Test func `lines that fit leave together`() {
        var bytes = OutgoingBytes(pieceLength: 8)
        #expect(bytes.isEmpty)
        for line in ["ab\n", "cd\n", "e\n"] { bytes.append(Array(line.utf8)) }
        #expect(!bytes.isEmpty)
        #expect(Self.all(&bytes) == ["ab\ncd\ne\n"])
        #expect(bytes.isEmpty)
    }

    @Test func `a line that does not fit begins a piece, and a long one is several`() {
        var bytes = OutgoingBytes(pieceLength: 4)
        for line in ["ab\n", "cd\n", "0123456789\n", "e\n"] { bytes.append(Array(line.utf8)) }
        #expect(Self.all(&bytes) == ["ab\n", "cd\n", "0123", "4567", "89\n", "e\n"])
    }

    @Test func `a line appended while a long one is written stays behind it`() {
        var bytes = OutgoingBytes(pieceLength: 4)
        bytes.append(Array("01234567\n".utf8))
        #expect(bytes.next().map { String(buffer: $0) } == "0123")
        bytes.append(Array("a\n".utf8))
        #expect(Self.all(&bytes) == ["4567", "\n", "a\n"])
    }

    @Test func `a line written in place follows the others, and a full piece is followed by another`() {
        var bytes = OutgoingBytes(pieceLength: 4)
        bytes.append(Array("a\n".utf8))
        #expect(bytes.append { $0 += "bcd\n".utf8 } == 4)
        #expect(bytes.append { $0 += "e\n".utf8 } == 2)
        #expect(!bytes.isEmpty)
        #expect(Self.all(&bytes) == ["a\nbc", "d\n", "e\n"])
    }
}
