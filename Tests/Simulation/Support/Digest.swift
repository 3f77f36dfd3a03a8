import NIOCore
import SessionCore

/// Everything that happened, as one number (FNV-1a): two runs are the same if their numbers are.
struct Digest: Hashable {
    private(set) var value: UInt64 = 0xcbf2_9ce4_8422_2325

    mutating func mix(_ number: UInt64) { value = (value ^ number) &* 0x100_0000_01b3 }

    mutating func mix(_ kind: UInt64, _ number: UInt64, at now: Instant) {
        mix(kind)
        mix(number)
        mix(UInt64(bitPattern: now.nanoseconds))
    }

    mutating func mix(_ kind: UInt64, _ bytes: ByteBuffer, at now: Instant) {
        mix(kind, UInt64(bytes.readableBytes), at: now)
        for byte in bytes.readableBytesView { mix(UInt64(byte)) }
    }

    mutating func mix(_ text: String) { for byte in text.utf8 { mix(UInt64(byte)) } }
}
