import Glibc

/// What tells one version of a file from another without reading it.
package struct FileVersion: Hashable, Sendable {
    private let file: [UInt64]
    private let size: Int64
    private let modified: [UInt8]

    /// - Returns: `nil` if there is no such file.
    init?(path: String) {
        var status = stat()
        guard stat(path, &status) == 0 else { return nil }
        file = [UInt64(status.st_dev), UInt64(status.st_ino)]
        size = Int64(status.st_size)
        modified = withUnsafeBytes(of: status.st_mtim) { Array($0) }
    }
}

extension ConfigurationLoader {
    /// Returns the present versions of the files of a configuration directory, by path.
    package static func versions(in directory: String) -> [String: FileVersion] {
        let names = ["holdfast.toml"] + (sessionFiles(in: directory).names ?? []).map { "sessions.d/\($0)" }
        return names.reduce(into: [:]) { versions, name in
            let path = "\(directory)/\(name)"
            versions[path] = FileVersion(path: path)
        }
    }
}
