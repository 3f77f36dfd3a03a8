/// Where the addresses of a target come from, and so whether it may have others.
public enum AddressOrigin: Hashable, Sendable {
    /// They are the endpoint's own.
    case literal
    /// They are what a name was resolved to last, and it is resolved again before they are used. In another network it
    /// may have others, so where none of a family has a path, the default route counts.
    case name
    /// The one address of a name to which there is a connection.
    case peer
}
