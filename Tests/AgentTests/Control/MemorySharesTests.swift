import Testing
import Vocabulary

@testable import Agent

struct MemorySharesTests {
    private static func shares(_ users: [String]) -> MemoryShares<Int, String> {
        var shares = MemoryShares<Int, String>(allowance: 10, pool: 120)
        for (member, user) in users.enumerated() { shares.open(member, of: user) }
        return shares
    }

    /// Takes byte after byte until there is no room.
    private static func fill(_ shares: inout MemoryShares<Int, String>, _ member: Int) {
        while shares.take(1, for: member) {}
    }

    @Test func `one user gets half of the pool, two get a third each, three a quarter`() {
        var shares = Self.shares(["a", "b", "c"])
        Self.fill(&shares, 0)
        #expect(shares.borrowed(by: "a") == 60)
        Self.fill(&shares, 1)
        #expect(shares.borrowed(by: "b") == 30)
        shares.give(20, by: 0)
        Self.fill(&shares, 1)
        #expect(shares.borrowed(by: "a") == 40 && shares.borrowed(by: "b") == 40)
        #expect(shares.hasRoom(40, for: 2), "there is always some left for the next")
    }

    @Test func `the allowance is available whatever others do`() {
        var shares = Self.shares(["a", "a", "b"])
        Self.fill(&shares, 0)
        shares.takeAnyway(200, for: 2)
        #expect(shares.take(10, for: 1) == true)
        #expect(!shares.hasRoom(1, for: 1))
    }

    @Test func `memory returned or left behind is free again`() {
        var shares = Self.shares(["a", "b"])
        Self.fill(&shares, 0)
        shares.takeAnyway(70, for: 1)
        shares.close(0)
        shares.close(0)
        shares.give(70, by: 1)
        #expect(shares.borrowed == 0)
        #expect(!shares.hasRoom(1, for: 0), "it is gone")
    }

    @Test func `what an exempt member holds counts for no share`() {
        var shares = Self.shares(["a", "a", "b"])
        Self.fill(&shares, 0)
        shares.setExempt(0)
        #expect(shares.borrowed == 0 && shares.held(by: 0) == 70)
        shares.takeAnyway(100, for: 0)
        shares.give(30, by: 0)
        #expect(shares.hasRoom(70, for: 1) && shares.hasRoom(70, for: 2))
        shares.setExempt(1)
        #expect(shares.borrowed(by: "a") == 130, "it is its user's again")
        shares.close(1)
        shares.setExempt(nil)
        shares.give(140, by: 0)
        #expect(shares.borrowed == 0)
    }

    @Test(arguments: 0..<20 as Range<UInt64>)
    func `the pool is never exceeded by requests`(seed: UInt64) {
        var random = SplitMix64(seed: seed)
        var shares = Self.shares(["a", "a", "b", "c", "c", "c"])
        var held = [Int](repeating: 0, count: 6)
        for _ in 0..<2000 {
            let member = Int.random(in: 0..<6, using: &random)
            if Bool.random(using: &random) {
                let bytes = Int.random(in: 0...40, using: &random)
                if shares.take(bytes, for: member) { held[member] += bytes }
            } else {
                let bytes = Int.random(in: 0...held[member], using: &random)
                shares.give(bytes, by: member)
                held[member] -= bytes
            }
            #expect(shares.borrowed <= 120)
            #expect(shares.borrowed == held.reduce(0) { $0 + max(0, $1 - 10) })
        }
    }
}
