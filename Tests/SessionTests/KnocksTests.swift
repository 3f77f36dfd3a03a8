import Testing

@testable import Session
@testable import SessionCore

struct KnocksTests {
    private let first = EndpointIndex(0)

    private func id(_ number: Int) -> DialID { DialID(rawValue: number) }

    private var attempt: Attempt {
        Attempt(
            generation: Generation(rawValue: 1), endpoint: first, number: 1, discardsSession: false,
            continuesKnock: true)
    }

    @Test func `an attempt takes over the connection of an answered knock`() {
        var knocks = Knocks()
        #expect(knocks.take(for: attempt, needsLogin: false) == nil)
        knocks.dialed(id(1), at: first, isBehindProxy: false)
        #expect(knocks.take(for: attempt, needsLogin: false) == nil, "no answer yet")
        #expect(knocks.answered(first, on: id(2)) == false, "another connection")
        #expect(knocks.answered(first, on: id(1)) == true)
        #expect(knocks.take(for: attempt, needsLogin: false) == id(1))
        #expect(knocks.take(for: attempt, needsLogin: false) == nil)
    }

    @Test(arguments: [true, false])
    func `a knock is reused only behind the proxy if the proxy needs a login`(isBehindProxy: Bool) {
        var knocks = Knocks()
        knocks.dialed(id(1), at: first, isBehindProxy: isBehindProxy)
        #expect(knocks.answered(first, on: id(1)) == true)
        #expect(knocks.take(for: attempt, needsLogin: true) == (isBehindProxy ? id(1) : nil))
    }

    @Test func `a knock that ends without an answer is reported once`() {
        var knocks = Knocks()
        knocks.dialed(id(1), at: first, isBehindProxy: false)
        #expect(knocks.closed(first, on: id(2)) == false)
        #expect(knocks.closed(first, on: id(1)) == true)
        #expect(knocks.closed(first, on: id(1)) == false)
        knocks.dialed(id(3), at: first, isBehindProxy: false)
        #expect(knocks.answered(first, on: id(3)) == true)
        #expect(knocks.closed(first, on: id(3)) == false, "it had answered")
    }

    @Test func `the next knock at an endpoint replaces the one before, and unwanted ones go`() {
        var knocks = Knocks()
        let (number, _) = knocks.begin(at: first)
        #expect(knocks.isLast(number))
        knocks.dialed(id(1), at: first, isBehindProxy: false)
        #expect(knocks.begin(at: first).replaced == id(1))
        #expect(!knocks.isLast(number))
        knocks.dialed(id(2), at: first, isBehindProxy: false)
        #expect(knocks.drop { _ in true } == [])
        #expect(knocks.drop { _ in false } == [id(2)])
    }
}
