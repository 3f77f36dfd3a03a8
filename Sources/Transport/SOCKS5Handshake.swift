import NIOCore
import Vocabulary

/// A client's side of SOCKS 5 (RFC 1928) up to the connection, with the password of RFC 1929 if there is one.
///
/// A value without I/O. The proxy resolves the server's name: names in the network behind it are known only there.
struct SOCKS5Handshake: Sendable {
    enum Step: Equatable, Sendable {
        /// More bytes are needed.
        case wait
        /// To be sent.
        case send(ByteBuffer)
        /// The connection is established; what follows comes from the server.
        case finished
        /// The proxy refused, or sent something that is not SOCKS 5; a sentence.
        case failed(String)
    }

    private enum State {
        /// Can transition to: loggingIn, requesting, over.
        case greeting
        /// Can transition to: requesting, over.
        case loggingIn
        /// Can transition to: over.
        case requesting
        case over
    }

    private let host: String
    private let port: Int
    private let login: ProxyOptions.Login?
    private var state = State.greeting

    /// - Parameters:
    ///   - host: a name of at most 255 bytes, or an IP literal without brackets.
    ///   - port: 1...65535.
    init(to host: String, port: Int, login: ProxyOptions.Login?) {
        self.host = host
        self.port = port
        self.login = login
    }

    /// The first bytes to send: the version, and the ways to log in that we know (RFC 1928, 3).
    var greeting: ByteBuffer { ByteBuffer(bytes: login == nil ? [5, 1, 0] : [5, 2, 0, 2]) }

    /// Takes as much from the front of the buffer as one step needs. Must be called again after ``Step/send(_:)``.
    mutating func received(_ buffer: inout ByteBuffer) -> Step {
        switch state {
        case .greeting: greeted(&buffer)
        case .loggingIn: loggedIn(&buffer)
        case .requesting: answered(&buffer)
        case .over: .wait
        }
    }

    private mutating func fail(_ sentence: String) -> Step {
        state = .over
        return .failed(sentence)
    }

    private mutating func greeted(_ buffer: inout ByteBuffer) -> Step {
        guard let (version, method) = buffer.readMultipleIntegers(as: (UInt8, UInt8).self) else { return .wait }
        guard version == 5 else { return fail("it does not speak SOCKS 5") }
        switch (method, login) {
        case (0, _):
            return request()
        case (2, let login?):
            let name = Array(login.username.utf8)
            guard (1...255).contains(name.count), (1...255).contains(login.password.count) else {
                return fail("SOCKS 5 takes a user name and a password of 1 to 255 bytes only")
            }
            state = .loggingIn
            return .send(
                ByteBuffer(
                    bytes: [1, UInt8(name.count)] + name + [UInt8(login.password.count)] + login.password))
        case (0xFF, nil):
            return fail("it requires a user name and a password, and the configuration has none")
        default:
            return fail("it requires an unsupported authentication method")
        }
    }

    private mutating func loggedIn(_ buffer: inout ByteBuffer) -> Step {
        guard let (_, status) = buffer.readMultipleIntegers(as: (UInt8, UInt8).self) else { return .wait }
        // RFC 1929, 2: every status but 0 is a failure.
        guard status == 0 else { return fail("it rejected the user name or password") }
        return request()
    }

    private mutating func request() -> Step {
        state = .requesting
        var request = ByteBuffer(bytes: [5, 1, 0])
        switch IPAddress(host) {
        case let address?:
            let bytes = address.bytes
            request.writeBytes([bytes.count == 4 ? 1 : 4] + bytes)
        case nil:
            request.writeBytes([3, UInt8(clamping: host.utf8.count)])
            request.writeString(host)
        }
        request.writeInteger(UInt16(clamping: port))
        return .send(request)
    }

    private mutating func answered(_ buffer: inout ByteBuffer) -> Step {
        guard let bytes = buffer.getBytes(at: buffer.readerIndex, length: min(buffer.readableBytes, 5)),
            bytes.count >= 2
        else { return .wait }
        guard bytes[0] == 5 else { return fail("it does not speak SOCKS 5") }
        // Some proxies omit the address when they refuse, and close.
        guard bytes[1] == 0 else { return fail(Self.words(bytes[1])) }
        guard bytes.count == 5 else { return .wait }
        let addressLength: Int
        switch bytes[3] {
        case 1: addressLength = 4
        case 3: addressLength = 1 + Int(bytes[4])
        case 4: addressLength = 16
        default: return fail("it does not speak SOCKS 5")
        }
        guard buffer.readableBytes >= 4 + addressLength + 2 else { return .wait }
        buffer.moveReaderIndex(forwardBy: 4 + addressLength + 2)
        state = .over
        return .finished
    }

    /// RFC 1928, 6.
    private static func words(_ reply: UInt8) -> String {
        switch reply {
        case 1: "it failed"
        case 2: "its rules do not allow the connection"
        case 3: "the server's network cannot be reached from it"
        case 4: "the server cannot be reached from it, or its name is unknown there"
        case 5: "the server refused the connection"
        case 6: "the server did not answer it in time"
        case 7: "it does not know the command CONNECT"
        case 8: "it does not know this kind of address"
        default: "it answered with the unknown code \(reply)"
        }
    }
}
