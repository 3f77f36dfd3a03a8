import Configuration
import Glibc
import MQTT
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

    /// Whether the daemon itself gets another credential when the present one expires.
    var renewsCredential: Bool { configuration?.password != nil }

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

    /// Returns the advice for the code alone, where nothing else about the reason is known.
    func hint(for code: Reason.Code) -> String? { hint(for: Reason(code)) }

    /// Returns one sentence without the final full stop, whose commands can be typed as they are; `nil` when there is
    /// nothing to do but wait.
    func hint(for reason: Reason) -> String? {
        let code = reason.code
        if code == .badConfiguration {
            return "correct sessions.d/\(session.template ?? session).toml, then holdfastctl reload"
        }
        guard let configuration else { return nil }
        return redirection(code, configuration) ?? advice(about: reason, configuration)
            ?? onTheWay(reason, configuration) ?? fromServer(reason, configuration) ?? own(reason, configuration)
    }

    /// Advice about what this host or a person decided, and about the session's own identity.
    private func own(_ reason: Reason, _ configuration: SessionConfiguration) -> String? {
        switch reason.code {
        case .userDisconnect, .notStarted: return "holdfastctl connect \(session) starts it"
        case .goodbyeUnheard:
            return "to leave immediately: holdfastctl connect --wait \(session), then holdfastctl disconnect \(session)"
        case .idle: return "the session connects automatically as soon as a local program publishes or subscribes"
        case .suspend: return "the session connects automatically when the host wakes up"
        case .shutdown where configuration.autoconnect && !configuration.onDemand:
            return "the session connects automatically when the daemon runs again"
        case .storeUnavailable:
            return "check the disk of the state directory: it may be read-only, failing or very slow"
        case .retryTimeout: return "holdfastctl connect \(session) tries again"
        case .credentialRejected, .credentialExpired, .notAuthorized: return login(configuration)
        case .credentialUnreadable: return unreadable(reason, configuration)
        case .displaced:
            return "give each device its own client-id (here \(configuration.clientID)); "
                + "holdfastctl connect \(session) takes the session back"
        case .yielded: return "holdfastctl connect \(session) takes the session over"
        case .displacedSuspected:
            return
                "look for another device, or another session of this host, with the client-id \(configuration.clientID); "
                + "give each its own"
        case .badEndpoint: return "correct \(key("endpoints", "--endpoint"))" + then("reload")
        default: return nil
        }
    }

    /// Advice when an attempt does not get as far as the server's words.
    private func onTheWay(_ reason: Reason, _ configuration: SessionConfiguration) -> String? {
        switch reason.code {
        case .noPath:
            // A session that is only checked may be disconnected.
            return isChecked
                ? "check the network of this host (ip address; ip route): none of its routes leads there"
                : "the session connects automatically as soon as there is a route"
        case .networkNotAllowed where isChecked:
            return "connect this host to a network that [network] allows, or change [network]"
        case .networkNotAllowed:
            return
                "the session connects automatically when a network that [network] in its file allows leads there; change "
                + "[network] to allow others"
        case .dnsFailed:
            let name = configuration.proxy.address == nil ? "the endpoint's host name" : "the host name of [proxy] url"
            return "check \(name) and the host's resolver"
        case .refused:
            return configuration.proxy.address.map { "check that the proxy runs and listens at \($0)" }
                ?? "check that the server runs and listens on the endpoint's port"
        case .unreachable:
            let place = configuration.proxy.address.map { "the proxy, \($0)," } ?? "the endpoint's host"
            let other = reason.systemError == EHOSTUNREACH ? ", or a firewall rejects the connection" : ""
            return "check that \(place) is on and has this address, and the network on the way: nothing answers there"
                + other
        case .unacknowledged: return lasting(swallowed)
        case .authenticateTimeout:
            let isSecure = configuration.endpoints.allSatisfy(\.scheme.isSecure)
            return throughProxy(configuration)
                + "check that an MQTT server listens on the endpoint's port: something accepts the connection and "
                + "stays silent, as a server that expects \(isSecure ? "" : "TLS (mqtts:// or wss://) or ")another "
                + "protocol does"
        case .tlsTimeout:
            return throughProxy(configuration)
                + "check that a server with TLS listens on the endpoint's port: something accepts the connection and "
                + "stays silent, unless large packets are lost on the way (MTU)"
        case .dialTimeout:
            let place = configuration.proxy.address.map { "the proxy, \($0)," } ?? "the endpoint's host and port,"
            return "check \(place) and the firewalls on the way: nothing comes back, not even a refusal"
        case .proxyFailed:
            guard configuration.proxy.address != nil else { return nil }
            let login = configuration.proxy.username == nil ? "" : " with its username and password"
            return "check [proxy] in the session's file\(login), and what the proxy allows"
        case .certificateInvalid: return certificate(configuration.tls)
        case .tlsFailed: return tls(configuration.tls)
        case .wrongProtocol:
            return
                "check the port and the scheme of \(key("endpoints", "--endpoint")): mqtts:// is MQTT over TLS, ws:// and "
                + "wss:// are MQTT over WebSocket"
                + (reason.detail == .webServer ? "; on a public network, sign in first" : "")
        case .webSocketFailed:
            return "check the endpoint's port and path, and that the server has a WebSocket listener there"
        default: return nil
        }
    }

    /// Advice about what the server said, or about how it ended the connection.
    private func fromServer(_ reason: Reason, _ configuration: SessionConfiguration) -> String? {
        switch reason.code {
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
        case .serverBusy where reason.serverCode == ReasonCode.quotaExceeded.rawValue:
            return lasting("ask the server's administrator for a larger quota")
        case .serverBusy: return lasting("ask the server's administrator; the server's log may say what it lacks")
        case .rateLimited: return lasting("ask the server's administrator for a higher limit")
        case .serverError, .unknown:
            return lasting("see the server's log for what is wrong with it, or with what it was sent")
        case .protocolError where reason.serverCode != nil:
            return lasting("see the server's log for what it objects to")
        case .protocolError:
            return lasting("what the server sends is against the standard: report it to those who make the server")
        case .banned, .removedByAdministrator:
            return "ask the server's administrator" + then("connect \(session)")
        case .clientIdentifierRejected:
            return
                "set \(key("client-id", "--client-id")) to one that the server accepts (now \(configuration.clientID))"
                + then("reload")
        case .unsupportedVersion: return version(configuration.mqtt.version)
        case .serverUnauthenticated:
            return "check that the endpoint is the right server" + then("connect \(session)")
                + ": another one may be in its place"
        case .authenticationMethodRejected:
            switch configuration.mqtt.authentication {
            case .password:
                return "if the server accepts SCRAM-SHA-256, "
                    + inFile("set authentication of [mqtt] in \(file) to \"SCRAM-SHA-256\"")
            case .scramSHA256:
                return inFile("remove authentication of [mqtt] in \(file)")
                    + ": the server does not accept SCRAM-SHA-256"
            }
        case .redirectRefused:
            return "if that server may be trusted, " + inFile("add its host to redirects of [mqtt] in \(file)")
        case .incompatible:
            return "see the server's log for what it objects to" + then("connect \(session)")
        default: return nil
        }
    }

    /// The beginning of advice about silence, which may be the proxy's.
    private func throughProxy(_ configuration: SessionConfiguration) -> String {
        configuration.proxy.address.map { "check that the proxy, \($0), lets MQTT through; " } ?? ""
    }

    /// Advice when a connection does not carry what is sent on it.
    private var swallowed: String {
        "check the network on the way; if this happens when large messages are sent, large packets are lost there (MTU): "
            + "try sysctl net.ipv4.tcp_mtu_probing=1"
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

    /// Advice that takes more than the code.
    private func advice(about reason: Reason, _ configuration: SessionConfiguration) -> String? {
        let tls = configuration.tls
        switch reason.detail {
        case .endedInHandshake?:
            return
                "check the port and the scheme of \(key("endpoints", "--endpoint")): the server there may not expect TLS, "
                + "as with mqtt:// and ws://, or not be an MQTT server"
        case .certificateWanted?:
            guard let certificate = tls.certificate else {
                return "the server wants a certificate of this host: "
                    + (occasion == .draft
                        ? "give --certificate and --key" : inFile("set certificate and key of [tls] in \(file)"))
            }
            return "check that the server accepts the certificate in \(certificate), and that it has not expired"
        case .certificateExpired?:
            return "the server needs a valid certificate, unless this host's clock is wrong (check it with date)"
        case .otherName?:
            guard let name = tls.serverName else {
                return "correct the host of \(key("endpoints", "--endpoint"))" + then("reload")
                    + ": it must be a name in the server's certificate, if that is the right server"
            }
            return "correct server-name of [tls] in the session's file, now \(name)" + then("reload")
                + ": it must be a name in the server's certificate"
        case .noLongerAcknowledged?:
            return swallowed
        case .otherInItsPlace?:
            return "on a public network, sign in first; if the server has another certificate now, "
                + certificate(configuration.tls)
        case .ownFilesUnusable? where tls.authorities == nil && tls.certificate == nil:
            return "install the trusted authorities of this host (the package ca-certificates), or set "
                + key("ca of [tls]", "--ca") + " to the authority of the server's certificate"
        case .ownFilesUnusable?:
            return "check \(files(of: tls))"
                + (occasion == .draft ? "" : "; holdfastctl config check says what is wrong with them")
        case .elsewhereUnnamed?:
            return lasting("ask the server's administrator which server to use")
        case .unreadable?, .webServer?, nil:
            return nil
        }
    }

    /// The command that makes a failed session try again once the cause is fixed.
    private func then(_ command: String) -> String { occasion == .draft ? "" : ", then holdfastctl \(command)" }

    /// Advice about what passes on its own most of the time.
    ///
    /// - Parameter checked: the advice to somebody who asked for a check, if it is another.
    private func lasting(_ advice: String, checked: String? = nil) -> String? {
        switch occasion {
        case .event: nil
        case .retrying: "if this goes on: \(advice)"
        case .check, .draft: checked ?? advice
        }
    }

    /// Whether there is no saying that a session is trying to connect.
    private var isChecked: Bool { occasion == .check || occasion == .draft }

    /// What sets a key: the session's file or, for a draft, the option of `config init`.
    private func key(_ name: String, _ option: String) -> String {
        occasion == .draft ? option : "\(name) in \(file)"
    }

    private var file: String { occasion == .draft ? "it" : "the session's file" }

    /// Advice to change what no option of `config init` sets. A draft must be written untried first.
    private func inFile(_ change: String) -> String {
        occasion == .draft ? "write the file with --untried, then \(change)" : change + then("reload")
    }

    /// Names the files of `[tls]`.
    private func files(of tls: TLSOptions) -> String {
        let names = [tls.authorities, tls.certificate, tls.key].compactMap { $0 }.joined(separator: ", ")
        return occasion == .draft
            ? "the files of --ca, --certificate and --key: \(names)" : "the files of [tls]: \(names)"
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
                    : ", which holdfastctl config password \(session) changes; after a change at the server: "
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
                return "check that the server accepts the certificate in \(certificate)" + then("connect \(session)")
                    + "; the session has no password"
            }
            let (option, setting) =
                configuration.mayCarryPassword
                ? ("--ask-password", "password")
                : ("--ask-password and, because it would be sent unencrypted, --insecure", "password and insecure")
            return
                "the session has no password, and the server may require one: "
                + (occasion == .draft ? "give \(option)" : "set \(setting) in the session's file" + then("reload"))
        }
    }

    /// Advice when a secret cannot be read: the session's own, or the proxy's.
    private func unreadable(_ reason: Reason, _ configuration: SessionConfiguration) -> String? {
        func advice(_ reference: SecretReference, _ key: String) -> String {
            switch reference {
            case .file(let path): "check that \(path) has the password, and that the daemon's user may read it"
            case .credential(let name):
                "check LoadCredential=\(name) of the service (systemctl edit holdfast); restart the service to read it"
            case .exec(let command):
                "run the command of \(key) as the daemon's user, to see why it fails"
                    + (isPerhapsHidden(command.first ?? "") ? "; the service may not see what is in that folder" : "")
            }
        }
        let secrets = [
            reason.detail == .unreadable(ofProxy: true)
                ? nil : configuration.password.map { advice($0, key("password", "--password")) },
            reason.detail == .unreadable(ofProxy: false)
                ? nil : configuration.proxy.password.map { advice($0, "password of [proxy] in the session's file") },
        ].compactMap { $0 }
        return secrets.isEmpty ? nil : secrets.joined(separator: "; ")
    }

    /// Whether a file is where the service, as it is installed, sees nothing or a folder of its own (systemd.exec(5),
    /// ProtectHome and PrivateTmp).
    private func isPerhapsHidden(_ path: String) -> Bool {
        ["/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/"].contains { path.hasPrefix($0) }
    }

    private func version(_ version: MQTTVersion) -> String {
        let other =
            switch version {
            case .five: "\"3.1.1\" or \"auto\""
            case .threeOneOne: "\"5\" or \"auto\""
            case .automatic: String?.none
            }
        guard let other else {
            return "check the endpoint" + then("connect \(session)")
                + ": its server speaks neither MQTT 5 nor 3.1.1"
        }
        return inFile("set version of [mqtt] in \(file) to \(other)")
    }

    private func certificate(_ tls: TLSOptions) -> String {
        let name = tls.serverName.map { "server-name, \($0)" } ?? "the endpoint's host"
        if let authorities = tls.authorities {
            return
                "check that \(authorities) contains the root authority that the server's certificate goes back to (an "
                + "authority in between is not enough), and that \(name)" + (tls.serverName == nil ? "" : ",")
                + " is a name in that certificate"
                + then("connect \(session)")
        }
        return
            "if the system does not trust the authority of the server's certificate, set \(key("ca of [tls]", "--ca")) "
            + "to the authority's certificate; if the certificate has another name, correct \(name)" + then("reload")
    }

    private func tls(_ tls: TLSOptions) -> String {
        var things = ["this host's clock (date shows it)", "the server's certificate"]
        if tls.authorities != nil || tls.certificate != nil { things.append(files(of: tls)) }
        if tls.certificate == nil {
            let setting = occasion == .draft ? "" : " (certificate and key of [tls])"
            things.append("whether the server wants a certificate of this host\(setting)")
        }
        if tls.minimum == .tls13 { things.append("minimum of [tls]: the server may speak TLS 1.2 only") }
        return "check " + things.joined(separator: "; ")
    }
}
