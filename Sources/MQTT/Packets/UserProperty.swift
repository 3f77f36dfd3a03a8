/// A name and a value whose meaning the application defines. Names may repeat and the order is kept (1.5.7).
public struct UserProperty: Hashable, Sendable {
    /// At most 65,535 UTF-8 bytes, without U+0000.
    public var name: String
    /// At most 65,535 UTF-8 bytes, without U+0000.
    public var value: String

    public init(name: String, value: String) {
        self.name = name
        self.value = value
    }
}
