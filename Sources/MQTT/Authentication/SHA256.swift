/// SHA-256 (FIPS 180-4) and what SCRAM builds on it: HMAC (RFC 2104) and Hi, which is PBKDF2 (RFC 8018) with one block.
///
/// The TLS library has a SHA-256 of its own but does not expose it, and the packages that do would bring a second TLS
/// library. Only public inputs and one password are hashed here, on this host; nothing depends on being fast.
package enum SHA256 {
    typealias State = SIMD8<UInt32>
    typealias Block = SIMD16<UInt32>

    static let digestLength = 32
    private static let blockLength = 64

    package static func hash(_ bytes: [UInt8]) -> [UInt8] {
        var state = initial
        finish(&state, bytes, before: 0)
        return self.bytes(of: state)
    }

    /// A key, ready for many messages: the hash states after its two paddings.
    package struct HMAC: Sendable {
        private let inner: State
        private let outer: State

        package init(key: [UInt8]) {
            var padded = key.count > SHA256.blockLength ? SHA256.hash(key) : key
            padded += [UInt8](repeating: 0, count: SHA256.blockLength - padded.count)
            var (inner, outer) = (SHA256.initial, SHA256.initial)
            SHA256.compress(&inner, SHA256.block(padded.map { $0 ^ 0x36 }[...]))
            SHA256.compress(&outer, SHA256.block(padded.map { $0 ^ 0x5C }[...]))
            (self.inner, self.outer) = (inner, outer)
        }

        package func code(of message: [UInt8]) -> [UInt8] {
            var state = inner
            SHA256.finish(&state, message, before: SHA256.blockLength)
            return SHA256.bytes(of: closed(state))
        }

        /// The code of a message that is itself a code, without converting to bytes.
        fileprivate func code(of message: State) -> State {
            var state = inner
            SHA256.compress(&state, SHA256.lastBlock(message))
            return closed(state)
        }

        private func closed(_ digest: State) -> State {
            var state = outer
            SHA256.compress(&state, SHA256.lastBlock(digest))
            return state
        }
    }

    /// Hi of RFC 5802, 2.2.
    ///
    /// - Parameter iterations: 1 or more; each takes about a microsecond.
    package static func stretch(_ password: [UInt8], salt: [UInt8], iterations: Int) -> [UInt8] {
        var stretching = Stretching(password, salt: salt, iterations: iterations)
        stretching.advance(by: iterations)
        guard let result = stretching.result else { preconditionFailure("all iterations are done") }
        return result
    }

    /// Hi, some iterations at a time.
    struct Stretching: Sendable {
        private let hmac: HMAC
        private var code: State
        private var sum: State
        /// Iterations that are still to be done.
        private var left: Int

        /// - Parameter iterations: 1 or more; the first one is done at once.
        init(_ password: [UInt8], salt: [UInt8], iterations: Int) {
            precondition(iterations > 0, "a password is stretched at least once")
            hmac = HMAC(key: password)
            code = state(hmac.code(of: salt + [0, 0, 0, 1]))
            sum = code
            left = iterations - 1
        }

        mutating func advance(by iterations: Int) {
            for _ in 0..<min(iterations, left) {
                code = hmac.code(of: code)
                sum ^= code
                left -= 1
            }
        }

        /// `nil` until all iterations are done.
        var result: [UInt8]? { left == 0 ? bytes(of: sum) : nil }
    }

    // MARK: Blocks

    private static let initial = State(
        0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19)

    private static let constants: [UInt32] = [
        0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5,
        0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174,
        0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da,
        0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7, 0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967,
        0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85,
        0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070,
        0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
        0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2,
    ]

    /// Processes the rest of a message, and its length.
    ///
    /// - Parameter before: bytes that the state has taken already.
    private static func finish(_ state: inout State, _ bytes: [UInt8], before: Int) {
        var padded = bytes + [0x80]
        while padded.count % blockLength != blockLength - 8 { padded.append(0) }
        let bits = UInt64(before + bytes.count) * 8
        for shift in stride(from: 56, through: 0, by: -8) { padded.append(UInt8(truncatingIfNeeded: bits >> shift)) }
        for start in stride(from: 0, to: padded.count, by: blockLength) {
            compress(&state, block(padded[start..<start + blockLength]))
        }
    }

    private static func block(_ bytes: ArraySlice<UInt8>) -> Block {
        var block = Block()
        for (index, byte) in bytes.enumerated() { block[index / 4] = block[index / 4] << 8 | UInt32(byte) }
        return block
    }

    /// A digest as the second and last block of a message.
    private static func lastBlock(_ digest: State) -> Block {
        var block = Block()
        block.lowHalf = digest
        block[8] = 0x8000_0000
        block[15] = UInt32((blockLength + digestLength) * 8)
        return block
    }

    private static func state(_ digest: [UInt8]) -> State {
        var state = State()
        for (index, byte) in digest.enumerated() { state[index / 4] = state[index / 4] << 8 | UInt32(byte) }
        return state
    }

    private static func bytes(of state: State) -> [UInt8] {
        (0..<digestLength).map { UInt8(truncatingIfNeeded: state[$0 / 4] >> UInt32(24 - $0 % 4 * 8)) }
    }

    /// FIPS 180-4, 6.2.2, with the message schedule in a ring of 16 words.
    private static func compress(_ state: inout State, _ block: Block) {
        var words = block
        var (a, b, c, d) = (state[0], state[1], state[2], state[3])
        var (e, f, g, h) = (state[4], state[5], state[6], state[7])
        for round in 0..<64 {
            if round >= 16 {
                let (early, late) = (words[(round + 1) & 15], words[(round + 14) & 15])
                let first = rotate(early, 7) ^ rotate(early, 18) ^ early >> 3
                let second = rotate(late, 17) ^ rotate(late, 19) ^ late >> 10
                words[round & 15] &+= first &+ words[(round + 9) & 15] &+ second
            }
            let choice = e & f ^ ~e & g
            let majority = a & b ^ a & c ^ b & c
            let sumE = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)
            let sumA = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)
            let first = h &+ sumE &+ choice &+ constants[round] &+ words[round & 15]
            (h, g, f, e, d, c, b, a) = (g, f, e, d &+ first, c, b, a, first &+ sumA &+ majority)
        }
        state &+= State(a, b, c, d, e, f, g, h)
    }

    private static func rotate(_ word: UInt32, _ count: UInt32) -> UInt32 { word >> count | word << (32 - count) }
}
