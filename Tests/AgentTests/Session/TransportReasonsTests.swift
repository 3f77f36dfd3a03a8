import Configuration
import ControlAPI
import MQTT
import Session
import SessionCore
import Testing
import Transport
import Vocabulary

@testable import Agent

/// What the transport says, in the words of sessions, and reasons in those of the control socket.
struct TransportReasonsTests {
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
    func `every failure of the transport maps to a reason with its sentence`(code: TransportFailure.Code) {
        let reason = Reason(.failed(TransportFailure(code, "a sentence", systemError: 7)))
        #expect(reason.code == Self.failures[code] ?? .unknown)
        #expect(reason.message == "a sentence" && reason.systemError == 7)
    }

    @Test func `what else is known of a failure is kept`() {
        let details: [(TransportFailure, FailureDetail)] = [
            (TransportFailure(.tlsFailed, "", detail: .endedInHandshake), .endedInHandshake),
            (TransportFailure(.certificateExpired, ""), .certificateExpired),
            (TransportFailure(.tlsFilesUnusable, ""), .ownFilesUnusable),
        ]
        for (failure, detail) in details { #expect(Reason(failure).detail == detail) }
    }

    @Test func `a close without a reason is attributed to the server`() {
        #expect(Reason(.closedByPeer).code == .serverClosed)
    }

    @Test(arguments: Reason.Code.allCases)
    func `a reason is passed on in full`(code: Reason.Code) throws {
        let session = try #require(SessionName("edge-7"))
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
