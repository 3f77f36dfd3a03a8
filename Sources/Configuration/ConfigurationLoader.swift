import Glibc
package import Vocabulary

/// The contents of a configuration directory.
package struct LoadedConfiguration: Hashable, Sendable {
    /// A failure is fatal when the daemon starts; later it makes the daemon refuse a reload.
    package var daemon: Result<DaemonConfiguration, ConfigurationErrors>
    /// One entry per file of `sessions.d`; a failure concerns only its session.
    package var sessions: [SessionName: Result<SessionConfiguration, ConfigurationErrors>]
    /// Templates whose instances cannot be read, or not all of them.
    package var brokenTemplates: [SessionName: ConfigurationErrors] = [:]
    /// Everything that is wrong, including files whose names cannot be a session's.
    package var errors: [ConfigurationError]
    /// Set if there is no `sessions.d`. A daemon that starts says so, and has no sessions. A reload is refused: sessions
    /// do not end because a directory was moved or a file system is missing.
    package var missingFolder: ConfigurationError?
    /// The files that were read.
    package var files = ConfigurationFiles()

    /// What the files say about a running session; `nil` if it was removed.
    package subscript(name: SessionName) -> Result<SessionConfiguration, ConfigurationErrors>? {
        sessions[name] ?? name.template.flatMap { brokenTemplates[$0] }.map { .failure($0) }
    }

    /// Returns the session whose file has this error: for a template with several instances, the first of them.
    package func session(of error: ConfigurationError) -> SessionName? {
        sessions.keys.filter { name in
            if case .failure(let failure)? = sessions[name] { failure.list.contains(error) } else { false }
        }.min()
    }

    /// The errors that concern no session and no template: of files whose names cannot be a session's, for example.
    package var errorsOfNoSession: [ConfigurationError] {
        let ofTemplates = brokenTemplates.values.flatMap(\.list)
        return errors.filter { session(of: $0) == nil && !ofTemplates.contains($0) }
    }
}

/// Reads `holdfast.toml` and `sessions.d/NAME.toml`.
package enum ConfigurationLoader {
    /// Loads a directory. Never fails as a whole: all errors are in the result.
    package static func load(directory: String) -> LoadedConfiguration {
        // First, so that a file which is written at the same time counts as changed.
        let read = ConfigurationFiles(in: directory)
        let files = sessionFiles(in: directory)
        var errors = files.errors
        var daemon = result { () throws(ConfigurationErrors) in try daemonConfiguration(in: directory) }
        if case .failure(let failure) = daemon { errors += failure.list }
        // Sessions that cannot be listed must not look like removed ones: a reload would end them all.
        if !errors.isEmpty { daemon = .failure(ConfigurationErrors(errors)) }

        var sessions: [SessionName: Result<SessionConfiguration, ConfigurationErrors>] = [:]
        var identities: [SharedClientIDs.Claim] = []
        let listing = SessionSource.list("\(directory)/sessions.d", files.names ?? [])
        errors += listing.errors + listing.brokenTemplates.values.flatMap(\.list)
        for source in listing.sources {
            sessions[source.name] = result { () throws(ConfigurationErrors) in
                let content = try source.content()
                let session = try SessionConfiguration(content)
                identities.append(SharedClientIDs.Claim(source.name, session, content))
                return session
            }
        }
        for (name, errors) in SharedClientIDs.errors(identities) {
            sessions[name] = .failure(ConfigurationErrors(errors))
        }
        for case .failure(let failure) in sessions.values { errors += failure.list }
        // Each instance of a template has the template's errors; they are listed once.
        return LoadedConfiguration(
            daemon: daemon, sessions: sessions, brokenTemplates: listing.brokenTemplates, errors: Set(errors).sorted(),
            missingFolder: files.names == nil ? missingFolder("\(directory)/sessions.d") : nil, files: read)
    }

    private static func missingFolder(_ path: String) -> ConfigurationError {
        var error = ConfigurationError.unreadable(path, ENOENT)
        error.message += "; create it, and leave it empty if there shall be no sessions"
        return error
    }

    /// Returns what is wrong with `holdfast.toml`; `nil` if the daemon can start with it.
    package static func daemonErrors(in directory: String) -> ConfigurationErrors? {
        do throws(ConfigurationErrors) {
            _ = try daemonConfiguration(in: directory)
            return nil
        } catch {
            return error
        }
    }

    /// Returns the defaults if there is no file.
    static func daemonConfiguration(in directory: String) throws(ConfigurationErrors) -> DaemonConfiguration {
        let file: ConfigurationFile
        do throws(ConfigurationFile.ReadError) {
            file = try ConfigurationFile(path: "\(directory)/holdfast.toml")
        } catch {
            if error.isMissing { return DaemonConfiguration() }
            throw ConfigurationErrors([error.error])
        }
        return try DaemonConfiguration(file)
    }

    /// Lists the files of `sessions.d` that end in `.toml`, except hidden ones, which editors leave behind: `nil` if the
    /// directory has no `sessions.d`. A directory that does not exist is an error, and so is a link that leads nowhere.
    static func sessionFiles(in directory: String) -> (names: [String]?, errors: [ConfigurationError]) {
        let path = "\(directory)/sessions.d"
        guard let stream = opendir(path) else {
            let code = errno
            var status = stat()
            if code == ENOENT, access(directory, F_OK) == 0, lstat(path, &status) != 0 { return (nil, []) }
            let isMissing = code == ENOENT && access(directory, F_OK) != 0
            return ([], [ConfigurationError.unreadable(isMissing ? directory : path, code)])
        }
        defer { closedir(stream) }
        var names: [String] = []
        errno = 0
        while let entry = readdir(stream) {
            // A record is shorter than its type if the name is short, so the name is read in place.
            guard let offset = MemoryLayout<dirent>.offset(of: \.d_name) else { continue }
            let name = String(cString: UnsafeRawPointer(entry).advanced(by: offset).assumingMemoryBound(to: CChar.self))
            if name.hasSuffix(".toml"), !name.hasPrefix(".") { names.append(name) }
            errno = 0
        }
        return (names, errno == 0 ? [] : [ConfigurationError.unreadable(path, errno)])
    }

    /// Returns the paths of files of `sessions.d` that end in `.toml` and whose names are no session's.
    package static func ignoredFiles(in directory: String) -> [String] {
        (sessionFiles(in: directory).names ?? []).sorted().filter { SessionSource.session(ofFile: $0) == nil }.map {
            "\(directory)/sessions.d/\($0)"
        }
    }

    private static func result<Value>(
        _ body: () throws(ConfigurationErrors) -> Value
    ) -> Result<Value, ConfigurationErrors> {
        do throws(ConfigurationErrors) {
            return .success(try body())
        } catch {
            return .failure(error)
        }
    }
}
