import NIOCore
import NIOHTTP1
import Vocabulary

/// Asks a proxy for a connection to the server, and then removes its handlers from the channel's pipeline. What has
/// arrived behind the proxy's answer is the server's, and is what it completes with.
final class ProxyTunnel {
    private let endpoint: Endpoint
    private let proxy: ProxyOptions
    private var completion: ((Result<ByteBuffer, TransportFailure>) -> Void)?

    init(
        to endpoint: Endpoint, through proxy: ProxyOptions,
        completion: @escaping (Result<ByteBuffer, TransportFailure>) -> Void
    ) {
        self.endpoint = endpoint
        self.proxy = proxy
        self.completion = completion
    }

    /// Sends the request. The outcome is reported once.
    ///
    /// - Parameter last: the handler that receives the server's bytes afterwards; it stays the last one.
    func start(on channel: any Channel, before last: any ChannelHandler) throws {
        let pipeline = channel.pipeline.syncOperations
        switch proxy.address.scheme {
        case .http:
            let encoder = HTTPRequestEncoder()
            let decoder = ByteToMessageHandler(HTTPResponseDecoder(leftOverBytesStrategy: .forwardBytes))
            let (limit, line) = (HTTPLimitHandler(), StatusLineHandler())
            let connect = ConnectHandler(self, codec: [encoder, limit, decoder], line)
            try pipeline.addHandlers([encoder, limit, line, decoder, connect], position: .before(last))
            connect.send(to: endpoint.authority, login: proxy.login)
        case .socks5:
            let handshake = SOCKS5Handshake(to: endpoint.host, port: endpoint.port, login: proxy.login)
            let handler = SOCKS5Handler(self, handshake)
            try pipeline.addHandler(handler, position: .before(last))
            handler.send()
        }
    }

    /// What a proxy means that refuses for want of a login.
    fileprivate var wordsAboutLogin: String {
        proxy.login == nil
            ? "it requires a user name and a password, and the configuration has none"
            : "it does not accept the user name or password"
    }

    fileprivate func refused(_ sentence: String) {
        let text = "the proxy \(proxy.address) does not connect to \(endpoint.authority): \(sentence)"
        completion.take()?(.failure(TransportFailure(.proxyFailed, text)))
    }

    /// Removes the handlers once the proxy has agreed.
    fileprivate func agreed(
        _ handlers: [any RemovableChannelHandler], _ context: ChannelHandlerContext, behind: ByteBuffer = ByteBuffer()
    ) {
        let removals = handlers.map { context.pipeline.syncOperations.removeHandler($0) }
        EventLoopFuture.andAllSucceed(removals, on: context.eventLoop).assumeIsolated()
            .whenComplete { [self] _ in completion.take()?(.success(behind)) }
    }
}

/// HTTP CONNECT (RFC 9110, 9.3.6).
private final class ConnectHandler: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPClientResponsePart
    typealias OutboundOut = HTTPClientRequestPart

    private let tunnel: ProxyTunnel
    private let codec: [any RemovableChannelHandler]
    private let line: StatusLineHandler
    private var context: ChannelHandlerContext?
    private var isAgreed = false

    init(_ tunnel: ProxyTunnel, codec: [any RemovableChannelHandler], _ line: StatusLineHandler) {
        self.tunnel = tunnel
        self.codec = codec
        self.line = line
    }

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }
    func handlerRemoved(context: ChannelHandlerContext) { self.context = nil }

    func send(to authority: String, login: ProxyOptions.Login?) {
        guard let context else { return }
        var headers: HTTPHeaders = ["Host": authority]
        if let login {
            let pair = Array(login.username.utf8) + [UInt8(ascii: ":")] + login.password
            headers.add(name: "Proxy-Authorization", value: "Basic " + Base64.encode(pair))
        }
        let head = HTTPRequestHead(version: .http1_1, method: .CONNECT, uri: authority, headers: headers)
        context.write(wrapOutboundOut(.head(head)), promise: nil)
        context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head(let head):
            isAgreed = (200..<300).contains(head.status.code)
            if !isAgreed { refused(head.status, head.headers["proxy-authenticate"]) }
        case .end where isAgreed:
            tunnel.agreed(codec + [self], context)
        case .body, .end:
            break
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard let error = error as? HTTPParserError else { return context.fireErrorCaught(error) }
        switch line.status {
        case _ where error == .headerOverflow:
            tunnel.refused("its answer has more than 64 KiB of headers")
        case nil: tunnel.refused("it does not speak HTTP")
        case let status? where (200..<300).contains(status.code):
            tunnel.refused("its answer \(status.code) has headers that are not HTTP")
        case let status?: refused(status)
        }
    }

    /// - Parameter challenges: the ways to log in that the proxy offers.
    private func refused(_ status: HTTPResponseStatus, _ challenges: [String] = []) {
        let takesBasic = challenges.isEmpty || challenges.contains { $0.lowercased().contains("basic") }
        switch (status.code, takesBasic) {
        case (401, false), (407, false):
            let schemes = challenges.map { $0.prefix { $0.isLetter || $0.isNumber || $0 == "-" }.prefix(20) }.prefix(4)
            tunnel.refused("it wants a login by \(schemes.joined(separator: ", ")), not by Basic (\(status.code))")
        // 401 is wrong here, but tinyproxy says it.
        case (401, _), (407, _): tunnel.refused("\(tunnel.wordsAboutLogin) (\(status.code))")
        case (403, _): tunnel.refused("its rules do not allow the connection (403)")
        default: tunnel.refused("it answered \(status.code) \(status.reasonPhrase)")
        }
    }
}

/// Carries the bytes of a ``SOCKS5Handshake``.
private final class SOCKS5Handler: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let tunnel: ProxyTunnel
    private var handshake: SOCKS5Handshake
    private var received = ByteBuffer()
    private var isOver = false
    private var context: ChannelHandlerContext?

    init(_ tunnel: ProxyTunnel, _ handshake: SOCKS5Handshake) {
        self.tunnel = tunnel
        self.handshake = handshake
    }

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }

    func handlerRemoved(context: ChannelHandlerContext) { self.context = nil }

    func send() {
        guard let context else { return }
        context.writeAndFlush(wrapOutboundOut(handshake.greeting), promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = unwrapInboundIn(data)
        received.writeBuffer(&bytes)
        while !isOver {
            switch handshake.received(&received) {
            case .wait:
                return
            case .send(let request):
                context.writeAndFlush(wrapOutboundOut(request), promise: nil)
            case .finished:
                isOver = true
                tunnel.agreed([self], context, behind: received)
            case .failed(let sentence):
                isOver = true
                received.clear()
                tunnel.refused(sentence)
            }
        }
    }
}
