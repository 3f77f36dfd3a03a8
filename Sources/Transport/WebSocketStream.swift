import NIOCore
import NIOWebSocket
import Vocabulary

/// What the frames of a server mean to a client of MQTT over WebSocket (OASIS MQTT 5, section 6; RFC 6455).
///
/// A value without I/O. MQTT has its own framing, so the content of the binary frames is one stream of bytes: a packet
/// may span frames, and a frame may hold several packets. The content is passed on as it arrives, so a frame may be of
/// any length, and is not kept until it is complete.
struct WebSocketStream: Sendable {
    enum Step: Equatable, Sendable {
        /// More bytes are needed.
        case wait
        /// A frame was taken that says nothing.
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
    /// How many bytes of a binary frame's content have not arrived yet.
    private var missing = 0

    /// Takes as much from the front of the buffer as one step needs. What is left after ``Step/wait`` is less than the
    /// header of a frame, or a control frame of at most 125 bytes that is not complete.
    mutating func next(in bytes: inout ByteBuffer) -> Step {
        guard missing == 0 else { return content(&bytes) }
        guard let start = bytes.getInteger(at: bytes.readerIndex, as: UInt16.self) else { return .wait }
        // RSV1 to RSV3, and the mask, which only clients use.
        guard start & 0x7080 == 0 else {
            return .violation(.protocolError, "a frame that is masked, or uses an extension that was not agreed on")
        }
        let (isLast, length) = (start & 0x8000 != 0, Int(start & 0x7F))
        let opcode = WebSocketOpcode(encodedWebSocketOpcode: UInt8(start >> 8) & 0x0F)
        switch opcode {
        case .binary? where !isInMessage, .continuation? where isInMessage:
            return begin(length, isLast, &bytes)
        case .text?:
            return .violation(.unacceptableData, "a text frame; MQTT comes in binary frames only")
        case .binary?, .continuation?:
            return .violation(.protocolError, "a frame that does not continue the one before")
        case .ping?, .pong?, .connectionClose?:
            // RFC 6455, 5.5.
            guard isLast, length <= 125 else {
                return .violation(.protocolError, "a control frame that is too long, or in parts")
            }
            guard bytes.readableBytes >= 2 + length else { return .wait }
            bytes.moveReaderIndex(forwardBy: 2)
            return Self.control(opcode, bytes.readSlice(length: length) ?? ByteBuffer())
        default:
            return .violation(.protocolError, "a frame of an unknown kind")
        }
    }

    /// Takes the rest of a binary frame's header (RFC 6455, 5.2), and what has arrived of its content. Lengths that
    /// would fit into fewer bytes are accepted: they do no harm.
    private mutating func begin(_ length: Int, _ isLast: Bool, _ bytes: inout ByteBuffer) -> Step {
        let (count, width): (UInt64?, Int) =
            switch length {
            case 126: (bytes.getInteger(at: bytes.readerIndex + 2, as: UInt16.self).map { UInt64($0) }, 2)
            case 127: (bytes.getInteger(at: bytes.readerIndex + 2, as: UInt64.self), 8)
            default: (UInt64(length), 0)
            }
        guard let count else { return .wait }
        guard let missing = Int(exactly: count) else {
            return .violation(.protocolError, "a frame of an impossible length")
        }
        bytes.moveReaderIndex(forwardBy: 2 + width)
        self.missing = missing
        isInMessage = !isLast
        return missing == 0 ? .nothing : content(&bytes)
    }

    private mutating func content(_ bytes: inout ByteBuffer) -> Step {
        guard bytes.readableBytes > 0, let data = bytes.readSlice(length: min(missing, bytes.readableBytes)) else {
            return .wait
        }
        missing -= data.readableBytes
        return .deliver(data)
    }

    private static func control(_ opcode: WebSocketOpcode?, _ data: ByteBuffer) -> Step {
        switch opcode {
        case .ping: .answer(data)
        case .connectionClose: closed(data)
        default: .nothing
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
        let kind: Reason.Code
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
