import ControlAPI
import HoldfastClient
import Support

/// Publishes numbered messages as fast as the daemon accepts them, even while it is being killed.
actor Publisher {
    private let daemon: DaemonProcess
    private let session: String
    private let topics: String
    private let isNumberInTopic: Bool
    private let batch: Int
    private var pause: Duration
    /// The numbers that were accepted, in order, by the topic of the stream.
    private(set) var accepted: [String: [Int]] = [:]
    private var next = 1
    private var isStopped = false
    private var isHeld = false
    /// Whether it is held, and the daemon has answered everything that was given to it before.
    private(set) var isResting = false

    /// - Parameters:
    ///   - topics: what the topics of the two streams begin with; their last level is the QoS.
    ///   - isNumberInTopic: whether each message has a topic of its own, with its number as one more level.
    ///   - batch: how many messages of each stream are given to the daemon at a time.
    init(
        _ daemon: DaemonProcess, session: String = "main", topics: String, isNumberInTopic: Bool = false,
        batch: Int = 50,
        pause: Duration = .zero
    ) {
        self.daemon = daemon
        self.session = session
        self.topics = topics
        self.isNumberInTopic = isNumberInTopic
        self.batch = batch
        self.pause = pause
    }

    /// Publishes one stream of QoS 1 and one of QoS 2, each with its numbers in order.
    func run() async {
        while !isStopped {
            isResting = isHeld
            if isHeld {
                try? await Task.sleep(for: .milliseconds(20))
                continue
            }
            let first = next
            next += batch
            let numbers = first..<next
            let requests = numbers.flatMap { number in
                [QoS.atLeastOnce, .exactlyOnce].map { qos in
                    let stream = "\(topics)/\(qos.rawValue)"
                    return MessagePublishMethod.Parameters(
                        session: session, topic: isNumberInTopic ? "\(stream)/\(number)" : stream,
                        payload: .init(text: "\(number)"), qos: qos)
                }
            }
            do {
                let answers = try await daemon.client.callInOrder(
                    MessagePublishMethod.self, requests, timeout: .seconds(180))
                for (request, answer) in zip(requests, answers) {
                    guard (try? answer.get())?.accepted == true else { continue }
                    accepted["\(topics)/\(request.qos.rawValue)", default: []].append(
                        Int(request.payload.text ?? "") ?? 0)
                }
                try? await Task.sleep(for: pause)
            } catch {
                // The daemon is not running at the moment.
                try? await Task.sleep(for: .milliseconds(20))
            }
        }
    }

    /// Sets the pause after each batch from now on.
    func slow(to pause: Duration) { self.pause = pause }

    /// Publishes nothing while it is held.
    func hold(_ isHeld: Bool) { self.isHeld = isHeld }

    func stop() { isStopped = true }

    var count: Int { accepted.values.reduce(0) { $0 + $1.count } }
}
