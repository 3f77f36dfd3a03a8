import Glibc

// Text for a terminal whose locale has another encoding than UTF-8, where its bytes would look like rubbish.

enum TerminalEncoding {
    /// Whether the locale names another encoding than UTF-8, as C does. If no locale is named, as in many services, the
    /// terminal most likely understands UTF-8.
    static let isASCII = isASCII { name in getenv(name).map { String(cString: $0) } }

    static func isASCII(_ variable: (String) -> String?) -> Bool {
        let named = ["LC_ALL", "LC_CTYPE", "LANG"].lazy.compactMap(variable).first { !$0.isEmpty }
        guard let named = named?.lowercased() else { return false }
        return !named.contains("utf-8") && !named.contains("utf8")
    }
}

extension String {
    /// The text in ASCII: each character that takes columns becomes one of the same shape or a question mark.
    var inASCII: String {
        var text = ""
        for character in self {
            if character.isASCII {
                text.append(character)
            } else {
                text.append(Self.shapes[character] ?? "?")
            }
        }
        return text
    }

    private static let shapes: [Character: Character] = [
        "●": "*", "…": ">", "→": ">", "↑": "^", "↓": "v", "“": "\"", "”": "\"", "’": "'", "–": "-", "·": ".", "×": "x",
        "▁": "_", "▂": ".", "▃": "-", "▄": "=", "▅": "+", "▆": "*", "▇": "%", "█": "#",
    ]
}
