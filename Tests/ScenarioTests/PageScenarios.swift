import ControlAPI
import MQTT
import SessionCore
import Support
import Testing

@testable import Agent
@testable import Configuration
@testable import SimulationSupport

/// The pages for people who come from another SDK. What each row is about is made to happen, and the daemon must report
/// exactly what the row claims: state, reason, mode, events. Every other code word on the pages must be a known one.
@Suite("Pages", .timeLimit(.minutes(10)))
struct PageScenarios {
    static let pages =
        ["LiveKit", "Nexconn", "Agora", "ZEGO"].map { "Documentation/From-\($0).md" } + [
            "Documentation/Coming-from-another-SDK.md", "Documentation/Testing-reconnection.md",
        ]

    /// A file of the repository.
    static func text(_ name: String) throws -> String { try repositoryFile(name) }

    /// The cells of the tables, row by row, without the lines of hyphens.
    static func rows(_ page: String) throws -> [[String]] {
        try text(page).split(separator: "\n").filter { $0.hasPrefix("|") && !$0.hasPrefix("| ---") }.map { line in
            line.dropFirst().dropLast().split(separator: "|", omittingEmptySubsequences: false).map {
                String($0.drop { $0 == " " })
            }
        }
    }

    /// A row that claims something, and which of its cells does.
    struct Row: Sendable, CustomTestStringConvertible {
        var page: String
        var key: String
        var claims: [Claim]
        var testDescription: String { "\(page): \(key)" }
    }

    /// All rows that claim something, of the tables that have a column for it.
    static func claimingRows(_ page: String) throws -> [Row] {
        var column: Int?
        return try text(page).split(separator: "\n", omittingEmptySubsequences: false).compactMap { line in
            guard line.hasPrefix("|") else {
                column = nil
                return nil
            }
            let cells = line.dropFirst().dropLast().split(separator: "|", omittingEmptySubsequences: false).map(trimmed)
            guard let claiming = column else {
                column = cells.firstIndex { $0 == "Holdfast" || $0 == "what follows" } ?? cells.count
                return nil
            }
            guard claiming < cells.count else { return nil }
            let claims = Claim.claims(in: cells[claiming])
            return claims.isEmpty ? nil : Row(page: page, key: cells[0], claims: claims)
        }
    }

    private static func trimmed(_ cell: Substring) -> String {
        String(cell.drop { $0 == " " }.reversed().drop { $0 == " " }.reversed())
    }

    static let allRows: [Row] = {
        let rows = pages.flatMap { (try? claimingRows($0)) ?? [] }
        precondition(rows.count > 200, "the tables of the pages cannot be read")
        return rows
    }()

    /// These are said by the socket, not by a session; DiscoverAnswersTests and ControlMethodsTests cause them.
    static let errorsOfTheSocket: Set<String> = [
        "unknown-method", "not-permitted", "too-many-requests", "internal-error", "unknown-subscription",
    ]

    @Test(arguments: allRows)
    func `a row claims what the daemon reports`(_ row: Row) async throws {
        let claims = row.claims.filter { claim in
            if case .error(let code) = claim.what { !Self.errorsOfTheSocket.contains(code) } else { true }
        }
        guard !claims.isEmpty else { return }
        let situations = try #require(PageRows.situations[row.page]?[row.key], "nothing says what the row is about")
        var outcomes: [Situation.Outcome] = []
        for situation in situations {
            let outcome = try await situation.outcome()
            outcomes.append(outcome)
            // A situation that the row does not mention would be checked for nothing.
            if let last = outcome.last, claims.contains(where: \.isAboutTheState) {
                #expect(claims.contains { $0.covers(last) }, "\(situation.name): \(last.line) is not in the row")
            }
        }
        for claim in claims {
            #expect(outcomes.contains { claim.isTrue(of: $0) }, "\(claim) is not what happens")
        }
    }

    @Test(arguments: PageRows.situations.keys.sorted())
    func `every row that the tests know is on its page, once`(_ page: String) throws {
        let keys = try Self.claimingRows(page).map(\.key)
        #expect(Set(keys).count == keys.count)
        let unknown = PageRows.situations[page]?.keys.filter { !keys.contains($0) } ?? []
        #expect(unknown.isEmpty)
    }

    @Test func `each statement of the four SDKs names an existing test`() throws {
        let rows = try Self.rows("Documentation/Statements.md").filter { $0.first?.first?.isNumber == true }
        #expect(rows.count >= 135)
        for row in rows {
            let parts = (row.last ?? "").split(separator: "*", omittingEmptySubsequences: false).map(String.init)
            let file = parts[0].split { $0 == ":" || $0 == " " }.first.map(String.init) ?? ""
            let text = try Self.text(file)
            try #require(parts.count > 1, "\(row.first ?? ""): \(file) without a test")
            #expect(text.contains("`\(parts[1])`"), "\(file): \(parts[1])")
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

    @Test func `the manual lists every kind of event`() throws {
        let source = try Self.text("Sources/ControlAPI/SessionEvent.swift")
        let kinds = source.split(separator: "Kind(rawValue: \"").dropFirst().compactMap {
            $0.split(separator: "\"").first
        }
        #expect(kinds.count > 20)
        let manual = try Self.text("man/holdfast-rpc.7").split(separator: "\n")
        let events = manual.drop { $0 != ".Sh EVENTS" }.dropFirst().prefix { !$0.hasPrefix(".Sh ") }
        let listed = events.filter { $0.hasPrefix(".It ") && !$0.hasPrefix(".It Dq") }.flatMap { line in
            line.dropFirst(4).split { " ,".contains($0) }
        }
        #expect(listed.sorted() == kinds.sorted())
    }

    @Test(arguments: pages)
    func `every other code word on a page is a known one`(_ page: String) throws {
        var known: Set<String> = [
            "like-this", "resumed", "mode", "doubt", "online", "offline", "holdfastctl", "message.received", "control",
        ]
        known.formUnion(Claim.kinds.map(\.rawValue))
        known.formUnion(RPCError.Code.allCases.map(\.name))
        known.formUnion(Phase.allCases.map(\.rawValue))
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
