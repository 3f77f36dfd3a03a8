import Glibc
import NIOCore
import NIOPosix
import Support
import Synchronization
import Testing
import Vocabulary

@testable import Transport

@Suite(.timeLimit(.minutes(10))) struct TLSTests {
    let certificates: TestCertificates

    init() async throws { certificates = try await TestCertificates.shared.value }

    func options(
        authority: String? = "trusted.pem", serverName: String? = nil,
        minimum: TLSOptions.Version = .tls12
    ) -> Connection.Options {
        Connection.Options(
            tls: TLSOptions(
                authorities: authority.map(certificates.path), serverName: serverName,
                minimum: minimum))
    }

    /// A connection whose handshakes have a time limit. It begins when our own files were read, which takes longer on a
    /// machine that is busy.
    private func hurried(
        _ endpoint: String, _ options: Connection.Options, contexts: NIOLoopBoundBox<TLSContextCache>? = nil,
        loop: any EventLoop = MultiThreadedEventLoopGroup.singleton.next(), lookUp: @escaping LookUp = systemLookUp
    ) async throws -> TestClient {
        var options = options
        (options.handshakeTimeout, options.stop) = (.milliseconds(500), .firstHop)
        let client = try await TestClient(endpoint, options: options, contexts: contexts, loop: loop, lookUp: lookUp)
        try await until("our own files were read, or nothing can be dialed") {
            try await client.on { $0.phase == .finished || $0.phase == .reached && $0.tls != nil }
        }
        try await client.proceed()
        return client
    }

    @Test func `a verified server is connected to over TLS 1_3`() async throws {
        let server = try await TestServer(.echo, tls: try certificates.server("localhost"))
        let client = try await TestClient("mqtts://localhost:\(server.port)", options: options(minimum: .tls13))
        let opened = try await client.opened()
        #expect(opened.tlsVersion == "TLSv1.3")
        #expect(opened.peerAddress == "127.0.0.1:\(server.port)")
        try await client.send("hello")
        #expect(try await client.received(5) == "hello")
        try await client.close(.afterFlush)
        #expect(try await client.end() == .closedLocally)
        try await server.waitFor(.closed)
    }

    /// It may hold nothing but session tickets, each of which costs as much as many bytes.
    @Test func `TLS is read once in a turn from the first byte on`() async throws {
        let server = try await TestServer(.echo, tls: try certificates.server("localhost"))
        let portions = Mutex<[Wire.Portion?]>([])
        let client = try await TestClient("mqtts://localhost:\(server.port)", options: options()) { event, connection in
            switch event {
            case .securing, .opened: portions.withLock { $0.append(connection.readPortion) }
            default: break
            }
        }
        _ = try await client.opened()
        #expect(portions.withLock { $0 } == [.single, .single])
        try await client.close(.abort)
    }

    @Test func `securing comes between dialing and opened`() async throws {
        let server = try await TestServer(.close, tls: try certificates.server("localhost"))
        let client = try await TestClient("mqtts://localhost:\(server.port)", options: options()) { event, connection in
            if case .opened = event { connection.send(ByteBuffer(string: "x")) }
        }
        var names: [String] = []
        for await event in client.events {
            names.append(event.name)
            if case .closed(let end) = event { #expect(end == .closedByPeer) }
        }
        #expect(names == ["resolving", "resolved", "dialing", "securing", "opened", "closed"])
    }

    @Test func `a certificate for an address is compared with the address`() async throws {
        let server = try await TestServer(.echo, tls: try certificates.server("address"))
        let client = try await TestClient("mqtts://127.0.0.1:\(server.port)", options: options())
        #expect(try await client.opened().tlsVersion == "TLSv1.3")
        try await client.close(.abort)
    }

    @Test(arguments: [
        ("broker.example", "broker.example", true), ("Broker.Example", "broker.EXAMPLE", true),
        ("*.example.org", "a.example.org", true), ("*.example.org", "A.Example.org", true),
        ("*.example.org", "example.org", false), ("*.example.org", "a.b.example.org", false),
        ("*.example.org", ".example.org", false), ("*.org", "example.org", false), ("*", "localhost", false),
        ("a*.example.org", "ab.example.org", false), ("broker.example", "other.example", false), ("", "", false),
    ])
    func `a certificate's name is matched with a host name`(pattern: String, hostName: String, isMatch: Bool) {
        #expect(matches(pattern: pattern, hostName) == isMatch)
    }

    @Test func `a certificate with an address and a name is valid for both`() async throws {
        let server = try await TestServer(.echo, tls: try certificates.server("both"))
        for host in ["localhost", "127.0.0.1"] {
            let client = try await TestClient("mqtts://\(host):\(server.port)", options: options())
            _ = try await client.opened()
            try await client.close(.abort)
        }
    }

    @Test func `the server name replaces the host`() async throws {
        let server = try await TestServer(.echo, tls: try certificates.server("localhost"))
        let client = try await TestClient(
            "mqtts://127.0.0.1:\(server.port)", options: options(serverName: "localhost"))
        _ = try await client.opened()
        try await client.close(.abort)
    }

    /// Private networks have such names, and the TLS library does not compare them.
    @Test func `a host name with an underscore is compared as any other`() async throws {
        let server = try await TestServer(.echo, tls: try certificates.server("underscore"))
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let contexts = try await loop.submit { NIOLoopBoundBox(TLSContextCache(), eventLoop: loop) }.get()
        // A context that leaves names to us is not used for others, nor the other way round.
        for _ in 1...2 {
            let client = try await TestClient(
                "mqtts://my_broker.test:\(server.port)", options: options(), contexts: contexts, loop: loop,
                lookUp: addresses(["127.0.0.1"]))
            _ = try await client.opened()
            try await client.close(.abort)
            let failure = try await TestClient(
                "mqtts://localhost:\(server.port)", options: options(), contexts: contexts, loop: loop
            ).failure()
            #expect(failure.code == .certificateInvalid && failure.detail == .otherName, "\(failure)")
        }
        for name in ["other", "localhost", "address", "untrusted"] {
            let server = try await TestServer(.echo, tls: try certificates.server(name))
            let failure = try await TestClient(
                "mqtts://my_broker.test:\(server.port)", options: options(), lookUp: addresses(["127.0.0.1"])
            ).failure()
            #expect(failure.code == .certificateInvalid, "\(failure)")
            #expect((failure.detail == .otherName) == (name != "untrusted"), "\(failure)")
        }
    }

    @Test(arguments: ["ed25519", "p521"])
    func `a server may have a key of any kind that other clients take`(_ kind: String) async throws {
        let server = try await TestServer(.echo, tls: try certificates.server(kind, key: kind))
        let client = try await TestClient("mqtts://localhost:\(server.port)", options: options())
        _ = try await client.opened()
        try await client.close(.abort)
    }

    struct Refusal: Sendable, CustomTestStringConvertible {
        let certificate: String
        var host = "localhost"
        var authority: String? = "trusted.pem"
        var serverName: String?
        let code: Reason.Code
        let words: String
        var testDescription: String { "\(certificate) for \(serverName ?? host): \(words)" }
    }

    @Test(arguments: [
        Refusal(certificate: "localhost", host: "127.0.0.1", code: .certificateInvalid, words: "\"127.0.0.1\""),
        Refusal(certificate: "address", code: .certificateInvalid, words: "is not for \"localhost\""),
        Refusal(
            certificate: "localhost", serverName: "other.example", code: .certificateInvalid,
            words: "is not for \"other.example\""),
        Refusal(certificate: "untrusted", code: .certificateInvalid, words: "not signed by a trusted authority"),
        Refusal(
            certificate: "localhost", authority: nil, code: .certificateInvalid,
            words: "not signed by a trusted authority"),
        Refusal(certificate: "expired", code: .tlsFailed, words: "has expired"),
        Refusal(certificate: "early", code: .tlsFailed, words: "is not valid yet"),
        Refusal(
            certificate: "under-over", code: .tlsFailed,
            words: "an authority in the certificate chain of 127.0.0.1"),
        Refusal(certificate: "under-later", code: .tlsFailed, words: "is not valid yet"),
        Refusal(
            certificate: "localhost", authority: "past.pem", code: .certificateInvalid,
            words: "not signed by a trusted authority"),
        Refusal(certificate: "ofPast", authority: "past.pem", code: .tlsFailed, words: "an authority in the"),
        Refusal(certificate: "forClients", code: .certificateInvalid, words: "not meant for servers"),
        Refusal(certificate: "localhost", serverName: "127.0.0.1", code: .badEndpoint, words: "not a host name"),
    ])
    func `an invalid certificate is refused`(refusal: Refusal) async throws {
        let server = try await TestServer(.echo, tls: try certificates.server(refusal.certificate))
        let client = try await TestClient(
            "mqtts://\(refusal.host):\(server.port)",
            options: options(authority: refusal.authority, serverName: refusal.serverName))
        let failure = try await client.failure()
        #expect(failure.code == refusal.code)
        #expect((failure.detail == .certificateExpired) == (refusal.code == .tlsFailed))
        #expect(failure.message.contains(refusal.words), "\(failure.message)")
    }

    @Test func `a clock that is plainly wrong is named as the cause`() {
        #expect(TransportFailure.doubt(aboutClock: 1_785_000_000) == "or our clock is wrong")
        #expect(
            TransportFailure.doubt(aboutClock: 90_000).hasPrefix(
                "but it is our clock that is wrong, since it says 1970-01-02: set it"))
    }

    @Test func `a server that never answers the handshake times out`() async throws {
        let server = try await TestServer(.silent)
        let client = try await hurried("mqtts://127.0.0.1:\(server.port)", options())
        let failure = try await client.failure()
        #expect(failure.code == .tlsTimeout)
        try await server.waitFor(.closed)
    }

    @Test func `a server that does not speak TLS fails`() async throws {
        let server = try await TestServer(.flood(20))
        let failure = try await TestClient("mqtts://127.0.0.1:\(server.port)", options: options()).failure()
        #expect(failure == TransportFailure(.wrongProtocol, "127.0.0.1:\(server.port) does not speak TLS on this port"))
    }

    @Test func `a server that closes during the handshake fails`() async throws {
        let server = try await TestServer(.close)
        let failure = try await TestClient("mqtts://127.0.0.1:\(server.port)", options: options()).failure()
        #expect(failure.code == .tlsFailed)
        #expect(failure.detail == .endedInHandshake)
        #expect(failure.message.contains("closed the connection during the TLS handshake"), "\(failure.message)")
    }

    @Test func `a reset during the handshake is reported as such`() async throws {
        let server = try await TestServer(.reset)
        let failure = try await TestClient("mqtts://127.0.0.1:\(server.port)", options: options()).failure()
        #expect(failure.code == .reset, "\(failure.message)")
        #expect(failure.systemError == ECONNRESET)
        #expect(failure.detail == .endedInHandshake, "as a server does that does not speak TLS")
        #expect(failure.message.hasSuffix("; it may not speak TLS on this port"), "\(failure.message)")
    }

    @Test func `another address is tried when the handshake with one fails`() async throws {
        let server = try await servers(nil, "localhost")
        let client = try await TestClient(
            "mqtts://localhost:\(server.port)", options: options(), lookUp: addresses(["::1", "127.0.0.1"]))
        #expect(try await client.opened().peer.ipAddress == "127.0.0.1")
        try await client.close(.abort)
    }

    /// A server that sends the session away at once answers as well: the next attempt begins with all addresses again.
    @Test(arguments: [true, false])
    func `an address whose handshake failed is kept away from while another one answers, for longer than a moment`(
        isLasting: Bool
    ) async throws {
        let server = try await servers("expired", "localhost")
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let contexts = try await loop.submit { NIOLoopBoundBox(TLSContextCache(), eventLoop: loop) }.get()
        var options = options()
        options.patience = isLasting ? .zero : .seconds(3600)
        for attempt in 1...3 {
            let client = try await TestClient(
                "mqtts://localhost:\(server.port)", options: options, contexts: contexts, loop: loop,
                lookUp: addresses(["::1", "127.0.0.1"]))
            var (peers, told) = ([String?](), [String]())
            for await event in client.events {
                switch event {
                case .securing(let peer): peers.append(peer.ipAddress)
                case .opened: try await client.send("hello")
                case .addressesAvoided(let which, let why): told.append("\(which): \(why)")
                case .received: try await client.close(.abort)
                default: break
                }
                if case .received = event { break }
            }
            #expect(peers == (attempt == 1 || !isLasting ? ["::1", "127.0.0.1"] : ["127.0.0.1"]))
            #expect(told.count == 1 && told[0].hasPrefix("[::1]:\(server.port): "), "\(told)")
            #expect(told[0].contains("has expired") == (attempt == 1 || !isLasting), "\(told)")
        }
    }

    @Test(arguments: ["untrusted", "expired"])
    func `another address is tried when the certificate of one is not valid`(_ certificate: String) async throws {
        let server = try await servers(certificate, "localhost")
        let client = try await TestClient(
            "mqtts://localhost:\(server.port)", options: options(), lookUp: addresses(["::1", "127.0.0.1"]))
        #expect(try await client.opened().peer.ipAddress == "127.0.0.1")
        try await client.close(.abort)
    }

    /// A name may have any number of addresses, and other endpoints wait for the end of the attempt.
    @Test func `addresses whose handshakes take long are tried in several attempts`() async throws {
        let names = (1...5).map { "127.0.0.\($0)" }
        let server = try await TestServer(.silent, host: "0.0.0.0")
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let contexts = try await loop.submit { NIOLoopBoundBox(TLSContextCache(), eventLoop: loop) }.get()
        var tried: [String] = []
        while tried.count < names.count {
            let client = try await hurried(
                "mqtts://localhost:\(server.port)", options(), contexts: contexts, loop: loop,
                lookUp: addresses(names))
            var (peers, message) = ([String](), "")
            for await event in client.events {
                if case .securing(let peer) = event { peers.append(peer.ipAddress ?? "") }
                if case .closed(.failed(let failure)) = event {
                    #expect(failure.code == .tlsTimeout)
                    message = failure.message
                }
            }
            #expect((1...2).contains(peers.count), "\(peers)")
            tried += peers
            let left = names.count - tried.count
            #expect(message.contains("the next attempt begins with \(left) other address") == (left > 0), "\(message)")
        }
        #expect(tried.sorted() == names)
    }

    /// The addresses that were offered to each attempt.
    private final class Offered: Sendable {
        let addresses = Mutex<[[String]]>([])
    }

    /// Perhaps no network leads to those that the last attempt left over.
    @Test func `addresses that took up an attempt are left out of one attempt only`() async throws {
        let names = (1...4).map { "127.0.0.\($0)" }
        let server = try await TestServer(.silent, host: "0.0.0.0")
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let contexts = try await loop.submit { NIOLoopBoundBox(TLSContextCache(), eventLoop: loop) }.get()
        var options = options()
        let offered = Offered()
        for _ in 0..<3 {
            let client = try await hurried(
                "mqtts://localhost:\(server.port)", options, contexts: contexts, loop: loop, lookUp: addresses(names))
            _ = try await client.failure()
            options.way = { addresses in
                offered.addresses.withLock { $0.append(addresses.compactMap(\.ipAddress).sorted()) }
                return nil
            }
        }
        let (second, third) = offered.addresses.withLock { ($0.first, $0.last) }
        #expect(try #require(second).count < names.count)
        #expect(third == names)
    }

    /// Its address as a peer is not the one that was dialed. Lists that block names answer 0.0.0.0 for them.
    @Test func `a server that is dialed at 0_0_0_0 is tried once`() async throws {
        let server = try await TestServer(.echo, tls: try certificates.server("untrusted"))
        let failure = try await TestClient("mqtts://0.0.0.0:\(server.port)", options: options()).failure()
        #expect(failure.code == .certificateInvalid)
        #expect(try await server.events(upTo: .closed) == [.accepted, .closed])
    }

    @Test(arguments: [
        ("untrusted", Reason.Code.certificateInvalid), ("expired", .tlsFailed),
    ])
    func `the failures of several addresses come to the one that tells most`(
        _ certificate: String, _ code: Reason.Code
    ) async throws {
        let server = try await TestServer(.echo, host: "::1", tls: try certificates.server(certificate))
        // Nothing listens at the second address.
        let alone = try await TestClient(
            "mqtts://localhost:\(server.port)", options: options(), lookUp: addresses(["::1", "127.0.0.2"])
        ).failure()
        #expect(alone.code == code)
        #expect(alone.message.contains("127.0.0.2"), "\(alone.message)")
        for (first, second) in [("untrusted", nil), (nil, "untrusted")] {
            let server = try await servers(first, second)
            let both = try await TestClient(
                "mqtts://localhost:\(server.port)", options: options(), lookUp: addresses(["::1", "127.0.0.1"])
            ).failure()
            #expect(both.code == .tlsFailed, "an invalid certificate is not all that is wrong")
        }
    }

    /// Servers with these certificates on ::1 and on 127.0.0.1, with the same port; one without closes every connection.
    ///
    /// - Returns: the second one.
    private func servers(_ first: String?, _ second: String?) async throws -> TestServer {
        let first = try first.map { try certificates.server($0) }
        let second = try second.map { try certificates.server($0) }
        let one = try await TestServer(first == nil ? .close : .echo, host: "::1", tls: first)
        return try await TestServer(second == nil ? .close : .echo, beside: one, tls: second)
    }

    @Test func `a client certificate is shown to a server that asks`() async throws {
        let context = try certificates.server("localhost", clientAuthority: "trusted.pem")
        let server = try await TestServer(.echo, tls: context)
        var options = options()
        options.tls.certificate = certificates.path("client.pem")
        options.tls.key = certificates.path("client.key")
        let client = try await TestClient("mqtts://localhost:\(server.port)", options: options)
        _ = try await client.opened()
        try await client.send("hello")
        #expect(try await client.received(5) == "hello")
        try await client.close(.abort)
    }

    @Test func `a server that wants a certificate of ours is a TLS failure`() async throws {
        let context = try certificates.server("localhost", clientAuthority: "trusted.pem")
        let server = try await TestServer(.echo, tls: context)
        let failure = try await TestClient("mqtts://localhost:\(server.port)", options: options()).failure()
        #expect(failure.code == .tlsFailed)
        #expect(failure.detail == .certificateWanted)
        #expect(
            failure.message.contains("the server wants a certificate of ours (certificate required)"),
            "\(failure.message)")
    }

    @Test(
        arguments: [
            ("missing.pem", nil, nil, "No such file or directory"),
            ("damaged.pem", nil, nil, "not PEM, or damaged"),
            (nil, "client.pem", nil, "given together"),
            (nil, nil, "client.key", "given together"),
            (nil, "client.pem", "server.key", "do not belong together"),
            (nil, "damaged.pem", "client.key", "not PEM, or damaged"),
            (nil, "client.pem", "damaged.pem", "not PEM, or damaged"),
            (nil, "client.pem", "encrypted.key", "it is encrypted"),
        ] as [(String?, String?, String?, String)])
    func `unusable TLS files are a failure`(
        authority: String?, certificate: String?, key: String?, words: String
    ) async throws {
        var options = options(authority: authority)
        options.tls.certificate = certificate.map(certificates.path)
        options.tls.key = key.map(certificates.path)
        let server = try await TestServer(.silent)
        let failure = try await TestClient("mqtts://127.0.0.1:\(server.port)", options: options).failure()
        #expect(failure.detail == .ownFilesUnusable)
        #expect(failure.message.contains(words), "\(failure.message)")
    }

    @Test(
        arguments: [
            ("client.pem", "client.key", nil), ("client.pem", "server.key", "do not belong together"),
            ("damaged.pem", "client.key", "not PEM, or damaged"),
            ("over.pem", "client.key", "has expired"),
        ] as [(String, String, String?)])
    func `a pair that no server accepts is found without one`(_ certificate: String, _ key: String, _ words: String?) {
        let options = TLSOptions(certificate: certificates.path(certificate), key: certificates.path(key))
        let problem = ownPairProblem(options)
        #expect(words.map { problem?.contains($0) == true } ?? (problem == nil), "\(problem ?? "none")")
    }

    /// - Parameter isRestarted: whether the session is restarted between attempts, because of a reload.
    @Test(arguments: [false, true])
    func `a broken file leaves the last good one in use, and is reported`(isRestarted: Bool) async throws {
        let scratch = try TemporaryDirectory()
        defer { scratch.remove() }
        // A new file each time, as configuration tools do it.
        func replace(by source: String) throws {
            try scratch.write("ca", try fileContents(certificates.path(source), atMost: 1 << 16))
        }
        try replace(by: "trusted.pem")
        let server = try await TestServer(.echo, tls: try certificates.server("localhost"))
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let contexts = try await loop.submit { NIOLoopBoundBox(TLSContextCache(), eventLoop: loop) }.get()
        var options = options()
        options.tls.authorities = "\(scratch.path)/ca"

        // What is wrong is told once, and known as long as it is so.
        let steps: [(String?, told: Bool, isRejected: Bool)] = [
            ("trusted.pem", false, false), ("damaged.pem", true, true), (nil, false, true),
            ("trusted.pem", false, false),
        ]
        for (source, told, isRejected) in steps {
            if let source { try replace(by: source) }
            if isRestarted {
                try await loop.submit { contexts.value = TLSContextCache(contexts.value.lastFiles) }.get()
            }
            let client = try await TestClient(
                "mqtts://localhost:\(server.port)", options: options, contexts: contexts, loop: loop)
            var names: [String] = []
            for await event in client.events {
                names.append(event.name)
                if case .opened = event { break }
                if case .tlsFilesRejected(let failure) = event { #expect(failure.detail == .ownFilesUnusable) }
            }
            #expect(names.contains("tls-files-rejected") == told)
            #expect(names.last == "opened")
            let rejection = try await loop.submit { contexts.value.rejection }.get()
            #expect((rejection != nil) == isRejected)
            try await client.close(.abort)
        }
    }
}
