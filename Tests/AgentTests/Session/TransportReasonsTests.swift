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
    @Test func `a failure of the transport becomes a reason with all that is known of it`() {
        let failure = TransportFailure(.tlsFailed, "a sentence", systemError: 7, detail: .certificateExpired)
        let reason = Reason(.failed(failure))
        #expect(reason == Reason(.tlsFailed, "a sentence", systemError: 7, detail: .certificateExpired))
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
