import ControlAPI
import Support
import Testing
import Vocabulary

/// Each reason is one that something makes: people look for it in the tables, and hints are written for it.
@Suite("Reasons", .timeLimit(.minutes(10)))
struct ReasonScenarios {
    /// What no situation of the pages ends with, and the test that makes it happen.
    private static let others: [Reason.Code: (file: String, test: String)] = [
        .answered: (
            "AgentTests/Session/KnockTests",
            "a server that is back is noticed while the session waits, and its connection is used"
        ),
        .authenticationMethodRejected: (
            "AgentTests/Session/SCRAMSessionTests",
            "a server without the method is told apart from a wrong password"
        ),
        .clockSet: (
            "AgentTests/Journal/HistoryTests",
            "a step of the clock is recorded with the time before and after it, unless it is small"
        ),
        .displacedSuspected: (
            "EndToEndTests/RoomTests",
            "two devices with one identity and no room are suspected"
        ),
        .inboxRoom: (
            "ScenarioTests/OutboxScenarios",
            "messages left out by a full inbox arrive on another connection when there is room"
        ),
        .incompatible: (
            "AgentTests/Session/ServerReasonTests",
            "a server that calls everything a protocol error is tried only once more"
        ),
        .networkNotAllowed: (
            "EndToEndTests/BindingTests",
            "a session for ethernet waits while the default route is a VPN's, and says why"
        ),
        .notStarted: (
            "AgentTests/Journal/HistoryTests",
            "the history outlives the daemon, and says when that was not running"
        ),
        .otherVersion: (
            "SessionTests/SessionStepsTests",
            "leaving for version 5 is the session's own doing, and no sign of another device"
        ),
        .returning: (
            "AgentTests/Session/KnockTests",
            "a session returns to its first endpoint, and leaves it again when that goes away"
        ),
        .serverUnauthenticated: (
            "AgentTests/Session/SCRAMSessionTests",
            "a server without a valid proof fails the session"
        ),
        // A name that users may rely on: MQTT's servers tell the loss while they accept the session, which sets the mode.
        .sessionLost: (
            "SessionCoreTests/ResumeTests",
            "a session that the server lost is set up in full at once"
        ),
        .shutdown: (
            "AgentTests/Journal/HistoryTests",
            "the history outlives the daemon, and says when that was not running"
        ),
        .storeReplaced: (
            "AgentTests/Daemon/ReloadTests",
            "a reload waits while sessions are restarted for another reason"
        ),
        .storeUnavailable: (
            "ScenarioTests/RestartScenarios",
            "a session that cannot connect because of the disk does not blame the server"
        ),
        .unanswered: (
            "SessionTests/SessionProtocolTests",
            "a server that answers all but one request is left, and that is named as the reason"
        ),
        .wrongProtocol: (
            "AgentTests/Session/SilenceTests",
            "a server of another protocol is named, with a hint"
        ),
    ]

    @Test func `each is reported by a daemon in a situation of the pages, or is made in the test that is named here`()
        async throws
    {
        var told: Set<String> = []
        for situation in PageRows.situations.values.flatMap(\.values).joined() {
            let outcome = try await situation.outcome()
            told.formUnion((outcome.told + [outcome.last].compactMap(\.self)).compactMap { $0.reason?.code })
        }
        for code in Reason.Code.allCases {
            guard !told.contains(code.rawValue) else {
                #expect(Self.others[code] == nil, "\(code.rawValue) needs no test of its own")
                continue
            }
            guard let (file, test) = Self.others[code] else {
                Issue.record("nothing makes \(code.rawValue)")
                continue
            }
            let parts = try repositoryFile("Tests/\(file).swift").split(separator: "`\(test)`", maxSplits: 1)
            try #require(parts.count == 2, "\(code.rawValue): \(file) has no such test")
            let body = parts[1].split(separator: "@Test", maxSplits: 1)[0]
            // In a text, it is a word of its own.
            let words = body.split { !$0.isLetter && $0 != "-" && $0 != "." }
            #expect(words.contains { $0 == code.rawValue || $0.hasSuffix(".\(code)") }, "\(test): \(code.rawValue)")
        }
    }
}
