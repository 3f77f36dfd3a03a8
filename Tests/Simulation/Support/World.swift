import MQTT
import Session
import Vocabulary

@testable import Agent
@testable import Configuration
@testable import SessionCore

/// What stays the same throughout a run: hosts, servers and configurations, drawn from the run's seed.
public struct World: Hashable, Sendable {
    /// What varies between worlds.
    public enum Trait: String, CaseIterable, Sendable {
        /// A second host: none, in the same room under its own name, or with the same identity.
        case second
        case endpoints
        /// Whether the session may be sent to the second server.
        case redirects
        case room
        case timing
        case version
        case outbox
        case inbox
        case receiveMaximum = "receive-maximum"
        case kick
        /// Whether servers close the older connection of a client without a word.
        case silentTakeOver = "silent-take-over"
        case password
        /// Whether the session is up only while somebody uses it.
        case demand
        /// How many unanswered messages the servers take at once.
        case serverWindow = "server-window"
        /// Whether the hosts' kernels say how far what was sent has come.
        case measured
        /// Whether the daemons may hold so little in memory that nearly every message is read from the disk.
        case memory
        /// Whether servers forget a session a moment after its time.
        case forgetsLate = "forgets-late"
        /// How many topic aliases the servers allow.
        case aliases

        var choices: Int {
            switch self {
            case .second, .version, .receiveMaximum, .inbox, .serverWindow, .aliases: 3
            case .timing: 8
            case .outbox: 6
            default: 2
            }
        }

        /// How often the first choice is made rather than any other, in percent.
        var usually: Int {
            switch self {
            case .second: 60
            case .version: 70
            case .receiveMaximum, .kick, .silentTakeOver, .inbox, .serverWindow, .aliases: 70
            case .demand, .memory, .forgetsLate: 85
            case .measured: 30
            default: 50
            }
        }
    }

    public private(set) var traits: [Trait: Int] = [:]

    public init() {}

    init(_ random: inout SplitMix64) {
        for trait in Trait.allCases {
            let isUsual = Int.random(in: 0..<100, using: &random) < trait.usually
            let other = Int.random(in: 1..<trait.choices, using: &random)
            self[trait] = isUsual ? 0 : other
        }
    }

    public subscript(trait: Trait) -> Int {
        get { traits[trait] ?? 0 }
        set { traits[trait] = newValue == 0 ? nil : min(max(newValue, 0), trait.choices - 1) }
    }

    var hosts: [String] { self[.second] == 0 ? ["A"] : ["A", "B"] }
    var sharesIdentity: Bool { self[.second] == 2 }
    /// Whether the sessions are in a room. Two with the same identity must not fight there, nor with a server that
    /// tells them of each other.
    var isInRoom: Bool { self[.room] == 1 || self[.second] == 1 }

    /// The password, which nobody but the server may ever see.
    static let secret = "open-sesame-4711"
    static let secretBytes = Needle(secret)

    /// The topics of the presences in all rooms that the sessions switch to.
    var presences: [String] {
        hosts.flatMap { host in
            ["r", "s"].map { "holdfast/rooms/\($0)/presence/\(user(of: host))/device-\(host.lowercased())" }
        }
    }
    static let presenceFilters = ["r", "s"].map { "holdfast/rooms/\($0)/presence/+/+" }

    func user(of host: String) -> String { sharesIdentity ? "a" : host.lowercased() }

    /// The session's file on a host.
    func file(of host: String) -> String {
        var servers = ["192.0.2.1"]
        if self[.endpoints] == 1 { servers.append("192.0.2.2") }
        var lines = [
            "endpoints = [\(servers.map { "\"mqtt://\($0):1883\"" }.joined(separator: ", "))]",
            "user = \"\(user(of: host))\"",
        ]
        let preset = [nil, "agora", "zego", "livekit", nil, nil, "nexconn", nil][self[.timing]]
        if let preset { lines.append("preset = \"\(preset)\"") }
        if self[.password] == 1 { lines += ["password = \"exec:/model\"", "insecure = true"] }
        if self[.demand] == 1 { lines += ["on-demand = true", "idle-timeout = \"60s\""] }
        if isInRoom { lines.append("room = \"r\"") }
        let yields = self[.kick] == 1 && isInRoom
        if yields || self[.timing] == 7 { lines.append("[reconnect]") }
        if yields { lines.append("kick = \"yield\"") }
        if self[.timing] == 7 { lines.append("give-up-attempts = 3") }
        if self[.timing] == 4 { lines += ["[heartbeat]", "interval = \"2s\"", "timeout = \"1s\""] }
        if self[.timing] == 5 { lines += ["[heartbeat]", "interval = \"60s\"", "timeout = \"10s\""] }
        lines += ["[mqtt]", "version = \"\(["5", "auto", "3.1.1"][self[.version]])\""]
        if self[.version] != 2 {
            if self[.redirects] == 1 { lines.append("redirects = [\"192.0.2.2\"]") }
            lines.append("receive-maximum = \([1024, 1, 4][self[.receiveMaximum]])")
        }
        switch self[.outbox] {
        case 0: break
        case 4: lines += ["[outbox]", "max-age = \"100s\""]
        case 5: lines += ["[outbox]", "max-bytes = \"1KiB\""]
        case let small:
            let behaviour = ["refuse", "drop-oldest", "drop-new"][small - 1]
            lines += ["[outbox]", "max-messages = 12", "when-full = \"\(behaviour)\""]
        }
        if self[.inbox] > 0 { lines += ["[inbox]", "max-messages = 6"] }
        if self[.inbox] == 2 { lines.append("when-full = \"withhold\"") }
        return lines.joined(separator: "\n") + "\n"
    }

    /// How much memory the messages of a session may take.
    var memory: MessageMemory {
        var memory = MessageMemory(sessions: 1)
        if self[.memory] == 1 { (memory.inFlight, memory.readAhead, memory.unflushed, memory.ahead) = (40, 8, 40, 8) }
        return memory
    }

    /// What the servers announce, unless a step changes it.
    var serverLimits: Connack.Properties {
        var limits = Connack.Properties()
        limits.receiveMaximum = [nil, 1, 3][self[.serverWindow]]
        limits.topicAliasMaximum = [nil, 1, 10][self[.aliases]]
        return limits
    }

    func configuration(of host: String) throws -> SessionConfiguration {
        try SessionConfiguration(ConfigurationFile(path: "main.toml", text: file(of: host)))
    }
}

extension World: LosslessStringConvertible {
    public var description: String {
        let chosen = Trait.allCases.compactMap { trait in traits[trait].map { "\(trait.rawValue)=\($0)" } }
        return chosen.filter { !$0.hasSuffix("=0") }.joined(separator: " ")
    }

    public init?(_ text: String) {
        for word in text.split(separator: " ") {
            let parts = word.split(separator: "=")
            guard parts.count == 2, let trait = Trait(rawValue: String(parts[0])), let value = Int(parts[1]) else {
                return nil
            }
            self[trait] = value
        }
    }
}
