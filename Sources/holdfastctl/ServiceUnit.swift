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

    /// The files of the service, with its drop-ins.
    static var files: String? { output("cat", "holdfast.service", "holdfast.socket") }

    private static func output(_ words: String...) -> String? {
        guard hasSystemd, let result = ExternalProgram.output(of: ["systemctl", "--no-pager"] + words, isQuiet: true),
            result.succeeded
        else { return nil }
        return result.text
    }
}
