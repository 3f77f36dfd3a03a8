import ControlAPI
import Session
import Testing
import Vocabulary

@testable import SessionCore

struct CredentialStateTests {
    private var credentials = CredentialState(isConfigured: true)
    private let wall = Timestamp(rawValue: 1_800_000_000_000)
    private let now = Instant(nanoseconds: 1_000_000_000)
    private let rejection = Reason(.credentialRejected)

    private func attempt(_ rejection: Reason? = nil) -> Attempt {
        Attempt(
            generation: Generation(rawValue: 1), endpoint: EndpointIndex(0), number: 1, discardsSession: false,
            rejection: rejection)
    }

    private func credential(_ text: String, end: CredentialEnd? = nil) -> SessionCredential {
        SessionCredential(secret: Array(text.utf8), end: end, file: FileVersion(rawValue: text))
    }

    private mutating func given(for role: DialRole) -> [UInt8]? {
        credentials.given(for: role, wallClock: wall, at: now)?.secret
    }

    @Test mutating func `a credential from a program is used until the server rejects it`() {
        #expect(given(for: .attempt(attempt())) == nil)
        credentials.given = credential("given")
        #expect(given(for: .attempt(attempt())) == Array("given".utf8))
        credentials.serverRejected(Array("given".utf8))
        #expect(given(for: .attempt(attempt())) == Array("given".utf8), "this attempt does not follow a rejection")
        #expect(given(for: .attempt(attempt(rejection))) == nil)
        #expect(given(for: .attempt(attempt())) == nil, "the configured one is used from now on")
    }

    @Test mutating func `a credential from a program that has expired is replaced by the configured one, for attempts`()
    {
        credentials.given = credential("given", end: .byBootClock(now))
        #expect(given(for: .successor(attempt())) == Array("given".utf8))
        #expect(given(for: .attempt(attempt())) == nil)
    }

    @Test mutating func `a credential from a program that has expired is still used if none is configured`() {
        credentials = CredentialState(isConfigured: false)
        #expect(!credentials.exists)
        credentials.given = credential("given", end: .byBootClock(now))
        #expect(credentials.exists)
        #expect(given(for: .attempt(attempt(rejection))) == Array("given".utf8))
    }

    @Test mutating func `a credential that the server rejected is not sent again`() {
        credentials.serverRejected(Array("old".utf8))
        #expect(credentials.obtained(credential("old"), for: attempt(rejection)) == rejection)
        #expect(credentials.file == FileVersion(rawValue: "old"))
        credentials.serverRejected(Array("old".utf8))
        #expect(credentials.obtained(credential("new"), for: attempt(rejection)) == nil)
        #expect(credentials.obtained(credential("old"), for: attempt(rejection)) == nil, "a rejection counts once")
    }

    @Test mutating func `a renewed credential is for the attempt that begins at once`() {
        credentials.beginRenewal(with: credential("new"))
        #expect(credentials.takeRenewed()?.secret == Array("new".utf8))
        #expect(credentials.takeRenewed()?.secret == nil)
        credentials.beginRenewal(with: credential("new"))
        credentials.endRenewal()
        #expect(credentials.takeRenewed()?.secret == nil)
    }
}
