import ControlAPI
import Glibc
import MQTT
import SessionCore
import Support
import Testing

@testable import Agent
@testable import Configuration
@testable import SimulationSupport

/// The pages for people who come from another SDK: every reason that they name is caused here, and the daemon must
/// report it in the state that the page gives; every other code word on them must be a known one.
@Suite("Pages", .timeLimit(.minutes(10)))
struct PageScenarios {
    static let pages =
        ["LiveKit", "Nexconn", "Agora", "ZEGO"].map { "Documentation/From-\($0).md" } + [
            "Documentation/Coming-from-another-SDK.md"
        ]

    struct Failure: Error {}

    /// A file of the repository.
    static func text(_ name: String, source: String = #filePath) throws -> String {
        let root = "/" + source.split(separator: "/").dropLast(3).joined(separator: "/")
        guard let file = fopen("\(root)/\(name)", "r") else { throw Failure() }
        defer { fclose(file) }
        var bytes = [UInt8](repeating: 0, count: 1 << 20)
        bytes.removeLast(bytes.count - fread(&bytes, 1, bytes.count, file))
        return String(decoding: bytes, as: UTF8.self)
    }

    /// The cells of the tables, row by row, without the lines of hyphens.
    static func rows(_ page: String) throws -> [[String]] {
        try text(page).split(separator: "\n").filter { $0.hasPrefix("|") && !$0.hasPrefix("| ---") }.map { line in
            line.dropFirst().dropLast().split(separator: "|", omittingEmptySubsequences: false).map {
                String($0.drop { $0 == " " })
            }
        }
    }

    /// A state and a reason that a page puts together: "failed, `banned`".
    struct Claim: Hashable, CustomStringConvertible {
        var state: SessionStatus.State?
        var reason: String
        var description: String { (state.map { "\($0.rawValue), " } ?? "") + reason }
    }

    static func claims(in cell: String) -> [Claim] {
        cell.split(separator: ";").flatMap { part in
            let words = part.split(separator: "`", omittingEmptySubsequences: false)
            let before = (words.first ?? "").split { !$0.isLetter }.map(String.init)
            let state = before.first.flatMap { SessionStatus.State(rawValue: $0) }
            // After "event" and "RPC error" the word is not a reason.
            let isOther = before.contains("event") || before.contains("events") || before.contains("RPC")
            return words.indices.filter { $0 % 2 == 1 }.compactMap { index -> Claim? in
                let word = String(words[index])
                guard !isOther, Reason.Code(rawValue: word) != nil else { return nil }
                return Claim(state: state, reason: word)
            }
        }
    }

    static let allClaims: [Claim] = {
        let cells = pages.flatMap { (try? rows($0)) ?? [] }.flatMap { $0 }
        precondition(!cells.isEmpty, "there are no tables on the pages")
        return Set(cells.flatMap(claims)).sorted { "\($0)" < "\($1)" }
    }()

    // MARK: Situations

    typealias Situation = @Sendable (isolated Scenario) async throws -> SessionEvent

    private static func up(_ scenario: isolated Scenario, _ extra: String = "") async throws -> Host {
        let a = try await scenario.host("A", extra)
        try await a.until(.connected)
        return a
    }

    private static func said(_ code: String, _ host: Host) async throws -> SessionEvent {
        try await host.until("reason \(code)") { $0.reason?.code == code && $0.state != nil }
    }

    /// The server refuses CONNECT.
    private static func refusal(_ code: ReasonCode, _ reason: String) -> Situation {
        { scenario in
            scenario.with { broker, _ in broker.refusals["a"] = code }
            return try await said(reason, try await scenario.host("A"))
        }
    }

    /// The server ends the connection.
    private static func end(_ code: ReasonCode?, _ reason: String) -> Situation {
        { scenario in
            let a = try await up(scenario)
            scenario.with { broker, now in broker.disconnect("a", code, at: now) }
            return try await said(reason, a)
        }
    }

    /// The next connection cannot be set up.
    private static func dial(_ fault: Scenario.DialFault, _ reason: String) -> Situation {
        { scenario in
            let a = try await up(scenario)
            scenario.withUplink(a) { $0.dialFault = fault }
            scenario.reset(a)
            return try await said(reason, a)
        }
    }

    static let situations: [String: Situation] = [
        "credential-rejected": refusal(.badUserNameOrPassword, "credential-rejected"),
        "not-authorized": refusal(.notAuthorized, "not-authorized"),
        "banned": refusal(.banned, "banned"),
        "client-identifier-rejected": refusal(.clientIdentifierNotValid, "client-identifier-rejected"),
        "unsupported-version": refusal(.unsupportedProtocolVersion, "unsupported-version"),
        "displaced": end(.sessionTakenOver, "displaced"),
        "removed-by-administrator": end(.administrativeAction, "removed-by-administrator"),
        "server-busy": end(.serverBusy, "server-busy"),
        "server-closed": end(nil, "server-closed"),
        "server-error": end(.unspecifiedError, "server-error"),
        "server-shutdown": end(.serverShuttingDown, "server-shutdown"),
        "server-keep-alive-timeout": end(.keepAliveTimeout, "server-keep-alive-timeout"),
        "rate-limited": end(.messageRateTooHigh, "rate-limited"),
        "protocol-error": end(.protocolError, "protocol-error"),
        "dns-failed": dial(.dnsFailed, "dns-failed"),
        "unreachable": dial(.unreachable, "unreachable"),
        "refused": dial(.refused, "refused"),
        "dial-timeout": dial(.dialTimeout, "dial-timeout"),
        "tls-timeout": dial(.tlsTimeout, "tls-timeout"),
        "tls-failed": dial(.tlsFailed, "tls-failed"),
        "certificate-invalid": dial(.certificateInvalid, "certificate-invalid"),
        "proxy-failed": dial(.proxyFailed, "proxy-failed"),
        "websocket-failed": dial(.webSocketFailed, "websocket-failed"),
        "reset": { scenario in
            let a = try await up(scenario)
            scenario.reset(a)
            return try await said("reset", a)
        },
        "heartbeat-timeout": { scenario in
            let a = try await up(scenario)
            scenario.silence(a)
            return try await said("heartbeat-timeout", a)
        },
        "authenticate-timeout": { scenario in
            scenario.hang(.one)
            return try await said("authenticate-timeout", try await scenario.host("A"))
        },
        "path-lost": { scenario in
            let a = try await up(scenario)
            await scenario.cut(a)
            return try await said("path-lost", a)
        },
        "path-moved": { scenario in
            let a = try await up(scenario)
            await scenario.move(a)
            return try await said("path-moved", a)
        },
        "path-gained": { scenario in
            let a = try await up(scenario)
            await scenario.cut(a)
            try await a.until(.reconnecting)
            await scenario.mend(a)
            return try await said("path-gained", a)
        },
        "path-returned": { scenario in
            let a = try await up(scenario)
            await scenario.cut(a)
            try await a.until(.reconnecting)
            scenario.withUplink(a) { $0.path = Scenario.path() }
            await a.pathChanged(.returned, from: nil, to: Scenario.path())
            return try await said("path-returned", a)
        },
        "no-path": { scenario in
            let a = try scenario.addHost("A")
            scenario.withUplink(a) { $0.path = nil }
            try await a.write("main", "endpoints = [\"\(Scenario.ServerName.one.endpoint)\"]\nuser = \"a\"\n")
            try await a.start()
            return try await said("no-path", a)
        },
        "retry-timeout": { scenario in
            let a = try await up(scenario, "preset = \"agora\"")
            scenario.stop()
            return try await said("retry-timeout", a)
        },
        "yielded": { scenario in
            let a = try await scenario.host("A", NexconnScenarios.device("yield"), user: "u")
            try await a.until(.connected)
            await scenario.cut(a)
            try await a.until(.reconnecting)
            try await (try await scenario.host("B", NexconnScenarios.device("yield"), user: "u")).until(.connected)
            await scenario.mend(a)
            return try await said("yielded", a)
        },
        "autoconnect": { scenario in try await said("autoconnect", try await scenario.host("A")) },
        "user-connect": { scenario in
            let a = try await scenario.host("A", "autoconnect = false")
            try await a.connect()
            return try await said("user-connect", a)
        },
        "user-disconnect": { scenario in
            let a = try await up(scenario)
            try await a.disconnect()
            return try await a.until(.disconnected)
        },
        "goodbye-unheard": { scenario in
            let a = try await up(scenario, "room = \"r\"")
            await scenario.cut(a)
            try await a.until(.reconnecting)
            try await a.disconnect()
            return try await said("goodbye-unheard", a)
        },
        "user-reconnect": { scenario in
            let a = try await up(scenario)
            try await a.reconnect(.quick)
            return try await said("user-reconnect", a)
        },
        "switch-room": { scenario in
            let a = try await up(scenario, "room = \"r1\"")
            try await a.switchRoom(to: "r2")
            return try await said("switch-room", a)
        },
        "idle": { scenario in
            let a = try await scenario.host("A", "preset = \"nexconn\"")
            try await a.connect()
            return try await a.until("idle") { $0.reason?.code == "idle" && $0.state == .disconnected }
        },
        "demand": { scenario in
            let a = try await scenario.host("A", "preset = \"nexconn\"")
            try await a.publish("t", "hello")
            return try await said("demand", a)
        },
        "suspend": { scenario in
            let a = try await up(scenario)
            try await a.sleep(for: .seconds(600))
            return try await a.until("suspended") { $0.reason?.code == "suspend" && $0.state == .disconnected }
        },
        "wake": { scenario in
            let a = try await up(scenario)
            try await a.sleep(for: .seconds(600))
            return try await said("wake", a)
        },
        "credential-renewed": { scenario in
            let a = try await up(scenario, "insecure = true")
            let driver = try await a.registry().driver("main")
            _ = try await driver.renewToken("fresh", expires: nil)
            return try await said("credential-renewed", a)
        },
    ]

    /// Reasons that need more than one step of a server or of the disk, and the test that causes each.
    static let elsewhere: [String: String] = [
        "state-mismatch": "Tests/ScenarioTests/QuotaScenarios.swift",
        "restore-timeout": "Tests/SessionCoreTests/HeartbeatTests.swift",
        "credential-expired": "Tests/ScenarioTests/CredentialScenarios.swift",
        "credential-unreadable": "Tests/ScenarioTests/CredentialScenarios.swift",
        "credential-changed": "Tests/AgentTests/SessionDriverCredentialTests.swift",
        "moved": "Tests/ScenarioTests/EndpointScenarios.swift",
        "redirect-refused": "Tests/SessionTests/SessionStepsTests.swift",
        "unknown": "Tests/AgentTests/TransportReasonsTests.swift",
        "unacknowledged": "Tests/EndToEndTests/DeliveryTests.swift",
        "probe-timeout": "Tests/SessionCoreTests/PathClassTests.swift",
        "bad-configuration": "Tests/ScenarioTests/ZEGOScenarios.swift",
        "bad-endpoint": "Tests/AgentTests/TransportReasonsTests.swift",
        "configuration-changed": "Tests/ScenarioTests/RestartScenarios.swift",
    ]

    @Test(arguments: allClaims)
    func `a reason named on a page is the one the daemon reports`(_ claim: Claim) async throws {
        guard let situation = Self.situations[claim.reason] else {
            let test = try #require(Self.elsewhere[claim.reason], "no test causes \(claim.reason)")
            let text = try Self.text(test)
            let code = Reason.Code(rawValue: claim.reason)
            #expect(text.contains(claim.reason) || text.contains(code.map { ".\($0)" } ?? "?"), "\(test)")
            return
        }
        let event = try await Scenario.run { scenario in try await situation(scenario) }
        #expect(event.reason?.code == claim.reason)
        switch claim.state {
        case .failed?: #expect(event.state == .failed)
        case .disconnected?: #expect(event.state == .disconnected)
        // Both go on without help; which one it is depends on whether the session was up before.
        case .connecting?, .reconnecting?: #expect(event.state == .connecting || event.state == .reconnecting)
        case .connected?, .disconnecting?, nil: break
        }
    }

    @Test func `each statement of the four SDKs names an existing test`() throws {
        let rows = try Self.rows("Documentation/Statements.md").filter { $0.first?.first?.isNumber == true }
        #expect(rows.count >= 135)
        for row in rows {
            let parts = (row.last ?? "").split(separator: "*", omittingEmptySubsequences: false).map(String.init)
            let file = parts[0].split { $0 == ":" || $0 == " " }.first.map(String.init) ?? ""
            let text = try Self.text(file)
            if parts.count > 1 { #expect(text.contains("`\(parts[1])`"), "\(file): \(parts[1])") }
        }
    }

    @Test func `the page of reason codes lists each with its group and its sentence`() throws {
        let rows = try Self.rows("Documentation/Reason-codes.md").map { cells in
            cells.map { $0.last == " " ? String($0.dropLast()) : $0 }
        }
        for code in Reason.Code.allCases {
            let row = ["`\(code.rawValue)`", code.group.rawValue, code.isTerminal ? "yes" : "no", code.sentence]
            let isThere = rows.contains(row)
            #expect(isThere, "\(code.rawValue)")
        }
    }

    @Test(arguments: pages)
    func `every other code word on a page is a known one`(_ page: String) throws {
        let kinds: [SessionEvent.Kind] = [
            .stateChanged, .phaseChanged, .connectionLost, .reconnectStarted, .reconnectCompleted, .displaced,
            .credentialExpiring, .qualityChanged, .pathChanged, .participantJoined, .participantLeft,
            .participantChanged, .publicationChanged, .roomChanged, .messageRejected, .messageDropped,
        ]
        var known: Set<String> = [
            "like-this", "resumed", "mode", "online", "offline", "holdfastctl", "message.received",
        ]
        known.formUnion(kinds.map(\.rawValue))
        known.formUnion(RPCError.Code.allCases.map(\.name))
        known.formUnion(SessionStatus.Phase.allCases.map(\.rawValue))
        known.formUnion(Reason.Code.allCases.map(\.rawValue))
        known.formUnion(ControlMethods.names)
        for key in SessionConfiguration.keys {
            known.insert(key.name.split(separator: ".").last.map(String.init) ?? "")
        }
        let commands = [
            "status", "watch", "connect", "disconnect", "reconnect", "switch-room", "participants", "publications",
            "simulate", "history", "wait",
        ]
        for cell in try Self.rows(page).flatMap({ $0 }) {
            for (index, word) in cell.split(separator: "`", omittingEmptySubsequences: false).enumerated()
            where index % 2 == 1 {
                let text = String(word)
                let words = text.split(separator: " ").map(String.init)
                if text.contains(" = ") {
                    #expect(known.contains(words[0]), "\(text)")
                } else if words.first == "holdfastctl", words.count > 1 {
                    #expect(commands.contains(words[1]), "\(text)")
                } else if !text.hasPrefix("\"") {
                    #expect(known.contains(text), "\(text)")
                }
            }
        }
    }
}
