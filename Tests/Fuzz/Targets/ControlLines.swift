import ControlAPI
import NIOCore

@testable import Agent

/// The first byte says how the rest, what a program writes to the socket, is cut into chunks.
///
/// Every line is read as far as it can be without a daemon behind it: the call, and its parameters for its method. What
/// is answered must be JSON again, one line of it.
func answerLines(_ bytes: [UInt8]) {
    var source = ByteSource(bytes)
    let chunk = 1 + Int(source.byte())
    var rest = source.take(.max)[...]
    // Shorter than the daemon's, so that lines that are too long are seen.
    let maximumLength = 4096
    var splitter = LineSplitter(maximumLength: maximumLength)
    while !rest.isEmpty {
        splitter.append(ByteBuffer(bytes: rest.prefix(chunk)))
        rest = rest.dropFirst(chunk)
        while let next = splitter.next() {
            switch next {
            case .tooLong: check(OutgoingLine.failure(.null, .lineTooLong))
            case .empty(let count): precondition(count > 0, "nothing is skipped")
            case .line(let line):
                precondition(line.count <= maximumLength && !line.contains(UInt8(ascii: "\n")), "that is no line")
                read(line)
            }
        }
    }
}

private func read(_ line: [UInt8]) {
    if let value = try? JSONValue(parsing: line[...]) {
        guard let encoded = OutgoingLine.encode(value), let again = try? JSONValue(parsing: encoded.dropLast()) else {
            preconditionFailure("a value that was read cannot be written and read again")
        }
        precondition(OutgoingLine.encode(again) == encoded, "a value is another one when it is written and read")
    }
    // The daemon's own client reads with the same parser.
    _ = try? ServerLine(parsing: line[...])
    let request = RequestLine(parsing: line)
    if let publish = PublishLine(scanning: line) {
        guard case .single(.request(publish.id, MessagePublishMethod.name, let parameters)) = request,
            let decoded = try? ParameterDecoder.decode(MessagePublishMethod.Parameters.self, from: parameters)
        else { preconditionFailure("the general way does not read what the short one does") }
        precondition(decoded == publish.parameters, "the general way reads something else than the short one")
    }
    switch request {
    case .single(let call): check(answer(call))
    case .batch(let calls):
        var texts = BatchedCalls(of: line, count: calls.count)
        for call in calls {
            let alone = texts.next().map { ClientCall(parsing: $0) }
            precondition(alone == call, "a call is another one when it is read alone")
        }
        precondition(texts.next() == nil && texts.byteCount == 0, "a batch has more calls than it has")
        check(OutgoingLine.batch(calls.map { answer($0) }))
    }
}

private func answer(_ call: ClientCall) -> [UInt8] {
    switch call {
    case .invalid(let id, let error): OutgoingLine.failure(id, error)
    case .request(let id, let method, let parameters): answer(id, method, parameters)
    case .notification(let method, let parameters): answer(.null, method, parameters)
    }
}

private func answer(_ id: RequestID, _ name: String, _ parameters: JSONValue?) -> [UInt8] {
    guard let method = ControlMethods.all.first(where: { $0.name == name }) else {
        return OutgoingLine.failure(id, .unknownMethod(name))
    }
    return answer(id, method, parameters)
}

private func answer<Method: ControlMethod>(
    _ id: RequestID, _ method: Method.Type, _ parameters: JSONValue?
) -> [UInt8] {
    do throws(RPCError) {
        let decoded = try ParameterDecoder.decode(Method.Parameters.self, from: parameters)
        guard let line = OutgoingLine.request(Method.self, decoded, id: id) else {
            preconditionFailure("parameters that were read cannot be written")
        }
        return line
    } catch {
        return OutgoingLine.failure(id, error)
    }
}

private func check(_ line: [UInt8]) {
    precondition(line.last == UInt8(ascii: "\n") && !line.dropLast().contains(UInt8(ascii: "\n")), "that is no line")
    precondition((try? JSONValue(parsing: line.dropLast())) != nil, "the answer is no JSON")
}
