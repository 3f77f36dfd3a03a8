package import Vocabulary

/// The files of a configuration directory as they were when they were read.
package struct ConfigurationFiles: Hashable, Sendable {
    private var versions: [String: FileVersion] = [:]
    /// Tells contents apart, by path; without those of files that cannot be read.
    private var contents: [String: Int] = [:]

    package init() {}

    package init(in directory: String) {
        // In this order, so that a file which is written at the same time counts as changed.
        versions = Self.versions(in: directory)
        for path in versions.keys { contents[path] = Self.contents(of: path) }
    }

    /// Returns the paths of files that are new, are gone or have other contents. A file whose version is the same is not
    /// read, since there may be thousands.
    package func changed(in directory: String) -> [String] {
        let present = Self.versions(in: directory)
        return Set(versions.keys).union(present.keys).filter { path in
            guard versions[path] != present[path] else { return false }
            let contents = contents[path]
            return present[path] == nil || contents == nil || contents != Self.contents(of: path)
        }.sorted()
    }

    /// Returns the path of a session's file within the directory: an instance may have one of its own.
    package func path(of session: SessionName) -> String {
        let own = "sessions.d/\(session).toml"
        guard let template = session.template, !versions.keys.contains(where: { $0.hasSuffix("/\(own)") }) else {
            return own
        }
        return "sessions.d/\(template).toml"
    }

    private static func versions(in directory: String) -> [String: FileVersion] {
        let listed = ConfigurationLoader.sessionFiles(in: directory).names ?? []
        let names = ["holdfast.toml"] + listed.map { "sessions.d/\($0)" }
        return names.reduce(into: [:]) { versions, name in
            let path = "\(directory)/\(name)"
            versions[path] = FileVersion(of: [path])
        }
    }

    private static func contents(of path: String) -> Int? {
        (try? ConfigurationFile(path: path))?.text.hashValue
    }
}
