/// One line that the daemon sent, as a client reads it.
public enum ServerLine: Hashable, Sendable {
    case answer(RequestID, Swift.Result<JSONValue, RPCError>)
    case notification(method: String, parameters: JSONValue)
    /// The answers to a batch.
    case batch([ServerLine])

    /// Reads a line, without its newline. Unknown members are ignored.
    ///
    /// - Throws: a sentence about what is wrong, when the line is neither a JSON-RPC 2.0 answer nor a notification.
    public init(parsing line: ArraySlice<UInt8>) throws(ServerLineError) {
        let value: JSONValue
        do {
            value = try JSONValue(parsing: line)
        } catch {
            throw ServerLineError(problem: error.description)
        }
        if case .array(let elements) = value {
            var answers: [ServerLine] = []
            for element in elements { answers.append(try ServerLine(element)) }
            self = .batch(answers)
        } else {
            self = try ServerLine(value)
        }
    }

    private init(_ value: JSONValue) throws(ServerLineError) {
        guard let members = value.members else { throw ServerLineError(problem: "\(value.kind) instead of an object") }
        if let method = members["method"]?.text {
            self = .notification(method: method, parameters: members["params"] ?? .object([:]))
            return
        }
        guard let id = members["id"].flatMap(RequestID.init) else {
            throw ServerLineError(problem: "neither method nor id")
        }
        if let error = members["error"] {
            do {
                self = .answer(id, .failure(try ParameterDecoder.decodeLeniently(RPCError.self, from: error)))
            } catch {
                throw ServerLineError(problem: "error: \(error.message)")
            }
        } else if let result = members["result"] {
            self = .answer(id, .success(result))
        } else {
            throw ServerLineError(problem: "neither result nor error")
        }
    }
}

/// Why a line is not one that a daemon sends.
public struct ServerLineError: Error, Hashable, Sendable {
    /// In one phrase.
    public var problem: String
}
