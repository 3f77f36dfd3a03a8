import Foundation

/// Mistakes that change nothing anyone can see, each with the reason: a line with its key, and an indented one behind it.
struct Notes {
    private(set) var reasons: [String: String] = [:]

    init(_ file: URL) throws {
        var key: String?
        for line in try String(contentsOf: file, encoding: .utf8).split(separator: "\n") where !line.hasPrefix("#") {
            if line.hasPrefix(" "), let named = key {
                reasons[named] = line.trimmingCharacters(in: .whitespaces)
                key = nil
            } else {
                key = String(line)
            }
        }
    }
}
