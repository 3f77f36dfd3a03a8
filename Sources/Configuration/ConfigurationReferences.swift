import Glibc
package import Vocabulary

/// Checks what a file only refers to: other files, commands, credentials, users and groups. The daemon looks at these
/// when it needs them, since they may be created later; `config check` looks at once.
package enum ConfigurationReferences {
    /// - Parameter directory: the directory of the configuration. Files that are wrong in other ways are checked, too.
    package static func errors(in directory: String) -> [(SessionName?, ConfigurationError)] {
        var errors: [(SessionName?, ConfigurationError)] = []
        let path = "\(directory)/holdfast.toml"
        errors += unreadable([directory, path, "\(directory)/sessions.d"]).map { (nil, $0) }
        if let file = try? ConfigurationFile(path: path) {
            let content = ConfigurationParser.parse(file.text, file: path)
            errors += accounts(["observe", "message", "control"], of: "access", content).map { (nil, $0) }
            errors += textfile(content).map { (nil, $0) }
        }
        let listing = SessionSource.list(
            "\(directory)/sessions.d", ConfigurationLoader.sessionFiles(in: directory).names ?? [])
        for source in listing.sources.sorted(by: { $0.name < $1.name }) {
            errors += unreadable([source.path]).map { (source.name, $0) }
            guard let content = try? source.content() else { continue }
            errors += files(content).map { (source.name, $0) }
            errors += accounts(["publish", "subscribe"], of: "topics", content).map { (source.name, $0) }
        }
        return errors
    }

    /// Returns an error for each file or directory of the configuration that the daemon's user may not read.
    private static func unreadable(_ paths: [String]) -> [ConfigurationError] {
        paths.compactMap { path in
            var status = stat()
            guard stat(path, &status) == 0 else { return nil }
            let isDirectory = status.st_mode & S_IFMT == S_IFDIR
            let bits: [mode_t] =
                isDirectory
                ? [S_IRUSR | S_IXUSR, S_IRGRP | S_IXGRP, S_IROTH | S_IXOTH]
                : [S_IRUSR, S_IRGRP, S_IROTH]
            guard let bit = permission(status, user: bits[0], group: bits[1], others: bits[2]),
                status.st_mode & bit != bit
            else { return nil }
            return ConfigurationError(
                file: path,
                message: "cannot be read by the user holdfast, which the daemon runs as: "
                    + "chmod \(isDirectory ? "a+rx" : "a+r") \(path)")
        }
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
            if name.isEmpty { return nil }
            let isThere =
                switch text[..<colon] {
                case "user": HostAccounts.uid(ofUser: name) != nil
                case "group": HostAccounts.gid(ofGroup: name) != nil
                default: true
                }
            return isThere ? nil : element.problem("there is no \(text[..<colon]) \"\(name)\"")
        }
    }

    /// The directory that the file of metrics is written to.
    private static func textfile(_ content: ConfigurationValue) -> [ConfigurationError] {
        guard let value = content.value(named: "metrics.textfile"), case .text(let path) = value.content,
            let slash = path.lastIndex(of: "/")
        else { return [] }
        let directory = path[..<slash].isEmpty ? "/" : String(path[..<slash])
        var status = stat()
        guard stat(directory, &status) == 0 else {
            guard errno == ENOENT || errno == ENOTDIR else { return [] }
            return [value.problem("there is no directory \(directory)")]
        }
        return status.st_mode & S_IFMT == S_IFDIR ? [] : [value.problem("\(directory) is not a directory")]
    }

    /// What a key of a session refers to.
    private enum Reference {
        case secret(SecretReference)
        case certificates(String)
        case key(String)
    }

    private static func files(_ content: ConfigurationValue) -> [ConfigurationError] {
        let secret = { (text: String) in SecretReference(text).map(Reference.secret) }
        let certificates = { (path: String) in path.hasPrefix("/") ? Reference.certificates(path) : nil }
        let references: [(key: String, read: (String) -> Reference?)] = [
            ("password", secret), ("proxy.password", secret), ("tls.ca", certificates),
            ("tls.certificate", certificates), ("tls.key", { $0.hasPrefix("/") ? .key($0) : nil }),
        ]
        return references.compactMap { key, read in
            guard let value = content.value(named: key), case .text(let text) = value.content else { return nil }
            return read(text).flatMap(problem).map(value.problem)
        }
    }

    private static func problem(_ reference: Reference) -> String? {
        switch reference {
        case .secret(.file(let path)): problem(path, isSecret: true).map { "\(path) \($0)" }
        case .secret(.exec(let words)): words.first.flatMap { path in program(path).map { "\(path) \($0)" } }
        case .secret(.credential(let name)): credential(name)
        case .certificates(let path):
            (problem(path, isSecret: false) ?? PEMFile.problem(path, .certificates)).map { "\(path) \($0)" }
        case .key(let path): (problem(path, isSecret: true) ?? PEMFile.problem(path, .key)).map { "\(path) \($0)" }
        }
    }

    /// Only the service itself has its credentials; `holdfastctl config check` asks systemd for their names.
    private static func credential(_ name: String) -> String? {
        guard let folder = getenv("CREDENTIALS_DIRECTORY").map({ String(cString: $0) }), !folder.isEmpty,
            access("\(folder)/\(name)", F_OK) != 0, errno == ENOENT
        else { return nil }
        return "the service has no credential \"\(name)\""
    }

    /// Returns what is wrong with a file, as the end of a sentence; `nil` also if this user may not look.
    private static func problem(_ path: String, isSecret: Bool) -> String? {
        problem(path) { status in
            if status.st_mode & S_IFMT != S_IFREG { return "is not a regular file" }
            if isSecret, status.st_mode & S_IROTH != 0 {
                return "can be read by every user of the host: chmod o-r \(path)"
            }
            let bit = permission(status, user: S_IRUSR, group: S_IRGRP, others: S_IROTH)
            guard let bit, status.st_mode & bit == 0 else { return nil }
            return "cannot be read by the user holdfast, which the daemon runs as: chgrp holdfast \(path); "
                + "chmod g+r \(path)"
        }
    }

    /// Returns what is wrong with a program, as the end of a sentence; `nil` also if this user may not look.
    private static func program(_ path: String) -> String? {
        problem(path) { status in
            if status.st_mode & S_IFMT != S_IFREG { return "is not a program" }
            if status.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH) == 0 { return "is not executable: chmod +x \(path)" }
            let bit = permission(status, user: S_IXUSR, group: S_IXGRP, others: S_IXOTH)
            guard let bit, status.st_mode & bit == 0 else { return nil }
            return "cannot be run by the user holdfast, which the daemon runs as: chmod +x \(path)"
        }
    }

    private static func problem(_ path: String, _ look: (stat) -> String?) -> String? {
        var status = stat()
        guard stat(path, &status) == 0 else {
            return errno == EACCES && geteuid() != 0 ? nil : "cannot be read: \(String(cString: strerror(errno)))"
        }
        return look(status)
    }

    /// Returns the permission bit that applies to the daemon's user; `nil` if there is no user holdfast, or if this
    /// process does not run as root, because the daemon may then run as another user.
    private static func permission(_ status: stat, user: mode_t, group: mode_t, others: mode_t) -> mode_t? {
        guard geteuid() == 0, let daemon = HostAccounts.uid(ofUser: "holdfast") else { return nil }
        if daemon == status.st_uid { return user }
        return HostAccounts.gid(ofGroup: "holdfast") == status.st_gid ? group : others
    }
}

extension ConfigurationValue {
    fileprivate func problem(_ message: String) -> ConfigurationError {
        ConfigurationError(file: file, position: position, message: message)
    }
}
