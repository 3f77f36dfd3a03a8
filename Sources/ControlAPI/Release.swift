/// What daemon, client and command are released as.
public enum Release {
    /// Semantic version; the three are released together.
    public static let version = "0.1.0"
}
