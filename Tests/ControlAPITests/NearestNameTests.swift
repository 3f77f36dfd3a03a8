import ControlAPI
import Testing

struct NearestNameTests {
    /// Names, and how many of them were looked at.
    private final class Candidates: Sequence, IteratorProtocol {
        private let names: [String]
        private(set) var taken = 0

        init(_ names: [String]) { self.names = names }

        func next() -> String? {
            guard taken < names.count else { return nil }
            taken += 1
            return names[taken - 1]
        }
    }

    @Test func `the nearest come first, and of those that are equally near the shortest`() {
        #expect(nearest(to: "gw-201", among: ["gw-101", "gw-20", "gw-200"]) == ["gw-20", "gw-101", "gw-200"])
        #expect(nearest(to: "Mian", among: ["edge", "MAIN", "man"]) == ["man", "MAIN"])
        #expect(nearest(to: "plant", among: ["plant/9", "plan", "other", "plants"]) == ["plan", "plants", "plant/9"])
        let names = ["gw-4", "gw-3", "gw-2", "gw-1"]
        #expect(nearest(to: "gw-5", among: names) == ["gw-1", "gw-2", "gw-3"])
        #expect(nearest(to: "gw-5", among: names.reversed()) == ["gw-1", "gw-2", "gw-3"])
    }

    /// They are compared on the event loop of all sessions.
    @Test(arguments: [128, 66, 20, 2])
    func `what is done to find near names is bounded, whatever the names are`(length: Int) {
        let common = String(repeating: "x", count: length - 1)
        let candidates = Candidates([String](repeating: common + "a", count: 10_000))
        #expect(nearest(to: common + "b", among: candidates) == [])
        // A comparison of two bytes takes about 3 ns.
        #expect((candidates.taken - 1) * length * length <= 20_000)
    }

    @Test func `a long name is near to no other, and costs nothing`() {
        let candidates = Candidates(["x"])
        #expect(nearest(to: String(repeating: "x", count: 129), among: candidates) == [])
        #expect(candidates.taken == 0)
        #expect(nearest(to: "xx", among: [String(repeating: "x", count: 65_535)]) == [])
    }

    @Test func `ten sessions are named to those who call another, and hundreds are only counted`() {
        let sessions = (1...600).map { "session-\($0)" }
        #expect(
            RPCError.unknownSession("q", among: sessions.prefix(10)).data?.hint
                == "the sessions are session-1, session-2, session-3, session-4, session-5, session-6, session-7, "
                + "session-8, session-9, session-10")
        #expect(
            RPCError.unknownSession("q", among: sessions).data?.hint == "holdfastctl status lists the 600 sessions")
    }
}
