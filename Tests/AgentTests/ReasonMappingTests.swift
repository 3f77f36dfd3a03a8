import Configuration
import ControlAPI
import MQTT
import Session
import SessionCore
import Testing
import Transport

@testable import Agent

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
    func `every code of a server is a reason`(code: UInt8) {
        let reason = Reason(.init(code: ReasonCode(rawValue: code)))
        #expect(reason.code == Self.codes[code] ?? .unknown)
        #expect(reason.serverCode == code)
    }

    @Test func `only what trying again cannot change is terminal`() {
        let terminal = (UInt8.min...UInt8.max).filter { Reason(.init(code: .init(rawValue: $0))).isTerminal }
        #expect(terminal == [0x84, 0x85, 0x86, 0x87, 0x8A, 0x8C, 0x8E, 0x98, 0x9A, 0x9B])
    }

    @Test(arguments: Consequence.rows.indices)
    func `a row's class and measures are what the session is told`(index: Int) {
        let row = Consequence.rows[index]
        let (verdict, measures) = (row.consequence.class, row.consequence.measures)
        for place in row.places where place == .connack || place == .disconnect {
            for code in row.codes {
                let ending = SessionMachine.Ending(.init(code: code), in: place)
                // A credential is renewed once before its rejection is terminal.
                let isTerminal = verdict == .terminal || [.badUserNameOrPassword, .notAuthorized].contains(code)
                #expect(ending.reason.isTerminal == isTerminal, "\(code)")
                #expect((ending.reason.code == .displaced) == measures.contains(.displaced), "\(code)")
                #expect(
                    (ending.reason.code == .removedByAdministrator) == measures.contains(.removed), "\(code)")
                #expect((ending.reason.code.group == .auth) == (measures == [.renewCredential] && verdict == .change))
                #expect(ending.failsIfRepeated == (verdict == .retryOnce), "\(code)")
                #expect(ending.leavesEndpoint == measures.contains(.nextEndpoint), "\(code)")
                let pace: SessionMachine.Ending.Pace =
                    if measures.contains(.slowly) { .slow } else if measures.contains(.floor) {
                        .floor
                    } else if measures.contains(.doubledFloor) { .doubledFloor } else if measures.contains(.atOnce) {
                        .atOnce
                    } else { .byReason }
                #expect(ending.pace == pace, "\(code)")
            }
        }
    }

    @Test func `what was found and set aside is no reason to give up, and a distrusted session begins anew`() {
        var server = MQTTClientMachine.ServerReason(code: .protocolError, reasonString: "no such topic")
        #expect(SessionMachine.Ending(server, in: .disconnect).failsIfRepeated)
        server.remedies = [.quarantine, .cleanStart]
        let ending = SessionMachine.Ending(server, in: .disconnect)
        #expect(!ending.failsIfRepeated)
        #expect(ending.reason.code == .stateMismatch)
        #expect(
            ending.reason.message
                == "the server said: protocol error (0x82), “no such topic”; what it may have been is set aside, the session at "
                + "the server is given up")
        server.remedies = [.cleanStart]
        #expect(SessionMachine.Ending(server, in: .disconnect).failsIfRepeated)
    }

    @Test func `what the server says for people is in the sentence`() {
        let reason = Reason(.init(code: .serverMoved, reasonString: "gone", serverReference: "b.example:8883"))
        #expect(reason.message == "the server said: server moved (0x9D), “gone”, use b.example:8883")
    }

    private static let failures: [TransportFailure.Code: Reason.Code] = [
        .dnsFailed: .dnsFailed, .unreachable: .unreachable, .ioError: .unreachable, .refused: .refused,
        .networkNotAllowed: .networkNotAllowed,
        .reset: .reset, .dialTimeout: .dialTimeout, .tlsTimeout: .tlsTimeout, .tlsFailed: .tlsFailed,
        .wrongProtocol: .wrongProtocol,
        .certificateExpired: .tlsFailed, .tlsFilesUnusable: .tlsFailed, .certificateInvalid: .certificateInvalid,
        .proxyFailed: .proxyFailed, .webSocketFailed: .webSocketFailed, .unsupported: .badEndpoint,
        .serverBusy: .serverBusy, .serverShutdown: .serverShutdown, .serverError: .serverError,
        .protocolError: .protocolError,
    ]

    @Test(arguments: TransportFailure.Code.allCases)
    func `every failure of the transport is a reason with its sentence`(code: TransportFailure.Code) {
        let reason = Reason(.failed(TransportFailure(code, "a sentence")))
        #expect(reason == Reason(Self.failures[code] ?? .unknown, "a sentence"))
    }

    @Test func `a close without a word is the server's`() {
        #expect(Reason(.closedByPeer).code == .serverClosed)
    }

    @Test(arguments: Reason.Code.allCases)
    func `a reason is told whole`(code: Reason.Code) {
        guard let session = SessionName("edge-7") else { return }
        let remedies = Remedies(session: session, configuration: SessionConfiguration())
        let told = SessionStatus.Reason(Reason(code, "sentence", serverCode: 7), remedies)
        #expect(told.code == code.rawValue)
        #expect(told.group == code.group.rawValue)
        #expect(told.terminal == code.isTerminal)
        #expect(told.serverCode == 7)
        #expect(told.message == "sentence")
        #expect(told.hint == remedies.hint(for: code))
    }
}
