/// A name and a value whose meaning the application defines (MQTT 5, 1.5.7 and 3.3.2.3.7). Names may repeat and the order
/// is kept.
public struct UserProperty: Codable, Hashable, Sendable {
    /// At most 65,535 UTF-8 bytes, without U+0000.
    public var name: String
    /// At most 65,535 UTF-8 bytes, without U+0000.
    public var value: String

    public init(name: String, value: String) {
        self.name = name
        self.value = value
    }
}
