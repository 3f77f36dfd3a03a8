import Configuration
import ControlAPI

/// The version of `holdfastd` and `holdfastctl`.
public let holdfastVersion = Release.version

/// What the command line of `holdfastd` decides.
public struct DaemonOptions: Sendable {
    /// Where `holdfast.toml` and `sessions.d` are.
    public var configurationDirectory: String
    /// Where the durable state is.
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

/// The exit codes of `holdfastd`, of sysexits(3).
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
