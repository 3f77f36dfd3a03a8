import Glibc

/// The sanitizer that the tests were built with; `make sanitize` says which.
public enum Sanitizer {
    /// Each access to memory is looked at by the thread sanitizer: what computes for a second takes half a minute, and
    /// nothing that has a time limit at the other end can be shown there.
    public static let isTooSlow = getenv("HOLDFAST_SANITIZER").map { String(cString: $0) } == "thread"
}
