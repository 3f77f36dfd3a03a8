/// The `id` of a request (JSON-RPC 2.0, section 4), which the answer repeats.
public enum RequestID: Hashable, Sendable {
    case string(String)
    /// Only whole numbers; a fraction is refused.
    case number(Int64)
    case null
}

/// One request or notification of a client.
public enum ClientCall: Hashable, Sendable {
    /// A call that is answered under its id.
    case request(RequestID, method: String, parameters: JSONValue?)
    /// A call that is never answered, not even with an error.
    case notification(method: String, parameters: JSONValue?)
    /// Not a valid request; it is answered with the error.
    case invalid(RequestID, RPCError)
}

/// One line that a client sent.
public enum RequestLine: Hashable, Sendable {
    /// The maximum length of a line in bytes, without the newline. A longer one is answered with
    /// ``RPCError/lineTooLong``, unless it is a call of one of ``payloadMethods``.
    public static let maximumLineLength = 1 << 20
    /// The maximum length in bytes of a line that carries a payload: 16 MiB in base64, and the rest of the call.
    public static let maximumPayloadLineLength = 24 << 20
    /// The methods whose lines may be as long as ``maximumPayloadLineLength``, outside of batches.
    public static let payloadMethods: Set<String> = [MessagePublishMethod.name, PublicationPutMethod.name]
    /// The maximum number of JSON values in a batch. Memory use depends on their number, not on the length of the line.
    static let maximumValues = 100_000
    /// The maximum number of JSON values in one call: enough for a message with as many user properties as it may have.
    static let maximumValuesOfCall = 16_384
    /// The maximum number of calls in a batch.
    public static let maximumBatchCount = 1000

    case single(ClientCall)
    /// Several calls. They are answered by one array with the answers to the requests, in any order, or by nothing if
    /// there are no requests.
    case batch([ClientCall])

    /// Reads a line, without its newline. Any error in it gives a call that is ``ClientCall/invalid(_:_:)``.
    public init(parsing line: ArraySlice<UInt8>) {
        guard line.count <= Self.maximumPayloadLineLength else {
            self = .single(.invalid(.null, .lineTooLong))
            return
        }
        let isBatch = line.first { !JSONValue.isSpace($0) } == UInt8(ascii: "[")
        let value: JSONValue
        do {
            value = try JSONValue(
                parsing: line, maximumValues: isBatch ? Self.maximumValues : Self.maximumValuesOfCall)
        } catch {
            self = .single(.invalid(.null, .parseError(error.description)))
            return
        }
        if line.count > Self.maximumLineLength, !Self.payloadMethods.contains(value["method"]?.text ?? "") {
            self = .single(.invalid(value["id"].flatMap(RequestID.init) ?? .null, .lineTooLong))
        } else if case .array(let elements) = value {
            if elements.isEmpty {
                self = .single(.invalid(.null, .invalidRequest("the batch is empty")))
            } else if elements.count > Self.maximumBatchCount {
                let detail = "the batch has more than \(Self.maximumBatchCount) calls"
                self = .single(.invalid(.null, .invalidRequest(detail)))
            } else {
                self = .batch(elements.map(ClientCall.init))
            }
        } else {
            self = .single(ClientCall(value))
        }
    }

    /// Reads a line, without its newline.
    public init(parsing line: [UInt8]) {
        self.init(parsing: line[...])
    }
}

extension RequestID {
    /// - Returns: `nil` for a value that cannot be an id.
    init?(_ value: JSONValue) {
        switch value {
        case .string(let text): self = .string(text)
        case .integer(let number): self = .number(number)
        case .null: self = .null
        default: return nil
        }
    }
}

extension ClientCall {
    private static let members = ["jsonrpc", "id", "method", "params"]

    /// Reads one call, without anything around it. Any error in it gives ``invalid(_:_:)``.
    public init(parsing text: [UInt8]) {
        do {
            self.init(try JSONValue(parsing: text[...], maximumValues: RequestLine.maximumValuesOfCall))
        } catch {
            self = .invalid(.null, .parseError(error.description))
        }
    }

    init(_ value: JSONValue) {
        let id = value["id"].flatMap(RequestID.init)
        do throws(RPCError) {
            guard let members = value.members else { throw .invalidRequest("\(value.kind) instead of an object") }
            guard members["id"] == nil || id != nil else {
                throw .invalidRequest(
                    "id must be a string, null or a whole number from −2^63 to 2^63−1 that is written without a fraction"
                )
            }
            guard members["jsonrpc"] == .string("2.0") else { throw .invalidRequest(#""jsonrpc" must be "2.0""#) }
            guard let method = members["method"]?.text else { throw .invalidRequest("method must be a string") }
            if let unknown = members.keys.filter({ !Self.members.contains($0) }).min() {
                throw .invalidRequest("unknown member \(quoted(unknown))")
            }
            let parameters = members["params"]
            switch parameters {
            case nil, .object?, .array?: break
            case let other?: throw .invalidRequest("params must be an object, not \(other.kind)")
            }
            if let id {
                self = .request(id, method: method, parameters: parameters)
            } else {
                self = .notification(method: method, parameters: parameters)
            }
        } catch {
            self = .invalid(id ?? .null, error)
        }
    }
}

extension RequestID: Encodable {
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        switch self {
        case .string(let text): try container.encode(text)
        case .number(let number): try container.encode(number)
        case .null: try container.encodeNil()
        }
    }
}
