import Testing

@testable import SessionCore

@Suite struct ReasonTests {
    @Test(arguments: Reason.Code.allCases)
    func `codes are kebab-case and have a sentence for people`(code: Reason.Code) {
        #expect(code.rawValue.allSatisfy { $0.isLowercase || $0 == "-" })
        #expect(!code.rawValue.hasPrefix("-") && !code.rawValue.hasSuffix("-"))
        #expect(!code.sentence.isEmpty && !code.sentence.hasSuffix("."))
        #expect(Reason(code).message == code.sentence)
    }

    @Test(arguments: [
        (ReasonGroup.local, false), (.network, false), (.liveness, false), (.session, false), (.server, false),
        (.unknown, false), (.auth, true), (.displaced, true), (.removed, true), (.config, true),
    ])
    func `the group decides whether a reason is terminal`(group: ReasonGroup, isTerminal: Bool) {
        let exceptions: Set<Reason.Code> = [.retryTimeout, .credentialUnreadable]
        for code in Reason.Code.allCases where code.group == group && !exceptions.contains(code) {
            #expect(code.isTerminal == isTerminal)
        }
        #expect(Reason.Code.retryTimeout.isTerminal)
        #expect(!Reason.Code.credentialUnreadable.isTerminal)
    }

    @Test func `a duration or an instant beyond a limit stays at the limit`() {
        #expect(Duration.seconds(Int64.max).nanoseconds == .max)
        #expect(Duration.seconds(Int64.min).nanoseconds == .min)
        #expect((Duration.seconds(9_223_372_036) + .milliseconds(999)).nanoseconds == .max)
        let far = Instant(nanoseconds: 1).advanced(by: .seconds(Int64.max))
        #expect(far == Instant(nanoseconds: .max))
    }
}
