public import Vocabulary

/// A proxy, and how to log in to it.
public struct ProxyOptions: Hashable, Sendable {
    /// Where it is.
    public var address: ProxyAddress
    /// The name and the password, for a proxy that asks for them; they are sent unencrypted.
    public var login: Login?

    /// A name and a password.
    public struct Login: Hashable, Sendable {
        public var username: String
        public var password: [UInt8]

        public init(username: String, password: [UInt8]) {
            self.username = username
            self.password = password
        }
    }

    public init(address: ProxyAddress, login: Login? = nil) {
        self.address = address
        self.login = login
    }
}
