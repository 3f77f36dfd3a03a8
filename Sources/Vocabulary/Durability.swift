/// What "accepted" promises.
public enum Durability: String, CaseIterable, Sendable {
    /// A commit survives the end of the daemon, however it ends, and a power loss except for the last moments before it.
    case normal
    /// A commit survives power loss: it is flushed to the disk before it is done.
    case full
}
