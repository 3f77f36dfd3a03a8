import NIOCore
import NIOWebSocket

/// What the frames of a server mean to a client of MQTT over WebSocket (OASIS MQTT 5, section 6; RFC 6455).
///
/// A value without I/O. MQTT has its own framing, so the content of the binary frames is one stream of bytes: a packet
/// may span frames, and a frame may hold several packets.
struct WebSocketStream: Sendable {
    enum Step: Equatable, Sendable {
        case nothing
        /// Bytes of MQTT.
        case deliver(ByteBuffer)
        /// A ping, to be answered with a pong that holds the same bytes.
        case answer(ByteBuffer)
        /// The server closes; with a failure unless it is a normal close without a text.
        case close(WebSocketErrorCode?, TransportFailure?)
        /// The server broke the rules: send it the code and end the connection. [MQTT-6.0.0-1]
        case violation(WebSocketErrorCode, String)
    }

    /// Whether a binary message has begun whose last frame has not arrived yet.
    private var isInMessage = false

    mutating func received(_ frame: WebSocketFrame) -> Step {
        guard !frame.rsv1, !frame.rsv2, !frame.rsv3, frame.maskKey == nil else {
            return .violation(.protocolError, "a frame that is masked, or uses an extension that was not agreed on")
        }
        switch frame.opcode {
        case .binary where !isInMessage, .continuation where isInMessage:
            isInMessage = !frame.fin
            return frame.data.readableBytes == 0 ? .nothing : .deliver(frame.data)
        case .text:
            return .violation(.unacceptableData, "a text frame; MQTT comes in binary frames only")
        case .binary, .continuation:
            return .violation(.protocolError, "a frame that does not continue the one before")
        case .ping:
            return .answer(frame.data)
        case .pong:
            return .nothing
        case .connectionClose:
            return Self.closed(frame.data)
        default:
            return .violation(.protocolError, "a frame of an unknown kind")
        }
    }

    private static func closed(_ data: ByteBuffer) -> Step {
        var data = data
        guard let code = data.readWebSocketErrorCode() else { return .close(nil, nil) }
        let number = UInt16(webSocketErrorCode: code)
        let text = data.readString(length: data.readableBytes) ?? ""
        // It is logged and shown to people, so it must stay one line.
        let line = String(text.unicodeScalars.filter { $0.properties.generalCategory != .control }.prefix(123))
        // RFC 6455, 7.4.1, and IANA's registry for 1012 and 1013.
        let kind: TransportFailure.Code
        switch number {
        case 1000 where line.isEmpty: return .close(code, nil)
        case 1001, 1012: kind = .serverShutdown
        case 1013: kind = .serverBusy
        default: kind = .serverError
        }
        let words = "the server closed the WebSocket with \(number)" + (line.isEmpty ? "" : " (\(line))")
        return .close(code, TransportFailure(kind, words))
    }
}
