import ControlAPI

/// The version of `holdfastd` and `holdfastctl`.
public let holdfastVersion = Release.version

/// What the command line of `holdfastd` sets.
public struct DaemonOptions: Sendable {
    /// The directory of `holdfast.toml` and `sessions.d`.
    public var configurationDirectory: String
    /// The directory of the durable state.
    public var stateDirectory: String
    /// The path of the control socket.
    public var socketPath: String
    /// Overrides `[log] level`: one of trace, debug, info, notice, warning, error, critical.
    public var logLevel: String?

    public init(configurationDirectory: String, stateDirectory: String, socketPath: String, logLevel: String? = nil) {
        self.configurationDirectory = configurationDirectory
        self.stateDirectory = stateDirectory
        self.socketPath = socketPath
        self.logLevel = logLevel
    }
}

/// The exit codes of `holdfastd`, from sysexits(3).
public enum ExitStatus: Int32, Sendable {
    case success = 0
    /// The kernel's tables cannot be watched.
    case osError = 71
    /// The state directory cannot be used.
    case cannotCreate = 73
    /// The control socket cannot be served.
    case ioError = 74
    /// Another daemon uses the state directory.
    case temporaryFailure = 75
    /// The configuration has errors; systemd does not start the daemon again.
    case configuration = 78
}
