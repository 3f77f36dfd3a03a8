import ControlAPI
import MQTT
import NIOCore
import SessionCore
import Support
import Testing
import Vocabulary

@testable import Session

/// A session's value with a server made of packets, in virtual time and without an event loop. Each step returns what
/// the driver would have to do, as short texts; commits are durable at once and are not listed.
struct SessionUnderTest {
    var session: Session
    private(set) var now = Instant(nanoseconds: 0)
    /// By how many milliseconds the host's clock was set forward.
    var clockOffset: Int64 = 0
    /// The connection that was dialed last, and what for.
    private(set) var dialed = DialID(rawValue: 0)
    private(set) var goal = DialTarget.Goal.open
    /// Whether the server answers each PINGREQ at once; they are not listed then.
    var answersPings = false
    /// The connections that were dialed, and that the session has not let go of.
    private var held: Set<DialID> = []
    /// Whether the disk has no room for new messages.
    var diskIsFull = false
    /// The last message on each topic.
    private(set) var published: [String: ByteBuffer] = [:]
    /// What the last step answered to programs' calls and told programs and people, and what else it asked of the host.
    private(set) var told: [String] = []
    /// What the last step asked the disk to remember, except for the protocol's own state.
    private(set) var remembered: [SessionChange] = []
    /// What secrets were asked for last, to be answered.
    private(set) var fetched: SecretUse?
    private(set) var challenge: SCRAMClient.Challenge?
    private var decoder = PeerDecoder(adoptsVersion: true)
    /// Of the last SUBSCRIBE or UNSUBSCRIBE.
    private var lastRequest: PacketID?
    /// The last CONNECT.
    private(set) var lastConnect: Connect?
    /// The last report of the session machine.
    private(set) var report: Report?
    /// The identifier in the last SUBSCRIBE, which comes with the messages for it.
    private(set) var subscriptionID: UInt32?
    /// Of each PUBLISH that the server has not answered.
    private var unanswered: [PacketID] = []
    /// The last message of SCRAM that was sent.
    private(set) var proof = ""

    static let hosts = ["a.example", "b.example"]

    /// - Parameters:
    ///   - version: `nil` to find out which version the server speaks.
    ///   - idleTimeout: of a session on demand.
    ///   - retained: the topics on which the server may hold publications.
    ///   - homes: as an earlier run of the daemon stored them.
    ///   - verdict: of that run.
    init(
        scheme: String = "mqtts", room: String? = nil, version: ProtocolVersion? = .five, redirects: [String] = [],
        idleTimeout: Duration? = nil, credential: SessionCredential? = nil, retained: Set<String> = [],
        homes: [SessionHome] = [], verdict: Verdict? = nil, _ change: (inout SessionSettings) -> Void = { _ in }
    ) throws {
        let endpoints = try Self.hosts.map { try Endpoint("\(scheme)://\($0)") }
        var settings = SessionSettings(name: try #require(SessionName("main")), endpoints: endpoints, user: "me")
        settings.notesUses = idleTimeout != nil
        settings.autoconnects = idleTimeout != nil
        settings.room = ("p", room ?? "")
        change(&settings)
        var rest = RestPolicy()
        rest.idleTimeout = idleTimeout
        var protocolSettings = MQTTClientMachine.Configuration(version: version ?? .five, clientID: "c")
        protocolSettings.sessionExpiry = .max
        let moment = Session.Moment(now: now, wallClock: Timestamp(rawValue: 0))
        session = Session(
            settings: settings,
            machine: SessionMachine(rest: rest, paths: [Self.path, Self.path], seed: 1, at: moment.now),
            mqtt: MQTTClientMachine(configuration: protocolSettings),
            servers: Servers(
                redirections: Redirections(
                    endpoints, allowed: redirects.compactMap { HostPattern($0) }, hasPassword: settings.hasPassword,
                    isInsecure: false),
                protocols: ProtocolChoice(version), homes: homes),
            addresses: EndpointAddresses(Self.hosts),
            rooms: Rooms(identity: .init(user: "me", device: "here"), session: "main", willDelay: .seconds(90)),
            publications: Publications([], retained: retained), durableConsumers: DurableConsumers(DurableSession()),
            credential: credential, clientID: "c", verdict: verdict, at: moment)
        session.enterRoom(nil, subscribedTo: [])
        _ = proceed()
    }

    static let path = Path(
        interface: "eth0", interfaceIndex: 2, type: .ethernet, source: "192.0.2.2", gateway: "192.0.2.1", table: 254)

    // MARK: Steps

    mutating func take(_ input: Session.Input) -> [String] {
        session.take(input)
        return proceed()
    }

    /// Asks what is answered at once. Its consequences wait for ``proceed()``.
    mutating func ask<Answer>(_ body: (inout Session) -> Answer) -> Answer {
        session.moment = moment
        return body(&session)
    }

    /// The kernel has taken this many bytes. Returns whether there is anything to carry out.
    mutating func flushed(_ count: Int, on connection: DialID) -> Bool {
        session.flushed(count, on: connection, at: moment)
    }

    /// Decides and carries out what waits, as the driver does.
    mutating func proceed() -> [String] {
        (told, remembered) = ([], [])
        return carryOut()
    }

    private mutating func carryOut() -> [String] {
        var texts: [String] = []
        repeat { texts += carryOutActions() } while session.next(at: moment)
        checkHeld()
        return texts
    }

    /// Decides about the next input alone.
    mutating func proceedOnce() -> [String] {
        _ = session.next(at: moment)
        return carryOutActions()
    }

    private mutating func carryOutActions() -> [String] {
        var texts: [String] = []
        var actions: [Session.Action] = []
        session.exchangeActions(&actions)
        for action in actions {
            switch action {
            case .commitNumbered(_, let number):
                session.take(.mqtt(diskIsFull ? .committedWithoutInserts(number) : .committed(number)))
            case .commitAnswered(let changes):
                remembered += changes
                session.take(.stored(changes, isComplete: true))
            default:
                texts += text(action)
                note(action)
            }
        }
        return texts
    }

    /// The session holds no connection that it has no use for.
    private func checkHeld() {
        for id in held {
            let isUsed =
                switch session.connections.role(of: id) {
                case .attempt: session.link?.connection == id
                case .successor: session.connections.successor?.connection == id
                case .look: session.looking?.connection == id
                case .knock: session.link?.knock == id || !session.knocks.isEmpty
                case nil: false
                }
            if !isUsed { Issue.record("connection \(id.rawValue) is held for nothing") }
        }
    }

    private var moment: Session.Moment {
        .init(now: now, wallClock: time)
    }

    /// What the host's clock shows.
    var time: Timestamp { Timestamp(rawValue: now.nanoseconds / 1_000_000 + clockOffset) }

    mutating func take(_ input: SessionMachine.Input) -> [String] { take(.machine(input)) }

    /// What happens to the connection that was dialed last.
    mutating func take(_ event: DialEvent) -> [String] { take(.connection(dialed, event)) }

    mutating func receives(_ packets: Packet...) -> [String] { receives(packets) }

    mutating func receives(_ packets: [Packet]) -> [String] {
        take(.received(encoded(packets, in: session.mqtt.version)))
    }

    /// Time passes, and the session is woken at each of its deadlines, and only then.
    mutating func wait(_ seconds: Int64) -> [String] {
        let end = now.advanced(by: .seconds(seconds))
        (told, remembered) = ([], [])
        var texts: [String] = []
        var served = 0
        while let deadline = session.nextDeadline, deadline <= end {
            now = max(now, deadline)
            session.take(.timeReached)
            texts += carryOut()
            served += 1
            guard served < 10_000 else {
                Issue.record("the session asks to be woken for ever at \(now)")
                break
            }
        }
        now = end
        return texts
    }

    /// The host sleeps, so nothing runs, and wakes up.
    mutating func sleep(_ duration: Duration) {
        now = now.advanced(by: duration)
        _ = take(.hostWoke(slept: duration))
    }

    /// From an open transport to a session that is as it was.
    mutating func opens() -> [String] { take(.opened(Self.peer)) }

    /// Asks for a connection, up to an open transport.
    mutating func dials() {
        _ = take(.connect(Reason(.userConnect)))
        _ = opens()
    }

    static let peer: LinkPeer = {
        guard let address = try? SocketAddress(ipAddress: "192.0.2.9", port: 8883) else { preconditionFailure() }
        return LinkPeer(address: address, name: "192.0.2.9:8883", tlsVersion: nil)
    }()

    func connected() -> SessionUnderTest {
        var session = self
        session.connect()
        return session
    }

    private mutating func connect() {
        dials()
        _ = receives(.connack(Connack()))
    }

    /// The server grants the filters of the last SUBSCRIBE.
    mutating func grants(_ codes: ReasonCode...) throws -> [String] {
        receives(.suback(Suback(packetID: try #require(lastRequest), reasonCodes: codes)))
    }

    /// Waits until the session dials.
    mutating func waitsForDial(after texts: [String] = []) throws -> String {
        var texts = texts
        for _ in 0..<600 where !texts.contains(where: { $0.hasPrefix("dial") }) { texts = wait(1) }
        return try #require(texts.first { $0.hasPrefix("dial") })
    }

    /// The server answers the oldest PUBLISH that it has not answered.
    mutating func takes(_ code: ReasonCode = .success) throws -> [String] {
        let id = try #require(unanswered.first)
        unanswered.removeFirst()
        return receives(.puback(Acknowledgement(packetID: id, reasonCode: code)))
    }

    /// What the last step told that begins with one of these words.
    func toldOf(_ words: String...) -> [String] {
        told.filter { text in words.contains { text.hasPrefix($0) } }
    }

    // MARK: What the driver would do

    private mutating func text(_ action: Session.Action) -> [String] {
        switch action {
        case .dial(let id, let target):
            (dialed, goal) = (id, target.goal)
            if let knock = target.knock { held.remove(knock) }
            held.insert(id)
            decoder = PeerDecoder(adoptsVersion: true)
            let knock = if case .knock = target.goal { "knock at" } else { "dial" }
            return ["\(knock) \(target.address.host)" + (target.knock == nil ? "" : " with the knock")]
        case .send(let id, let bytes, _):
            decoder.append(bytes)
            var texts: [String] = []
            while let packet = try? decoder.next() {
                note(packet)
                if answersPings, packet == .pingreq {
                    session.take(.connection(id, .received(Packet.pingresp.encoded())))
                } else {
                    texts.append("send \(Self.name(packet))")
                }
            }
            return texts
        case .letGo(let id, let closing):
            held.remove(id)
            return closing.map { [$0 == .abort ? "abort" : "leave"] } ?? []
        case .close: return ["close"]
        case .read(_, let reads): return [reads ? "read" : "pause"]
        case .fetch(let use):
            fetched = use
            return [Self.name(use)]
        case .deriveKey(_, _, let challenge):
            self.challenge = challenge
            return ["derive"]
        case .report(let report):
            guard case .stateChanged(let from, _) = report.event, from != report.status.state else { return [] }
            return ["\(report.status.state)"]
        case .tell(.roomChanged): return ["in another room"]
        case .tell(.displaced): return ["displaced"]
        case .answer(let calls, .room(let error)): return calls.map { _ in error == nil ? "joined" : "not joined" }
        case .readOnLater: return ["read on later"]
        default: return []
        }
    }

    private mutating func note(_ packet: Packet) {
        switch packet {
        case .publish(let publish):
            published[publish.topic] = publish.payload
            if let id = publish.packetID { unanswered.append(id) }
        case .subscribe(let subscribe):
            lastRequest = subscribe.packetID
            subscriptionID = subscribe.properties.subscriptionID
        case .unsubscribe(let unsubscribe): lastRequest = unsubscribe.packetID
        case .connect(let connect):
            lastConnect = connect
            unanswered = []
            proof = connect.properties.authenticationData.map { String(buffer: $0) } ?? ""
        case .auth(let auth): proof = auth.properties.authenticationData.map { String(buffer: $0) } ?? ""
        default: break
        }
    }

    private mutating func note(_ action: Session.Action) {
        switch action {
        case .answer(let calls, let answer): told += calls.map { "call \($0.rawValue): \(Self.text(answer))" }
        case .commit(let changes): remembered += changes
        case .tell(.subscriptionAnswered): break
        case .tell(let news): told.append(Self.text(news))
        case .deliver(let message, let wanting):
            told += wanting.map { "give \(String(decoding: message.payload.bytes, as: UTF8.self)) to \($0.rawValue)" }
        case .loadConsumers: told.append("read the inbox")
        case .lookUp(let endpoint, let watch):
            let addresses = watch.addresses.compactMap(\.ipAddress).joined(separator: " ")
            told.append("watch \(endpoint.rawValue): \(addresses)")
        case .measure: told.append("measure")
        case .watchCredential: told.append("watch the credential")
        case .isDown: told.append("is not disconnecting")
        case .report(let report):
            self.report = report
            if case .qualityChanged(let quality) = report.event { told.append("quality \(quality)") }
        case .dial, .send, .letGo, .close, .read, .readOnLater, .fetch, .deriveKey, .commitNumbered, .commitAnswered,
            .load,
            .statusChanged:
            break
        }
    }

    private static func text(_ answer: Session.Answer) -> String {
        switch answer {
        case .subscription(let answer): answer.map { "granted \($0.code?.rawValue ?? 0x80)" } ?? "no answer"
        case .outcome(let outcome): outcome.rawValue
        case .turn, .keyTurn: "its turn"
        case .room(let error): error.map(\.message) ?? "in the room"
        }
    }

    private static func text(_ news: Session.News) -> String {
        switch news {
        case .accepted(let sequence): "accepted \(sequence)"
        case .notAccepted(let sequence): "not accepted \(sequence)"
        case .delivered(let sequence, _): "delivered \(sequence)"
        case .rejected(let message): "rejected \(message.sequence)"
        case .messageDropped(let message): "dropped \(message.sequence)"
        case .newMessageDropped(let topic): "dropped a new message on \(topic)"
        case .repeated(let count): "repeated \(count)"
        case .messageRefused(let message): "refused \(message.topic)"
        case .serverLowersQoS: "the server lowers QoS"
        case .inboxFull(let isFull): isFull ? "the inbox is full" : "the inbox has room"
        case .consumerMissed(let name): "\(name) missed messages"
        case .subscriptionChanged(let filter): "subscription changed \(filter)"
        case .subscriptionAnswered(let filter): "subscription answered \(filter)"
        case .participants(let changes): "participants \(changes.count)"
        case .roomChanged(let old): "left \(old?.name ?? "no room")"
        case .presenceRefused(let answer): "presence refused \(answer.code?.rawValue ?? 0)"
        case .presenceKept(let topic, let answer): "presence kept on \(topic) \(answer.code?.rawValue ?? 0)"
        case .publicationChanged(let change): "publication \(change.topic) \(change.state.rawValue)"
        case .publicationRefused(let topic, _): "publication \(topic) is refused"
        case .dropped(let count): "the inbox dropped \(count)"
        case .granted: "accepted by the server"
        case .unknownSession: "unknown session"
        case .olderCopy: "older copy"
        case .displaced: "displaced"
        case .cannotLook(let sentence): "cannot look: \(sentence)"
        case .credentialNotRenewed(let sentence): "credential not renewed: \(sentence)"
        case .credentialTaken: "the server has taken the credential"
        case .successorFailed(let sentence): "successor failed: \(sentence)"
        }
    }

    private static func name(_ use: SecretUse) -> String {
        switch use {
        case .proxy: "fetch the proxy's password"
        case .knock: "fetch the proxy's password for a knock"
        case .login: "fetch"
        case .renewal: "fetch another"
        }
    }

    private static func name(_ packet: Packet) -> String {
        switch packet {
        case .connect(let connect):
            (["CONNECT"] + [connect.clientID].filter { $0 != "c" } + [connect.password.map { String(buffer: $0) }])
                .compactMap(\.self).joined(separator: " ")
        case .publish(let publish):
            publish.retain && publish.payload.readableBytes == 0
                ? "PUBLISH \(publish.topic), cleared" : "PUBLISH \(publish.topic)"
        case .subscribe: "SUBSCRIBE"
        case .unsubscribe: "UNSUBSCRIBE"
        case .pingreq: "PINGREQ"
        case .auth: "AUTH"
        case .disconnect(let disconnect):
            disconnect.reasonCode == .disconnectWithWill ? "DISCONNECT with will" : "DISCONNECT"
        case .connack, .puback, .pubrec, .pubrel, .pubcomp, .suback, .unsuback, .pingresp: "\(packet.kind)"
        }
    }
}

extension ServerAnswer {
    static let grantedQoS1 = ServerAnswer.said(.grantedQoS1)
    static let notAuthorized = ServerAnswer.said(.notAuthorized)
    static let quotaExceeded = ServerAnswer.said(.quotaExceeded)
    static let packetTooLarge = ServerAnswer.said(.packetTooLarge)
    static let payloadFormatInvalid = ServerAnswer.said(.payloadFormatInvalid)
}
