import Glibc
import Vocabulary

/// One thing that is wrong in a configuration file.
package struct ConfigurationError: Error, Hashable, Sendable {
    package var file: String
    /// `nil` when the error concerns the file as a whole.
    package var position: TextPosition?
    /// What is wrong and what was expected.
    package var message: String
    /// The nearest valid key or value.
    package var suggestion: String?

    package var line: Int? { position?.line }
    package var column: Int? { position?.column }

    /// - Parameter code: the `errno`.
    package static func unreadable(_ path: String, _ code: Int32) -> ConfigurationError {
        let advice = code == EACCES ? "; sudo holdfastctl config check says what to change" : ""
        return ConfigurationError(file: path, message: "cannot be read: \(systemText(code))\(advice)")
    }

    /// What is wrong with the file of a session because of what is on disk.
    package static func stored(_ message: String, in file: String) -> ConfigurationError {
        ConfigurationError(file: file, message: message)
    }
}

extension ConfigurationError: CustomStringConvertible {
    package var description: String {
        let place = position.map { "\(file):\($0.line):\($0.column)" } ?? file
        return "\(place): \(message)" + (suggestion.map { "; did you mean \"\($0)\"?" } ?? "")
    }
}

extension ConfigurationError: Comparable {
    package static func < (left: ConfigurationError, right: ConfigurationError) -> Bool {
        let start = TextPosition(line: 0, column: 0)
        return (left.file, left.position ?? start, left.message) < (right.file, right.position ?? start, right.message)
    }
}

/// Everything that is wrong in one or more files, in the order of the text. Never empty when thrown.
package struct ConfigurationErrors: Error, Hashable, Sendable {
    package private(set) var list: [ConfigurationError]

    package init(_ list: [ConfigurationError]) {
        self.list = list.sorted()
    }
}

extension ConfigurationErrors {
    /// One line: the first error, and how many more there are.
    package var summary: String {
        let first = list.first.map(\.description) ?? ""
        return list.count > 1 ? "\(first), and \(list.count - 1) more" : first
    }
}

extension ConfigurationErrors: CustomStringConvertible {
    /// One line per error.
    package var description: String { list.map(\.description).joined(separator: "\n") }
}

/// A place in a text. Lines and columns count from 1, columns in Unicode scalars.
package struct TextPosition: Hashable, Sendable {
    package var line = 1
    package var column = 1

    /// Moves past a character.
    package mutating func pass(_ scalar: Unicode.Scalar) {
        if scalar == "\n" {
            line += 1
            column = 1
        } else {
            column += 1
        }
    }
}

extension TextPosition: Comparable {
    package static func < (left: TextPosition, right: TextPosition) -> Bool {
        (left.line, left.column) < (right.line, right.column)
    }
}
