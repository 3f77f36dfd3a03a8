import Glibc

/// The sanitizer that the tests were built with, if any; `make sanitize` sets it.
public enum Sanitizer: String, Sendable {
    case address, thread

    public static let inUse = getenv("HOLDFAST_SANITIZER").flatMap { Sanitizer(rawValue: String(cString: $0)) }
}
