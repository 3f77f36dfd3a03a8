/// The release of the daemon, the client library and the command.
public enum Release {
    /// A semantic version; the three are released together.
    public static let version = "0.1.0"
}
