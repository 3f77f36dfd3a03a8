import MQTT
import SessionCore

// Every key, one row each: name, member and form. The defaults are the members' initial values. The keys of [network]
// are in ConfigurationNetwork.swift.

extension DaemonConfiguration {
    static let keys: [ConfigurationKey<Self>] = [
        .init("durability", \.durability, .choice),

        .init("access.observe", \.access.observe, .list(.principal, of: "principals")),
        .init("access.message", \.access.message, .list(.principal, of: "principals")),
        .init("access.control", \.access.control, .list(.principal, of: "principals")),

        .init("log.level", \.logLevel, .choice),

        .init("metrics.listen", \.metrics.listen, .metricsAddress),
        .init("metrics.textfile", \.metrics.textfile, .metricsFile),
    ]
}

extension SessionConfiguration {
    static let keys: [ConfigurationKey<Self>] = ownKeys + networkKeys

    private static let ownKeys: [ConfigurationKey<Self>] = [
        // First, because every other key overrides it.
        .init("preset", \.preset, .choice) { $0.adopt($1) },

        .init("endpoints", \.endpoints, .list(.endpoint, of: "endpoints", mayBeEmpty: false), isRequired: true),
        .init("user", \.user, .nonemptyText, isRequired: true),
        .init("device", \.device, .anyText),
        .init("client-id", \.clientID, .anyText),
        .init("username", \.username, .optionalText),
        .init("password", \.password, .secret),
        .init("insecure", \.insecure, .boolean),
        .init("room", \.room, .room(mayBeEmpty: true)),
        .init("room-prefix", \.roomPrefix, .room(mayBeEmpty: false)),
        .init("autoconnect", \.autoconnect, .boolean),
        .init("on-demand", \.onDemand, .boolean),
        .init("idle-timeout", \.idleTimeout, .duration("1s", to: "30d")),
        .init("on-suspend", \.onSuspend, .choice),
        .init("instances", \.instances, .list(.instance, of: "instances")),

        .init(
            "reconnect.delays", \.reconnect.delays,
            .list(.duration("0s", to: "24h"), of: "durations", mayBeEmpty: false)),
        .init("reconnect.spread", \.reconnect.spread, .duration("0s", to: "1h")),
        .init("reconnect.jitter", \.reconnect.jitter, .duration("0s", to: "1h")),
        .init("reconnect.stable-after", \.reconnect.stableAfter, .duration("0s", to: "24h")),
        .init("reconnect.lost-after", \.reconnect.lostAfter, .durationOrNever("0s", to: "365d")),
        .init("reconnect.give-up-after", \.reconnect.giveUpAfter, .durationOrNever("1s", to: "365d")),
        .init("reconnect.give-up-attempts", \.reconnect.giveUpAttempts, .integerOrNever(1...1_000_000)),
        .init("reconnect.kick", \.kick, .choice),
        .init("reconnect.watch", \.reconnect.watch, .durationOrNever("100ms", to: "1h")),

        // MQTT has 16 bits for the seconds of its keep-alive.
        .init("heartbeat.interval", \.heartbeat.interval, .duration("1s", to: "65535s")),
        .init("heartbeat.timeout", \.heartbeat.timeout, .duration("100ms", to: "1h")),

        .init("presence.timeout", \.presenceTimeout, .duration("0s", to: "24h")),

        .init("timeouts.dial", \.timeouts.dial, .duration("100ms", to: "1h")),
        .init("timeouts.authenticate", \.timeouts.authenticate, .duration("100ms", to: "1h")),
        .init("timeouts.restore", \.timeouts.restore, .duration("100ms", to: "1h")),
        .init("timeouts.acknowledge", \.timeouts.acknowledge, .duration("100ms", to: "1h")),

        .init("mqtt.version", \.mqtt.version, .choice),
        // MQTT 5, section 3.1.2.11.2: 32 bits of seconds, of which the greatest number means forever.
        .init("mqtt.session-expiry", \.mqtt.sessionExpiry, .durationOrNever("0s", to: "4294967294s")),
        .init("mqtt.receive-maximum", \.mqtt.receiveMaximum, .integer(1...65_535)),
        .init("mqtt.maximum-packet-size", \.mqtt.maximumPacketSize, .size("1KiB", to: "17MiB")),
        .init("mqtt.authentication", \.mqtt.authentication, .choice),
        .init("mqtt.redirects", \.mqtt.redirects, .list(.hostPattern, of: "hosts")),

        .init("tls.ca", \.tls.authorities, .path),
        .init("tls.certificate", \.tls.certificate, .path),
        .init("tls.key", \.tls.key, .path),
        .init("tls.server-name", \.tls.serverName, .serverName),
        .init("tls.minimum", \.tls.minimum, .choice),

        .init("proxy.url", \.proxy.address, .proxy),
        .init("proxy.username", \.proxy.username, .optionalText),
        .init("proxy.password", \.proxy.password, .secret),

        .init("outbox.max-messages", \.outbox.maxMessages, .integer(1...1_000_000_000)),
        .init("outbox.max-bytes", \.outbox.maxBytes, .size("1KiB", to: "1024TiB")),
        .init("outbox.max-age", \.outbox.maxAge, .durationOrNever("1s", to: "3650d")),
        .init("outbox.when-full", \.outbox.whenFull, .choice),

        .init("inbox.max-messages", \.inbox.maxMessages, .integer(1...1_000_000_000)),
        .init("inbox.max-bytes", \.inbox.maxBytes, .size("1KiB", to: "1024TiB")),
        .init("inbox.max-age", \.inbox.maxAge, .durationOrNever("1s", to: "3650d")),
        .init("inbox.when-full", \.inbox.whenFull, .choice),

        .init("topics.publish", \.topics.publish, .list(.grant, of: "grants")),
        .init("topics.subscribe", \.topics.subscribe, .list(.grant, of: "grants")),
    ]
}

extension DaemonConfiguration {
    package init(_ file: ConfigurationFile) throws(ConfigurationErrors) {
        self.init()
        let errors = ConfigurationKey.read(
            Self.keys, from: ConfigurationParser.parse(file.text, file: file.path), into: &self)
        guard errors.isEmpty else { throw ConfigurationErrors(errors) }
    }
}

extension SessionConfiguration {
    package init(_ file: ConfigurationFile) throws(ConfigurationErrors) {
        try self.init(ConfigurationParser.parse(file.text, file: file.path))
    }

    /// - Parameter content: the whole of a session's file; for an instance, with its name filled in.
    init(_ content: ConfigurationValue) throws(ConfigurationErrors) {
        self.init()
        var errors = ConfigurationKey.read(Self.keys, from: content, into: &self)
        // Otherwise what seems to contradict a key, or to be missing, may be in the part that cannot be read.
        if content.syntaxErrors.isEmpty { errors += contradictions(in: content) }
        guard errors.isEmpty else { throw ConfigurationErrors(errors) }
        if clientID.isEmpty { clientID = user }
        if password != nil { username = username ?? user }
    }

    /// Finds what is wrong although each key is right on its own.
    private func contradictions(in content: ConfigurationValue) -> [ConfigurationError] {
        var errors: [ConfigurationError] = []
        if password != nil, !insecure, case .list(let values) = content["endpoints"]?.content,
            // If one endpoint in the list is wrong, none was kept.
            values.count == endpoints.count
        {
            for (endpoint, value) in zip(endpoints, values) where !endpoint.scheme.isSecure && !staysHere(endpoint) {
                let problem = "the password would be sent to \(endpoint) unencrypted"
                let better = endpoint.scheme.isWebSocket ? "wss" : "mqtts"
                errors += value.error("\(problem): use \(better)://, or allow it with insecure = true").list
            }
        }
        if !instances.isEmpty, let value = content["instances"] {
            errors += value.error("instances are for a template, a file whose name ends with @.toml").list
        }
        if let last = reconnect.delays.last, last < .milliseconds(10), let value = content["reconnect", "delays"] {
            let message = "the last of reconnect.delays is used indefinitely and must be at least \"10ms\""
            errors += value.error(message).list
        }
        errors += roomContradictions(in: content)
        if mqtt.authentication != .password, password == nil, let value = content["mqtt", "authentication"] {
            errors += value.error("mqtt.authentication \(value.given) needs a password as well").list
        }
        if mqtt.authentication != .password, (username ?? user).utf8.count > SCRAMClient.longestUser,
            let value = content["username"] ?? content["user"]
        {
            errors +=
                value.error("with SCRAM-SHA-256 a user has at most \(SCRAMClient.longestUser) bytes").list
        }
        errors += versionContradictions(in: content)
        errors += proxyContradictions(in: content)
        if tls.certificate != nil, tls.key == nil, let value = content["tls", "certificate"] {
            errors += value.error("tls.certificate needs tls.key as well").list
        }
        if tls.key != nil, tls.certificate == nil, let value = content["tls", "key"] {
            errors += value.error("tls.key needs tls.certificate as well").list
        }
        return errors
    }
}

extension SessionConfiguration {
    /// Finds settings that MQTT 3.1.1 does not have. With `auto` they include authentication: a server that asks for
    /// 3.1.1 must not get the password in the clear.
    private func versionContradictions(in content: ConfigurationValue) -> [ConfigurationError] {
        var errors: [ConfigurationError] = []
        if mqtt.version != .five, mqtt.authentication != .password, let value = content["mqtt", "authentication"] {
            errors += value.error("mqtt.authentication \(value.given) needs mqtt.version \"5\"").list
        }
        guard mqtt.version == .threeOneOne else { return errors }
        for key in ["session-expiry", "receive-maximum", "redirects"] {
            guard let value = content["mqtt", key] else { continue }
            errors += value.error("MQTT 3.1.1 has no equivalent of mqtt.\(key): omit the key").list
        }
        return errors
    }

    /// Whether a password may be sent to every endpoint.
    package var mayCarryPassword: Bool { insecure || endpoints.allSatisfy { $0.scheme.isSecure || staysHere($0) } }

    /// Whether bytes to the endpoint never leave the host.
    private func staysHere(_ endpoint: Endpoint) -> Bool {
        endpoint.isLoopback && proxy.address?.isLoopback ?? true
    }

    private func proxyContradictions(in content: ConfigurationValue) -> [ConfigurationError] {
        var errors: [ConfigurationError] = []
        if proxy.address == nil {
            for key in ["username", "password"] {
                guard content["proxy", "url"] == nil, let value = content["proxy", key] else { continue }
                errors += value.error("proxy.\(key) needs proxy.url as well").list
            }
        }
        if proxy.username != nil, proxy.password == nil, let value = content["proxy", "username"] {
            errors += value.error("proxy.username needs proxy.password as well").list
        }
        if proxy.password != nil, proxy.username == nil, let value = content["proxy", "password"] {
            errors += value.error("proxy.password needs proxy.username as well").list
        }
        if let name = proxy.username, let value = content["proxy", "username"] {
            if proxy.address?.scheme == .http, name.contains(":") {
                errors += value.error("the user name for an HTTP proxy has no colon (RFC 7617, 2)").list
            }
            if proxy.address?.scheme == .socks5, name.utf8.count > 255 {
                errors += value.error("the user name for a SOCKS proxy has at most 255 bytes (RFC 1929, 2)").list
            }
        }
        if proxy.address != nil, tls.serverName == nil, case .list(let values) = content["endpoints"]?.content,
            values.count == endpoints.count
        {
            for (endpoint, value) in zip(endpoints, values) where endpoint.scheme.isSecure && endpoint.isLiteral {
                let problem = "through a proxy, the certificate of \(endpoint) can only be verified by a name"
                errors += value.error("\(problem): write a host name, or set tls.server-name").list
            }
        }
        return errors
    }
}

extension ConfigurationValue {
    /// - Parameter name: with the table's name: `reconnect.spread`.
    func value(named name: String) -> ConfigurationValue? {
        let parts = name.split(separator: ".").map(String.init)
        return parts.count == 2 ? self[parts[0], parts[1]] : self[name]
    }

    subscript(keys: String...) -> ConfigurationValue? {
        keys.reduce(.some(self)) { value, key in
            guard let value, case .table(let members) = value.content else { return nil }
            return members.first { $0.name == (value.name.isEmpty ? key : "\(value.name).\(key)") }
        }
    }
}
