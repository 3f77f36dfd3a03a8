/// `rpc.discover`: every method and notification, as an OpenRPC document (1.3).
public enum RPCDiscoverMethod: ControlMethod {
    public static let name = "rpc.discover"
    public static let summary = "Describes all methods and notifications"
    public static let role: Role? = nil
    public typealias Parameters = NoParameters
    public typealias Result = JSONValue

    /// The document, generated from the types that the daemon reads and writes.
    public static let document: JSONValue = .object([
        "openrpc": .string("1.3.2"),
        "info": .object([
            "title": .string("Holdfast"), "version": .string(Release.version),
            "description": .string("JSON-RPC 2.0, one JSON text per line, on a Unix socket; see holdfast-rpc(7)."),
        ]),
        "methods": .array(ControlMethods.all.map { $0.described }),
        // Any method may answer with any of them.
        "components": .object([
            "errors": .object(Dictionary(uniqueKeysWithValues: RPCError.Code.allCases.map { ($0.name, described($0)) }))
        ]),
        // OpenRPC has no member for what a server sends without being asked.
        "x-notifications": .array([
            notification(SessionEvent.self, of: SessionWatchMethod.name),
            notification(ReceivedMessage.self, of: MessageSubscribeMethod.name),
        ]),
    ])

    /// The document as JSON. It is the same for every caller and takes milliseconds to encode, so it is encoded once.
    public static let encodedDocument = OutgoingLine.encode(document) ?? []

    private static func described(_ code: RPCError.Code) -> JSONValue {
        .object(["code": .integer(Int64(code.rawValue)), "message": .string(code.meaning)])
    }

    private static func notification<Value: ControlNotification>(_ type: Value.Type, of method: String) -> JSONValue {
        .object(["name": .string(type.name), "x-after": .string(method), "schema": JSONSchema.of(type)])
    }
}

extension ControlMethod {
    /// The method as an OpenRPC method object.
    fileprivate static var described: JSONValue {
        let schema = JSONSchema.of(Parameters.self)
        var required: Set<String> = []
        if case .array(let names)? = schema["required"] { required = Set(names.compactMap(\.text)) }
        let parameters = Parameters.members.map { name -> JSONValue in
            .object([
                "name": .string(name), "required": .bool(required.contains(name)),
                "schema": schema["properties"]?[name] ?? .object([:]),
            ])
        }
        return .object([
            "name": .string(name), "summary": .string(summary), "paramStructure": .string("by-name"),
            "params": .array(parameters),
            "result": .object(["name": .string("result"), "schema": JSONSchema.of(Result.self)]),
            "x-role": role.map { .string($0.rawValue) } ?? .null,
        ])
    }
}
