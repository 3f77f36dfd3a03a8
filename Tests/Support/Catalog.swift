import Foundation
import Glibc

/// The parsed catalog file of this repository.
public struct Catalog {
    public struct Entry: Sendable {
        public var headers: [String: String] = [:]
        public var text: [String] = []

        /// The names between at-signs, in the subject and in the text.
        public var references: [String] {
            let parts = (headers.values + text).joined(separator: "\n").split(
                separator: "@", omittingEmptySubsequences: false)
            return parts.enumerated().filter { $0.offset % 2 == 1 }.map { String($0.element) }
        }
    }

    /// The entries by id; an id that occurs twice is omitted, so that a test fails.
    public static let entries: [String: Entry] = {
        let root = repositoryRoot.path
        var entries: [String: Entry] = [:]
        var duplicates: Set<String> = []
        var current: String?
        var inHeader = false
        for line in read("\(root)/systemd/holdfast.catalog").split(separator: "\n", omittingEmptySubsequences: false) {
            if line.hasPrefix("#") { continue }
            if line.hasPrefix("-- ") {
                let id = String(line.dropFirst(3))
                if entries.updateValue(Entry(), forKey: id) != nil { duplicates.insert(id) }
                current = id
                inHeader = true
                continue
            }
            guard let current else { continue }
            if line.isEmpty {
                inHeader = false
            } else if inHeader, let colon = line.firstIndex(of: ":") {
                let value = line[line.index(after: colon)...].drop { $0 == " " }
                entries[current]?.headers[String(line[..<colon])] = String(value)
            } else {
                entries[current]?.text.append(String(line))
            }
        }
        for id in duplicates { entries[id] = nil }
        return entries
    }()

    private static func read(_ path: String) -> String {
        // A test package may reach the sources through a symbolic link; the catalog is next to the real ones.
        let descriptor = open(path, O_RDONLY)
        guard descriptor >= 0 else { return "" }
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65536)
        while true {
            let count = Glibc.read(descriptor, &buffer, buffer.count)
            guard count > 0 else { break }
            bytes.append(contentsOf: buffer[..<count])
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}
