/// What the configuration files come to: every key with its value, and where that comes from. `holdfastd --show` prints it.
public struct EffectiveConfiguration: Codable, Hashable, Sendable {
    /// Those without errors: holdfast.toml, then the sessions by name.
    public var files: [File]
    public var errors: [ConfigurationProblem]

    public init(files: [File], errors: [ConfigurationProblem]) {
        self.files = files
        self.errors = errors
    }

    public struct File: Codable, Hashable, Sendable {
        /// `nil`: holdfast.toml.
        public var session: String?
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
    public enum Origin: String, Codable, Sendable, CaseIterable {
        /// It stands in the file.
        case file
        /// The session's preset has it.
        case preset
        /// It is made of another key, or of the host's machine id.
        case derived
        case `default`
    }

    /// With the table's name: `reconnect.spread`.
    public var key: String
    /// As TOML; what may be secret is left out.
    public var value: String
    public var origin: Origin
    /// From 1; of a value that stands in the file.
    public var line: Int?

    public init(key: String, value: String, origin: Origin, line: Int? = nil) {
        self.key = key
        self.value = value
        self.origin = origin
        self.line = line
    }
}
