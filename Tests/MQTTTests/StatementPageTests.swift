import Foundation
import Support
import Testing

/// A test whose comment names statements.
struct StatementTest: Hashable {
    /// From the root of the repository.
    var file: String
    var name: String

    /// Every test that names statements, by the statement's number, in the order of the files.
    static func byNumber() throws -> [String: [StatementTest]] {
        let folder = StatementPage.root.appending(path: "Tests")
        let paths = try FileManager.default.subpathsOfDirectory(atPath: folder.path()).filter {
            $0.hasSuffix("Tests.swift")
        }
        var tests: [String: [StatementTest]] = [:]
        for path in paths.sorted() {
            let text = try String(contentsOf: folder.appending(path: path), encoding: .utf8)
            for (test, numbers) in named(in: text, "Tests/\(path)") {
                for number in numbers { tests[number, default: []].append(test) }
            }
        }
        return tests
    }

    /// A test is a comment, `@Test` with its arguments, and a function with a name in backticks, without an empty line.
    private static func named(in text: String, _ file: String) -> [(StatementTest, [String])] {
        var found: [(StatementTest, [String])] = []
        var numbers: [String] = []
        var isTest = false
        for line in text.split(separator: "\n", omittingEmptySubsequences: false) {
            let words = line.drop { $0 == " " }
            if words.hasPrefix("///") {
                numbers += words.split(separator: "[MQTT-").dropFirst().map { String($0.prefix { $0 != "]" }) }
                continue
            }
            if words.hasPrefix("@Test") { isTest = true }
            if isTest, words.contains("func `") {
                let name = words.split(separator: "`", maxSplits: 2)[1]
                if !numbers.isEmpty { found.append((StatementTest(file: file, name: String(name)), numbers)) }
            }
            if words.isEmpty || words.contains("func ") { (numbers, isTest) = ([], false) }
        }
        return found
    }
}

/// Documentation/MQTT-statements.md.
enum StatementPage {
    static let root = repositoryRoot
    static let file = root.appending(path: "Documentation/MQTT-statements.md")

    static func text(_ tests: [String: [StatementTest]]) -> String {
        let ours = Statement.all.filter { $0.bound != .server }
        let servers = Statement.all.filter { $0.bound == .server }
        let alone = Statement.ofServersAlone.flatMap { section, numbers in numbers.map { "\(section)-\($0)" } }
        return """
            # The statements of MQTT 5

            MQTT Version 5.0 (OASIS Standard, 7 March 2019) numbers what it demands: \(Statement.numbers.count) statements, which \
            its Appendix B lists.
            Of them, \(ours.count) bind a client, alone or together with servers, and \(servers.count) bind a server, and a client \
            has to notice when one breaks them.
            Here they are in our words, each with the tests that fail if it is broken. The standard has the last word.

            This page is generated. The table is `Tests/MQTTTests/StatementTable.swift`; the comment above a test names what it
            shows, as `[MQTT-3.1.0-1]`. `make statements` writes the page again, and a test says when that is due. What is easy
            to get wrong about them: [MQTT rules](MQTT-rules.md).

            ## What binds a client

            \(table(ours, tests))

            ## What binds a server, and what the client does about it

            \(table(servers, tests))

            ## What binds a server alone

            A client cannot see whether a server keeps these, or need not do anything about one that does not: \
            \(alone.joined(separator: ", ")).

            """
    }

    private static func table(_ statements: [Statement], _ tests: [String: [StatementTest]]) -> String {
        (["| | statement | tests |", "| --- | --- | --- |"]
            + statements.map { statement in
                let cells = (tests[statement.number] ?? []).map { "\($0.file): *\($0.name)*" }
                return "| \(statement.number) | \(statement.words) | \(cells.joined(separator: "; ")) |"
            }).joined(separator: "\n")
    }
}

@Suite struct StatementPageTests {
    @Test func `the table has every statement of the standard once, in its order`() {
        let alone = Statement.ofServersAlone.flatMap { section, numbers in numbers.map { "\(section)-\($0)" } }
        #expect(Statement.numbers.count == 251)
        #expect(Statement.all.map(\.number) == Statement.numbers.filter { !alone.contains($0) })
        #expect(alone == Statement.numbers.filter(alone.contains))
    }

    @Test func `every statement of the table has a test, and every test names one of the table`() throws {
        let tests = try StatementTest.byNumber()
        let numbers = Set(Statement.all.map(\.number))
        let untested = Statement.all.map(\.number).filter { tests[$0] == nil }
        #expect(untested == [])
        let unknown = tests.keys.filter { !numbers.contains($0) }.sorted()
        #expect(unknown == [], "\(unknown.map { tests[$0] ?? [] })")
    }

    @Test func `the page of the statements agrees with the table and the tests`() throws {
        let text = StatementPage.text(try StatementTest.byNumber())
        if ProcessInfo.processInfo.environment["HOLDFAST_WRITE_PAGES"] != nil {
            try text.write(to: StatementPage.file, atomically: true, encoding: .utf8)
        }
        let isCurrent = try String(contentsOf: StatementPage.file, encoding: .utf8) == text
        #expect(isCurrent, "Documentation/MQTT-statements.md is out of date: make statements")
    }
}
