/// Why a request was not carried out: the `error` member of a JSON-RPC 2.0 answer (section 5.1).
public struct RPCError: Error, Hashable, Sendable {
    /// The number: one of JSON-RPC's own, or one of the families in ``Code``.
    public var code: Int
    /// What is wrong, in one sentence without the final full stop.
    public var message: String
    public var data: Details?

    /// The details of an error, for programs and for people.
    public struct Details: Hashable, Sendable, Codable {
        /// Stable and kebab-case, for example `unknown-session`.
        public var code: String
        /// What to do about it; `nil` when there is nothing to do.
        @OrNull public var hint: String?
        /// The reason code of the wire protocol, when the server gave one.
        public var reasonCode: Int?
        /// The message that was accepted before; `nil` if the call had no effect.
        public var id: Int64?

        public init(code: String, hint: String? = nil, reasonCode: Int? = nil, id: Int64? = nil) {
            self.code = code
            self.hint = hint
            self.reasonCode = reasonCode
            self.id = id
        }
    }

    /// The numbers and their stable names. New ones may be added; none changes its meaning.
    public enum Code: Int, Sendable, CaseIterable {
        // JSON-RPC 2.0, section 5.1.
        case parseError = -32700
        case invalidRequest = -32600
        case unknownMethod = -32601
        case invalidParameters = -32602
        case internalError = -32603
        // 10 to 19: the session, and the state it is in.
        case unknownSession = -32010
        case wrongState = -32011
        case notConnected = -32012
        case unknownWatch = -32013
        // 20 to 29: messages.
        case outboxFull = -32020
        case storeFull = -32021
        case invalidTopic = -32022
        case messageRejected = -32023
        case subscriptionRefused = -32024
        case unknownSubscription = -32025
        case unknownPublication = -32026
        case publicationsFull = -32027
        case messageDropped = -32028
        case unknownConsumer = -32029
        // 30 to 39: what this caller may do.
        case notPermitted = -32030
        case tooManyRequests = -32031
        case tooManyConsumers = -32032
        // 40 to 49: configuration.
        case badConfiguration = -32040
        // 50 to 59: what this daemon can do.
        case versionMismatch = -32051
        // 60 to 69: the daemon itself.
        case shuttingDown = -32060
        // 70 to 79: messages again.
        case messageLost = -32070

        /// Stable and kebab-case, for example `unknown-session`.
        public var name: String { description.name }

        /// What it says about a call, without the final full stop.
        public var meaning: String { description.meaning }

        private var description: (name: String, meaning: String) {
            switch self {
            case .parseError: ("parse-error", "the line is not a JSON text")
            case .invalidRequest: ("invalid-request", "the line is not a JSON-RPC 2.0 request, or it is too long")
            case .unknownMethod: ("unknown-method", "there is no such method")
            case .invalidParameters: ("invalid-parameters", "the parameters do not fit the method")
            case .internalError: ("internal-error", "a fault of the daemon")
            case .unknownSession: ("unknown-session", "there is no session of this name")
            case .wrongState: ("wrong-state", "the session is in a state that does not allow the call")
            case .notConnected: ("not-connected", "the call needs a connected session")
            case .unknownWatch: ("unknown-watch", "this connection has no such watch")
            case .outboxFull: ("outbox-full", "the session's outbox has no space for the message")
            case .storeFull: ("store-full", "the change could not be committed to disk")
            case .invalidTopic: ("invalid-topic", "the topic or filter is not valid")
            case .messageRejected: ("message-rejected", "the server rejected the message, or cannot take it")
            case .subscriptionRefused:
                ("subscription-refused", "the server refused the subscription, or has none of this kind")
            case .unknownSubscription: ("unknown-subscription", "this connection has no such subscription")
            case .unknownPublication: ("unknown-publication", "the session has no publication with this topic")
            case .publicationsFull: ("publications-full", "the session has as many publications as it may have")
            case .messageDropped: ("message-dropped", "the message was dropped and will not be sent")
            case .unknownConsumer: ("unknown-consumer", "the session has no durable consumer of this name")
            case .notPermitted: ("not-permitted", "the caller may not do this")
            case .tooManyRequests: ("too-many-requests", "the caller, or all callers together, have too much under way")
            case .tooManyConsumers: ("too-many-consumers", "the session has as many durable consumers as it may have")
            case .badConfiguration:
                ("bad-configuration", "the configuration has errors or cannot be read, or does not allow the call")
            case .versionMismatch: ("version-mismatch", "the client speaks another version of the protocol")
            case .shuttingDown: ("shutting-down", "the daemon is stopping")
            case .messageLost: ("message-lost", "the message with this key was lost when the store was damaged")
            }
        }
    }

    /// The code, if it is one of those known here.
    public var known: Code? { Code(rawValue: code) }

    /// Creates an error with one of the known codes.
    public init(_ code: Code, _ message: String, hint: String? = nil, reasonCode: Int? = nil) {
        self.code = code.rawValue
        self.message = message
        self.data = Details(code: code.name, hint: hint, reasonCode: reasonCode)
    }

    /// The same for a message that was accepted under this number.
    public func afterAcceptance(of id: Int64) -> RPCError {
        var error = self
        error.data?.id = id
        return error
    }
}

extension RPCError: Codable {
    enum CodingKeys: String, CodingKey {
        case code, message, data
    }
}

extension RPCError {
    /// The line is not a JSON text.
    ///
    /// - Parameter detail: what is wrong, and where.
    public static func parseError(_ detail: String) -> RPCError {
        RPCError(.parseError, "not a JSON text: \(detail)", hint: "send one JSON-RPC 2.0 request per line, in UTF-8")
    }

    /// The line is JSON, but not a JSON-RPC 2.0 request.
    public static func invalidRequest(_ detail: String) -> RPCError {
        RPCError(
            .invalidRequest, "not a JSON-RPC 2.0 request: \(detail)",
            hint: #"a request looks like {"jsonrpc":"2.0","id":1,"method":"session.list"}"#)
    }

    /// The line is longer than ``RequestLine/maximumLineLength``, or than ``RequestLine/maximumPayloadLineLength`` for
    /// a method that carries a payload. All of it is skipped.
    public static var lineTooLong: RPCError {
        RPCError(
            .invalidRequest,
            "the line is longer than \(RequestLine.maximumLineLength) bytes "
                + "(\(RequestLine.maximumPayloadLineLength) for a call with a payload)",
            hint: "send a larger message in parts")
    }

    /// The daemon has no such method. The hint has the nearest names.
    public static func unknownMethod(_ name: String) -> RPCError {
        RPCError(
            .unknownMethod, "there is no method \(quoted(name))",
            hint: didYouMean(nearest(to: name, among: ControlMethods.names)))
    }

    /// The parameters do not fit the method.
    ///
    /// - Parameter hint: for example the nearest valid member.
    public static func invalidParameters(_ message: String, hint: String? = nil) -> RPCError {
        RPCError(.invalidParameters, message, hint: hint)
    }

    /// A fault of the daemon.
    ///
    /// - Parameter detail: what went wrong, in one sentence without the final full stop.
    public static func internalError(_ detail: String) -> RPCError {
        RPCError(.internalError, detail, hint: "see journalctl -u holdfast, and please report it")
    }

    /// The daemon has no session of this name.
    ///
    /// - Parameter sessions: the names that exist; the nearest are in the hint.
    public static func unknownSession(_ name: String, among sessions: some Collection<String>) -> RPCError {
        let near = nearest(to: name, among: sessions)
        let hint =
            switch (near.isEmpty, sessions.count) {
            case (false, _): didYouMean(near)
            case (true, 0): "no session is configured; see holdfastctl config init"
            case (true, ...10): "the sessions are " + listed(Array(sessions))
            // To put hundreds of names into order takes long.
            case (true, let count): "holdfastctl status lists the \(count) sessions"
            }
        return RPCError(.unknownSession, "there is no session \(quoted(name))", hint: hint)
    }

    /// The method exists, but cannot be called in this state.
    public static func wrongState(_ session: String, is state: String, hint: String? = nil) -> RPCError {
        RPCError(.wrongState, "session \(session) \(state.hasPrefix("failed") ? "has" : "is") \(state)", hint: hint)
    }

    /// The call needs a connected session.
    ///
    /// - Parameter hint: `nil`: the hint says where to see why it is not connected.
    public static func notConnected(_ session: String, hint: String? = nil) -> RPCError {
        RPCError(
            .notConnected, "session \(session) is not connected",
            hint: hint ?? "holdfastctl status \(session) says why")
    }

    /// The message does not fit into the session's outbox.
    public static func outboxFull(_ session: String) -> RPCError {
        RPCError(
            .outboxFull, "the outbox of session \(session) is full",
            hint: "try again after messages have been delivered, or raise [outbox] in the session's file")
    }

    /// The message was accepted, or would have been, but will not be sent.
    ///
    /// - Parameter detail: why, for example "it expired before it could be sent".
    public static func messageDropped(_ detail: String, hint: String? = nil) -> RPCError {
        RPCError(.messageDropped, "the message was dropped: \(detail)", hint: hint)
    }

    /// What has become of a message that was accepted under the same key before is not known.
    public static var messageLost: RPCError {
        RPCError(
            .messageLost,
            "the message that was published with this key was lost when the store was damaged; it may have been delivered",
            hint: "publish it with another key if it may arrive twice")
    }

    /// The call had no effect, because the store refused it.
    ///
    /// - Parameters:
    ///   - what: for example "the message".
    ///   - cause: why it could not be written to the disk, and what to do.
    public static func notCommitted(_ what: String, because cause: String) -> RPCError {
        RPCError(.storeFull, "\(what) could not be committed: \(cause)", hint: "fix that, then try again")
    }

    /// What the call decided is kept and written when the store works again, but is not durable yet.
    ///
    /// - Parameters:
    ///   - what: for example "the decision".
    ///   - cause: why it could not be written to the disk, and what to do.
    public static func notDurableYet(_ what: String, because cause: String) -> RPCError {
        RPCError(
            .storeFull, "\(what) is not on disk yet: \(cause)",
            hint:
                "fix that, and it is written without another call; until then, a restart of the daemon undoes it, and so "
                + "does a reload that changes the session")
    }

    /// The call took effect, but a restart of the daemon would undo it.
    ///
    /// - Parameters:
    ///   - what: what took effect, for example "session home is connected".
    ///   - cause: why it could not be written to the disk, and what to do.
    public static func notRemembered(_ what: String, because cause: String) -> RPCError {
        RPCError(
            .storeFull, "\(what), but that could not be remembered: \(cause)",
            hint: "fix that, then repeat the call; until then, a restart of the daemon undoes it")
    }

    /// The store has no space for the message.
    public static var storeFull: RPCError {
        RPCError(.storeFull, "the message could not be committed: no space left", hint: "free space, then try again")
    }

    /// The topic or topic filter cannot be used.
    ///
    /// - Parameters:
    ///   - detail: what is wrong with the topic.
    ///   - kind: what the caller wanted it to be.
    public static func invalidTopic(_ topic: String, _ detail: String, as kind: String = "topic") -> RPCError {
        RPCError(.invalidTopic, "\(quoted(topic)) is not a valid \(kind): \(detail)")
    }

    /// The server rejected the message, or cannot take it.
    ///
    /// - Parameter reasonCode: the code of the server's PUBACK or PUBREC, if it sent one.
    public static func messageRejected(_ detail: String, reasonCode: Int?, hint: String? = nil) -> RPCError {
        let what = reasonCode == nil ? "the message was set aside" : "the server rejected the message"
        return RPCError(.messageRejected, "\(what): \(detail)", hint: hint, reasonCode: reasonCode)
    }

    /// The server refused the filter, or it is beyond the limits that the server stated.
    ///
    /// - Parameter reasonCode: the server's code, if it gave one.
    public static func subscriptionRefused(_ filter: String, _ detail: String, reasonCode: Int?) -> RPCError {
        let what = reasonCode == nil ? "there is no subscription to" : "the server refused the subscription to"
        return RPCError(.subscriptionRefused, "\(what) \(quoted(filter)): \(detail)", reasonCode: reasonCode)
    }

    /// This connection to the control socket has no such subscription.
    public static func unknownSubscription(_ id: SubscriptionID) -> RPCError {
        RPCError(
            .unknownSubscription, "there is no subscription \(quoted(id.rawValue)) on this connection",
            hint: "a subscription ends with the connection to the control socket that made it")
    }

    /// The session of a subscription was removed by a reload, which ended the subscription.
    public static func sessionRemoved(_ name: String) -> RPCError {
        RPCError(
            .unknownSession, "session \(name) was removed from the configuration",
            hint: "holdfastctl list shows the sessions")
    }

    /// Another program took the durable consumer over, or it was removed, before the call that attaches to it was answered.
    public static func consumerEnded(_ name: String) -> RPCError {
        RPCError(
            .unknownSubscription, "the consumer \(quoted(name)) was taken over by another program, or removed",
            hint: "only one program at a time can use a consumer; sudo holdfastctl clients shows which one does")
    }

    /// This connection to the control socket has no such watch.
    public static func unknownWatch(_ id: WatchID) -> RPCError {
        RPCError(
            .unknownWatch, "there is no watch \(quoted(id.rawValue)) on this connection",
            hint: "a watch ends with the connection to the control socket that made it")
    }

    /// The session has no publication with this topic.
    ///
    /// - Parameter topics: the topics of the session's publications; the nearest are in the hint.
    public static func unknownPublication(
        _ topic: String, of session: String, among topics: some Sequence<String>
    ) -> RPCError {
        let near = nearest(to: topic, among: topics)
        return RPCError(
            .unknownPublication, "session \(session) has no publication \(quoted(topic))",
            hint: near.isEmpty ? "holdfastctl publications \(session) lists them" : didYouMean(near))
    }

    /// The session has no durable consumer of this name.
    ///
    /// - Parameter consumers: the names of the session's consumers; the nearest are in the hint.
    public static func unknownConsumer(
        _ name: String, of session: String, among consumers: some Sequence<String>
    ) -> RPCError {
        let near = nearest(to: name, among: consumers)
        return RPCError(
            .unknownConsumer, "session \(session) has no durable consumer \(quoted(name))",
            hint: near.isEmpty ? "holdfastctl status -v \(session) lists them" : didYouMean(near))
    }

    /// The session has as many durable consumers as it may have.
    public static func tooManyConsumers(_ session: String, _ maximum: Int) -> RPCError {
        RPCError(
            .tooManyConsumers, "session \(session) already has \(maximum) durable consumers, the maximum",
            hint: "end one that is not needed: holdfastctl unsubscribe \(session) NAME")
    }

    /// The caller lacks a role.
    ///
    /// - Parameter others: who else has the role besides root, for example "members of the group holdfast-admin".
    public static func notPermitted(role: Role, others: [String]) -> RPCError {
        let last = others.last.map { " and \($0)" } ?? ""
        return RPCError(
            .notPermitted, "this needs the role \(role.rawValue), which you do not have",
            hint: (["root"] + others.dropLast()).joined(separator: ", ") + last
                + " may: try again with sudo, or ask to be added; see [access] in holdfast.toml")
    }

    /// The last line on the connection of a caller that a reload has taken a role from.
    public static func roleLost(_ role: Role) -> RPCError {
        RPCError(
            .notPermitted, "the configuration was read again, and no longer gives you the role \(role.rawValue)",
            hint: "connect again for what you still may do; see [access] in holdfast.toml")
    }

    /// The last line on the connection of a caller that a reload has taken the filter of a subscription from.
    public static func topicLost(_ filter: String, of session: String) -> RPCError {
        RPCError(
            .notPermitted,
            "the configuration was read again, and you may no longer subscribe to \(quoted(filter)) in session \(session)",
            hint: "connect again for what you still may do; [topics] in the session's file says who may subscribe")
    }

    /// The session's `[topics]` does not allow the caller this topic.
    ///
    /// - Parameter use: "publish to" or "subscribe to".
    public static func topicNotPermitted(_ topic: String, of session: String, _ use: String) -> RPCError {
        RPCError(
            .notPermitted, "you may not \(use) \(quoted(topic)) in session \(session)",
            hint: "[topics] in the session's file says who may; holdfastctl config show \(session) shows it")
    }

    /// No role is enough: only root and the daemon's own user may do this.
    ///
    /// - Parameter what: for example "try a configuration that is not installed".
    public static func onlyForRoot(_ what: String) -> RPCError {
        RPCError(
            .notPermitted, "only root and the user of the daemon may \(what)", hint: "try again with sudo")
    }

    /// The caller, or all callers together, have too much under way.
    ///
    /// - Parameter what: for example "more than 64 requests are in flight".
    public static func tooManyRequests(_ what: String, hint: String? = nil) -> RPCError {
        RPCError(.tooManyRequests, what, hint: hint)
    }

    /// The configuration has mistakes, or does not allow what was asked.
    public static func badConfiguration(_ message: String, hint: String? = nil) -> RPCError {
        RPCError(.badConfiguration, message, hint: hint)
    }

    /// The client speaks another version of the control protocol.
    public static func versionMismatch(client: Int) -> RPCError {
        RPCError(
            .versionMismatch, "the client speaks protocol \(client), the daemon \(ControlMethods.protocolVersion)",
            hint: "install the client and the daemon from the same release")
    }

    /// The daemon is stopping and takes no more calls.
    public static var shuttingDown: RPCError {
        RPCError(.shuttingDown, "the daemon is stopping", hint: "try again when it has started")
    }
}
