import Testing

@testable import SessionCore

@Suite struct CredentialLifeTests {
    /// Connected, with a credential that lasts this long, and with a heartbeat too rare to end the connection.
    private static func connected(for lifetime: Duration?) -> SessionUnderTest {
        var heartbeat = HeartbeatPolicy()
        heartbeat.interval = .seconds(1_000_000)
        var session = SessionUnderTest(policy: .exact, heartbeat: heartbeat)
        session.connect()
        session.obtainCredential(for: lifetime)
        session.succeed()
        return session
    }

    // MARK: When it is renewed

    @Test(arguments: [
        (lifetime: Duration.seconds(3600), margin: Duration.seconds(60)),
        (.seconds(300), .seconds(60)), (.seconds(100), .seconds(20)), (.seconds(10), .seconds(2)),
    ])
    func `a credential is renewed a minute before its end, or a fifth of its life`(
        lifetime: Duration, margin: Duration
    ) {
        var session = Self.connected(for: lifetime)
        #expect(session.due == lifetime - margin)
        session.pass(lifetime - margin - .nanoseconds(1))
        #expect(session.orders.isEmpty)
        #expect(session.wake() == [.renew(1)])
        #expect(session.events == [.credentialExpiring(at: session.now.advanced(by: margin))])
        #expect(session.state == .connected)
    }

    @Test(arguments: [Duration.milliseconds(1), .milliseconds(1100)])
    func `a credential is never renewed within its first second, however short its life`(lifetime: Duration) {
        let session = Self.connected(for: lifetime)
        #expect(session.due == .seconds(1))
    }

    @Test(arguments: [nil, Duration.zero, .seconds(-5)])
    func `a credential that never expires or has already expired is left to the server`(lifetime: Duration?) {
        var session = Self.connected(for: lifetime)
        #expect(session.pass(.seconds(100_000)).isEmpty)
        #expect(session.state == .connected)
    }

    @Test func `a host that slept past the expiry renews when it wakes up`() {
        var session = Self.connected(for: .seconds(3600))
        session.skip(.seconds(7200))
        #expect(session.take(.timeReached) == [.renew(1)])
        #expect(session.failToRenewCredential().isEmpty)
        #expect(session.due == .seconds(300))
        #expect(session.state == .connected)
    }

    /// Connected after four seconds, with a credential that ended after three.
    private static var connectedTooLate: SessionUnderTest {
        var session = SessionUnderTest(policy: .exact)
        session.connect()
        session.obtainCredential(for: .seconds(3))
        session.progress(to: .dialing)
        session.pass(.seconds(4))
        session.succeed()
        return session
    }

    @Test func `a credential that expires during connection setup is renewed a second after it`() {
        var session = Self.connectedTooLate
        #expect(session.state == .connected)
        #expect(session.due == .seconds(1))
        #expect(session.wake() == [.renew(1)])
        #expect(session.renewCredential(for: .seconds(3600)) == [.abandon(1), .open(2)])
    }

    @Test func `a new credential that would expire during the reconnect causes no reconnect`() {
        var session = Self.connectedTooLate
        session.wake()
        #expect(session.renewCredential(for: .seconds(4)).isEmpty)
        #expect(session.state == .connected)
        #expect(session.due == .seconds(2), "it expired two seconds ago")
        #expect(session.wake() == [.renew(1)])
        #expect(session.renewCredential(for: .seconds(5)) == [.abandon(1), .open(2)])
    }

    @Test func `a credential can be replaced in place however short its life is`() {
        var session = Self.connectedTooLate
        session.wake()
        #expect(session.replaceCredential(for: .seconds(3)).isEmpty)
        #expect(session.due == .milliseconds(2400))
        #expect(session.wake() == [.renew(1)])
    }

    @Test func `a credential obtained for another attempt is ignored`() {
        var session = Self.connected(for: nil)
        session.take(.credentialObtained(Generation(rawValue: 7), expiresAt: session.now.advanced(by: .seconds(10))))
        #expect(session.pass(.seconds(100)).isEmpty)
    }

    // MARK: What a renewal does

    @Test
    func `a credential replaced in place costs no reconnect, and is renewed before it expires`() {
        var session = Self.connected(for: .seconds(3600))
        session.wake()
        #expect(session.replaceCredential(for: .seconds(7200)).isEmpty)
        #expect(session.events.isEmpty)
        #expect(session.state == .connected)
        #expect(session.due == .seconds(7200 - 60))
        #expect(session.wake() == [.renew(1)])
        #expect(session.replaceCredential(for: nil).isEmpty)
        #expect(session.pass(.seconds(100_000)).isEmpty)
    }

    @Test func `a replacement that was not requested, or is for an old connection, changes nothing`() {
        var session = Self.connected(for: .seconds(3600))
        #expect(session.replaceCredential(for: .seconds(10)).isEmpty)
        #expect(session.due == .seconds(3540))
        session.wake()
        session.take(.credentialReplaced(Generation(rawValue: 7), expiresAt: nil))
        #expect(session.failToRenewCredential().isEmpty)
        #expect(session.due == .seconds(30))
    }

    @Test func `a new credential causes a quick reconnect at once`() {
        var session = Self.connected(for: .seconds(3600))
        session.wake()
        #expect(session.renewCredential(for: .seconds(3600)) == [.abandon(1), .open(2)])
        #expect(session.events == [.reconnectStarted(.quick)])
        #expect(session.reason == .credentialRenewed)
        session.obtainCredential(for: .seconds(3600))
        session.succeed()
        #expect(session.due == .seconds(3540))
        #expect(session.wake() == [.renew(2)])
    }

    @Test func `a reconnect with a new credential waits for the network when there is no path`() {
        var session = Self.connected(for: .seconds(10))
        session.wake()
        session.path(.lost)
        #expect(session.renewCredential(for: .seconds(10)) == [.abandon(1)])
        #expect(session.phase == .waitingForNetwork)
        #expect(session.path(.gained) == [.open(2)])
    }

    @Test func `a new credential that never expires is not renewed`() {
        var session = Self.connected(for: .seconds(10))
        session.wake()
        session.renewCredential(for: nil)
        session.obtainCredential(for: nil)
        session.succeed()
        #expect(session.pass(.seconds(100_000)).isEmpty)
    }

    @Test func `a credential that expires no later than the old one causes no reconnect`() {
        var session = Self.connected(for: .seconds(100))
        session.wake()
        #expect(session.renewCredential(for: .seconds(20)).isEmpty)
        #expect(session.state == .connected)
        #expect(session.due == .seconds(10))
        #expect(session.wake() == [.renew(1)])
        #expect(session.renewCredential(for: .seconds(100)) == [.abandon(1), .open(2)])
    }

    @Test func `a failed renewal is retried after half the remaining time, and ever more slowly after expiry`() {
        var session = Self.connected(for: .seconds(100))
        session.wake()
        var waits: [Duration] = []
        var announced = 0
        while session.failToRenewCredential().isEmpty, let due = session.due, waits.count < 18 {
            waits.append(due)
            #expect(session.wake() == [.renew(1)])
            announced += session.events.count
        }
        let before = [10_000, 5000, 2500, 1250, 1000]
        let after = [1000, 1000, 1750, 3500, 7000, 14_000, 28_000, 56_000, 112_000, 224_000, 300_000, 300_000, 300_000]
        #expect(waits == (before + after).map { .milliseconds($0) })
        #expect(announced == 0, "the expiry is announced once, before the first renewal")
        #expect(session.state == .connected, "the server decides about a connection whose credential has ended")
    }

    @Test func `an old credential whose expiry moved to a near moment is renewed a second later`() {
        var session = Self.connected(for: .seconds(3))
        session.wake()
        // The answer took until the expiry, and the new expiry is just as near.
        session.skip(.milliseconds(600))
        session.failToRenewCredential()
        session.obtainCredential(for: .milliseconds(300))
        #expect(session.due == .seconds(1))
        #expect(session.wake() == [.renew(1)])
    }

    @Test func `a renewal that succeeds after the expiry still causes a reconnect`() {
        var session = Self.connected(for: .seconds(10))
        session.wake()
        session.pass(.seconds(100))
        #expect(session.renewCredential(for: .seconds(10)) == [.abandon(1), .open(2)])
    }

    @Test func `a session that loses its connection during a renewal reconnects without waiting for it`() {
        var session = Self.connected(for: .seconds(10))
        session.wake()
        session.end(.reset)
        let late = Generation(rawValue: 1)
        #expect(session.take(.credentialRenewed(late, expiresAt: nil)).isEmpty)
        #expect(session.take(.credentialRenewalFailed(late)).isEmpty)
        #expect(session.wake() == [.open(2)])
    }

    @Test func `the result of a renewal that was not requested is ignored`() {
        var session = Self.connected(for: .seconds(100))
        #expect(session.renewCredential(for: .seconds(1000)).isEmpty)
        #expect(session.failToRenewCredential().isEmpty)
        #expect(session.due == .seconds(80))
    }

    // MARK: The host's clock

    @Test func `an expiry moves when the host's clock is set`() {
        var session = Self.connected(for: .seconds(100))
        session.obtainCredential(for: .seconds(50))
        #expect(session.due == .seconds(30))
        session.obtainCredential(for: .seconds(5))
        #expect(session.due == .seconds(1))
        session.wake()
        session.failToRenewCredential()
        session.obtainCredential(for: .seconds(500))
        #expect(session.due == .seconds(480))
        session.wake()
        #expect(session.events == [.credentialExpiring(at: session.now.advanced(by: .seconds(20)))])
    }

    // MARK: The time of an attempt

    @Test func `fetching the credential has a timeout of its own, and resolving the name starts afterwards`() {
        var session = SessionUnderTest(.resolving)
        session.take(.credentialAwaited(Generation(rawValue: 1)))
        #expect(session.due == .seconds(15))
        session.skip(.seconds(9))
        session.obtainCredential(for: nil)
        #expect(session.due == .seconds(10))
    }

    @Test func `no time counts until the helper command may run`() {
        var session = SessionUnderTest(.resolving)
        session.take(.credentialAwaited(Generation(rawValue: 1)))
        session.take(.credentialQueued(Generation(rawValue: 1)))
        #expect(session.due == nil)
        #expect(session.machine.awaitsTurn == true)
        session.skip(.seconds(500))
        session.take(.timeReached)
        #expect(session.status.phase == .resolving)
        session.take(.credentialAwaited(Generation(rawValue: 1)))
        #expect(session.machine.awaitsTurn == false)
        #expect(session.due == .seconds(15))
        session.wake()
        #expect(session.status.reason.code == .credentialUnreadable)
    }

    @Test func `a credential that never arrives is reported as the reason, not the name that was never resolved`() {
        var session = SessionUnderTest(.resolving)
        session.take(.credentialAwaited(Generation(rawValue: 1)))
        session.wake()
        #expect(session.status.reason.code == .credentialUnreadable)
        #expect(session.status.phase == .waiting)
    }

    @Test(arguments: [Duration.seconds(3600), .seconds(10)])
    func `a credential that expires during an outage does not affect the attempts`(lifetime: Duration) {
        var session = Self.connected(for: lifetime)
        session.end(.reset)
        session.wake()
        session.obtainCredential(for: lifetime)
        session.end(.unreachable)
        #expect(session.retryIn == .milliseconds(250))
        #expect(session.due == .milliseconds(250))
    }

    // MARK: After a rejection

    @Test(arguments: [Reason.Code.credentialRejected, .credentialExpired, .notAuthorized, .certificateInvalid])
    func `a changed file restarts a session that failed because of its credential`(code: Reason.Code) {
        var session = SessionUnderTest(.authenticating)
        session.end(code)
        #expect(session.take(.credentialChanged) == [.open(2)])
        #expect(session.state == .connecting)
        #expect(session.reason == .credentialChanged)
    }

    @Test(arguments: [
        Reason(.credentialUnreadable), Reason(.tlsFailed, detail: .ownFilesUnusable),
        Reason(.tlsFailed, detail: .certificateWanted),
    ])
    func `a changed file hastens the next attempt of a session that waits because of a file`(reason: Reason) {
        var session = SessionUnderTest(.authenticating)
        for _ in 1...5 {
            _ = session.take(.ended(session.generation, SessionMachine.Ending(reason)))
            _ = session.wake()
        }
        _ = session.take(.ended(session.generation, SessionMachine.Ending(reason)))
        #expect(session.phase == .waiting)
        let next = session.generation.rawValue + 1
        #expect(session.take(.credentialChanged) == [.open(next)])
        #expect(session.reason == .credentialChanged)
        // It is not told what the attempt under way has read.
        #expect(session.take(.credentialChanged).isEmpty)
    }

    @Test(arguments: [Reason.Code.banned, .displaced, .badEndpoint])
    func `a changed file changes nothing for a session that failed otherwise`(code: Reason.Code) {
        var session = SessionUnderTest(.authenticating)
        session.end(code)
        #expect(session.take(.credentialChanged).isEmpty)
        #expect(session.state == .failed)
    }

    @Test(arguments: SessionUnderTest.Situation.allCases)
    func `a changed file changes nothing for a session that has not failed`(situation: SessionUnderTest.Situation) {
        var session = SessionUnderTest(situation)
        let before = session.status
        #expect(session.take(.credentialChanged).isEmpty)
        #expect(session.status == before)
    }

    @Test(arguments: [Reason.Code.credentialRenewed, .credentialChanged])
    func `the reasons of a new credential are local and not terminal`(code: Reason.Code) {
        #expect(code.group == .local)
        #expect(!code.isTerminal)
    }

    @Test func `a credential that turns out to have no end is not renewed`() {
        var session = Self.connected(for: .seconds(100))
        session.obtainCredential(for: nil)
        #expect(session.pass(.seconds(100_000)).isEmpty)
    }

    @Test func `a renewed credential that is rejected is not the reason of the connection that another one gets`() {
        var session = SessionUnderTest()
        session.connect()
        session.succeed()
        session.take(.renew(Reason(.credentialRenewed)))
        session.end(.notAuthorized, mayHaveNewCredential: true)
        session.succeed()
        #expect(session.reason == .credentialRenewed, "a session that is connected has no terminal reason")
        #expect(session.status.reason.message.hasPrefix("the new credential was rejected: "))
    }
}
