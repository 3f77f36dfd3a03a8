import MQTT

/// The server's side of SCRAM-SHA-256 for one exchange, with a fixed salt.
package struct SCRAMServer: Sendable {
    /// RFC 7677, 4, requires at least 4096 iterations.
    private static let challenge = SCRAMClient.Challenge(salt: Array("salt of a test".utf8), iterations: 4096)

    private let salted: [UInt8]
    private var messages: [String] = []
    private var nonce = ""

    package init(password: String) {
        salted = SHA256.stretch(
            Array(password.utf8), salt: Self.challenge.salt, iterations: Self.challenge.iterations)
    }

    /// Takes client-first and returns server-first.
    package mutating func greet(_ clientFirst: String) -> String {
        let bare = String(clientFirst.dropFirst("n,,".count))
        nonce = (bare.split(separator: ",").last.map { String($0.dropFirst("r=".count)) } ?? "") + "server"
        let serverFirst =
            "r=\(nonce),s=\(Base64.encode(Self.challenge.salt)),i=\(Self.challenge.iterations)"
        messages = [bare, serverFirst]
        return serverFirst
    }

    /// Takes client-final and returns server-final; `nil` if the client does not know the password.
    package mutating func finish(_ clientFinal: String) -> String? {
        let withoutProof = "c=biws,r=\(nonce)"
        let message = Array((messages + [withoutProof]).joined(separator: ",").utf8)
        let salted = SHA256.HMAC(key: salted)
        let clientKey = salted.code(of: Array("Client Key".utf8))
        let signature = SHA256.HMAC(key: SHA256.hash(clientKey)).code(of: message)
        let proof = Base64.encode(zip(clientKey, signature).map { $0 ^ $1 })
        guard clientFinal == "\(withoutProof),p=\(proof)" else { return nil }
        return "v=" + Base64.encode(SHA256.HMAC(key: salted.code(of: Array("Server Key".utf8))).code(of: message))
    }
}
