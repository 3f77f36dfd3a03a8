import NIOCore
import NIOEmbedded
import NIOHTTP1
import Testing

@testable import Transport

struct HTTPLimitTests {
    @Test(arguments: [1, 100, 4096, HTTPLimitHandler.limit, 1 << 20])
    func `no more than the limit reaches the parser, and the rest is reported once`(piece: Int) throws {
        let channel = EmbeddedChannel(handler: HTTPLimitHandler())
        var (passed, errors) = (0, 0)
        for _ in 0..<(2 * HTTPLimitHandler.limit / piece + 1) {
            do {
                try channel.writeInbound(ByteBuffer(repeating: 0x20, count: piece))
            } catch HTTPParserError.headerOverflow {
                errors += 1
            }
            while let bytes = try channel.readInbound(as: ByteBuffer.self) { passed += bytes.readableBytes }
        }
        #expect(passed == HTTPLimitHandler.limit / piece * piece)
        #expect(errors == 1)
    }
}
