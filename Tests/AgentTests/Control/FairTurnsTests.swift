import Testing
import Vocabulary

@testable import Agent

struct FairTurnsTests {
    typealias Turns = FairTurns<Int, String>

    /// Gives turns to members that always have more to do, at the costs given.
    private static func turns(
        _ turns: inout Turns, _ count: Int, busy: [Int: String], costs: [Int: Int] = [:]
    ) -> [Int] {
        (0..<count).compactMap { _ in
            guard let member = turns.next() else { return nil }
            turns.charge(costs[member] ?? 0, to: member)
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

    @Test func `a member whose turns cost three times as much gets a third of the turns`() {
        var turns = Turns()
        let busy = [1: "a", 2: "a", 8: "b", 9: "b"]
        let costs = [1: 5632, 2: 1536, 8: 2560, 9: 2560]
        for (member, user) in busy.sorted(by: { $0.key < $1.key }) { turns.add(member, of: user) }
        let order = Self.turns(&turns, 4000, busy: busy, costs: costs)
        let counts = [1, 2, 8, 9].map { member in order.count { $0 == member } }
        // The cost of a turn itself is added: 6144, 2048 and 3072. Each member has a quarter.
        let quarters = zip(counts, [6144, 2048, 3072, 3072]).map { $0 * $1 }
        let most = quarters.max() ?? 0
        #expect(quarters.allSatisfy { $0 > most - 20_000 }, "\(quarters)")
    }

    @Test(arguments: [1, 10, 500])
    func `a member that asks for little does not wait for those that ask for much`(hogs: Int) {
        var turns = Turns()
        for hog in 1...hogs { turns.add(hog, of: "a") }
        func serveOther() -> Int? {
            let member = turns.next()
            if let member, member != 0 {
                turns.charge(16_384, to: member)
                turns.add(member, of: "a")
            }
            return member
        }
        for _ in 0..<(3 * hogs) { _ = serveOther() }
        // On average at most a tenth of the others, and two more, go first: its turn costs less than a tenth of theirs.
        var between: [Int] = []
        for _ in 0..<1000 {
            turns.add(0, of: "a")
            var passed = 0
            while serveOther() != 0 { passed += 1 }
            between.append(passed)
            turns.charge(900, to: 0)
        }
        #expect(between.reduce(0, +) < 1000 * (hogs / 10 + 2), "\(between)")
        #expect(between.allSatisfy { $0 <= hogs })
    }

    @Test func `a member does not save up turns by waiting`() {
        var turns = Turns()
        turns.add(1, of: "a")
        turns.add(2, of: "a")
        #expect(Self.turns(&turns, 101, busy: [1: "a"]).count == 101)
        turns.add(2, of: "a")
        let order = Self.turns(&turns, 20, busy: [1: "a", 2: "a"])
        #expect((9...11).contains(order.count { $0 == 2 }))
    }

    @Test func `connecting again and again gains no turns`() {
        var turns = Turns()
        for hog in 1...10 { turns.add(hog, of: "a") }
        turns.add(0, of: "a")
        var (waits, longest, next) = (0, 0, 100)
        for _ in 0..<10_000 {
            guard let member = turns.next() else { break }
            if member == 0 {
                longest = max(longest, waits)
                waits = 0
                turns.charge(900, to: 0)
                turns.add(0, of: "a")
            } else {
                waits += 1
                turns.remove(member)
                next += 1
                turns.add(next, of: "a")
            }
        }
        #expect(max(longest, waits) <= 20)
    }

    @Test func `a member that was removed has no turn`() {
        var turns = Turns()
        turns.add(1, of: "a")
        turns.add(2, of: "a")
        turns.add(2, of: "a")
        turns.remove(1)
        #expect(turns.next() == 2)
        #expect(turns.isEmpty && turns.next() == nil)
        turns.remove(2)
        turns.add(2, of: "b")
        #expect(turns.next() == 2)
        #expect(turns.next() == nil)
    }

    @Test(arguments: 0..<20 as Range<UInt64>)
    func `every waiting member is served, and no other`(seed: UInt64) {
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
                let cost = Int.random(in: 0...2048, using: &random)
                turns.charge(cost, to: next)
                for key in waiting.keys { waiting[key, default: 0] += cost + Turns.turnCost }
                // Three users of four members each: what they use while one waits is bounded, however that one comes
                // and goes.
                #expect(waiting.values.allSatisfy { $0 <= 12 * 8192 })
            }
            #expect(turns.isEmpty == waiting.isEmpty)
        }
    }
}
