import MQTT
import SessionCore
import Testing

@testable import Session

/// What the server says, in the session's words.
struct ReasonMappingTests {
    /// The tables of Documentation/Reason-codes.md. What is not in it, also of later standards, is unknown.
    private static let codes: [UInt8: Reason.Code] = [
        0x00: .serverClosed, 0x04: .serverClosed, 0x80: .serverError, 0x81: .protocolError, 0x82: .protocolError,
        0x83: .serverError, 0x84: .unsupportedVersion, 0x85: .clientIdentifierRejected, 0x86: .credentialRejected,
        0x87: .notAuthorized, 0x88: .serverBusy, 0x89: .serverBusy, 0x8A: .banned, 0x8B: .serverShutdown,
        0x8C: .authenticationMethodRejected, 0x8D: .serverKeepAliveTimeout, 0x8E: .displaced, 0x8F: .serverError,
        0x90: .serverError, 0x91: .stateMismatch, 0x92: .stateMismatch, 0x93: .serverError, 0x94: .serverError,
        0x95: .serverError, 0x96: .rateLimited,
        0x97: .serverBusy, 0x98: .removedByAdministrator, 0x99: .serverError, 0x9A: .incompatible,
        0x9B: .incompatible, 0x9C: .serverMoved, 0x9D: .serverMoved, 0x9E: .serverError, 0x9F: .rateLimited,
        0xA0: .serverClosed, 0xA1: .serverError, 0xA2: .serverError,
    ]

    @Test(arguments: UInt8.min...UInt8.max)
    func `every code of a server maps to a reason`(code: UInt8) {
        let reason = Reason(.init(code: ReasonCode(rawValue: code)))
        #expect(reason.code == Self.codes[code] ?? .unknown)
        #expect(reason.serverCode == code)
    }

    @Test func `only codes that retrying cannot change are terminal`() {
        let terminal = (UInt8.min...UInt8.max).filter { Reason(.init(code: .init(rawValue: $0))).isTerminal }
        #expect(terminal == [0x84, 0x85, 0x86, 0x87, 0x8A, 0x8C, 0x8E, 0x98, 0x9A, 0x9B])
    }

    @Test(arguments: Consequence.rows)
    func `the session takes the measures that concern the next attempt`(row: Consequence.Row) {
        for place in row.places where place == .connack || place == .disconnect {
            for code in row.codes {
                let ending = SessionMachine.Ending(.init(code: code), in: place)
                #expect(ending.failsIfRepeated == row.measures.contains(.failIfRepeated), "\(code)")
                #expect(ending.leavesEndpoint == row.measures.contains(.nextEndpoint), "\(code)")
                let paces: [Consequence.Measure: SessionMachine.Ending.Pace] = [
                    .slow: .slow, .floor: .floor, .doubledFloor: .doubledFloor, .atOnce: .atOnce,
                ]
                #expect(ending.pace == row.measures.compactMap { paces[$0] }.first ?? .byReason, "\(code)")
            }
        }
    }

    @Test func `a quarantined message does not count as a failure, and a distrusted session is discarded`() {
        var server = MQTTClientMachine.ServerReason(code: .protocolError, reasonString: "no such topic")
        #expect(SessionMachine.Ending(server, in: .disconnect).failsIfRepeated)
        server.remedies = [.quarantine, .cleanStart]
        let ending = SessionMachine.Ending(server, in: .disconnect)
        #expect(!ending.failsIfRepeated)
        #expect(ending.reason.code == .stateMismatch)
        #expect(
            ending.reason.message
                == "the server said: protocol error (0x82), \"no such topic\"; the suspected message or filter is set "
                + "aside, the session at the server is given up")
        server.remedies = [.cleanStart]
        #expect(SessionMachine.Ending(server, in: .disconnect).failsIfRepeated)
    }

    @Test func `the server's Reason String and reference are in the sentence`() {
        let reason = Reason(.init(code: .serverMoved, reasonString: "gone", serverReference: "b.example:8883"))
        #expect(reason.message == "the server said: server moved (0x9D), \"gone\", use b.example:8883")
        #expect(reason.detail == nil)
        #expect(Reason(.init(code: .serverMoved)).detail == .elsewhereUnnamed)
    }

    @Test func `a code that neither CONNACK nor DISCONNECT can have is not called by its name in another packet`() {
        let reason = Reason(.init(code: ReasonCode(rawValue: 1)))
        #expect(reason.message == "the server said: reason code 0x01")
    }

    @Test func `a normal end by the server is not called a success`() {
        let reason = Reason(.init(code: .normalDisconnection, reasonString: "good night"))
        #expect(reason.code == .serverClosed)
        #expect(reason.message == "the server closed the connection normally (0x00), \"good night\"")
    }

    // MARK: What was unanswered when the connection ended

    private static func ending(_ code: ReasonCode = .protocolError) -> SessionMachine.Ending {
        SessionMachine.Ending(.init(code: code), in: .disconnect)
    }

    @Test func `without a finding an ending stays as it is`() {
        #expect(Self.ending().considering(nil) == Self.ending())
    }

    @Test(arguments: [
        (
            MQTTClientMachine.EndFinding.suspected(ends: 1), ", while packets were unanswered",
            SessionMachine.Ending.Search.suspected
        ),
        (.suspected(ends: 2), ", and the same packet has now been left unanswered 2 times", .continued),
        (.isolated, "; \(Remedy.isolation)", .continued),
    ])
    func `a continued search changes only the sentence and the pace of the ending`(
        finding: MQTTClientMachine.EndFinding, sentence: String, search: SessionMachine.Ending.Search
    ) {
        var before = Self.ending()
        before.mayHaveNewCredential = true
        #expect(before.failsIfRepeated)
        let ending = before.considering(finding)
        #expect(ending.reason.code == before.reason.code)
        #expect(ending.reason.message == before.reason.message + sentence)
        #expect(!ending.mayHaveNewCredential)
        #expect(!ending.failsIfRepeated)
        #expect(ending.search == search)
        #expect(ending.pace == before.pace)
    }

    @Test func `a message that is found is set aside, and the session goes on at once`() {
        let ending = Self.ending().considering(.setAside("a message"))
        #expect(ending.reason.message == Self.ending().reason.message + "; a message is the cause, and is set aside")
        #expect(ending.search == .found)
        #expect(ending.pace == .atOnce)
    }

    @Test(arguments: [ReasonCode.banned, .badUserNameOrPassword, .notAuthorized, .serverBusy])
    func `a reason that may be about a message neither fails the session nor renews its credential`(code: ReasonCode) {
        let reason = Self.ending(code).considering(.isolated).reason
        #expect(!reason.isTerminal)
        #expect(reason.code == (code == .serverBusy ? .serverBusy : .serverError))
        #expect(reason.serverCode == code.rawValue)
    }

    @Test(arguments: [false, true])
    func `a close after refused messages is attributed to them`(isDistrusted: Bool) {
        var refusal = MQTTClientMachine.ServerReason(code: .quotaExceeded)
        refusal.remedies = isDistrusted ? [.cleanStart] : [.quarantine]
        let ending = SessionMachine.Ending(closedAfter: refusal)
        #expect(ending.reason.code == (isDistrusted ? .stateMismatch : .serverError))
        #expect(ending.reason.serverCode == ReasonCode.quotaExceeded.rawValue)
        #expect(ending.pace == .atOnce)
    }

    @Test(arguments: [
        (SCRAMClient.Failure.malformed("x"), Reason.Code.protocolError, true),
        (.refused("x"), .credentialRejected, false), (.iterations(1), .serverUnauthenticated, false),
        (.notProven, .serverUnauthenticated, false),
    ])
    func `a failed proof has a reason of its own`(
        failure: SCRAMClient.Failure, code: Reason.Code, failsIfRepeated: Bool
    ) {
        let ending = SessionMachine.Ending(failure)
        #expect(ending.reason == Reason(code, "\(failure)"))
        #expect(ending.failsIfRepeated == failsIfRepeated)
    }

    @Test func `a server with another protocol is reported with its address, if known`() {
        #expect(
            Reason(ForeignProtocol.ssh, at: "a:1") == Reason(.wrongProtocol, "at a:1 is \(ForeignProtocol.ssh.name)"))
        #expect(Reason(ForeignProtocol.http, at: "a:1").detail == .webServer)
        #expect(Reason(ForeignProtocol.http, at: nil).message == "there is \(ForeignProtocol.http.name)")
    }

    @Test(arguments: Reason.Code.allCases)
    func `a reason of this host is told apart from one of the server`(code: Reason.Code) {
        let network: [Reason.Code] = [.noPath, .pathGained, .pathMoved, .pathReturned, .pathLost]
        #expect(code.isOurOwn == (code.group == .local || network.contains(code)))
        #expect(code.isDisconnectAskedFor == [.userDisconnect, .goodbyeUnheard].contains(code))
    }
}
