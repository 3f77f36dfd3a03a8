import Foundation
import Support
import Testing

@testable import Configuration

/// Every piece of configuration in README.md, Documentation, Examples and the manuals, read as the daemon reads it.
struct DocumentedConfigurationTests {
    private static let root = repositoryRoot

    private static let pages: [String] = {
        let folders = ["Documentation", "Documentation/decisions", "Examples", "man"]
        let names = folders.flatMap { folder in
            let all = (try? FileManager.default.contentsOfDirectory(atPath: root.appending(path: folder).path)) ?? []
            return all.sorted().map { "\(folder)/\($0)" }
        }
        return ["README.md", "CHANGELOG.md"] + names.filter { $0.contains(/\.(md|[1578])$/) }
    }()

    /// A page's lines, as people read them.
    private static func lines(_ page: String) throws -> [Substring] {
        let text = try String(contentsOf: root.appending(path: page), encoding: .utf8)
        let plain = page.hasPrefix("man/") ? text.replacing("\\(dq", with: "\"").replacing("\\-", with: "-") : text
        return plain.split(separator: "\n", omittingEmptySubsequences: false)
    }

    /// The blocks of a page whose lines are keys, tables and comments.
    private static func blocks(of page: String) throws -> [String] {
        var blocks: [String] = []
        var block: [String]?
        var isMarked = false
        for line in try lines(page) {
            let words = line.trimmingCharacters(in: .whitespaces)
            if let current = block, words.hasPrefix("```") || words == ".Ed" {
                if isMarked || looksLikeTOML(current) { blocks.append(current.joined(separator: "\n") + "\n") }
                block = nil
            } else if block != nil {
                block?.append(words)
            } else if words.hasPrefix("```") || words.hasPrefix(".Bd -literal") {
                block = []
                isMarked = words == "```toml"
            }
        }
        return blocks
    }

    private static func looksLikeTOML(_ lines: [String]) -> Bool {
        let keys = lines.filter { $0.contains(#/^[a-z][a-z-]* = /#) }
        return !keys.isEmpty
            && lines.allSatisfy { $0.isEmpty || $0.hasPrefix("#") || $0.contains(#/^([a-z][a-z-]* = |\[[a-z]+\]$)/#) }
    }

    /// The errors in a part of the daemon's file, or of a session's, to which the required keys are added.
    private static func errors(_ text: String, ofDaemon isOfDaemon: Bool) throws -> [String] {
        let scratch = try ConfigurationScratch()
        if isOfDaemon {
            try scratch.write("holdfast.toml", text)
        } else {
            let top = text.components(separatedBy: "\n[")[0]
            let needed = [("endpoints", "[\"mqtts://broker.example\"]"), ("user", "\"edge-42\"")].filter { key, _ in
                !top.split(separator: "\n").contains { $0.hasPrefix("\(key) =") }
            }
            let name = text.firstMatch(of: /# ([a-z-]+@?)\.toml/)?.1 ?? "main"
            try scratch.write("sessions.d/\(name).toml", needed.map { "\($0) = \($1)\n" }.joined() + text)
        }
        return scratch.load().errors.map(\.description)
    }

    private static func isOfDaemon(_ text: String) -> Bool {
        text.contains(#/(?m)^(durability = |\[(access|log|metrics)\])/#)
    }

    @Test func `the manuals name every key`() throws {
        for (keys, page) in [
            (DaemonConfiguration.keys.map(\.name), "holdfast.toml.5"),
            (SessionConfiguration.keys.map(\.name), "holdfast-session.5"),
        ] {
            let items = try Self.lines("man/\(page)").filter { $0.hasPrefix(".It Ic ") }
            let named = Set(items.flatMap { $0.dropFirst(".It Ic ".count).split(separator: " ") }.map(String.init))
            for key in keys {
                #expect(named.contains(String(key.split(separator: ".").last ?? "")), "\(page) does not name \(key)")
            }
        }
    }

    @Test func `a block of a page is read without an error`() throws {
        var count = 0
        for page in Self.pages {
            for block in try Self.blocks(of: page) {
                count += 1
                let errors = try Self.errors(block, ofDaemon: Self.isOfDaemon(block))
                #expect(errors.isEmpty, "\(page):\n\(block)\(errors)")
            }
        }
        #expect(count >= 5)
    }

    @Test func `a key with a value that a sentence names exists`() throws {
        let tables =
            SessionConfiguration.keys.map { (name: $0.name, isOfDaemon: false) }
            + DaemonConfiguration.keys.map { (name: $0.name, isOfDaemon: true) }
        var count = 0
        for page in Self.pages {
            let text = try Self.lines(page).joined(separator: "\n")
            for match in text.matches(of: /`(?<key>[a-z][a-z-]*) = (?<value>[^`\n]+)`/) {
                count += 1
                let key = match.output.key
                let value = match.output.value.replacing("exec:…", with: "exec:/usr/bin/token")
                // The keys that some of them need besides.
                let others = [("room", "\"plant-7\""), ("password", "\"credential:broker\"")].filter { $0.0 != key }
                    .map { "\($0) = \($1)\n" }.joined()
                // The same key may stand in several tables: one of them takes it.
                let errors = try tables.filter { $0.name.split(separator: ".").last == key }.map { name, isOfDaemon in
                    let table = name.split(separator: ".").dropLast().joined(separator: ".")
                    let text = "\(table.isEmpty ? "" : "[\(table)]\n")\(key) = \(value)\n"
                    return try Self.errors(isOfDaemon ? text : others + text, ofDaemon: isOfDaemon)
                }
                #expect(errors.contains { $0.isEmpty }, "\(page): \(match.output.0): \(errors)")
            }
        }
        #expect(count >= 20)
    }

    @Test func `a table, or a key in a table, that a sentence names exists`() throws {
        let names = SessionConfiguration.keys.map(\.name) + DaemonConfiguration.keys.map(\.name)
        var count = 0
        for page in Self.pages {
            let text = try Self.lines(page).joined(separator: "\n")
            for match in text.matches(of: /`\[(?<table>[a-z]+)\]( (?<key>[a-z-]+))?`/) {
                count += 1
                let wanted = "\(match.output.table)." + (match.output.key.map(String.init) ?? "")
                #expect(
                    names.contains { match.output.key == nil ? $0.hasPrefix(wanted) : $0 == wanted },
                    "\(page): \(match.output.0)")
            }
        }
        #expect(count >= 10)
    }
}
