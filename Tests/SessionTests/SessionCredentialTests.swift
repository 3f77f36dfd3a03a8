import ControlAPI
import MQTT
import NIOCore
import SessionCore
import Support
import Testing
import Vocabulary

@testable import Session

/// The life of a session's credential, one line per step.
struct SessionCredentialTests {
    private let me = Array("me".utf8)
    private let other = Array("other".utf8)

    private func credential(_ secret: [UInt8], for seconds: Int64, _ session: SessionUnderTest) -> SessionCredential {
        SessionCredential(secret: secret, end: .byBootClock(session.now.advanced(by: .seconds(seconds))))
    }

    /// A session that is connected with a credential that ends in so many seconds.
    private func connected(for seconds: Int64) throws -> SessionUnderTest {
        var session = try SessionUnderTest { $0.hasPassword = true }
        session.answersPings = true
        _ = session.take(.connect(Reason(.userConnect)))
        _ = session.take(.fetched(try #require(session.fetched), credential(me, for: seconds, session)))
        #expect(session.opens() == ["send CONNECT me"])
        #expect(session.receives(.connack(Connack())) == ["connected"])
        return session
    }

    // MARK: Renewal

    @Test func `a credential is renewed before it ends, and taken to the server by a new connection`() throws {
        var session = try connected(for: 100)
        #expect(session.wait(79) == [])
        #expect(session.wait(1) == ["fetch another"])
        let new = credential(other, for: 100, session)
        #expect(
            session.take(.fetched(try #require(session.fetched), new)) == ["abort", "dial a.example", "reconnecting"])
        #expect(session.opens() == ["send CONNECT other"])
        #expect(session.receives(.connack(Connack())) == ["connected"])
        #expect(session.session.credentialEnd == Timestamp(rawValue: 180_000))
        try waitsForDial(&session, after: session.take(.closed(Reason(.reset))), "fetch")
    }

    @Test func `a credential that cannot be renewed is asked for again after half of the time that is left`() throws {
        var session = try connected(for: 100)
        _ = session.wait(80)
        _ = session.take(.notFetched(try #require(session.fetched), "no such file"))
        #expect(session.toldOf("credential") == ["credential not renewed: no such file"])
        #expect(!session.wait(9).contains("fetch another"))
        #expect(session.wait(1).contains("fetch another"))
    }

    @Test func `the same credential with a later end needs no new connection`() throws {
        var session = try connected(for: 100)
        _ = session.wait(80)
        #expect(session.take(.fetched(try #require(session.fetched), credential(me, for: 100, session))) == [])
        #expect(session.session.credentialEnd == Timestamp(rawValue: 180_000))
        #expect(!session.wait(79).contains("fetch another"))
        #expect(session.wait(1).contains("fetch another"))
    }

    @Test func `a program's token with a later end needs no new connection`() throws {
        var session = try connected(for: 100)
        #expect(session.take(.credentialGiven(credential(me, for: 200, session))) == [])
        #expect(session.session.credentialEnd == Timestamp(rawValue: 200_000))
    }

    @Test func `a session that is disconnected keeps no login of its connection`() throws {
        var session = try connected(for: 100)
        #expect(session.session.connections.lastOpened?.login.password == me)
        _ = session.take(.disconnect(Reason(.userDisconnect)))
        _ = session.take(.closed(Reason(.userDisconnect)))
        #expect(session.session.state == .disconnected)
        #expect(session.session.link == nil)
        #expect(session.session.connections.lastOpened == nil)
    }

    @Test func `an answer about a credential of an earlier connection is ignored`() throws {
        var session = try connected(for: 100)
        _ = session.wait(80)
        let late = try #require(session.fetched)
        _ = session.take(.reconnect(nil))
        _ = session.take(.fetched(try #require(session.fetched), credential(me, for: 100, session)))
        _ = session.opens()
        _ = session.receives(.connack(Connack()))
        #expect(session.take(.fetched(late, credential(other, for: 200, session))) == [])
        #expect(session.session.credentialEnd == Timestamp(rawValue: 180_000))
    }

    @Test func `a program's token revives a session whose credential was rejected`() throws {
        var session = try SessionUnderTest()
        session.dials()
        #expect(session.receives(.connack(Connack(reasonCode: .notAuthorized))) == ["close", "failed"])
        #expect(session.toldOf("watch the") == ["watch the credential"])
        let token = SessionCredential(secret: other)
        #expect(session.take(.credentialGiven(token)) == ["dial a.example", "connecting"])
        #expect(session.opens() == ["send CONNECT other"])
        #expect(session.session.username == "me", "a token without a user name is sent with the session's user")
    }

    // MARK: The host's clock

    @Test(arguments: [(Int64(-1001), true), (-1000, false), (1000, false), (1001, true)])
    func `an end that is a date moves when the host's clock is set by more than a second`(
        offset: Int64, isMoved: Bool
    ) throws {
        var session = try SessionUnderTest { $0.hasPassword = true }
        _ = session.take(.connect(Reason(.userConnect)))
        let date = Timestamp(rawValue: 100_000)
        _ = session.take(
            .fetched(try #require(session.fetched), SessionCredential(secret: me, end: .byWallClock(date))))
        _ = session.opens()
        _ = session.receives(.connack(Connack()))
        session.answersPings = true
        session.clockOffset = offset
        #expect(session.ask { $0.checkCredentialEnd() } == isMoved)
        _ = session.proceed()
        #expect(!session.ask { $0.checkCredentialEnd() }, "it is noted")
        // The first second of the clock's error makes no difference.
        let due = isMoved ? 80 - offset / 1000 : 80
        #expect(session.wait(due - 2) == [])
        #expect(session.wait(4) == ["fetch another"])
    }

    @Test func `an end that is a length of time does not depend on the host's clock`() throws {
        var session = try connected(for: 100)
        session.clockOffset = 50_000
        #expect(!session.ask { $0.checkCredentialEnd() })
        #expect(session.session.credentialEnd == Timestamp(rawValue: 150_000), "as a date it is later")
    }

    // MARK: SCRAM

    private static func data(_ text: String?) -> ByteBuffer? { text.map { ByteBuffer(string: $0) } }

    private func auth(_ code: ReasonCode, _ text: String?) -> Packet {
        .auth(
            Auth(
                reasonCode: code,
                properties: .init(authenticationMethod: SCRAMClient.method, authenticationData: Self.data(text))))
    }

    /// A session whose client and server have proven to each other that they know the password.
    private func proven(for seconds: Int64 = 100) throws -> SessionUnderTest {
        var session = try SessionUnderTest { ($0.hasPassword, $0.provesPassword) = (true, true) }
        session.answersPings = true
        _ = session.take(.connect(Reason(.userConnect)))
        _ = session.take(.fetched(try #require(session.fetched), credential(me, for: seconds, session)))
        #expect(session.opens() == ["send CONNECT"])
        var server = SCRAMServer(password: "me")
        #expect(session.receives(auth(.continueAuthentication, server.greet(session.proof))) == ["derive"])
        #expect(try derives(&session, me) == ["send AUTH"])
        let properties = Connack.Properties(
            authenticationMethod: SCRAMClient.method, authenticationData: Self.data(server.finish(session.proof)))
        #expect(session.receives(.connack(Connack(properties: properties))) == ["connected"])
        return session
    }

    /// A server may ask for a million iterations, which takes some hosts many seconds.
    @Test func `the server's time to answer begins when the key is derived`() throws {
        var session = try SessionUnderTest { ($0.hasPassword, $0.provesPassword) = (true, true) }
        _ = session.take(.connect(Reason(.userConnect)))
        _ = session.take(.fetched(try #require(session.fetched), credential(me, for: 100, session)))
        #expect(session.opens() == ["send CONNECT"])
        var server = SCRAMServer(password: "me")
        #expect(session.wait(9) == [])
        #expect(session.receives(auth(.continueAuthentication, server.greet(session.proof))) == ["derive"])
        let generation = try #require(session.session.link?.generation)
        for _ in 1...5 {
            #expect(session.ask { $0.stillDerives(for: generation) })
            #expect(session.wait(9) == [])
        }
        #expect(!session.ask { $0.stillDerives(for: Generation(rawValue: generation.rawValue + 1)) })
        #expect(session.ask { $0.stillDerives(for: generation) })
        #expect(try derives(&session, me) == ["send AUTH"])
        #expect(session.wait(9) == [])
        #expect(session.wait(1).contains("abort"))
        #expect(!session.ask { $0.stillDerives(for: generation) })
    }

    private func derives(_ session: inout SessionUnderTest, _ password: [UInt8]) throws -> [String] {
        let generation = try #require(session.session.link?.generation)
        let key = SCRAMClient.Key(password: password, try #require(session.challenge))
        #expect(
            session.take(.keyDerived(Generation(rawValue: generation.rawValue + 1), key)) == [],
            "that is for another connection")
        return session.take(.keyDerived(generation, key))
    }

    @Test func `a new password is proven on the connection that is up`() throws {
        var session = try proven()
        #expect(session.wait(80).last == "fetch another")
        let new = credential(other, for: 100, session)
        #expect(session.take(.fetched(try #require(session.fetched), new)).contains("send AUTH"))
        var server = SCRAMServer(password: "other")
        #expect(session.receives(auth(.continueAuthentication, server.greet(session.proof))) == ["derive"])
        #expect(try derives(&session, other) == ["send AUTH"])
        #expect(session.receives(auth(.success, server.finish(session.proof))) == [])
        #expect(session.toldOf("the server") == ["the server has taken the credential"])
        #expect(session.session.credentialEnd == Timestamp(rawValue: 180_000))
        #expect(!session.wait(79).contains("fetch another"))
        #expect(session.wait(1).contains("fetch another"), "it is renewed in turn")
        // The server has this one already.
        #expect(session.take(.fetched(try #require(session.fetched), credential(other, for: 100, session))) == [])
        #expect(session.session.credentialEnd == Timestamp(rawValue: 260_000))
    }

    @Test func `a server that does not answer the proof in time gets the new password on a new connection`() throws {
        var session = try proven()
        _ = session.wait(80)
        let new = credential(other, for: 100, session)
        #expect(session.take(.fetched(try #require(session.fetched), new)).contains("send AUTH"))
        #expect(!session.wait(9).contains("abort"))
        let generation = try #require(session.session.link?.generation)
        #expect(session.ask { $0.stillDerives(for: generation) }, "that time is not the server's")
        #expect(!session.wait(9).contains("abort"))
        #expect(session.wait(1) == ["abort", "dial a.example", "reconnecting"])
        #expect(
            session.toldOf("credential")
                == ["credential not renewed: the server did not answer AUTH on this connection within 10s"])
        #expect(session.opens() == ["send CONNECT"])
        #expect(session.session.link?.login.password == other)
    }

    @Test func `a password that ends no later is not worth a proof`() throws {
        var session = try proven()
        _ = session.wait(80)
        #expect(
            session.take(.fetched(try #require(session.fetched), credential(other, for: 20, session))) == [])
        #expect(session.wait(10).contains("fetch another"), "it is asked for again")
    }

    @Test(arguments: ["", "a\u{7F}"])
    func `a password that cannot be proven is not tried`(password: String) throws {
        var session = try SessionUnderTest { ($0.hasPassword, $0.provesPassword) = (true, true) }
        _ = session.take(.connect(Reason(.userConnect)))
        let texts = session.take(
            .fetched(try #require(session.fetched), SessionCredential(secret: Array(password.utf8))))
        #expect(texts == [])
        #expect(session.session.machine.reason.code == .credentialUnreadable)
    }

    @Test func `a server that does not know the password ends the attempt`() throws {
        var session = try SessionUnderTest { ($0.hasPassword, $0.provesPassword) = (true, true) }
        _ = session.take(.connect(Reason(.userConnect)))
        _ = session.take(.fetched(try #require(session.fetched), SessionCredential(secret: me)))
        _ = session.opens()
        #expect(session.receives(.connack(Connack())).contains("close"))
        #expect(session.session.machine.reason.code == .serverUnauthenticated)
    }

    // MARK: Proxies and successors

    @Test func `an attempt whose proxy's password cannot be read is not dialed`() throws {
        var session = try SessionUnderTest { $0.proxy = .some(needsLogin: true, hasPassword: true) }
        #expect(session.take(.connect(Reason(.userConnect))) == ["fetch the proxy's password", "connecting"])
        #expect(session.take(.notFetched(try #require(session.fetched), "no such file")) == [])
        #expect(
            session.session.machine.reason.message == "the password for the proxy cannot be read: no such file")
    }

    @Test func `a proxy without a login needs no password`() throws {
        var session = try SessionUnderTest { $0.proxy = .some(needsLogin: false, hasPassword: false) }
        #expect(session.take(.connect(Reason(.userConnect))) == ["dial a.example", "connecting"])
    }

    private func waitsForDial(_ session: inout SessionUnderTest, after texts: [String], _ text: String) throws {
        var texts = texts
        for _ in 0..<60 where !texts.contains(text) { texts = session.wait(1) }
        #expect(texts.contains(text))
    }

    // MARK: After a failure

    /// A session that has failed because of this, with a credential or authorities of which the file had this version.
    private func failed(_ code: Reason.Code, _ version: FileVersion) throws -> Session {
        var session = try SessionUnderTest {
            $0.hasPassword = true
            $0.bootID = "boot"
        }
        _ = session.take(.connect(Reason(.userConnect)))
        #expect(session.session.filesToWatch.isEmpty, "it has not failed")
        let credential = SessionCredential(secret: me, file: code == .certificateInvalid ? nil : version)
        // Each of the two endpoints may have to fail.
        for _ in 0..<60 where session.session.state != .failed {
            if let use = session.fetched { _ = session.take(.fetched(use, credential)) }
            session.session.usedCertificate(FileVersion(rawValue: "pair"))
            if code == .certificateInvalid { session.session.rejectedCertificate(by: version) }
            _ = session.take(.closed(Reason(code)))
            _ = session.wait(1)
        }
        #expect(session.session.state == .failed)
        return session.session
    }

    @Test(
        arguments: [
            (.certificateInvalid, [.authorities]), (.notAuthorized, [.credential, .certificate]),
            (.credentialRejected, [.credential, .certificate]), (.badEndpoint, []),
        ] as [(Reason.Code, [Session.WatchedFile])])
    func `a failed session tries again when the file that it failed for changes, also while no daemon runs`(
        code: Reason.Code, files: [Session.WatchedFile]
    ) throws {
        let version = FileVersion(rawValue: "1")
        let session = try failed(code, version)
        let versions = [version, FileVersion(rawValue: "pair")].prefix(files.count)
        #expect(session.filesToWatch == files)
        #expect(files.map { session.rejectedVersion(of: $0) } == Array(versions))
        let verdict = try #require(session.verdict)
        var next = try SessionUnderTest { $0.bootID = "boot" }
        #expect(next.ask { $0.takeUp(verdict) })
        #expect(next.session.filesToWatch == files)
        #expect(files.map { next.session.rejectedVersion(of: $0) } == Array(versions))
    }

    /// A file that cannot be read may be about to be written; the delays protect the server, which was not asked.
    @Test func `a session that waits because its password cannot be read goes on when the file changes`() throws {
        var session = try SessionUnderTest { $0.hasPassword = true }
        _ = session.take(.connect(Reason(.userConnect)))
        for _ in 1...4 {
            let use = try #require(session.fetched)
            _ = session.take(.notFetched(use, "no such file"))
            #expect(session.toldOf("watch the") == ["watch the credential"])
            #expect(session.session.filesToWatch == [.credential, .proxyCredential])
            #expect(session.session.rejectedVersion(of: .credential) == nil, "the present one counts")
            for _ in 0..<600 where session.session.machine.status.phase == .waiting { _ = session.wait(1) }
        }
        _ = session.take(.notFetched(try #require(session.fetched), "no such file"))
        #expect(session.session.machine.status.phase == .waiting)
        _ = session.take(.credentialChanged)
        #expect(session.session.machine.status.phase == .resolving)
        #expect(session.session.filesToWatch.isEmpty)
    }

    /// Servers say only that they do not let us in.
    @Test func `a rejection with an expired certificate of ours says so`() throws {
        var session = try SessionUnderTest { _ in }
        _ = session.take(.connect(Reason(.userConnect)))
        let peer = SessionUnderTest.peer
        let expired = LinkPeer(address: peer.address, name: peer.name, tlsVersion: "TLSv1.3", expiry: "it has expired")
        _ = session.take(.opened(expired))
        _ = session.take(.closed(Reason(.serverClosed)))
        #expect(session.session.machine.reason.message.hasSuffix("; it has expired"))
    }

    /// The first endpoint was not tried with the new ones.
    @Test func `authorities that are replaced between two endpoints have changed since the first`() throws {
        var session = try SessionUnderTest { $0.bootID = "boot" }
        _ = session.take(.connect(Reason(.userConnect)))
        for version in ["old", "new"] {
            session.session.rejectedCertificate(by: FileVersion(rawValue: version))
            _ = session.take(.closed(Reason(.certificateInvalid)))
            if version == "old" { _ = try session.waitsForDial() }
        }
        #expect(session.session.state == .failed)
        #expect(session.session.rejectedVersion(of: .authorities) == FileVersion(rawValue: "old"))
        // Both are tried with the new ones.
        #expect(session.take(.credentialChanged).contains("dial a.example"))
        for attempt in 1...2 {
            session.session.rejectedCertificate(by: FileVersion(rawValue: "new"))
            _ = session.take(.closed(Reason(.certificateInvalid)))
            if attempt == 1 { _ = try session.waitsForDial() }
        }
        #expect(session.session.state == .failed)
        #expect(session.session.rejectedVersion(of: .authorities) == FileVersion(rawValue: "new"))
    }
}
