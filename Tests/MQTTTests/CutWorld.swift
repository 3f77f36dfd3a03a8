import MQTT
import NIOCore
import Support

/// The machine and a server, joined by a link that is cut after a number of bytes in one direction.
///
/// Disk and kernel take no time: the tests are about the bytes on the way and the packets that one side has answered
/// and the other has not seen. (The random walks have slow disks.)
struct CutWorld {
    enum Direction: CaseIterable {
        case toServer, toClient
    }

    /// Where the link is cut.
    struct Cut: CustomStringConvertible {
        var direction: Direction
        /// Exactly this many bytes arrive.
        var byte: Int
        /// Whether the server still processes what has arrived, or dies before that.
        var isAnswered = true

        var description: String {
            "cut \(direction == .toServer ? "to the server" : "to the client") after \(byte) bytes"
                + (isAnswered ? "" : ", which are not answered")
        }
    }

    private(set) var machine: MQTTClientMachine
    private(set) var store = ModelStore()
    private(set) var server = ModelServer()
    private let configuration: MQTTClientMachine.Configuration
    private let now = Timestamp(rawValue: 1_700_000_000_000)

    private var answers: [MQTTClientMachine.Input] = []
    private var uplink = ByteBuffer()
    private var downlink = ByteBuffer()
    private var cut: Cut?
    private var wantsClose = false
    private(set) var isOpen = false
    /// What has arrived on this connection.
    private(set) var arrived: [Direction: [UInt8]] = [:]

    private(set) var delivered: [MessageSequence: Int] = [:]
    private(set) var inbox: [String] = []
    private(set) var violations: [String] = []

    /// A client that has subscribed, at a server that has its session.
    init(_ version: ProtocolVersion) throws {
        configuration = MQTTClientMachine.Configuration(version: version, clientID: "me")
        machine = MQTTClientMachine(configuration: configuration)
        try subscribe()
        connect()
        close()
    }

    mutating func subscribe() throws {
        var actions: [MQTTClientMachine.Action] = []
        try machine.subscribe(Subscription(filter: "to/client", qos: .exactlyOnce), at: now, into: &actions)
        carryOut(actions)
    }

    mutating func publish(_ payload: String, _ qos: QoS) throws {
        var actions: [MQTTClientMachine.Action] = []
        _ = try machine.publish(
            OutboundMessage(topic: "t", payload: ByteBuffer(string: payload), qos: qos), at: now, into: &actions)
        carryOut(actions)
        settle()
    }

    mutating func publishToClient(_ payload: String, _ qos: QoS) {
        if !server.publish(payload, qos: qos) { violations.append("the server has no session to keep \(payload)") }
        settle()
    }

    /// Until it is cut, or nothing is on the way any more.
    mutating func connect(until cut: Cut? = nil) {
        self.cut = cut
        arrived = [.toServer: [], .toClient: []]
        isOpen = true
        server.connectionOpened()
        handle(.connectionOpened(MQTTCredentials(), forceCleanStart: false))
        settle()
    }

    mutating func close(answering: Int = 0) {
        guard isOpen else { return }
        isOpen = false
        wantsClose = false
        server.connectionClosed(answering: answering)
        uplink.clear()
        downlink.clear()
        handle(.connectionClosed)
        settle()
    }

    mutating func loseServersSession() {
        server.loseSession()
    }

    /// The client is killed and restarts from what is on its disk.
    mutating func killClient() throws {
        machine = MQTTClientMachine(configuration: configuration, restoring: store.session)
        answers = []
        try subscribe()
        settle()
    }

    // MARK: Carrying out

    private mutating func handle(_ input: MQTTClientMachine.Input) {
        var actions: [MQTTClientMachine.Action] = []
        machine.handle(input, at: now, into: &actions)
        carryOut(actions)
    }

    private mutating func carryOut(_ actions: [MQTTClientMachine.Action]) {
        for action in actions {
            switch action {
            case .event(.delivered(let sequence, _)): delivered[sequence, default: 0] += 1
            case .event(.received(let message)): inbox.append(String(buffer: message.payload))
            case .event(.protocolViolation(_, let sentence, _)): violations.append(sentence)
            case .event: break
            case .commit(let changes, let number):
                store.commit(changes)
                answers.append(.committed(number))
            case .load(let after, let messages, let bytes):
                answers.append(.loaded(store.load(after: after, messages: messages, bytes: bytes)))
            case .send(let bytes, let flush):
                if isOpen { uplink.writeImmutableBuffer(bytes) }
                if let flush { answers.append(.flushed(flush)) }
            case .close: wantsClose = true
            }
        }
    }

    private mutating func settle() {
        while true {
            if !answers.isEmpty {
                handle(answers.removeFirst())
            } else if wantsClose {
                return close()
            } else if isOpen, let bytes = next(.toServer) {
                server.receive(bytes)
                if isCut(.toServer) { return close(answering: cut?.isAnswered == true ? server.unansweredCount : 0) }
            } else if isOpen, server.unansweredCount > 0 {
                // One by one, so that there is a moment between any two packets.
                server.answerNext()
                takeOutput()
            } else if isOpen, takeOutput(), let bytes = next(.toClient) {
                handle(.received(bytes))
                if isCut(.toClient) {
                    // The machine's disk takes no time.
                    while !answers.isEmpty { handle(answers.removeFirst()) }
                    return close()
                }
            } else {
                return
            }
        }
    }

    @discardableResult
    private mutating func takeOutput() -> Bool {
        var output = server.takeOutput()
        downlink.writeBuffer(&output)
        return downlink.readableBytes > 0
    }

    private func isCut(_ direction: Direction) -> Bool {
        cut?.direction == direction && cut?.byte == arrived[direction]?.count
    }

    /// After how many bytes to cut this connection, so that each packet of a direction once arrived, once did not, and once
    /// did in part: how much of a packet is there makes no difference, because it is discarded.
    func places(_ direction: Direction) -> [Int] {
        guard let bytes = arrived[direction] else { return [] }
        var places = [0]
        var index = 0
        while index < bytes.count {
            places.append(index + 1)
            // Section 2.1.4 of MQTT 5: the remaining length is at most four bytes, of which the last is below 128.
            var length = 0
            var shift = 0
            repeat {
                index += 1
                length += Int(bytes[index] & 0x7f) << shift
                shift += 7
            } while bytes[index] >= 0x80
            index += 1 + length
            places.append(index)
        }
        return places
    }

    /// What arrives of the bytes on the way: no more than up to the cut.
    private mutating func next(_ direction: Direction) -> ByteBuffer? {
        var length = direction == .toServer ? uplink.readableBytes : downlink.readableBytes
        guard length > 0 else { return nil }
        let passed = arrived[direction]?.count ?? 0
        if let cut, cut.direction == direction { length = min(length, cut.byte - passed) }
        let bytes = direction == .toServer ? uplink.readSlice(length: length) : downlink.readSlice(length: length)
        arrived[direction, default: []] += bytes?.readableBytesView ?? ByteBuffer().readableBytesView
        return bytes
    }
}
