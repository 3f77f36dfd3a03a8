import ControlAPI
import Logging
import NIOCore
import NetworkPath
import SessionCore
import Systemd

/// Logs who was denied what, at most a few times a minute for each user.
actor DenialLog {
    nonisolated let eventLoop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { eventLoop.executor.asUnownedSerialExecutor() }

    private let logger: Logger
    private var pacers: [UInt32: JournalPacer] = [:]

    init(logger: Logger, eventLoop: any EventLoop) {
        self.logger = logger
        self.eventLoop = eventLoop
    }

    /// - Parameters:
    ///   - client: what the peer calls itself; anyone may call themselves anything.
    ///   - cause: the end of the sentence, for example "it needs the role control".
    func denied(_ method: String, to peer: Peer?, _ client: String?, because cause: String) {
        let (uid, pid, now) = (peer?.uid ?? .max, peer?.pid ?? 0, BootClock.now())
        if pacers[uid] == nil { pacers = pacers.filter { !$0.value.isIdle(at: now) } }
        switch pacers[uid, default: JournalPacer()].take(at: now) {
        case .write:
            let name = client.map { " (\(quoted($0)))" } ?? ""
            write("denied \(method) to uid \(uid), pid \(pid)\(name): \(cause)", uid)
        case .count(let until):
            _ = eventLoop.scheduleTask(in: .nanoseconds(max(0, now.duration(to: until).nanoseconds))) { [weak self] in
                self?.assumeIsolated { $0.summarize(uid) }
            }
        case .countMore:
            break
        }
    }

    private func summarize(_ uid: UInt32) {
        guard let count = pacers[uid]?.summary(), count > 0 else { return }
        write("denied \(count) more call\(count == 1 ? "" : "s") to uid \(uid) within a minute", uid)
    }

    private func write(_ sentence: String, _ uid: UInt32) {
        logger.notice(
            "\(sentence)", metadata: ["MESSAGE_ID": "\(MessageID.accessDenied)", "HOLDFAST_PEER_UID": "\(uid)"])
    }
}
