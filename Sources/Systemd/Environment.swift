internal import Glibc

/// The source of the variables that systemd passes to a service: the process, or a test's own values.
public struct Environment: Sendable {
    private let lookup: @Sendable (String) -> String?

    /// The environment of this process, read at each lookup.
    public static let process = Environment { name in getenv(name).map { String(cString: $0) } }

    /// Only these variables.
    public init(_ variables: [String: String]) {
        self.init { variables[$0] }
    }

    private init(lookup: @escaping @Sendable (String) -> String?) {
        self.lookup = lookup
    }

    /// The variable's value; `nil` when it is not set.
    public subscript(_ name: String) -> String? { lookup(name) }
}
