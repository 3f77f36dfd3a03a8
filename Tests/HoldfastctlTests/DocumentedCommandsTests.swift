import ArgumentParser
import Foundation
import Support
import Testing

@testable import holdfastctl

/// Every `holdfastctl …` in the documentation, read by the program's own parser.
struct DocumentedCommandsTests {
    private static let root = repositoryRoot

    private static func text(_ file: String) throws -> String {
        try String(contentsOf: root.appendingPathComponent(file), encoding: .utf8)
    }

    /// The pages, and other files that people read.
    private static let files: [String] = {
        let folders = ["Documentation", "man", "systemd", "Examples/Monitoring", "Examples/Container", "etc/holdfast"]
        let inFolders = folders.flatMap { folder in
            let names =
                (try? FileManager.default.contentsOfDirectory(atPath: root.appendingPathComponent(folder).path)) ?? []
            let kinds = [".md", ".1", ".5", ".7", ".8", ".yml", "file", ".service", ".catalog", ".toml"]
            return names.filter { name in kinds.contains { name.hasSuffix($0) } }.sorted().map { "\(folder)/\($0)" }
        }
        return ["README.md"] + inFolders
    }()

    /// Returns the words of the first command of a shell line, up to what ends it.
    private static func words(_ line: Substring) -> [String] {
        var words: [String] = []
        var word: String?
        var quote: Character?
        for character in line {
            switch (quote, character) {
            case (nil, "'"), (nil, "\""):
                quote = character
                word = word ?? ""
            case (let open?, _) where character == open: quote = nil
            case (nil, " "):
                if let word { words.append(word) }
                word = nil
            case (nil, "#") where word == nil: return words
            case (nil, "|"), (nil, ";"), (nil, "&"), (nil, ">"):
                return words + (word.map { [$0] } ?? [])
            default: word = (word ?? "") + String(character)
            }
        }
        return words + (word.map { [$0] } ?? [])
    }

    private static func roff(_ text: String) -> String {
        text.replacing("\\(dq", with: "\"").replacing("\\-", with: "-").replacing("\\e", with: "\\")
            .replacing("\\(aq", with: "'")
    }

    /// Returns the lines that people type, and the commands that a sentence only names.
    private static func commands(of file: String) throws -> (typed: [[String]], named: [[String]]) {
        var typed: [[String]] = []
        var named: [[String]] = []
        let isManual = file.hasPrefix("man/")
        var isBlock = false
        for line in roff(try text(file)).split(separator: "\n", omittingEmptySubsequences: false) {
            if isManual ? line.hasPrefix(".Bd -literal") : line.hasPrefix("```") && !isBlock {
                isBlock = true
                continue
            }
            if isManual ? line.hasPrefix(".Ed") : line.hasPrefix("```") {
                isBlock = false
                continue
            }
            let isTyped = isBlock || line.hasPrefix(".Dl ")
            for match in line.matches(of: /(^|[ `"(]|\$ )(sudo )?holdfastctl (?<rest>[a-z-][^`]*)/) {
                let words = words(match.output.rest)
                if isTyped { typed.append(words) } else { named.append(words) }
            }
        }
        return (typed, named)
    }

    @Test func `a documented command line is understood`() throws {
        var count = 0
        for file in Self.files where file != "Documentation/Troubleshooting.md" {
            for words in try Self.commands(of: file).typed {
                count += 1
                #expect(CommandWords(words).failure == nil, "\(file): holdfastctl \(words.joined(separator: " "))")
                #expect(throws: Never.self, "\(file): holdfastctl \(words.joined(separator: " "))") {
                    _ = try HoldfastControl.parseAsRoot(CommandWords(words).complete)
                }
            }
        }
        #expect(count >= 18)
    }

    /// Returns the command lines in the cells of a page's tables.
    private static func inCells(of file: String) throws -> [[String]] {
        try text(file).split(separator: "\n").filter { $0.hasPrefix("|") }.flatMap { line in
            line.matches(of: /`holdfastctl (?<rest>[^`]*)`/).map { words($0.output.rest) }
        }
    }

    /// A cell may leave out the session, and the room.
    @Test(arguments: files.filter { $0.hasSuffix(".md") })
    func `a command line in a table is understood`(_ file: String) throws {
        let isToBeTyped = file == "Documentation/Testing-reconnection.md"
        let lines = try Self.inCells(of: file)
        #expect(!isToBeTyped || lines.count >= 8)
        for words in lines {
            let omitted = isToBeTyped ? [[]] : [[], ["main"], ["main", "room"]]
            let isUnderstood = omitted.contains { more in
                let words = CommandWords(words + more)
                return words.failure == nil && (try? HoldfastControl.parseAsRoot(words.complete)) != nil
            }
            #expect(isUnderstood, "holdfastctl \(words.joined(separator: " "))")
        }
    }

    /// The command and its subcommands, each with all words of its name.
    private static func all(
        _ command: any ParsableCommand.Type, _ name: [String] = []
    ) -> [(name: [String], type: any ParsableCommand.Type)] {
        [(name, command)] + command.configuration.subcommands.flatMap { all($0, name + [$0._commandName]) }
    }

    @Test func `the manual has every command and every option`() throws {
        let manual = try Self.text("man/holdfastctl.1")
        for (name, command) in Self.all(HoldfastControl.self) where command.configuration.shouldDisplay {
            let forms = [" ", " Cm ", " Oo Cm "].map { ".It Ic " + name.joined(separator: $0) }
            let isThere = name.isEmpty || forms.contains { manual.contains($0) }
            #expect(isThere, "\(name)")
            for option in Set(HoldfastControl.helpMessage(for: command).matches(of: /--[a-z][a-z-]*/).map(\.output)) {
                let isThere = ["Fl", "|"].contains { manual.contains("\($0) \(option.dropFirst())") }
                #expect(isThere, "\(name) \(option)")
            }
        }
    }

    @Test func `a command named in a sentence exists`() throws {
        var count = 0
        for file in Self.files {
            for words in try Self.commands(of: file).named {
                guard let word = words.first else { continue }
                let name = String(word.prefix { $0.isLetter || $0 == "-" })
                if name.hasPrefix("-") || name.isEmpty { continue }
                count += 1
                #expect(CommandWords([name]).failure == nil, "\(file): holdfastctl \(words.joined(separator: " "))")
            }
        }
        #expect(count >= 50)
    }
}
