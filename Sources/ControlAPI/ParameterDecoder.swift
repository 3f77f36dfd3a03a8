/// Reads the members of a request, and says exactly which one is wrong.
public enum ParameterDecoder {
    /// Reads the parameters of a method. Every member must be known, present unless it has a default, and of its type.
    ///
    /// - Parameter parameters: the `params` of the request; absent is the same as an empty object.
    /// - Throws: an error with code −32602 that names the member, and for an unknown one the nearest valid one.
    public static func decode<Parameters: ClosedObject>(
        _ type: Parameters.Type, from parameters: JSONValue?
    ) throws(RPCError) -> Parameters {
        let value = parameters ?? .object([:])
        guard case .object = value else {
            throw .invalidParameters(
                "params must be an object, not \(value.kind)",
                hint: Parameters.members.isEmpty ? nil : "its members are \(list(Parameters.members))")
        }
        return try JSONValueDecoder.decode(type, from: value, strictly: true)
    }

    /// Reads the result of a method or the parameters of a notification; unknown members are ignored.
    ///
    /// - Throws: an error with code −32602 that names the member that is missing or of the wrong type.
    public static func decodeLeniently<Value: Decodable>(
        _ type: Value.Type, from value: JSONValue
    ) throws(RPCError) -> Value {
        try JSONValueDecoder.decode(type, from: value, strictly: false)
    }

    static func list(_ names: [String]) -> String {
        names.joined(separator: ", ")
    }
}
