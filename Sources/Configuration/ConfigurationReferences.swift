import Glibc
package import Vocabulary

/// Checks what files only refer to: other files, commands, credentials, users and groups. The daemon looks at these when
/// it needs them, since they may be created later; `config check` looks at once.
package struct ConfigurationReferences {
    private let directory: String
    /// That of `holdfast.toml`.
    private let daemon: ConfigurationValue?
    private let sessions: [(source: SessionSource, content: ConfigurationValue?)]

    private var file: String { "\(directory)/holdfast.toml" }
    private var folder: String { "\(directory)/sessions.d" }

    /// Reads the files, also those that are wrong in other ways.
    ///
    /// - Parameter directory: the directory of the configuration.
    package init(in directory: String) {
        self.directory = directory
        let path = "\(directory)/holdfast.toml"
        daemon = (try? ConfigurationFile(path: path)).map { ConfigurationParser.parse($0.text, file: path) }
        let listing = SessionSource.list(
            "\(directory)/sessions.d", ConfigurationLoader.sessionFiles(in: directory).names ?? [])
        sessions = listing.sources.sorted { $0.name < $1.name }.map { ($0, try? $0.content()) }
    }

    /// - Parameters:
    ///   - user: the user whom the daemon runs as, if this process runs as the same one; `nil`: it is not known what the
    ///     daemon may read.
    ///   - pairProblem: returns what is wrong with a certificate and its key, which takes a TLS library.
    package func errors(
        for user: String?, pairProblem: (TLSOptions) -> String? = { _ in nil }
    ) -> [(SessionName?, ConfigurationError)] {
        var errors = (user.map(unreadable) ?? []) + writableByAll
        if let daemon {
            errors += Self.accounts(["observe", "message", "control"], of: "access", daemon).map { (nil, $0) }
            errors += Self.textfile(daemon, for: user).map { (nil, $0) }
        }
        for (source, content) in sessions {
            guard let content else { continue }
            errors += Self.files(content, for: user, pairProblem).map { (source.name, $0) }
            errors += Self.accounts(["publish", "subscribe"], of: "topics", content).map { (source.name, $0) }
        }
        return errors
    }

    /// Returns an error for each file and directory of the configuration that cannot be read, but none for what is in
    /// such a directory.
    private func unreadable(for user: String) -> [(SessionName?, ConfigurationError)] {
        if let error = unreadable(directory, for: user) { return [(nil, error)] }
        let errors = [file, folder].compactMap { unreadable($0, for: user) }.map { (SessionName?.none, $0) }
        guard !errors.contains(where: { $1.file == folder }) else { return errors }
        return errors
            + sessions.compactMap { session in
                unreadable(session.source.path, for: user).map { (session.source.name, $0) }
            }
    }

    /// An error for each file and directory of the configuration that every user of the host can change: what is written
    /// there runs as the daemon's user.
    private var writableByAll: [(SessionName?, ConfigurationError)] {
        let own = [directory, file, folder].map { (SessionName?.none, $0) }
        return (own + sessions.map { ($0.source.name, $0.source.path) }).compactMap { session, path in
            var status = stat()
            guard stat(path, &status) == 0, status.st_mode & S_IWOTH != 0,
                [S_IFREG, S_IFDIR].contains(status.st_mode & S_IFMT)
            else { return nil }
            let message = "can be changed by every user of the host: chmod o-w \(path)"
            return (session, ConfigurationError(file: path, message: message))
        }
    }

    /// Returns an error if a file or directory of the configuration cannot be read.
    private func unreadable(_ path: String, for user: String) -> ConfigurationError? {
        var status = stat()
        let isDirectory = stat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
        guard let closed = ClosedPath(path, to: isDirectory ? R_OK | X_OK : R_OK) else { return nil }
        let advice = closed.isOnTheWay ? closed.advice(user) : "chmod \(isDirectory ? "a+rx" : "a+r") \(closed.path)"
        return ConfigurationError(
            file: path, message: "cannot be read by the user \(user), which the daemon runs as: \(advice)")
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
                case "user": try? HostAccounts.uid(ofUser: name) != nil
                case "group": try? HostAccounts.gid(ofGroup: name) != nil
                default: true
                }
            return isThere ?? true ? nil : element.problem("there is no \(text[..<colon]) \"\(name)\"")
        }
    }

    /// The directory that the file of metrics is written to.
    private static func textfile(_ content: ConfigurationValue, for user: String?) -> [ConfigurationError] {
        guard let value = content.value(named: "metrics.textfile"),
            let path = try? ConfigurationForm<String>.metricsFile.read(value), let slash = path.lastIndex(of: "/")
        else { return [] }
        let directory = path[..<slash].isEmpty ? "/" : String(path[..<slash])
        var status = stat()
        guard stat(directory, &status) == 0 else {
            guard errno == ENOENT || errno == ENOTDIR else { return [] }
            return [value.problem("there is no directory \(directory)")]
        }
        guard status.st_mode & S_IFMT == S_IFDIR else { return [value.problem("\(directory) is not a directory")] }
        guard let user, access(directory, W_OK | X_OK) != 0, errno == EACCES else { return [] }
        return [
            value.problem(
                "the user \(user), which the daemon runs as, may not write to \(directory): give it a directory of its "
                    + "own, for example with chown \(user) \(directory)")
        ]
    }

    /// What a key of a session refers to.
    private enum Reference {
        case secret(SecretReference)
        case certificates(String)
        case key(String)
    }

    private static func files(
        _ content: ConfigurationValue, for user: String?, _ pairProblem: (TLSOptions) -> String?
    ) -> [ConfigurationError] {
        // What these forms do not take may be a secret itself, which no sentence may repeat.
        let secret = { (value: ConfigurationValue) in
            (try? ConfigurationForm<SecretReference?>.secret.read(value)).map(Reference.secret)
        }
        let path = { (value: ConfigurationValue) in try? ConfigurationForm<String?>.path.read(value) }
        let references: [(key: String, read: (ConfigurationValue) -> Reference?)] = [
            ("password", secret), ("proxy.password", secret), ("tls.ca", { path($0).map(Reference.certificates) }),
            ("tls.certificate", { path($0).map(Reference.certificates) }), ("tls.key", { path($0).map(Reference.key) }),
        ]
        var isPairWhole = true
        let errors = references.compactMap { key, read -> ConfigurationError? in
            guard let value = content.value(named: key) else { return nil }
            guard let problem = read(value).flatMap({ problem($0, for: user) }) else { return nil }
            if key == "tls.certificate" || key == "tls.key" { isPairWhole = false }
            return value.problem(problem)
        }
        guard isPairWhole, let certificate = content.value(named: "tls.certificate"), let chain = path(certificate),
            let key = content.value(named: "tls.key").flatMap(path),
            // What this user may not read, the daemon may.
            access(chain, R_OK) == 0, access(key, R_OK) == 0,
            let problem = pairProblem(TLSOptions(certificate: chain, key: key))
        else { return errors }
        return errors + [certificate.problem(problem)]
    }

    private static func problem(_ reference: Reference, for user: String?) -> String? {
        switch reference {
        case .secret(.file(let path)):
            (problem(path, isSecret: true, for: user) ?? emptiness(of: path)).map { "\(path) \($0)" }
        case .secret(.exec(let words)): words.first.flatMap { path in program(path, for: user).map { "\(path) \($0)" } }
        case .secret(.credential(let name)): credential(name)
        case .certificates(let path):
            (problem(path, isSecret: false, for: user) ?? PEMFile.problem(path, .certificates)).map { "\(path) \($0)" }
        case .key(let path):
            (problem(path, isSecret: true, for: user) ?? PEMFile.problem(path, .key)).map { "\(path) \($0)" }
        }
    }

    /// Returns what is wrong with a password's file that has none, as the end of a sentence.
    private static func emptiness(of path: String) -> String? {
        guard access(path, R_OK) == 0, let file = try? ConfigurationFile(path: path) else { return nil }
        return file.text.allSatisfy(\.isNewline) ? "is empty" : nil
    }

    /// Only the service itself has its credentials; `holdfastctl config check` asks systemd for their names.
    private static func credential(_ name: String) -> String? {
        guard let folder = getenv("CREDENTIALS_DIRECTORY").map({ String(cString: $0) }), !folder.isEmpty,
            access("\(folder)/\(name)", F_OK) != 0, errno == ENOENT
        else { return nil }
        return "the service has no credential \"\(name)\""
    }

    /// Returns what is wrong with a file, as the end of a sentence; `nil` also if this user may not look.
    private static func problem(_ path: String, isSecret: Bool, for user: String?) -> String? {
        problem(path, "read", R_OK, for: user) { status in
            if status.st_mode & S_IFMT != S_IFREG { return "is not a regular file" }
            guard isSecret, status.st_mode & S_IROTH != 0 else { return nil }
            return "can be read by every user of the host: chmod o-r \(path)"
        }
    }

    /// Returns what is wrong with a program, as the end of a sentence; `nil` also if this user may not look.
    private static func program(_ path: String, for user: String?) -> String? {
        problem(path, "run", X_OK, for: user) { status in
            if status.st_mode & S_IFMT != S_IFREG { return "is not a program" }
            guard status.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH) == 0 else { return nil }
            return "is not executable: chmod +x \(path)"
        }
    }

    private static func problem(
        _ path: String, _ verb: String, _ access: CInt, for user: String?, _ look: (stat) -> String?
    ) -> String? {
        var status = stat()
        if stat(path, &status) == 0 {
            if let problem = look(status) { return problem }
        } else if errno != EACCES {
            return "cannot be read: \(String(cString: strerror(errno)))"
        }
        guard let user, let closed = ClosedPath(path, to: access) else { return nil }
        return "cannot be \(verb) by the user \(user), which the daemon runs as: \(closed.advice(user))"
    }
}

/// What keeps this process from a file: the file itself, or a directory on the way to it.
private struct ClosedPath {
    let path: String
    /// Whether it is a directory on the way to the file, and not what was asked for.
    let isOnTheWay: Bool
    private let access: CInt

    /// - Returns: `nil` if access is allowed, or fails for another reason.
    init?(_ path: String, to access: CInt) {
        guard Glibc.access(path, access) != 0, errno == EACCES else { return nil }
        // A link is open to all; what it leads to is not.
        var path = path
        for _ in 0..<40 { path = linkTarget(path) ?? path }
        let directory = path.indices.dropFirst().lazy.filter { path[$0] == "/" }.map { String(path[..<$0]) }.first {
            Glibc.access($0, X_OK) != 0 && errno == EACCES
        }
        (self.path, self.access) = (directory ?? path, directory == nil ? access : X_OK)
        isOnTheWay = directory != nil
    }

    /// Returns what to do about it, without taking the file from others.
    func advice(_ user: String) -> String {
        var status = stat()
        guard stat(path, &status) == 0 else { return "see namei -l \(path)" }
        let isForGroup = status.st_mode & (access == X_OK ? S_IXGRP : S_IRGRP) != 0
        if isForGroup, status.st_gid != 0, let group = HostAccounts.name(ofGroup: status.st_gid) {
            return "add it to the group of \(path): usermod -aG \(group) \(user); systemctl restart holdfast"
        }
        if isOnTheWay { return "it may not enter \(path)" }
        if access == X_OK { return "chmod +x \(path)" }
        guard status.st_gid == 0 || status.st_gid == getgid(), let group = HostAccounts.name(ofGroup: getgid()) else {
            return "setfacl -m u:\(user):r \(path)"
        }
        return "chgrp \(group) \(path); chmod g+r \(path)"
    }
}

extension ConfigurationValue {
    fileprivate func problem(_ message: String) -> ConfigurationError {
        ConfigurationError(file: file, position: position, message: message)
    }
}
