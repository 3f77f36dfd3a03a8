import Configuration
import MQTT
import Session
import SessionCore
import Transport

// A session's configuration, as those that use it want it. What is in a policy that is passed on as a whole, `SessionDriver`
// passes on.

extension SessionSettings {
    init(_ name: SessionName, _ configuration: SessionConfiguration, bootID: String) {
        self.init(name: name, endpoints: configuration.endpoints, user: configuration.user)
        username = configuration.username
        room = (configuration.roomPrefix, configuration.room)
        // A session on demand connects when it is used, and nothing else has to be remembered for it.
        autoconnects = configuration.autoconnect || configuration.onDemand
        hasPassword = configuration.password != nil
        mayCarryPassword = configuration.mayCarryPassword
        provesPassword = configuration.mqtt.authentication == .scramSHA256
        if configuration.proxy.address != nil {
            proxy = .some(
                needsLogin: configuration.proxy.username != nil, hasPassword: configuration.proxy.password != nil)
        }
        maximumPacketSize = configuration.mqtt.maximumPacketSize
        timeouts = configuration.timeouts
        stableAfter = configuration.reconnect.stableAfter
        keepAlive = (
            configuration.presence.keepAlive, PresenceTiming.keepAlive(configuration.heartbeat.interval)
        )
        notesUses = configuration.onDemand || configuration.endpoints.count > 1
        isBound = configuration.network.isBinding
        retryInterval = CommitQueue.retryInterval
        self.bootID = bootID
        maximumInboxAge = configuration.inbox.maxAge.map { $0.wholeMilliseconds }
    }
}

extension MQTTClientMachine.Configuration {
    init(_ session: SessionConfiguration, _ memory: MessageMemory) {
        self.init(version: session.mqtt.version.only ?? .five, clientID: session.clientID)
        keepAlive = PresenceTiming.keepAlive(session.heartbeat.interval)
        // Rounded up: zero would end the session with each connection.
        sessionExpiry =
            session.mqtt.sessionExpiry.map { UInt32(clamping: ($0 + .nanoseconds(999_999_999)).components.seconds) }
            ?? .max
        receiveMaximum = UInt16(clamping: session.mqtt.receiveMaximum)
        maximumPacketSize = UInt32(clamping: session.mqtt.maximumPacketSize)
        outbox.messages = session.outbox.maxMessages
        outbox.bytes = session.outbox.maxBytes
        outbox.whenFull = session.outbox.whenFull
        outbox.maximumAge = session.outbox.maxAge.map { $0.wholeMilliseconds }
        inbox.messages = session.inbox.maxMessages
        inbox.bytes = session.inbox.maxBytes
        inbox.whenFull = session.inbox.whenFull
        acknowledgeTimeout = session.timeouts.acknowledge.wholeMilliseconds
        requestTimeout = session.timeouts.restore.wholeMilliseconds
        packetsPerInput = 256
        limit(to: memory)
    }
}

extension Connection.Options {
    init(_ session: SessionConfiguration, for endpoint: Endpoint, proxyPassword: [UInt8]?) {
        let login = session.proxy.username.flatMap { name in
            proxyPassword.map { ProxyOptions.Login(username: name, password: $0) }
        }
        // What the file says about the listed servers does not apply to those that they redirect to: their certificates
        // must have their own names.
        var tls = session.tls
        if !session.endpoints.contains(endpoint) { tls.serverName = nil }
        self.init(
            dialTimeout: session.timeouts.dial,
            tls: tls,
            proxy: session.proxy.address.map { ProxyOptions(address: $0, login: login) },
            keepAlive: session.heartbeat.interval + session.heartbeat.timeout)
    }
}

extension MQTTVersion {
    /// `nil` when the version has to be found out for each server.
    var only: ProtocolVersion? {
        switch self {
        case .five: .five
        case .threeOneOne: .threeOneOne
        case .automatic: nil
        }
    }
}
