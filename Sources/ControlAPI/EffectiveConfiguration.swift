/// The effective configuration: every key with its value, and where the value comes from. `holdfastd --show` prints it.
public struct EffectiveConfiguration: Codable, Hashable, Sendable {
    /// The files without errors: holdfast.toml first, then the sessions by name.
    public var files: [File]
    public var errors: [ConfigurationProblem]

    public init(files: [File], errors: [ConfigurationProblem]) {
        self.files = files
        self.errors = errors
    }

    /// The effective values of one file.
    public struct File: Codable, Hashable, Sendable {
        /// `nil` for holdfast.toml.
        public var session: String?
        /// The path of the file.
        public var file: String
        public var values: [EffectiveValue]

        public init(session: String?, file: String, values: [EffectiveValue]) {
            self.session = session
            self.file = file
            self.values = values
        }
    }
}

/// The value of one key.
public struct EffectiveValue: Codable, Hashable, Sendable {
    /// Where a value comes from.
    public enum Origin: String, Codable, Sendable, CaseIterable {
        /// The file sets it.
        case file
        /// The session's preset sets it.
        case preset
        /// It is derived from another key, or from the host's machine id.
        case derived
        case `default`
    }

    /// The key with its table's name, for example `reconnect.spread`.
    public var key: String
    /// The value as TOML; a value that may be secret is omitted.
    public var value: String
    public var origin: Origin
    /// The line in the file, from 1; `nil` when the value is not set there.
    public var line: Int?

    public init(key: String, value: String, origin: Origin, line: Int? = nil) {
        self.key = key
        self.value = value
        self.origin = origin
        self.line = line
    }
}
