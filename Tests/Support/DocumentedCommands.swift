import Foundation

/// The `holdfastctl …` in the documentation.
public enum DocumentedCommands {
    public static func text(_ file: String) throws -> String {
        try String(contentsOf: repositoryRoot.appendingPathComponent(file), encoding: .utf8)
    }

    /// The pages, and other files that people read.
    public static let files: [String] = {
        let folders = ["Documentation", "man", "systemd", "Examples/Monitoring", "Examples/Container", "etc/holdfast"]
        let inFolders = folders.flatMap { folder in
            let names =
                (try? FileManager.default.contentsOfDirectory(
                    atPath: repositoryRoot.appendingPathComponent(folder).path)) ?? []
            let kinds = [".md", ".1", ".5", ".7", ".8", ".yml", "file", ".service", ".catalog", ".toml"]
            return names.filter { name in kinds.contains { name.hasSuffix($0) } }.sorted().map { "\(folder)/\($0)" }
        }
        return ["README.md"] + inFolders
    }()

    /// Returns the words of the first command of a shell line, up to what ends it.
    public static func words(_ line: Substring) -> [String] {
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
    public static func of(_ file: String) throws -> (typed: [[String]], named: [[String]]) {
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
}
