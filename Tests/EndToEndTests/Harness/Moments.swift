import Vocabulary

/// When something happens to a running daemon, and what. The same seed gives the same moments; what they hit depends on
/// the machine.
struct Moments: RandomNumberGenerator {
    private var random: SplitMix64

    init(seed: UInt64) {
        random = SplitMix64(seed: seed)
    }

    mutating func next() -> UInt64 { random.next() }

    mutating func wait(upTo milliseconds: Int) async throws {
        try await Task.sleep(for: .milliseconds(Int.random(in: 0...milliseconds, using: &self)))
    }
}
