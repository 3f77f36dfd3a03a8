import Configuration
import Glibc
import MQTT
import Session
import SessionCore
import Testing
import Transport
import Vocabulary

@testable import Agent

/// A hint names only what the session's file has.
struct RemediesTests {
    /// A part that a file may have, and the words with which a hint names it.
    struct Feature: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var words: [String]
        var add: @Sendable (inout SessionConfiguration) throws -> Void
    }

    static let features = [
        Feature(testDescription: "a password in a file", words: ["/etc/holdfast/own.secret"]) {
            $0.password = .file("/etc/holdfast/own.secret")
        },
        Feature(testDescription: "a credential of the service", words: ["LoadCredential=broker"]) {
            $0.password = .credential("broker")
        },
        Feature(testDescription: "a helper", words: ["the command of password "]) {
            $0.password = .exec(["/usr/bin/token-helper", "--key", "abc"])
        },
        Feature(testDescription: "a user name", words: ["the user name kim"]) {
            $0.username = "kim"
            $0.password = .file("/a")
        },
        Feature(testDescription: "a proxy", words: ["proxy"]) {
            $0.proxy.address = try ProxyAddress("http://proxy.example:3128")
        },
        Feature(testDescription: "a password for the proxy", words: ["/etc/holdfast/proxy.secret", "its username"]) {
            $0.proxy.address = try ProxyAddress("http://proxy.example:3128")
            ($0.proxy.username, $0.proxy.password) = ("kim", .file("/etc/holdfast/proxy.secret"))
        },
        Feature(testDescription: "authorities", words: ["/etc/holdfast/ca.pem"]) {
            $0.tls.authorities = "/etc/holdfast/ca.pem"
        },
        Feature(testDescription: "a certificate of its own", words: ["/etc/holdfast/own.pem", "the files of [tls]"]) {
            ($0.tls.certificate, $0.tls.key) = ("/etc/holdfast/own.pem", "/etc/holdfast/own.key")
        },
        Feature(testDescription: "a name for the server", words: ["server-name, other.example"]) {
            $0.tls.serverName = "other.example"
        },
        Feature(testDescription: "TLS 1.3 at least", words: ["minimum of [tls]"]) { $0.tls.minimum = .tls13 },
        Feature(testDescription: "SCRAM", words: ["remove authentication"]) {
            $0.mqtt.authentication = .scramSHA256
        },
    ]

    /// The codes with which a check of an endpoint can end.
    static let checked: [Reason.Code] = {
        let connack: [ReasonCode] = [
            .unspecifiedError, .malformedPacket, .protocolError, .implementationSpecificError,
            .unsupportedProtocolVersion, .clientIdentifierNotValid, .badUserNameOrPassword, .notAuthorized,
            .serverUnavailable, .serverBusy, .banned, .badAuthenticationMethod, .topicNameInvalid, .packetTooLarge,
            .quotaExceeded, .payloadFormatInvalid, .retainNotSupported, .qosNotSupported, .useAnotherServer,
            .serverMoved, .connectionRateExceeded, ReasonCode(rawValue: 0xFE),
        ]
        let transport: [Reason.Code] = [
            .dnsFailed, .unreachable, .refused, .reset, .dialTimeout, .tlsTimeout, .tlsFailed, .wrongProtocol,
            .certificateInvalid, .proxyFailed, .webSocketFailed, .serverBusy, .serverShutdown, .serverError,
            .protocolError,
            .badEndpoint,
        ]
        let codes =
            transport
            + connack.map { Reason(MQTTClientMachine.ServerReason(code: $0, reasonString: nil)).code }
            + [ConnectionEnd.closedByPeer, .closedLocally].map { Reason($0).code }.filter { $0 != .userDisconnect }
            + [.noPath, .networkNotAllowed, .authenticateTimeout]
        return Reason.Code.allCases.filter(codes.contains)
    }()

    private func remedies(_ change: (inout SessionConfiguration) throws -> Void = { _ in }) throws -> Remedies {
        var configuration = SessionConfiguration()
        configuration.endpoints = [try Endpoint("mqtts://broker.example")]
        (configuration.user, configuration.clientID) = ("edge-42", "edge-42")
        try change(&configuration)
        return Remedies(session: try #require(SessionName("main")), configuration: configuration)
    }

    private func hints(_ remedies: Remedies) -> [String] { Reason.Code.allCases.compactMap(remedies.hint) }

    @Test(arguments: [Reason.Code.authenticateTimeout, .tlsTimeout])
    func `a server that accepts the connection and stays silent may be another kind of server`(code: Reason.Code) throws
    {
        let hint = try #require(try remedies().hint(for: code))
        #expect(hint.contains("listens on the endpoint's port") && hint.contains("stays silent"))
        #expect(!hint.contains("mqtts://"), "it speaks TLS")
    }

    @Test func `a silent server may expect TLS if an endpoint has none`() throws {
        let hint = try remedies { $0.endpoints.append(try Endpoint("mqtt://b")) }.hint(for: .authenticateTimeout)
        #expect(hint?.contains("a server that expects TLS (mqtts:// or wss://)") == true)
    }

    @Test func `a server that a redirect led to is named when it is not reached`() throws {
        var remedies = try remedies()
        remedies.redirectedTo = try Endpoint("mqtts://other.example")
        for code in [Reason.Code.refused, .dialTimeout] {
            #expect(remedies.hint(for: code)?.contains("redirected the session to mqtts://other.example") == true)
        }
        #expect(remedies.hint(for: .notAuthorized)?.contains("redirected") == false, "it was reached")
    }

    @Test func `a session without a certificate is told how to give one to a server that may want it`() throws {
        #expect(try remedies().hint(for: .tlsFailed)?.contains("(certificate and key of [tls])") == true)
        let hint = try remedies { ($0.tls.certificate, $0.tls.key) = ("/c", "/k") }.hint(for: .tlsFailed)
        #expect(hint?.contains("wants a certificate") == false)
    }

    @Test(arguments: features)
    func `a hint names what is configured, and nothing else`(feature: Feature) throws {
        let with = hints(try remedies(feature.add))
        let without = hints(try remedies())
        for word in feature.words {
            #expect(with.contains { $0.contains(word) }, "\(word)")
            #expect(!without.contains { $0.contains(word) }, "\(word)")
        }
        #expect(
            !with.contains { $0.contains("token-helper") || $0.contains("abc") }, "a command line may hold a secret")
    }

    /// The codes that blame the login, for every way to log in.
    @Test(
        arguments: [Reason.Code.credentialRejected, .credentialExpired, .notAuthorized],
        [
            (
                nil, false,
                "the session has no password, and the server may require one: set password in the session's file"
                    + ", then holdfastctl reload"
            ),
            (
                .file("/s"), false,
                "check the password in /s, which holdfastctl config password main changes; after a change at "
                    + "the server: holdfastctl connect main"
            ),
            (
                .credential("b"), false,
                "check the file that LoadCredential=b of the service names; restart the service "
                    + "to read it"
            ),
            (
                .exec(["h"]), false,
                "check what the command of password in the session's file prints, then holdfastctl "
                    + "connect main"
            ),
            (nil, true, "the program that supplied the token must supply another one with session.renewToken"),
        ] as [(SecretReference?, Bool, String)])
    func `a rejected login gets a hint for the login configured`(
        code: Reason.Code, login: (password: SecretReference?, hasToken: Bool, hint: String)
    ) throws {
        var remedies = try remedies { $0.password = login.password }
        remedies.hasToken = login.hasToken
        #expect(remedies.hint(for: code) == login.hint)
    }

    @Test func `a session with a certificate gets no hint for a password`() throws {
        let hint = try remedies { $0.tls.certificate = "/c.pem" }.hint(for: .notAuthorized)
        #expect(hint?.hasPrefix("check that the server accepts the certificate in /c.pem") == true)
    }

    @Test func `an unreadable secret gets a hint for the secrets configured`() throws {
        func hint(_ own: SecretReference?, _ proxy: SecretReference?) throws -> String? {
            try remedies { ($0.password, $0.proxy.password) = (own, proxy) }.hint(for: .credentialUnreadable)
        }
        #expect(
            try hint(.file("/own"), nil) == "check that /own has the password, and that the daemon's user may read it")
        #expect(try hint(nil, .file("/p")) == "check that /p has the password, and that the daemon's user may read it")
        #expect(try hint(.exec(["h"]), .credential("p"))?.contains("; ") == true)
        #expect(try hint(.exec(["h"]), nil)?.contains("LoadCredential") == false)
        let both = try remedies { ($0.password, $0.proxy.password) = (.exec(["h"]), .file("/p")) }
        let ofProxy = both.hint(for: Reason(.credentialUnreadable, detail: .unreadable(ofProxy: true)))
        #expect(ofProxy == "check that /p has the password, and that the daemon's user may read it")
        let own = both.hint(for: Reason(.credentialUnreadable, detail: .unreadable(ofProxy: false)))
        #expect(own?.contains("run the command") == true && own?.contains("/p") == false)
    }

    @Test(arguments: [
        (MQTTVersion.five, "\"3.1.1\" or \"auto\""), (.threeOneOne, "\"5\" or \"auto\""),
        (.automatic, "neither MQTT 5 nor 3.1.1"),
    ])
    func `another version is suggested, unless all were tried`(version: MQTTVersion, words: String) throws {
        #expect(try remedies { $0.mqtt.version = version }.hint(for: .unsupportedVersion)?.contains(words) == true)
    }

    @Test func `a session that is only checked gets no hint to connect or reload`() throws {
        for change in Self.features.map(\.add) {
            var remedies = try remedies(change)
            remedies.occasion = .draft
            for code in Self.checked {
                guard let hint = remedies.hint(for: code) else { continue }
                #expect(!hint.contains("holdfastctl connect") && !hint.contains("holdfastctl reload"), "\(hint)")
                #expect(!hint.contains("automatically"), "\(hint): there is no session")
                let isProxys = hint.hasPrefix("check [proxy]")
                #expect(isProxys || !hint.contains("session's file"), "\(hint): there is no file")
            }
        }
    }

    @Test(arguments: checked)
    func `whatever ends a check, the hint says what to do`(code: Reason.Code) throws {
        var remedies = try remedies { $0.proxy.address = try ProxyAddress("http://proxy.example:3128") }
        for occasion in [Remedies.Occasion.check, .draft] {
            remedies.occasion = occasion
            let hint = try #require(remedies.hint(for: code), "\(occasion)")
            #expect(!hint.contains("holdfastctl check"), "\(hint): that is what was done")
        }
    }

    @Test func `a draft is told the options that set what is wrong`() throws {
        var remedies = try remedies()
        remedies.occasion = .draft
        let options: [(Reason.Code, String)] = [
            (.certificateInvalid, "--ca"), (.clientIdentifierRejected, "--client-id"), (.wrongProtocol, "--endpoint"),
            (.badEndpoint, "--endpoint"), (.serverMoved, "--endpoint"), (.notAuthorized, "--ask-password"),
            (.unsupportedVersion, "--untried"), (.redirectRefused, "--untried"),
        ]
        for (code, option) in options { #expect(remedies.hint(for: code)?.contains(option) == true, "\(code)") }
    }

    @Test(
        arguments: [
            (.reset, "if this goes on: holdfastctl check main shows at which step"),
            (.serverClosed, "if this goes on: holdfastctl check main shows at which step"),
            (
                .serverMoved,
                "if this goes on: put the other server into endpoints in the session's file, then holdfastctl reload"
            ),
        ] as [(Reason.Code, String)])
    func `what is normal once gets a hint when it goes on`(code: Reason.Code, hint: String) throws {
        var remedies = try remedies()
        #expect(remedies.hint(for: code) == nil)
        remedies.occasion = .retrying
        #expect(remedies.hint(for: code) == hint)
    }

    @Test func `a session without a configuration gets hints only for its file`() throws {
        for (name, file) in [("main", "main"), ("gw@n", "gw@"), ("gw@", "gw@")] {
            let gone = Remedies(session: try #require(SessionName(listed: name)), configuration: nil)
            #expect(hints(gone) == ["correct sessions.d/\(file).toml, then holdfastctl reload"])
        }
    }

    @Test func `a check says what to look at, and not what a session would do on its own`() throws {
        var remedies = try remedies()
        #expect(remedies.hint(for: .noPath)?.contains("connects automatically") == true)
        remedies.occasion = .check
        for code in Self.checked {
            #expect(remedies.hint(for: code)?.contains("automatically") != true, "\(code)")
        }
        #expect(remedies.hint(for: .noPath)?.hasPrefix("check the network of this host") == true)
    }

    @Test func `what is known beyond the code comes first`() throws {
        func hint(_ code: Reason.Code, _ detail: FailureDetail) throws -> String? {
            try remedies().hint(for: Reason(code, detail: detail))
        }
        #expect(try hint(.tlsFailed, .certificateWanted)?.hasPrefix("the server wants a certificate") == true)
        #expect(try hint(.certificateInvalid, .otherName)?.hasPrefix("correct the host of endpoints") == true)
        #expect(try hint(.tlsFailed, .otherInItsPlace)?.hasPrefix("on a public network, sign in first") == true)
        #expect(try hint(.unreachable, .noLongerAcknowledged)?.contains("nothing answers") == false)
        #expect(try hint(.unreachable, .noLongerAcknowledged)?.hasSuffix("net.ipv4.tcp_mtu_probing=1") == true)
        let rejected = try remedies().hint(for: Reason(.unreachable, systemError: EHOSTUNREACH))
        #expect(rejected?.hasSuffix("nothing answers there, or a firewall rejects the connection") == true)
        #expect(try hint(.wrongProtocol, .webServer)?.hasSuffix("on a public network, sign in first") == true)
        #expect(
            try remedies().hint(for: .wrongProtocol)?.contains("sign in") == false, "an SSH server is no sign-in page")
        var retrying = try remedies()
        retrying.occasion = .retrying
        let moved = retrying.hint(for: Reason(.serverMoved, detail: .elsewhereUnnamed))
        #expect(moved == "if this goes on: ask the server's administrator which server to use")
        for code in [ReasonCode.quotaExceeded, .connectionRateExceeded] {
            let reason = Reason(MQTTClientMachine.ServerReason(code: code))
            #expect(retrying.hint(for: reason)?.contains("lacks") == false, "the server limits its clients")
        }
    }

    @Test(
        arguments: [
            (.clientIdentifierRejected, "(now edge-42), then holdfastctl reload"),
            (.authenticationMethodRejected, ", then holdfastctl reload: the server does not accept SCRAM-SHA-256"),
            (.unsupportedVersion, ", then holdfastctl connect main: its server speaks neither MQTT 5 nor 3.1.1"),
            (.serverUnauthenticated, ", then holdfastctl connect main: another one may be in its place"),
        ] as [(Reason.Code, String)])
    func `the command follows what it is for, and not an explanation`(code: Reason.Code, end: String) throws {
        let hint = try remedies { ($0.mqtt.authentication, $0.mqtt.version) = (.scramSHA256, .automatic) }.hint(
            for: code)
        #expect(hint?.hasSuffix(end) == true, "\(hint ?? "")")
    }

    @Test(arguments: [(true, false, true), (false, false, false), (true, true, false)])
    func `a session returns with the daemon if it connects automatically`(
        autoconnect: Bool, onDemand: Bool, returns: Bool
    ) throws {
        let hint = try remedies { ($0.autoconnect, $0.onDemand) = (autoconnect, onDemand) }.hint(for: .shutdown)
        #expect((hint == "the session connects automatically when the daemon runs again") == returns)
    }

    @Test func `a password for a server without TLS takes an option more`() throws {
        var remedies = try remedies { $0.endpoints = [try Endpoint("mqtt://broker.example")] }
        remedies.occasion = .draft
        #expect(remedies.hint(for: .notAuthorized)?.contains("--insecure") == true)
    }

    @Test func `each hint is one sentence that a terminal shows as it is`() throws {
        for hint in hints(try remedies()) {
            #expect(hint == hint.plain(), "\(hint)")
            #expect(!hint.hasSuffix(".") && !hint.contains("SESSION"), "\(hint)")
        }
    }
}
