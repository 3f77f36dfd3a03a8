import Testing

@testable import SessionCore

/// What the kernel would use, and the session must not.
private let vpn = Path(
    interface: "tun0", interfaceIndex: 9, type: .vpn, source: "10.8.0.2", gateway: nil, table: 254)

extension SessionUnderTest {
    /// Excludes the kernel's own path, or reports that the kernel has none (`nil`). The endpoint has no other path.
    @discardableResult
    fileprivate mutating func exclude(_ path: Path?, at endpoint: Int = 0) -> [Order] {
        take(.pathExcluded(EndpointIndex(endpoint), path))
    }
}

@Suite struct `A session that may not use every network` {
    @Test func `waits for one that it may use, without attempts, and says so`() {
        var session = SessionUnderTest(policy: .exact, isBound: true, paths: [nil])
        session.exclude(vpn)
        #expect(session.connect() == [])
        #expect(session.phase == .waitingForNetwork)
        #expect(session.reason == .networkNotAllowed)
        #expect(session.status.reason.message.contains("tun0 (vpn)"))
        #expect(session.pass(.seconds(299)) == [])
        #expect(session.path(.gained) == [.open(1)])
        session.succeed()
        #expect(session.reason == .pathGained)
    }

    @Test func `says what it waits for as that changes`() {
        var session = SessionUnderTest(policy: .exact, isBound: true, paths: [nil])
        session.connect()
        #expect(session.reason == .noPath)
        session.exclude(vpn)
        #expect(session.reason == .networkNotAllowed)
        #expect(session.reportedStateChange)
        session.path(.maybe)
        #expect(session.phase == .waitingForNetwork && session.reason == .networkNotAllowed)
        session.exclude(nil)
        #expect(session.reason == .noPath)
    }

    @Test func `is held, and then waits, when only another network leads to the server`() {
        var session = SessionUnderTest(policy: .exact, isBound: true)
        session.connect()
        session.succeed()
        session.exclude(vpn)
        session.path(.lost)
        #expect(session.state == .connected && session.status.doubt == .pathLost)
        #expect(session.pass(.seconds(5)) == [.abandon(1)])
        #expect(session.state == .reconnecting && session.phase == .waitingForNetwork)
        #expect(session.reason == .networkNotAllowed)
        session.exclude(nil)
        #expect(session.path(.gained) == [.open(2)])
    }

    @Test func `keeps a reason that has nothing to do with the network`() {
        var session = SessionUnderTest(policy: .exact, isBound: true)
        session.connect()
        session.succeed()
        session.exclude(vpn)
        session.path(.lost)
        session.end(.serverClosed)
        #expect(session.phase == .waitingForNetwork && session.reason == .serverClosed)
    }

    @Test func `says that it waits for an allowed network even if the connection timed out first`() {
        var session = SessionUnderTest(policy: .exact, isBound: true)
        session.connect()
        session.succeed()
        session.exclude(vpn)
        session.path(.lost)
        session.end(.unreachable)
        #expect(session.phase == .waitingForNetwork && session.reason == .networkNotAllowed)
    }

    @Test func `says that there is no network when a safety attempt found none`() {
        var session = SessionUnderTest(policy: .exact, isBound: true, paths: [nil])
        session.connect()
        session.pass(.seconds(300))
        session.end(.networkNotAllowed)
        #expect(session.reason == .noPath)
    }

    @Test(arguments: [PathClass.movedSourceKept, .movedSourceGone, .gained, .maybe])
    func `follows its path to another interface at once`(pathClass: PathClass) {
        var session = SessionUnderTest(policy: .exact, isBound: true)
        session.connect()
        session.succeed()
        let orders = session.take(.pathChanged(EndpointIndex(0), to: .cellular, pathClass))
        #expect(orders == [.abandon(1), .open(2)])
        #expect(session.reason == .pathMoved)
    }

    @Test func `follows its path to another interface even while held`() {
        var session = SessionUnderTest(policy: .exact, isBound: true)
        session.connect()
        session.succeed()
        session.path(.lost)
        #expect(session.take(.pathChanged(EndpointIndex(0), to: .cellular, .gained)) == [.abandon(1), .open(2)])
    }

    @Test func `is handed over when its path moves on the same interface`() {
        var session = SessionUnderTest(policy: .exact, isBound: true)
        session.connect()
        session.succeed()
        var moved = Path.wifi
        moved.gateway = "192.0.2.2"
        #expect(
            session.take(.pathChanged(EndpointIndex(0), to: moved, .movedSourceKept)) == [
                .heartbeat(1), .prepare(2, at: 0),
            ])
        #expect(session.status.doubt == .probing)
    }

    @Test func `is handed over across interfaces when it is not bound`() {
        var session = SessionUnderTest(.connected)
        #expect(session.path(.movedSourceKept) == [.heartbeat(1), .prepare(2, at: 0)])
    }
}
