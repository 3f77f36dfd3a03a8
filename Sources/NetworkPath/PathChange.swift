public import SessionCore

/// What a change in the kernel's tables meant for one target. Of class `none` only if the path has a new name, type or
/// table.
public struct PathChange: Hashable, Sendable {
    /// Whose path changed.
    public var target: Target
    /// What the change means.
    public var pathClass: PathClass
    /// The path at the previous look; `nil` if there was none, as always for `returned`. For `movedSourceGone`, the
    /// path whose source address has left: the previous one; after a moment without any path, the one before that; or
    /// one that was left earlier while its address stayed, and then ``to`` has not changed.
    public var from: Path?
    /// The path now; `nil` if there is none.
    public var to: Path?
    /// If there is no path: the kernel's own, if that is one that the session must not use.
    public var excluded: Path?
    /// If there is no path: whether the kernel may find another one when it is tried, see ``NetworkWatcher/hasDetour(_:)``.
    public var hasDetour = false
    /// When the kernel's message that led to this was read.
    public var receivedAt: Instant
}
