import NIOCore
import NIOHTTP1
import NIOWebSocket
import Vocabulary

/// Asks a server for a WebSocket with the subprotocol `mqtt` (RFC 6455, 4.1; OASIS MQTT 5, section 6), and puts it into
/// the channel's pipeline.
final class WebSocketUpgrade {
    private let endpoint: Endpoint
    private let turns: PolledTurns
    private let last: any ChannelHandler
    private var completion: ((Result<WebSocketHandler, TransportFailure>) -> Void)?
    private let webSocket = NIOWebSocketClientUpgrader { channel, _ in channel.eventLoop.makeSucceededVoidFuture() }

    /// - Parameters:
    ///   - turns: those of the WebSocket's frames.
    ///   - last: the handler that receives the bytes; it stays the last one.
    init(
        _ endpoint: Endpoint, turns: PolledTurns, before last: any ChannelHandler,
        completion: @escaping (Result<WebSocketHandler, TransportFailure>) -> Void
    ) {
        self.endpoint = endpoint
        self.turns = turns
        self.last = last
        self.completion = completion
    }

    /// Sends the request. The outcome is reported once.
    func start(on channel: any Channel) throws {
        let encoder = HTTPRequestEncoder()
        // Bytes right behind the answer are already frames.
        let decoder = ByteToMessageHandler(HTTPResponseDecoder(leftOverBytesStrategy: .forwardBytes))
        let (limit, line) = (HTTPLimitHandler(), StatusLineHandler())
        let request = RequestHandler(self, line)
        let upgrade = NIOHTTPClientUpgradeHandler(
            upgraders: [self], httpHandlers: [encoder, limit, decoder, request], upgradeCompletionHandler: { _ in })
        let pipeline = channel.pipeline.syncOperations
        try pipeline.addHandlers(
            [encoder, GreetingHandler(self), limit, line, decoder, upgrade, request], position: .before(last))
        request.send(path: endpoint.path, host: hostField)
    }

    /// The value of Host: without the port where that is the scheme's default (RFC 9110, 7.2).
    private var hostField: String {
        if endpoint.port != endpoint.scheme.defaultPort { return endpoint.authority }
        return endpoint.host.contains(":") ? "[\(endpoint.host)]" : endpoint.host
    }

    fileprivate func refused(
        _ sentence: String, _ code: Reason.Code = .webSocketFailed, retryAfter: Duration? = nil
    ) {
        completion.take()?(.failure(TransportFailure(code, "\(endpoint) \(sentence)", retryAfter: retryAfter)))
    }
}

extension WebSocketUpgrade: NIOHTTPClientProtocolUpgrader {
    var supportedProtocol: String { webSocket.supportedProtocol }
    var requiredUpgradeHeaders: [String] { webSocket.requiredUpgradeHeaders }

    func addCustom(upgradeRequestHeaders: inout HTTPHeaders) {
        webSocket.addCustom(upgradeRequestHeaders: &upgradeRequestHeaders)
        upgradeRequestHeaders.add(name: "Sec-WebSocket-Protocol", value: "mqtt")
    }

    func shouldAllowUpgrade(upgradeResponse: HTTPResponseHead) -> Bool {
        guard webSocket.shouldAllowUpgrade(upgradeResponse: upgradeResponse) else { return false }
        // [MQTT-6.0.0-4]; an extension that was not asked for must not be used (RFC 6455, 4.1).
        guard upgradeResponse.headers[canonicalForm: "Sec-WebSocket-Protocol"] == ["mqtt"] else {
            refused("opened a WebSocket without the subprotocol \"mqtt\": no MQTT is spoken there; check the path")
            return false
        }
        guard !upgradeResponse.headers.contains(name: "Sec-WebSocket-Extensions") else {
            refused("opened a WebSocket with an extension that was not asked for")
            return false
        }
        return true
    }

    func upgrade(context: ChannelHandlerContext, upgradeResponse: HTTPResponseHead) -> EventLoopFuture<Void> {
        let handler = WebSocketHandler(turns)
        do {
            // Not NIO's decoder: it passes on whole frames only, and all those of a read at once.
            try context.pipeline.syncOperations.addHandlers(
                [WebSocketFrameEncoder(), handler], position: .before(last))
        } catch {
            return context.eventLoop.makeFailedFuture(error)
        }
        completion.take()?(.success(handler))
        return context.eventLoop.makeSucceededVoidFuture()
    }
}

/// Sends the request, and receives the answer if it is not the upgrade.
private final class RequestHandler: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPClientResponsePart
    typealias OutboundOut = HTTPClientRequestPart

    private let upgrade: WebSocketUpgrade
    private let line: StatusLineHandler
    private var context: ChannelHandlerContext?

    init(_ upgrade: WebSocketUpgrade, _ line: StatusLineHandler) {
        self.upgrade = upgrade
        self.line = line
    }

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }
    func handlerRemoved(context: ChannelHandlerContext) { self.context = nil }

    func send(path: String, host: String) {
        guard let context else { return }
        let head = HTTPRequestHead(version: .http1_1, method: .GET, uri: path, headers: ["Host": host])
        context.write(wrapOutboundOut(.head(head)), promise: nil)
        context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard case .head(let head) = unwrapInboundIn(data) else { return }
        refused(head.status, head.headers)
    }

    private func refused(_ status: HTTPResponseStatus, _ headers: HTTPHeaders = [:]) {
        let isBusy = status == .tooManyRequests || status == .serviceUnavailable
        upgrade.refused(
            "answered the request for a WebSocket with \(status.code) \(status.reasonPhrase)"
                + Self.advice(status, location: headers.first(name: "Location")),
            isBusy ? .serverBusy : .webSocketFailed, retryAfter: isBusy ? retryAfter(in: headers) : nil)
    }

    private static func advice(_ status: HTTPResponseStatus, location: String?) -> String {
        switch status.code {
        case 301, 302, 303, 307, 308:
            "; such a redirection is not followed"
                + (location.map { ": it leads to \($0.plain(atMost: 200))" } ?? "") + "; correct the endpoint"
        case 401:
            "; it wants a login by HTTP, which Holdfast does not do: check the path, and have the server accept the "
                + "request and check the user and password of MQTT"
        case 403:
            "; it does not permit the request: check the path, and the rules of the server or of a proxy before it"
        default: ""
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        switch error {
        case is NIOHTTPClientUpgradeError: upgrade.refused("did not open a WebSocket as RFC 6455 wants it")
        case HTTPParserError.headerOverflow:
            upgrade.refused("answered the request for a WebSocket with more than 64 KiB of headers")
        case is HTTPParserError:
            switch line.status {
            case nil: upgrade.refused("does not speak HTTP")
            case .switchingProtocols?: upgrade.refused("did not open a WebSocket as RFC 6455 wants it")
            case let status?: refused(status)
            }
        default: context.fireErrorCaught(error)
        }
    }
}

/// Returns the wait that a busy server asks for (RFC 9110, 10.2.3), limited to an hour, so that nobody can put the
/// session to sleep for good.
private func retryAfter(in headers: HTTPHeaders) -> Duration? {
    guard let text = headers.first(name: "Retry-After"), !text.isEmpty else { return nil }
    // A number that is too large for an integer is more than an hour.
    if text.allSatisfy({ $0.isASCII && $0.isNumber }) { return .seconds(min(UInt32(text) ?? .max, 3600)) }
    guard let time = Timestamp(httpDate: text) else { return nil }
    // By the server's own clock if it says what that shows: ours may differ.
    let present = headers.first(name: "Date").flatMap(Timestamp.init(httpDate:)) ?? .now
    return .seconds(min(max(time.seconds(since: present), 0), 3600))
}

/// Notices a server that speaks a known protocol other than HTTP; the HTTP parser does not say which.
private final class GreetingHandler: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer

    private let upgrade: WebSocketUpgrade

    init(_ upgrade: WebSocketUpgrade) {
        self.upgrade = upgrade
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        if let other = ForeignProtocol(beginning: unwrapInboundIn(data).readableBytesView), other != .http {
            upgrade.refused("is \(other.name)", .wrongProtocol)
        } else {
            context.fireChannelRead(data)
        }
        context.pipeline.syncOperations.removeHandler(self, promise: nil)
    }
}
