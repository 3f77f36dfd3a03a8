import Testing
import Vocabulary

@testable import Agent

struct FairTurnsTests {
    typealias Turns = FairTurns<Int, String>

    /// Everybody has always more to do.
    private static func turns(_ turns: inout Turns, _ count: Int, busy: [Int: String]) -> [Int] {
        (0..<count).compactMap { _ in
            guard let member = turns.next() else { return nil }
            if let user = busy[member] { turns.add(member, of: user) }
            return member
        }
    }

    @Test func `members take turns, users first`() {
        var turns = Turns()
        let busy = [1: "a", 2: "a", 3: "a", 9: "b"]
        for (member, user) in busy.sorted(by: { $0.key < $1.key }) { turns.add(member, of: user) }
        #expect(Self.turns(&turns, 8, busy: busy) == [1, 9, 2, 9, 3, 9, 1, 9])
    }

    @Test func `who had nothing to do before goes first, once`() {
        var turns = Turns()
        let busy = [1: "a", 2: "a", 3: "a"]
        for member in 1...3 { turns.add(member, of: "a") }
        #expect(Self.turns(&turns, 4, busy: busy) == [1, 2, 3, 1])
        turns.add(7, of: "a")
        #expect(Self.turns(&turns, 1, busy: busy) == [7])
        // Its place behind the others has not come up yet, so it is not new again.
        turns.add(7, of: "a")
        #expect(Self.turns(&turns, 4, busy: busy) == [2, 3, 1, 7])
    }

    @Test func `who asks now and then is new every time`() {
        var turns = Turns()
        let busy = [1: "a", 2: "a"]
        for member in 1...2 { turns.add(member, of: "a") }
        #expect(Self.turns(&turns, 2, busy: busy) == [1, 2])
        for _ in 1...5 {
            turns.add(7, of: "a")
            #expect(Self.turns(&turns, 1, busy: busy) == [7])
            #expect(Self.turns(&turns, 4, busy: busy).count == 4)
        }
    }

    @Test func `who is gone has no turn`() {
        var turns = Turns()
        turns.add(1, of: "a")
        turns.add(2, of: "a")
        turns.add(2, of: "a")
        #expect(turns.waiting == 2)
        turns.remove(1)
        #expect(turns.contains(2) && !turns.contains(1))
        #expect(turns.next() == 2)
        #expect(turns.isEmpty && turns.next() == nil)
        turns.remove(2)
        turns.add(2, of: "b")
        #expect(turns.next() == 2)
        #expect(turns.next() == nil)
    }

    @Test(arguments: 0..<20 as Range<UInt64>)
    func `nobody is forgotten, and nobody is served who does not wait`(seed: UInt64) {
        var random = SplitMix64(seed: seed)
        var turns = Turns()
        var waiting: [Int: Int] = [:]
        for _ in 0..<2000 {
            let member = Int.random(in: 0..<12, using: &random)
            switch Int.random(in: 0..<5, using: &random) {
            case 0, 1:
                turns.add(member, of: "user \(member % 3)")
                if waiting[member] == nil { waiting[member] = 0 }
            case 2:
                turns.remove(member)
                waiting[member] = nil
            default:
                guard let next = turns.next() else {
                    #expect(waiting.isEmpty)
                    continue
                }
                #expect(waiting.removeValue(forKey: next) != nil)
                for key in waiting.keys { waiting[key, default: 0] += 1 }
                // Three users of four members each; each of them may have been new once meanwhile.
                #expect(waiting.values.allSatisfy { $0 <= 24 })
            }
            #expect(turns.waiting == waiting.count)
        }
    }
}
