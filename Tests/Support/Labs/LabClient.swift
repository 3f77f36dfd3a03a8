/// How one of mosquitto's clients, beside a server, connects to it.
public struct LabClient: Sendable {
    let lab: Lab
    var namespace: Namespace
    var port: Int
    var login: LabLogin?
    var version: LabVersion

    /// - Parameter namespace: the namespace of the client and the server; `server` unless it is given.
    public init(
        _ lab: Lab, in namespace: Namespace? = nil, port: Int = 1883, login: LabLogin? = nil,
        version: LabVersion = .five
    ) {
        self.lab = lab
        self.namespace = namespace ?? lab.server
        self.port = port
        self.login = login
        self.version = version
    }

    /// The beginning of a command line.
    func words(_ program: String) -> [String] {
        [program, "-V", version.rawValue, "-p", "\(port)"]
            + (login.map { ["-u", $0.user, "-P", $0.password] } ?? [])
    }

    /// Publishes, and returns when the server has acknowledged it.
    public func publish(
        _ payload: String, to topic: String, qos: Int = 1, retain: Bool = false, contentType: String? = nil
    ) async throws {
        let properties = contentType.map { ["-D", "publish", "content-type", $0] } ?? []
        try await namespace.run(
            words("mosquitto_pub") + ["-t", topic, "-m", payload, "-q", "\(qos)"] + (retain ? ["-r"] : []) + properties)
    }
}

/// The version of MQTT that one of mosquitto's clients speaks, as its option is written.
public enum LabVersion: String, Sendable {
    case threeOneOne = "311"
    case five = "5"
}

/// A name and a password.
public struct LabLogin: Hashable, Sendable {
    public var user: String
    public var password: String

    public init(user: String, password: String) {
        self.user = user
        self.password = password
    }
}
