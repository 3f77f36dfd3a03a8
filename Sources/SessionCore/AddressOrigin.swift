/// Where the addresses of a target come from, and so whether it may have others.
public enum AddressOrigin: Hashable, Sendable {
    /// They are the endpoint's own.
    case literal
    /// They are the last result of resolving a name, which is resolved again before they are used. In another network
    /// it may have others, so if none of a family has a path, the default route counts.
    case name
    /// The one address of a name to which there is a connection.
    case peer
}
