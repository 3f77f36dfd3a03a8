import Glibc

/// What tells one version of a file, or of some files, from another without reading them.
package struct FileVersion: RawRepresentable, Hashable, Sendable {
    /// For each file its device, inode and size, and the times of the last modification and of the last status change.
    /// Kept in the state directory.
    package let rawValue: String

    package init(rawValue: String) {
        self.rawValue = rawValue
    }

    /// The files that the paths lead to, following links. It blocks.
    ///
    /// - Parameter skipsEmpty: whether an empty file counts as none, because it is still to be written.
    /// - Returns: `nil` if no such file exists.
    package init?(of paths: [String], skipsEmpty: Bool = false) {
        let versions = paths.map { Self.version(of: $0, skipsEmpty) }
        guard versions.contains(where: { $0 != nil }) else { return nil }
        rawValue = versions.map { $0 ?? "-" }.joined(separator: ", ")
    }

    private static func version(of path: String, _ skipsEmpty: Bool) -> String? {
        var status = stat()
        guard stat(path, &status) == 0, status.st_size > 0 || !skipsEmpty else { return nil }
        return "\(status.st_dev):\(status.st_ino) \(status.st_size) \(text(status.st_mtim)) \(text(status.st_ctim))"
    }

    /// Seconds and nanoseconds of a `timespec`, whose members no module that this one imports makes visible.
    private static func text(_ time: some Any) -> String {
        withUnsafeBytes(of: time) { bytes in
            let numbers = bytes.bindMemory(to: Int.self)
            return "\(numbers[0]).\(numbers[1])"
        }
    }
}
