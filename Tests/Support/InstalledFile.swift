import Glibc

/// The text of a file that is installed under /etc/holdfast.
public func installedFile(_ name: String, source: String = #filePath) throws -> String {
    guard let resolved = realpath(source, nil) else { throw TemporaryDirectory.Failure() }
    defer { free(resolved) }
    let root = String(cString: resolved).split(separator: "/").dropLast(3).joined(separator: "/")
    let path = "/\(root)/etc/holdfast/\(name)"
    guard let file = fopen(path, "r") else { throw TemporaryDirectory.Failure() }
    defer { fclose(file) }
    var bytes = [UInt8](repeating: 0, count: 1 << 20)
    let count = fread(&bytes, 1, bytes.count, file)
    return String(decoding: bytes.prefix(count), as: UTF8.self)
}
