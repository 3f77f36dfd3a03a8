import Support

@testable import Configuration

/// A configuration directory that lasts as long as one test.
final class ConfigurationScratch {
    private let directory: TemporaryDirectory
    var path: String { directory.path }

    init() throws {
        directory = try TemporaryDirectory()
        try directory.makeFolder("sessions.d")
    }

    deinit { directory.remove() }

    func load() -> LoadedConfiguration {
        ConfigurationLoader.load(directory: path)
    }

    /// - Parameter name: relative to the directory.
    func write(_ name: String, _ bytes: [UInt8]) throws {
        try directory.write(name, bytes)
    }

    func write(_ name: String, _ text: String) throws {
        try directory.write(name, text)
    }
}
