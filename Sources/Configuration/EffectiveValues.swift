package import ControlAPI
package import Vocabulary

// The effective values, key by key: for `config show`, and for what a reload would change.

extension ConfigurationKey {
    /// Returns the keys whose values differ.
    static func changes(
        _ keys: [Self], from old: Root, to new: Root, of session: SessionName?
    ) -> [ConfigurationChange] {
        keys.compactMap { key in
            let (from, to) = (key.written(old), key.written(new))
            guard !from.hasSameBytes(as: to) else { return nil }
            return ConfigurationChange(session: session?.description, key: key.name, from: from, to: to)
        }
    }

    /// Returns every key with its value and the value's origin.
    ///
    /// - Parameters:
    ///   - root: the effective values.
    ///   - content: the parsed file; `nil` if there is none.
    ///   - origin: the origin of a key's value, if the file does not have the key.
    static func values(
        _ keys: [Self], of root: Root, content: ConfigurationValue?, origin: (String) -> EffectiveValue.Origin
    ) -> [EffectiveValue] {
        keys.map { key in
            let place = content?.value(named: key.name)
            return EffectiveValue(
                key: key.name, value: key.written(root), origin: place == nil ? origin(key.name) : .file,
                line: place?.keyPosition.line)
        }
    }
}

extension DaemonConfiguration {
    package static func changes(from old: Self, to new: Self) -> [ConfigurationChange] {
        ConfigurationKey.changes(keys, from: old, to: new, of: nil)
    }
}

extension SessionConfiguration {
    package static func changes(from old: Self, to new: Self, of session: SessionName) -> [ConfigurationChange] {
        let changes = ConfigurationKey.changes(keys, from: old, to: new, of: session)
        // If all written values are equal, only the parts that are omitted from them can differ.
        guard changes.isEmpty, old.password != new.password || old.proxy != new.proxy else { return changes }
        let key = old.password != new.password ? "password" : "proxy.password"
        return [.init(session: session.description, key: key, from: "\"exec:…\"", to: "\"exec:…\"")]
    }

    /// Whether nothing differs, not even how a text is written in Unicode: Swift takes texts for equal that look the same,
    /// while they are different names for servers and in the file system.
    package func isSame(as other: Self) -> Bool {
        self == other && Self.keys.allSatisfy { $0.written(self).hasSameBytes(as: $0.written(other)) }
    }

    /// Returns every key with its value and the value's origin.
    ///
    /// - Parameter deviceID: the id that `device` is derived from.
    func values(_ content: ConfigurationValue, deviceID: String) -> [EffectiveValue] {
        let standard = Self()
        var ofPreset = Self()
        ofPreset.adopt(preset)
        var shown = self
        if shown.device.isEmpty { shown.device = deviceID }
        let derived = ["device": shown.device, "client-id": clientID, "username": username ?? ""]
        let presets = Dictionary(
            uniqueKeysWithValues: Self.keys.map { ($0.name, $0.written(ofPreset) != $0.written(standard)) })
        return ConfigurationKey.values(Self.keys.filter { $0.name != "instances" }, of: shown, content: content) {
            key in
            if let value = derived[key], !value.isEmpty { return .derived }
            return presets[key] == true ? .preset : .default
        }
    }
}

extension ConfigurationProblem {
    package init(_ error: ConfigurationError, of session: SessionName?) {
        self.init(
            session: session?.description, file: error.file, line: error.line, column: error.column,
            message: error.message + (error.suggestion.map { "; did you mean \"\($0)\"?" } ?? ""))
    }
}

/// Returns the effective values of the files in a directory, without a daemon.
///
/// - Parameters:
///   - deviceID: the id of this host.
///   - becomeDaemon: called when everything is read, and before the files are looked at that the configuration refers to;
///     returns the name of the user, if this process runs as the daemon's from then on.
package func effectiveConfiguration(
    in directory: String, deviceID: String, becomeDaemon: () -> String? = { nil },
    pairProblem: (TLSOptions) -> String? = { _ in nil }
) -> EffectiveConfiguration {
    let loaded = ConfigurationLoader.load(directory: directory)
    var files: [EffectiveConfiguration.File] = []
    let path = "\(directory)/holdfast.toml"
    if case .success(let daemon) = loaded.daemon {
        let content = (try? ConfigurationFile(path: path)).map { file in
            ConfigurationParser.parse(file.text, file: file.path)
        }
        let values = ConfigurationKey.values(DaemonConfiguration.keys, of: daemon, content: content) { _ in .default }
        files.append(.init(session: nil, file: path, values: values))
    }
    let names = ConfigurationLoader.sessionFiles(in: directory).names ?? []
    let listing = SessionSource.list("\(directory)/sessions.d", names)
    for source in listing.sources.sorted(by: { NaturalOrder.precedes($0.name.description, $1.name.description) }) {
        guard case .success(let session)? = loaded.sessions[source.name], let content = try? source.content() else {
            continue
        }
        files.append(
            .init(
                session: source.name.description, file: source.path, values: session.values(content, deviceID: deviceID)
            ))
    }
    let missing = loaded.missingFolder.map { [$0] } ?? []
    let errors = (loaded.errors + missing).map { (loaded.session(of: $0), $0) }
    let references = ConfigurationReferences(in: directory)
    return EffectiveConfiguration(
        files: files,
        errors: (errors + references.errors(for: becomeDaemon(), pairProblem: pairProblem)).sorted { $0.1 < $1.1 }.map {
            ConfigurationProblem($1, of: $0)
        })
}
