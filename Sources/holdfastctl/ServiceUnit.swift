import Glibc

/// What systemd knows about the service. Everything is `nil` where systemd does not run, and where it does not answer.
enum ServiceUnit {
    static var hasSystemd: Bool { access("/run/systemd/system", F_OK) == 0 }

    /// How the service is, one property on each line.
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
        case other
    }

    /// Why the service is down and stays down; `nil` if it is not, or that is not known.
    static var failure: Failure? {
        guard let text = output("show", "--property=ActiveState,ExecMainStatus", "holdfast.service") else { return nil }
        return failure(in: text)
    }

    static func failure(in text: String) -> Failure? {
        let properties = text.split(separator: "\n")
        guard properties.contains("ActiveState=failed") else { return nil }
        // EX_CONFIG.
        return properties.contains("ExecMainStatus=78") ? .configuration : .other
    }

    /// The files of the service, with its drop-ins.
    static var files: String? { output("cat", "holdfast.service", "holdfast.socket") }

    private static func output(_ words: String...) -> String? {
        guard hasSystemd, let result = ExternalProgram.output(of: ["systemctl", "--no-pager"] + words, isQuiet: true),
            result.succeeded
        else { return nil }
        return result.text
    }
}
