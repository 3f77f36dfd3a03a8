import Glibc
package import SessionCore

/// Checks what a file only refers to: other files, users and groups. The daemon looks at these when it needs them,
/// since they may be created later; `config check` looks at once.
package enum ConfigurationReferences {
    /// - Parameter directory: the directory that `loaded` was read from.
    package static func errors(_ loaded: LoadedConfiguration, in directory: String) -> [(
        SessionName?, ConfigurationError
    )] {
        var errors: [(SessionName?, ConfigurationError)] = []
        let path = "\(directory)/holdfast.toml"
        if case .success = loaded.daemon, let file = try? ConfigurationFile(path: path),
            let content = try? ConfigurationParser.parse(file.text, file: path)
        {
            errors += accounts(["observe", "message", "control"], of: "access", content).map { (nil, $0) }
        }
        let listing = SessionSource.list(
            "\(directory)/sessions.d", ConfigurationLoader.sessionFiles(in: directory).names)
        for source in listing.sources.sorted(by: { $0.name < $1.name }) {
            guard case .success(let session)? = loaded.sessions[source.name], let content = try? source.content() else {
                continue
            }
            errors += files(session, content).map { (source.name, $0) }
            errors += accounts(["publish", "subscribe"], of: "topics", content).map { (source.name, $0) }
        }
        return errors
    }

    /// - Parameter keys: lists whose elements begin with a principal.
    private static func accounts(
        _ keys: [String], of table: String, _ content: ConfigurationValue
    ) -> [ConfigurationError] {
        keys.flatMap { key -> [ConfigurationValue] in
            guard case .list(let elements)? = content[table, key]?.content else { return [] }
            return elements
        }.compactMap { element in
            guard case .text(let given) = element.content else { return nil }
            let text = given.prefix { $0 != " " }
            guard let colon = text.firstIndex(of: ":") else { return nil }
            let name = String(text[text.index(after: colon)...])
            let isThere =
                switch text[..<colon] {
                case "user": HostAccounts.uid(ofUser: name) != nil
                case "group": HostAccounts.gid(ofGroup: name) != nil
                default: true
                }
            return isThere ? nil : element.problem("there is no \(text[..<colon]) \"\(name)\"")
        }
    }

    private static func files(
        _ session: SessionConfiguration, _ content: ConfigurationValue
    ) -> [ConfigurationError] {
        let secrets = [("password", session.password), ("proxy.password", session.proxy.password)]
        let files = [
            ("tls.ca", session.tls.authorities), ("tls.certificate", session.tls.certificate),
            ("tls.key", session.tls.key),
        ]
        let paths: [(key: String, path: String, isSecret: Bool)] =
            secrets.compactMap { key, secret in
                guard case .file(let path)? = secret else { return nil }
                return (key, path, true)
            } + files.compactMap { key, path in path.map { (key, $0, key == "tls.key") } }
        return paths.compactMap { key, path, isSecret in
            problem(path, isSecret: isSecret).flatMap { content.value(named: key)?.problem("\(path) \($0)") }
        }
    }

    /// Returns what is wrong with a file, as the end of a sentence; `nil` also if this user may not look.
    private static func problem(_ path: String, isSecret: Bool) -> String? {
        var status = stat()
        guard stat(path, &status) == 0 else {
            return errno == EACCES && geteuid() != 0 ? nil : "cannot be read: \(String(cString: strerror(errno)))"
        }
        if status.st_mode & S_IFMT == S_IFDIR { return "is a directory" }
        if isSecret, status.st_mode & S_IROTH != 0 { return "can be read by every user of the host: chmod o-r \(path)" }
        guard geteuid() == 0, let daemon = HostAccounts.uid(ofUser: "holdfast") else { return nil }
        let bit =
            daemon == status.st_uid
            ? S_IRUSR : HostAccounts.gid(ofGroup: "holdfast") == status.st_gid ? S_IRGRP : S_IROTH
        guard status.st_mode & bit == 0 else { return nil }
        return
            "cannot be read by the user holdfast, as which the daemon runs: chgrp holdfast \(path); chmod g+r \(path)"
    }
}

extension ConfigurationValue {
    fileprivate func problem(_ message: String) -> ConfigurationError {
        ConfigurationError(file: file, position: position, message: message)
    }
}
