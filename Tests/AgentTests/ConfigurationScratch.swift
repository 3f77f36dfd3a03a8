import Glibc

@testable import Agent

/// A configuration directory that lasts as long as one test.
final class ConfigurationScratch {
    let path: String
    private var written: Set<String> = []

    init() throws {
        var template = Array("/tmp/holdfast-configuration-XXXXXX".utf8CString)
        guard let directory = mkdtemp(&template) else { throw ScratchError() }
        path = String(cString: directory)
        guard mkdir("\(path)/sessions.d", 0o700) == 0 else { throw ScratchError() }
    }

    deinit {
        for name in written { unlink("\(path)/\(name)") }
        rmdir("\(path)/sessions.d")
        rmdir(path)
    }

    func load() -> LoadedConfiguration {
        ConfigurationLoader.load(directory: path)
    }

    /// - Parameter name: relative to the directory.
    func write(_ name: String, _ bytes: [UInt8]) throws {
        written.insert(name)
        guard let file = fopen("\(path)/\(name)", "w") else { throw ScratchError() }
        defer { fclose(file) }
        guard fwrite(bytes, 1, bytes.count, file) == bytes.count else { throw ScratchError() }
    }

    func write(_ name: String, _ text: String) throws {
        try write(name, Array(text.utf8))
    }

    struct ScratchError: Error {}
}

/// The text of a file that is installed under /etc/holdfast.
func installedFile(_ name: String, source: String = #filePath) throws -> String {
    guard let resolved = realpath(source, nil) else { throw ConfigurationScratch.ScratchError() }
    defer { free(resolved) }
    let root = String(cString: resolved).split(separator: "/").dropLast(3).joined(separator: "/")
    let path = "/\(root)/etc/holdfast/\(name)"
    guard let file = fopen(path, "r") else { throw ConfigurationScratch.ScratchError() }
    defer { fclose(file) }
    var bytes = [UInt8](repeating: 0, count: 1 << 20)
    let count = fread(&bytes, 1, bytes.count, file)
    return String(decoding: bytes.prefix(count), as: UTF8.self)
}
