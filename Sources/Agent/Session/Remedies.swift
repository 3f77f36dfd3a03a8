import Configuration
import SessionCore

/// What a person can do about a reason. The advice is made from the session's file, so it never mentions a password,
/// proxy or certificate that is not configured.
struct Remedies: Sendable {
    let session: SessionName
    /// `nil` when the file cannot be read, or no longer exists.
    let configuration: SessionConfiguration?
    /// Whether a program supplied the credential, with `session.renewToken`.
    var hasToken = false
    var occasion = Occasion.event
    /// Where a server had redirected the last attempt.
    var redirectedTo: Endpoint?

    /// When the advice is given.
    enum Occasion: Sendable {
        /// Something happened once: a single break needs no advice.
        case event
        /// Attempts fail one after another.
        case retrying
        /// Somebody asked for a check.
        case check
        /// The content of a file is tried that does not exist yet.
        case draft
    }

    /// Returns one sentence without the final full stop, whose commands can be typed as they are; `nil` when there is
    /// nothing to do but wait.
    func hint(for code: Reason.Code) -> String? {
        if code == .badConfiguration {
            return "correct sessions.d/\(session.template ?? session).toml, then holdfastctl reload"
        }
        guard let configuration else { return nil }
        if let hint = redirection(code, configuration) { return hint }
        switch code {
        case .userDisconnect: return "holdfastctl connect \(session) starts it"
        case .goodbyeUnheard:
            return "to leave immediately: holdfastctl connect --wait \(session), then holdfastctl disconnect \(session)"
        case .idle: return "the session connects automatically as soon as a local program publishes or subscribes"
        case .suspend: return "the session connects automatically when the host wakes up"
        case .noPath:
            return occasion == .draft
                ? "check the network of this host (ip address; ip route): none of its routes leads there"
                : "the session connects automatically as soon as there is a route"
        case .networkNotAllowed where occasion == .draft:
            return "change [network] to allow a network that leads there"
        case .networkNotAllowed:
            return
                "the session connects automatically when a network that [network] in its file allows leads there; change "
                + "[network] to allow others"
        case .dnsFailed:
            let name = configuration.proxy.address == nil ? "the endpoint's host name" : "the host name of [proxy] url"
            return "check \(name) and the host's resolver"
        case .storeUnavailable:
            return "check the disk of the state directory: it may be read-only, failing or very slow"
        case .refused:
            return configuration.proxy.address.map { "check that the proxy runs and listens at \($0)" }
                ?? "check that the server runs and listens on the endpoint's port"
        case .unreachable:
            let place = configuration.proxy.address.map { "the proxy, \($0)," } ?? "the endpoint's host"
            return "check that \(place) is on and has this address, and the network on the way: nothing answers there"
        case .reset, .serverClosed:
            return lasting(
                "holdfastctl check \(session) shows at which step",
                checked: "see the server's log for why it ends the connection")
        case .serverMoved:
            return lasting(
                occasion == .draft
                    ? "give the other server as --endpoint"
                    : "put the other server into endpoints in the session's file" + then("reload"))
        case .serverShutdown: return lasting("check that the server is started again")
        case .serverBusy, .rateLimited:
            return lasting("ask the server's administrator; the server's log may say what it lacks")
        case .serverError, .unknown:
            return lasting("see the server's log for what is wrong with it, or with what it was sent")
        case .quota: return "ask the server's administrator for a larger quota" + then("connect \(session)")
        case .protocolError:
            return lasting("what the server sends is against the standard: report it to those who make the server")
        case .authenticateTimeout:
            return "check that an MQTT server listens on the endpoint's port: something accepts the connection and "
                + "stays silent, as a server that expects TLS (mqtts:// or wss://) or another protocol does"
        case .tlsTimeout:
            return "check that a server with TLS listens on the endpoint's port: something accepts the connection and "
                + "stays silent"
        case .dialTimeout:
            let place = configuration.proxy.address.map { "the proxy, \($0)," } ?? "the endpoint's host and port,"
            return "check \(place) and the firewalls on the way: nothing comes back, not even a refusal"
        case .proxyFailed:
            guard configuration.proxy.address != nil else { return nil }
            let login = configuration.proxy.username == nil ? "" : " with its username and password"
            return "check [proxy] in the session's file\(login), and what the proxy allows"
        case .retryTimeout: return "holdfastctl connect \(session) tries again"
        case .credentialRejected, .credentialExpired, .notAuthorized: return login(configuration)
        case .credentialUnreadable: return unreadable(configuration)
        case .displaced:
            return "give each device its own client-id (here \(configuration.clientID)); "
                + "holdfastctl connect \(session) takes the session back"
        case .yielded: return "holdfastctl connect \(session) takes the session over"
        case .displacedSuspected:
            return "look for another device with the client-id \(configuration.clientID); give each device its own"
        case .banned, .removedByAdministrator:
            return "ask the server's administrator" + then("connect \(session)")
        case .badEndpoint: return "correct \(key("endpoints", "--endpoint"))" + then("reload")
        case .clientIdentifierRejected:
            return "set \(key("client-id", "--client-id")) to one that the server accepts; now it is "
                + configuration.clientID + then("reload")
        case .unsupportedVersion: return version(configuration.mqtt.version)
        case .serverUnauthenticated:
            return "check that the endpoint is the right server: another one may be in its place"
                + then("connect \(session)")
        case .authenticationMethodRejected:
            switch configuration.mqtt.authentication {
            case .password:
                return "if the server accepts SCRAM-SHA-256, set \(key("authentication of [mqtt]")) to it"
                    + then("reload")
            case .scramSHA256:
                return "remove \(key("authentication of [mqtt]")): the server does not accept SCRAM-SHA-256"
                    + then("reload")
            }
        case .redirectRefused:
            return "if that server may be trusted, add its host to \(key("redirects of [mqtt]"))" + then("reload")
        case .incompatible:
            return "see the server's log for what it objects to" + then("connect \(session)")
        case .certificateInvalid: return certificate(configuration.tls)
        case .tlsFailed: return tls(configuration.tls)
        case .wrongProtocol:
            return
                "check the port and the scheme of \(key("endpoints", "--endpoint")): mqtts:// is MQTT over TLS, ws:// and "
                + "wss:// are MQTT over WebSocket; on a public network, sign in first"
        case .webSocketFailed:
            return "check the endpoint's port and path, and that the server has a WebSocket listener there"
        default: return nil
        }
    }

    /// Advice when an attempt does not reach the server that it was redirected to. With a proxy it may be the proxy that
    /// is not reached.
    private func redirection(_ code: Reason.Code, _ configuration: SessionConfiguration) -> String? {
        guard let redirectedTo, configuration.proxy.address == nil else { return nil }
        switch code {
        case .dnsFailed, .unreachable, .refused, .dialTimeout, .tlsTimeout, .authenticateTimeout:
            return
                "the endpoint's server redirected the session to \(redirectedTo): check that server, and the way to it"
        default: return nil
        }
    }

    /// The command that makes a failed session try again once the cause is fixed.
    private func then(_ command: String) -> String { occasion == .draft ? "" : ", then holdfastctl \(command)" }

    /// Advice about what passes by itself most of the time.
    ///
    /// - Parameter checked: the advice to somebody who asked for a check, if it is another.
    private func lasting(_ advice: String, checked: String? = nil) -> String? {
        switch occasion {
        case .event: nil
        case .retrying: "if this goes on: \(advice)"
        case .check, .draft: checked ?? advice
        }
    }

    /// Where a key of the session's file is set. The file of a draft exists only if it is written untried.
    ///
    /// - Parameter option: the option of `config init` that sets it.
    private func key(_ name: String, _ option: String? = nil) -> String {
        guard occasion == .draft else { return "\(name) in the session's file" }
        return option ?? "\(name) in the file that --untried writes"
    }

    /// Advice when the server rejects the session's credentials.
    private func login(_ configuration: SessionConfiguration) -> String {
        guard !hasToken else {
            return "the program that supplied the token must supply another one with session.renewToken"
        }
        let name = configuration.username.map { "the user name \($0) and " } ?? ""
        switch configuration.password {
        case .file(let path)?:
            return "check \(name)the password in \(path)"
                + (occasion == .draft
                    ? ""
                    : ": a change to it is noticed at once; after a change at the server: "
                        + "holdfastctl connect \(session)")
        case .credential(let credential)?:
            return
                "check \(name)the file that LoadCredential=\(credential) of the service names; restart the service "
                + "to read it"
        case .exec?:
            return "check \(name)what the command of \(key("password", "--password")) prints"
                + then("connect \(session)")
        case nil:
            if let certificate = configuration.tls.certificate {
                return "check that the server accepts the certificate in \(certificate); the session has no password"
                    + then("connect \(session)")
            }
            return
                "the session has no password, and the server may require one: "
                + (occasion == .draft ? "give --ask-password" : "set password in the session's file" + then("reload"))
        }
    }

    /// Advice when a secret cannot be read: the session's own, or the proxy's.
    private func unreadable(_ configuration: SessionConfiguration) -> String? {
        func advice(_ reference: SecretReference, _ key: String) -> String {
            switch reference {
            case .file(let path): "check that \(path) has the password, and that the daemon's user may read it"
            case .credential(let name):
                "check LoadCredential=\(name) of the service (systemctl edit holdfast); restart the service to read it"
            case .exec: "run the command of \(key) as the daemon's user, to see why it fails"
            }
        }
        let secrets = [
            configuration.password.map { advice($0, key("password", "--password")) },
            configuration.proxy.password.map { advice($0, key("password of [proxy]")) },
        ].compactMap { $0 }
        return secrets.isEmpty ? nil : secrets.joined(separator: "; ")
    }

    private func version(_ version: MQTTVersion) -> String {
        let other =
            switch version {
            case .five: "\"3.1.1\" or \"auto\""
            case .threeOneOne: "\"5\" or \"auto\""
            case .automatic: String?.none
            }
        guard let other else {
            return "check the endpoint: its server speaks neither MQTT 5 nor 3.1.1" + then("connect \(session)")
        }
        return "set \(key("version of [mqtt]")) to \(other)" + then("reload")
    }

    private func certificate(_ tls: TLSOptions) -> String {
        let name = tls.serverName.map { "server-name, \($0)" } ?? "the endpoint's host"
        if let authorities = tls.authorities {
            return
                "check that \(authorities) contains the authority that signed the server's certificate, and that \(name)"
                + (tls.serverName == nil ? "" : ",") + " is a name in it"
                + then("connect \(session)")
        }
        return
            "if the system does not trust the authority of the server's certificate, set \(key("ca of [tls]", "--ca")) "
            + "to the authority's certificate; if the certificate has another name, correct \(name)" + then("reload")
    }

    private func tls(_ tls: TLSOptions) -> String {
        var things = ["this host's clock (date shows it)", "the server's certificate"]
        let files = [tls.authorities, tls.certificate, tls.key].compactMap { $0 }
        if !files.isEmpty { things.append("the files of [tls]: \(files.joined(separator: ", "))") }
        if tls.certificate == nil {
            things.append("whether the server wants a certificate of this host (certificate and key of [tls])")
        }
        if tls.minimum == .tls13 { things.append("minimum of [tls]: the server may speak TLS 1.2 only") }
        return "check " + things.joined(separator: "; ")
    }
}
