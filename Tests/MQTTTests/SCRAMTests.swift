import NIOCore
import Support
import Testing

@testable import MQTT

private func hex(_ bytes: [UInt8]) -> String {
    bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
}

/// SHA-256 and what is built on it, against the vectors of the standards.
struct SHA256Tests {
    // FIPS 180-4's examples, and lengths around the padding's edges by their well-known digests.
    @Test(arguments: [
        ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (
            "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
        ),
        (
            String(repeating: "a", count: 1000),
            "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3"
        ),
    ])
    func `SHA-256 hashes as FIPS 180-4 does`(text: String, digest: String) {
        #expect(hex(SHA256.hash(Array(text.utf8))) == digest)
    }

    // RFC 4231, cases 1, 2 and 6.
    @Test(arguments: [
        (
            [UInt8](repeating: 0x0B, count: 20), "Hi There",
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        ),
        (
            Array("Jefe".utf8), "what do ya want for nothing?",
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        ),
        (
            [UInt8](repeating: 0xAA, count: 131), "Test Using Larger Than Block-Size Key - Hash Key First",
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        ),
    ])
    func `HMAC authenticates messages as RFC 4231 does`(key: [UInt8], message: String, code: String) {
        #expect(hex(SHA256.HMAC(key: key).code(of: Array(message.utf8))) == code)
    }

    @Test(arguments: [
        ("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy"),
    ])
    func `Base64 is that of RFC 4648`(text: String, base64: String) {
        #expect(Base64.encode(Array(text.utf8)) == base64)
        #expect(Base64.decode(base64) == Array(text.utf8))
    }

    /// RFC 4013, 2.3.
    @Test(
        arguments: [
            ([], false), ([0x61], true), ([0x1F], false), ([0x20], true), ([0x7E], true), ([0x7F], false),
            ([0x80], true), ([0x61, 0x00], false),
        ] as [([UInt8], Bool)])
    func `a user name and a password have no control characters`(text: [UInt8], isUsable: Bool) {
        #expect(SCRAMClient.isUsable(text) == isUsable)
    }

    @Test(arguments: ["Z", "Zg", "Zg=", "Zh==", "Z===", "====", "Zg==Zg==", "Zm9 ", "Zm9v=", "Zg==\n"])
    func `text that is not Base64 is not decoded`(text: String) {
        #expect(Base64.decode(text) == nil)
    }
}

/// The exchange of RFC 7677, 3, with the user `user` and the password `pencil`; and a server for it.
struct SCRAMTests {
    static let nonce = "rOprNGfwEbeRWgbNEkqO"
    static let serverNonce = nonce + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    static let serverFirst = "r=\(serverNonce),s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    static let clientFinal = "c=biws,r=\(serverNonce),p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    static let serverFinal = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    /// Made once: it takes a while without optimization.
    static let key = SCRAMClient.Key(
        password: Array("pencil".utf8),
        SCRAMClient.Challenge(salt: Base64.decode("W22ZaJ0SNY7soEsUEjb6gQ==") ?? [], iterations: 4096))

    static func client() -> SCRAMClient { SCRAMClient(username: "user", nonce: nonce) }

    @Test func `the exchange is that of RFC 7677`() throws {
        var client = Self.client()
        #expect(client.clientFirst == Array("n,,n=user,r=\(Self.nonce)".utf8))
        let challenge = try client.challenge(Array(Self.serverFirst.utf8))
        #expect(challenge == .init(salt: Base64.decode("W22ZaJ0SNY7soEsUEjb6gQ==") ?? [], iterations: 4096))
        #expect(client.respond(with: Self.key).map { String(decoding: $0, as: UTF8.self) } == Self.clientFinal)
        try client.verify(Array((Self.serverFinal + ",x=extension").utf8))
    }

    @Test func `a key that is derived in steps is the same`() {
        let (password, challenge) = (
            Array("pencil".utf8),
            SCRAMClient.Challenge(salt: Base64.decode("W22ZaJ0SNY7soEsUEjb6gQ==") ?? [], iterations: 4096)
        )
        var derivation = SCRAMClient.Derivation(password, challenge)
        var steps = 0
        while derivation.key == nil {
            derivation = derivation.advanced()
            steps += 1
        }
        #expect(derivation.key == Self.key)
        #expect(steps == 3, "2000 iterations each")
        #expect(derivation.isFor(password, challenge))
        #expect(!derivation.isFor(Array("pen".utf8), challenge))
        #expect(!derivation.isFor(password, .init(salt: challenge.salt, iterations: 4097)))
    }

    @Test func `a user name is escaped, and nonces are not repeated`() {
        let client = SCRAMClient(username: "a=b,c", nonce: "x")
        #expect(client.clientFirst == Array("n,,n=a=3Db=2Cc,r=x".utf8))
        #expect(SCRAMClient.randomNonce() != SCRAMClient.randomNonce())
        #expect(SCRAMClient.randomNonce().utf8.count == 24)
    }

    static let wrongChallenges: [(LongText, String)] = [
        ("r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "does not continue our nonce"),
        ("r=\(nonce),s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "does not continue our nonce"),
        (LongText("x", 65_400, before: "r=\(serverNonce)", after: ",s=AAAA,i=4096"), "nonce is too long"),
        ("r=\(serverNonce),s=%,i=4096", "the salt is not Base64"),
        ("r=\(serverNonce),s=,i=4096", "the salt is not Base64"),
        ("r=\(serverNonce),s=Zg==,i=x", "not a number"), ("r=\(serverNonce),s=Zg==,i=1", "stretched 1 times"),
        ("r=\(serverNonce),s=Zg==,i=99999999", "stretched 99999999 times"),
        ("e=unknown-user", "refused authentication by SCRAM-SHA-256: unknown-user"), ("", "does not have the form"),
        ("m=mandatory,\(serverFirst)", "does not have the form"),
    ]

    @Test(arguments: wrongChallenges)
    func `an invalid challenge is refused with a sentence`(serverFirst: LongText, sentence: String) {
        var client = Self.client()
        #expect {
            try client.challenge(Array(serverFirst.text.utf8))
        } throws: { ("\($0)").contains(sentence) }
    }

    /// - Parameter length: of the nonce, in bytes.
    private static func challenge(length: Int = 30, iterations: Int = 4096) throws {
        var client = Self.client()
        let nonce = nonce + String(repeating: "x", count: length - nonce.utf8.count)
        _ = try client.challenge(Array("r=\(nonce),s=Zg==,i=\(iterations)".utf8))
    }

    @Test func `a challenge is accepted up to the limits on its nonce and iterations`() throws {
        try Self.challenge(length: 1024)
        #expect(throws: SCRAMClient.Failure.malformed("the server's nonce is too long")) {
            try Self.challenge(length: 1025)
        }
        for iterations in [4096, 1_000_000] { try Self.challenge(iterations: iterations) }
        for iterations in [4095, 1_000_001] {
            #expect(throws: SCRAMClient.Failure.iterations(iterations)) { try Self.challenge(iterations: iterations) }
        }
    }

    @Test func `a refusal in the last message is reported`() throws {
        var client = Self.client()
        _ = try client.challenge(Array(Self.serverFirst.utf8))
        _ = client.respond(with: Self.key)
        #expect(throws: SCRAMClient.Failure.refused("other-error")) { try client.verify(Array("e=other-error".utf8)) }
    }

    @Test(arguments: [
        "v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "v=6rri", "v=", "", "x",
        ",v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ])
    func `a server without a valid proof is not trusted`(serverFinal: String) throws {
        var client = Self.client()
        _ = try client.challenge(Array(Self.serverFirst.utf8))
        _ = client.respond(with: Self.key)
        #expect(throws: SCRAMClient.Failure.notProven) { try client.verify(Array(serverFinal.utf8)) }
    }

    @Test func `no step can be skipped or repeated`() throws {
        var client = Self.client()
        #expect(client.respond(with: Self.key) == nil)
        #expect(throws: SCRAMClient.Failure.notProven) { try client.verify(Array(Self.serverFinal.utf8)) }
        _ = try client.challenge(Array(Self.serverFirst.utf8))
        #expect(throws: SCRAMClient.Failure.self) { try client.challenge(Array(Self.serverFirst.utf8)) }
    }

    // MARK: Through the machine

    private static func auth(_ code: ReasonCode, _ data: String, method: String? = SCRAMClient.method) -> Packet {
        .auth(
            Auth(
                reasonCode: code,
                properties: .init(authenticationMethod: method, authenticationData: ByteBuffer(string: data))))
    }

    private static func connack(_ data: String?, method: String? = SCRAMClient.method) -> Packet {
        .connack(
            Connack(
                properties: .init(
                    authenticationMethod: method, authenticationData: data.map { ByteBuffer(string: $0) })))
    }

    private static func opened() -> (MQTTClientHarness, [String]) {
        var client = MQTTClientHarness()
        let credentials = MQTTCredentials(username: "user", authentication: Self.client())
        let words = client.handle(.connectionOpened(credentials, forceCleanStart: false))
        return (client, words)
    }

    private static func connected() -> MQTTClientHarness {
        var (client, _) = opened()
        client.server(auth(.continueAuthentication, serverFirst))
        client.handle(.keyDerived(key))
        client.server(connack(serverFinal))
        return client
    }

    /// [MQTT-3.1.2-30] [MQTT-4.12.0-3]
    @Test func `rule 20: nothing but AUTH is sent before CONNACK, and nothing before the server's proof`() throws {
        var (client, words) = Self.opened()
        #expect(words == ["CONNECT"])
        try client.publish("early")
        #expect(client.server(Self.auth(.continueAuthentication, Self.serverFirst)) == ["challenged 4096"])
        #expect(client.handle(.ping).isEmpty)
        #expect(client.handle(.keyDerived(Self.key)) == ["AUTH 18 \(Self.clientFinal)"])
        #expect(client.handle(.keyDerived(Self.key)).isEmpty, "a second key answers nothing")
        words = client.server(Self.connack(Self.serverFinal))
        #expect(words.first == "connected")
        #expect(words.last == "PUBLISH early id 1")
        #expect(client.machine.canReauthenticate)
    }

    /// [MQTT-4.12.0-5]
    @Test(
        arguments: [
            (serverFinal.replacingFirst("6", "7"), SCRAMClient.method), (serverFinal, nil), (nil, SCRAMClient.method),
            (serverFinal, "OTHER"),
        ] as [(String?, String?)])
    func `a CONNACK without the right proof does not connect`(data: String?, method: String?) throws {
        var (client, _) = Self.opened()
        try client.publish("secret")
        client.server(Self.auth(.continueAuthentication, Self.serverFirst))
        client.handle(.keyDerived(Self.key))
        #expect(
            client.server(Self.connack(data, method: method))
                == ["failed: \(SCRAMClient.Failure.notProven)", "DISCONNECT 82", "close"])
        #expect(client.publishes.isEmpty)
    }

    @Test func `a server that skips the challenge is not trusted`() {
        var (client, _) = Self.opened()
        #expect(
            client.server(Self.connack(Self.serverFinal))
                == ["failed: \(SCRAMClient.Failure.notProven)", "DISCONNECT 82", "close"])
    }

    /// [MQTT-3.15.2-1] [MQTT-4.12.0-2] [MQTT-4.12.0-5]
    @Test(arguments: [
        auth(.success, serverFinal), auth(.reauthenticate, serverFirst),
        auth(.continueAuthentication, serverFirst, method: "OTHER"),
        auth(.continueAuthentication, serverFirst, method: nil),
    ])
    func `an AUTH out of turn, or of another method, is a violation`(packet: Packet) {
        var (client, _) = Self.opened()
        #expect(client.server(packet) == ["violation 82", "DISCONNECT 82", "close"])
    }

    @Test func `a refusal after the proof is reported like any other`() {
        var (client, _) = Self.opened()
        client.server(Self.auth(.continueAuthentication, Self.serverFirst))
        client.handle(.keyDerived(Self.key))
        #expect(client.server(.connack(Connack(reasonCode: .notAuthorized))) == ["refused 87", "close"])
    }

    @Test func `a new credential is sent on the same connection while messages go on`() throws {
        var client = Self.connected()
        #expect(client.handle(.reauthenticate(Self.client())) == ["AUTH 19 n,,n=user,r=\(Self.nonce)"])
        #expect(!client.machine.canReauthenticate)
        #expect(client.handle(.reauthenticate(Self.client())).isEmpty, "one at a time")
        #expect(try client.publish("a").last == "PUBLISH a id 1")
        #expect(client.server(Self.auth(.continueAuthentication, Self.serverFirst)) == ["challenged 4096"])
        #expect(client.handle(.keyDerived(Self.key)) == ["AUTH 18 \(Self.clientFinal)"])
        #expect(client.server(Self.auth(.success, Self.serverFinal)) == ["reauthenticated"])
        #expect(client.machine.canReauthenticate)
        #expect(
            client.server(Self.auth(.success, Self.serverFinal)).first == "violation 82",
            "no authentication was under way")
    }

    /// [MQTT-4.12.1-2]
    @Test func `a server that cannot prove itself again loses the connection`() {
        var client = Self.connected()
        client.handle(.reauthenticate(Self.client()))
        client.server(Self.auth(.continueAuthentication, Self.serverFirst))
        client.handle(.keyDerived(Self.key))
        #expect(
            client.server(Self.auth(.success, Self.serverFinal.replacingFirst("6", "7")))
                == ["failed: \(SCRAMClient.Failure.notProven)", "DISCONNECT 82", "close"])
    }

    /// [MQTT-4.12.0-7]
    @Test func `a connection without enhanced authentication cannot be authenticated again`() {
        var client = MQTTClientHarness().connected()
        #expect(!client.machine.canReauthenticate)
        #expect(client.handle(.reauthenticate(Self.client())).isEmpty)
    }
}

extension String {
    fileprivate func replacingFirst(_ old: Character, _ new: Character) -> String {
        var text = self
        if let index = text.firstIndex(of: old) { text.replaceSubrange(index...index, with: [new]) }
        return text
    }
}
