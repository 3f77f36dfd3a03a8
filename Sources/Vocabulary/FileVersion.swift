import Glibc

/// What tells one version of a file from another without reading it.
package struct FileVersion: Hashable, Sendable {
    private let file: [UInt64]
    private let size: Int64
    private let modified: [UInt8]

    /// - Returns: `nil` if there is no such file.
    package init?(path: String) {
        var status = stat()
        guard stat(path, &status) == 0 else { return nil }
        file = [UInt64(status.st_dev), UInt64(status.st_ino)]
        size = Int64(status.st_size)
        modified = withUnsafeBytes(of: status.st_mtim) { Array($0) }
    }
}
