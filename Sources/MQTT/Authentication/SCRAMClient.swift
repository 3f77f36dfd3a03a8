/// The client's side of SCRAM-SHA-256 (RFC 5802, RFC 7677), without channel binding: server and client prove to each
/// other that they know the password, which is never sent.
///
///     client-first ─▶ server-first (salt, iterations) ─▶ client-final (our proof) ─▶ server-final (the server's proof)
///
/// A value without I/O. Deriving the key from the password is slow on purpose, so it is not done here: the driver does
/// it elsewhere, between `challenge` and `respond`.
///
/// Of SASLprep (RFC 4013) it implements what ASCII needs: such texts are sent unchanged, and control characters are
/// refused. Other texts are sent unchanged too, without normalization, so they must already be in form NFKC.
public struct SCRAMClient: Hashable, Sendable {
    /// The Authentication Method that CONNECT and AUTH name.
    public static let method = "SCRAM-SHA-256"

    /// RFC 7677, 4: a server that asks for fewer iterations may be trying to guess the password.
    static let fewestIterations = 4096
    /// Bytes. A usual nonce has a few dozen.
    static let longestNonce = 1024
    /// The longest user name, in bytes, that always fits into an AUTH: each byte may take three.
    public static let longestUser = 1024
    /// More would keep a processor busy for seconds, which a server could do on purpose.
    static let mostIterations = 1_000_000

    /// Why the two sides have not proven themselves to each other.
    public enum Failure: Error, Hashable, Sendable {
        /// The server's message does not follow RFC 5802; the sentence says how.
        case malformed(String)
        /// What the server says went wrong: the value of `e=`.
        case refused(String)
        /// The server asks for a number of iterations that is out of range.
        case iterations(Int)
        /// The server did not prove that it knows the password.
        case notProven
    }

    /// What the key is derived from.
    public struct Challenge: Hashable, Sendable {
        /// The server's salt for this user.
        public var salt: [UInt8]
        /// How often the hash is applied.
        public var iterations: Int

        public init(salt: [UInt8], iterations: Int) {
            self.salt = salt
            self.iterations = iterations
        }
    }

    /// The stretched password. For this server it is as secret as the password itself.
    public struct Key: Hashable, Sendable {
        let saltedPassword: [UInt8]

        /// Takes as long as the iterations do; ``Derivation`` does some at a time.
        public init(password: [UInt8], _ challenge: Challenge) {
            saltedPassword = SHA256.stretch(password, salt: challenge.salt, iterations: challenge.iterations)
        }

        fileprivate init(saltedPassword: [UInt8]) { self.saltedPassword = saltedPassword }
    }

    /// How far the key for a challenge is derived. That takes as long as the server wants, about a second for a million
    /// iterations, so it is done in steps, between which others have their turn, or it is given up.
    public struct Derivation: Sendable {
        /// The iterations of a step: about two milliseconds.
        private static let step = 2_000

        private let password: [UInt8]
        private let challenge: Challenge
        private var stretching: SHA256.Stretching

        public init(_ password: [UInt8], _ challenge: Challenge) {
            self.password = password
            self.challenge = challenge
            stretching = SHA256.Stretching(password, salt: challenge.salt, iterations: challenge.iterations)
        }

        /// Whether the key is the one for this challenge, which most servers repeat at each login.
        public func isFor(_ password: [UInt8], _ challenge: Challenge) -> Bool {
            self.challenge == challenge && self.password == password
        }

        /// Keeps the processor busy for a step.
        ///
        /// - Returns: the derivation after it.
        public func advanced() -> Derivation {
            var next = self
            next.stretching.advance(by: Self.step)
            return next
        }

        /// `nil` until the last step is done.
        public var key: Key? { stretching.result.map { Key(saltedPassword: $0) } }
    }

    private enum Step: Hashable, Sendable {
        /// client-first is sent. Can transition to: challenged.
        case greeted
        /// The key is being derived. Can transition to: responded.
        case challenged(serverFirst: String, nonce: String)
        /// client-final is sent. Can transition to: over.
        case responded(signature: [UInt8])
        case over
    }

    private let clientFirstBare: String
    private let nonce: String
    private var step = Step.greeted

    /// - Parameters:
    ///   - nonce: unique printable ASCII without commas; random unless a test needs a particular one.
    public init(username: String, nonce: String = SCRAMClient.randomNonce()) {
        self.nonce = nonce
        // RFC 5802, 5.1: a comma would end the attribute.
        var name = ""
        for character in username.unicodeScalars {
            switch character {
            case "=": name += "=3D"
            case ",": name += "=2C"
            default: name.unicodeScalars.append(character)
            }
        }
        clientFirstBare = "n=\(name),r=\(nonce)"
    }

    /// 144 random bits, in the characters that a nonce may have.
    public static func randomNonce() -> String {
        var random = SystemRandomNumberGenerator()
        return Base64.encode((0..<18).map { _ in UInt8.random(in: .min ... .max, using: &random) })
    }

    /// Whether a text can be a user name or password: it must have no control characters [RFC 4013, 2.3].
    public static func isUsable(_ text: [UInt8]) -> Bool {
        !text.isEmpty && text.allSatisfy { $0 >= 0x20 && $0 != 0x7F }
    }

    /// The first message.
    public var clientFirst: [UInt8] { Array("n,,\(clientFirstBare)".utf8) }

    /// Processes server-first.
    ///
    /// - Returns: what to derive the key from, with 4,096 to 1,000,000 iterations.
    /// - Throws: ``Failure/malformed(_:)`` if the message does not follow RFC 5802 or comes out of turn,
    ///   ``Failure/refused(_:)`` if the server reports an error, and ``Failure/iterations(_:)`` if the number of
    ///   iterations is out of range.
    public mutating func challenge(_ bytes: [UInt8]) throws(Failure) -> Challenge {
        guard case .greeted = step else { throw .malformed("the server sent a challenge out of turn") }
        let serverFirst = try Self.text(bytes)
        let attributes = Self.attributes(serverFirst)
        if let error = attributes.first, error.name == "e" { throw .refused(error.value) }
        guard attributes.count >= 3, attributes[0].name == "r", attributes[1].name == "s", attributes[2].name == "i"
        else { throw .malformed("the server's challenge does not have the form r=…,s=…,i=…") }
        let nonce = attributes[0].value
        guard nonce.hasPrefix(self.nonce), nonce.utf8.count > self.nonce.utf8.count else {
            throw .malformed("the server's challenge does not continue our nonce")
        }
        // The response repeats it, in a field of 65,535 bytes.
        guard nonce.utf8.count <= Self.longestNonce else { throw .malformed("the server's nonce is too long") }
        guard let salt = Base64.decode(attributes[1].value), !salt.isEmpty else {
            throw .malformed("the salt is not Base64")
        }
        guard let iterations = Int(attributes[2].value) else {
            throw .malformed("the iteration count is not a number")
        }
        guard (Self.fewestIterations...Self.mostIterations).contains(iterations) else {
            throw .iterations(iterations)
        }
        step = .challenged(serverFirst: serverFirst, nonce: nonce)
        return Challenge(salt: salt, iterations: iterations)
    }

    /// Builds client-final, with our proof; `nil` if there was no challenge.
    public mutating func respond(with key: Key) -> [UInt8]? {
        guard case .challenged(let serverFirst, let nonce) = step else { return nil }
        // "biws" is "n,,", that is no channel binding, in Base64.
        let withoutProof = "c=biws,r=\(nonce)"
        let message = Array("\(clientFirstBare),\(serverFirst),\(withoutProof)".utf8)
        let salted = SHA256.HMAC(key: key.saltedPassword)
        let clientKey = salted.code(of: Array("Client Key".utf8))
        let clientSignature = SHA256.HMAC(key: SHA256.hash(clientKey)).code(of: message)
        let serverKey = salted.code(of: Array("Server Key".utf8))
        step = .responded(signature: SHA256.HMAC(key: serverKey).code(of: message))
        let proof = zip(clientKey, clientSignature).map { $0 ^ $1 }
        return Array("\(withoutProof),p=\(Base64.encode(proof))".utf8)
    }

    /// Processes server-final, the server's own proof.
    ///
    /// - Throws: ``Failure/refused(_:)`` if the server reports an error, ``Failure/malformed(_:)`` if the message is
    ///   not UTF-8, and ``Failure/notProven`` if the proof is missing, wrong or out of turn.
    public mutating func verify(_ bytes: [UInt8]) throws(Failure) {
        guard case .responded(let signature) = step else { throw .notProven }
        step = .over
        guard let first = Self.attributes(try Self.text(bytes)).first else { throw .notProven }
        if first.name == "e" { throw .refused(first.value) }
        guard first.name == "v", let given = Base64.decode(first.value), given.count == signature.count,
            // Compares all bytes, so that the time taken reveals nothing.
            zip(given, signature).reduce(UInt8(0), { $0 | ($1.0 ^ $1.1) }) == 0
        else { throw .notProven }
    }

    // MARK: Messages

    private static func text(_ bytes: [UInt8]) throws(Failure) -> String {
        guard let text = String(validating: bytes, as: UTF8.self) else {
            throw .malformed("the server's message is not UTF-8")
        }
        return text
    }

    private static func attributes(_ message: String) -> [(name: Substring, value: String)] {
        message.split(separator: ",", omittingEmptySubsequences: false).map { part in
            let name = part.prefix { $0 != "=" }
            return (name, String(part.dropFirst(name.count + 1)))
        }
    }
}

extension SCRAMClient.Failure: CustomStringConvertible {
    /// A sentence without the final full stop.
    public var description: String {
        switch self {
        case .malformed(let sentence): "authentication by SCRAM-SHA-256 failed: \(sentence)"
        case .refused(let error): "the server refused authentication by SCRAM-SHA-256: \(error)"
        case .iterations(let count):
            "the server wants the password stretched \(count) times; \(SCRAMClient.fewestIterations) to "
                + "\(SCRAMClient.mostIterations) are accepted"
        case .notProven: "the server did not prove that it knows the password"
        }
    }
}
