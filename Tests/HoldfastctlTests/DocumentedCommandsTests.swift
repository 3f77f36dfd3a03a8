import ArgumentParser
import Foundation
import Support
import Testing

@testable import holdfastctl

/// Every `holdfastctl …` in the documentation, read by the program's own parser.
struct DocumentedCommandsTests {
    @Test func `a documented command line is understood`() throws {
        var count = 0
        for file in DocumentedCommands.files where file != "Documentation/Troubleshooting.md" {
            for words in try DocumentedCommands.of(file).typed {
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
        try DocumentedCommands.text(file).split(separator: "\n").filter { $0.hasPrefix("|") }.flatMap { line in
            line.matches(of: /`holdfastctl (?<rest>[^`]*)`/).map { DocumentedCommands.words($0.output.rest) }
        }
    }

    /// A cell may leave out the session, and the room.
    @Test(arguments: DocumentedCommands.files.filter { $0.hasSuffix(".md") })
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
        let manual = try DocumentedCommands.text("man/holdfastctl.1")
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
        for file in DocumentedCommands.files {
            for words in try DocumentedCommands.of(file).named {
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
