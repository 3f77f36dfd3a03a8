import Glibc

/// What systemd knows about the service. The properties are `nil` if systemd does not run or does not answer.
enum ServiceUnit {
    static var hasSystemd: Bool { access("/run/systemd/system", F_OK) == 0 }

    /// The state of the service and its socket, one property per line.
    static var state: String? {
        output(
            "show",
            "--property=LoadState,ActiveState,SubState,Result,ExecMainStatus,ExecMainCode,NRestarts,StatusText,"
                + "ActiveEnterTimestamp,FragmentPath,DropInPaths,UnitFileState,MemoryCurrent,TasksCurrent,"
                + "NeedDaemonReload", "holdfast.service", "holdfast.socket")
    }

    enum Failure: Equatable {
        /// The files under /etc/holdfast have errors.
        case configuration
        /// systemd is about to start it again.
        case restarting
        /// It may not be started.
        case masked
        case other
    }

    /// Why the service has failed; `nil` if it has not, or if that is unknown.
    static var failure: Failure? {
        let text = output("show", "--property=LoadState,ActiveState,SubState,ExecMainStatus", "holdfast.service")
        return text.flatMap(failure(in:))
    }

    static func failure(in text: String) -> Failure? {
        let properties = text.split(separator: "\n")
        if properties.contains("SubState=auto-restart") {
            return properties.contains("ExecMainStatus=0") ? nil : .restarting
        }
        let hasFailed = properties.contains("ActiveState=failed")
        if properties.contains("LoadState=masked"), hasFailed || properties.contains("ActiveState=inactive") {
            return .masked
        }
        guard hasFailed else { return nil }
        // 78 is EX_CONFIG.
        return properties.contains("ExecMainStatus=78") ? .configuration : .other
    }

    /// Whether the service is installed and does not run, so that a connection to its socket would start it.
    static var isStopped: Bool {
        output("show", "--property=LoadState,ActiveState", "holdfast.service").map(isStopped(in:)) ?? false
    }

    static func isStopped(in text: String) -> Bool {
        let properties = text.split(separator: "\n")
        return properties.contains("LoadState=loaded")
            && properties.contains { ["ActiveState=inactive", "ActiveState=failed"].contains($0) }
    }

    /// The unit files of the service and its socket, with their drop-ins.
    static var files: String? { output("cat", "holdfast.service", "holdfast.socket") }

    /// The names of the credentials that the service gets; `nil` if they are unknown.
    static var credentials: Set<String>? { files.flatMap(credentials(in:)) }

    /// - Parameter files: the unit and its drop-ins, in the order in which systemd reads them.
    static func credentials(in files: String) -> Set<String>? {
        var names: [Substring: Set<String>] = [:]
        for line in files.split(separator: "\n") {
            guard let equals = line.firstIndex(of: "=") else { continue }
            let (key, value) = (line[..<equals], line[line.index(after: equals)...])
            switch key {
            case "LoadCredential", "LoadCredentialEncrypted", "SetCredential", "SetCredentialEncrypted":
                // An empty value clears what was set before.
                if value.isEmpty {
                    names[key] = []
                } else {
                    names[key, default: []].insert(String(value.prefix { $0 != ":" }))
                }
            case "ImportCredential":
                // It imports by a pattern, so the names are unknown.
                return nil
            default: break
            }
        }
        return names.values.reduce([]) { $0.union($1) }
    }

    /// The files that the service gets credentials from and that do not exist; none if they are unknown.
    static var missingCredentialFiles: [String] {
        (files.map(credentialFiles(in:)) ?? []).filter { access($0, F_OK) != 0 && errno == ENOENT }
    }

    /// - Parameter files: the unit and its drop-ins, in the order in which systemd reads them.
    /// - Returns: the files without which the service cannot start.
    static func credentialFiles(in files: String) -> [String] {
        var paths: [Substring: [(name: Substring, path: String)]] = [:]
        var defaults: Set<Substring> = []
        for line in files.split(separator: "\n") {
            guard let equals = line.firstIndex(of: "=") else { continue }
            let (key, value) = (line[..<equals], line[line.index(after: equals)...])
            if key.hasPrefix("SetCredential") { defaults.insert(value.prefix { $0 != ":" }) }
            guard key == "LoadCredential" || key == "LoadCredentialEncrypted" else { continue }
            if value.isEmpty { paths[key] = [] }
            // A name alone is looked for in the folders of credentials (systemd.exec(5)), and a specifier is systemd's.
            let path = value.drop { $0 != ":" }.dropFirst()
            guard path.hasPrefix("/"), !path.contains("%") else { continue }
            paths[key, default: []].append((value.prefix { $0 != ":" }, String(path)))
        }
        return paths.values.joined().filter { !defaults.contains($0.name) }.map(\.path).sorted()
    }

    /// The folders whose files the service does not see; none if they are unknown.
    static var hiddenFolders: [String] {
        output("show", "--property=ProtectHome,PrivateTmp", "holdfast.service").map(hiddenFolders(in:)) ?? []
    }

    static func hiddenFolders(in text: String) -> [String] {
        let properties = text.split(separator: "\n")
        let isHome = properties.contains { ["ProtectHome=yes", "ProtectHome=tmpfs"].contains($0) }
        return (isHome ? ["/home", "/root", "/run/user"] : [])
            + (properties.contains("PrivateTmp=yes") ? ["/tmp", "/var/tmp"] : [])
    }

    /// Whom the service runs as: `USER` or `USER:GROUP,…`, where the first group is that of the unit, or empty.
    static var user: String {
        let text = output("show", "--property=User,Group,SupplementaryGroups", "holdfast.service")
        return text.flatMap(user(in:)) ?? "holdfast"
    }

    /// - Returns: `nil` if there is no such unit.
    static func user(in text: String) -> String? {
        var values: [Substring: Substring] = [:]
        for line in text.split(separator: "\n") {
            guard let equals = line.firstIndex(of: "=") else { continue }
            values[line[..<equals]] = line[line.index(after: equals)...]
        }
        guard let user = values["User"], !user.isEmpty else { return nil }
        let further = values["SupplementaryGroups"]?.split(separator: " ") ?? []
        return "\(user):\(([values["Group"] ?? ""] + further).joined(separator: ","))"
    }

    private static func output(_ words: String...) -> String? {
        guard hasSystemd, let result = ExternalProgram.output(of: ["systemctl", "--no-pager"] + words, isQuiet: true),
            result.succeeded
        else { return nil }
        return result.text
    }
}
